"""Every setting, and where its value comes from: an option of a command, the environment, the file, the default.

`Config` is what commands and the library read, `Settings` what a server does besides; each row is a setting. Nothing
else in Woolly reads the environment for settings, except `native` for its instruction set. The library takes keyword
arguments and asks here for one thing only: where models lie.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from woolly.errors import FileError, NotFoundError, RequestError, printable
from woolly.limits import LIMITS, SERVING, Serving
from woolly.settings import Duration, McpServer, ModelConfig, Processes, Setting, row, rows, user_path

KV_TYPES = ("f32", "f16", "q8")
LOG_LEVELS = ("debug", "info", "warning", "error")
HOST, PORT = "127.0.0.1", 8080
ELSEWHERE = ("WOOLLY_CONFIG", "WOOLLY_HOME", "WOOLLY_ISA", "WOOLLY_DISABLE_SIMD")  # read below, and by native


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of commands and the library."""

    # fmt: off
    folders: tuple[Path, ...]  # where models are looked for, in this order; the first is `models`
    hub: Path  # the hub cache of other programs; read, never written
    state: Path  # saved chats and what was typed in them, and a secret
    caches: Path  # what can be made again
    ollama: tuple[Path, ...] = ()  # where Ollama and LM Studio keep their models; read, never written
    lm_studio: tuple[Path, ...] = ()
    models: Path = row("models.models_dir", None, "where models lie, and downloads go", metavar="DIR",
                       environ="WOOLLY_MODELS_DIR", flags="--models-dir", aliases="models.models_directory")
    offline: bool = row("models.offline", False, "download nothing", environ="WOOLLY_OFFLINE")
    threads: int | None = row("engine.num_threads", None, "default: the physical cores that we may use", least=1,
                              most=1024, environ="WOOLLY_CPU_THREADS", flags="--threads -t",
                              aliases="performance.inference_threads")
    context: int | None = row("engine.max_context_length", None, "tokens of prompt and answer (default: the model's)",
                              least=1, environ="WOOLLY_CONTEXT", flags="--context --context-length",
                              aliases="performance.max_context_length")
    kv: str = row("engine.kv", "f16", "type of the keys and values kept; with --exact f32", words=KV_TYPES,
                  environ="WOOLLY_KV", flags="--kv")
    exact: bool = row("engine.exact", False, "compute with 16 bits where 8 are faster: the file's own meaning",
                      environ="WOOLLY_EXACT", flags="--exact")
    lora: tuple[str, ...] = row("engine.lora", (), "an adapter (LoRA) for the model, or for the first of several; "
                                "again for more", environ="WOOLLY_LORA", flags="--lora", metavar="FILE[=SCALE]")
    sequences: int = row("engine.max_batch_size", 16, "answers that a model computes at once", least=1, most=1024,
                         environ="WOOLLY_SEQUENCES", flags="--sequences")
    cache: int | None = row("engine.cache_bytes", None, "bytes of keys and values for all answers (default: a whole "
                            "context for each, up to a quarter of the free memory)", least=1, most=2**46,
                            flags="--cache", metavar="BYTES")
    cache_dir: Path | None = row("engine.cache.dir", None, "keep the prefix cache in this folder, too (default: serve "
                                 "has one, other commands none)", environ="WOOLLY_CACHE_DIR", flags="--cache-dir",
                                 metavar="DIR")
    disk_bytes: int = row("engine.cache.disk_bytes", 2 << 30, "the most that the prefix cache takes there; 0: nothing",
                          most=2**46, flags="--disk-bytes", metavar="BYTES")
    draft: str = row("engine.draft", "text", "what guesses the next tokens of answers, so that some come sooner: a "
                     "smaller model of the same vocabulary, `text`: what the text says again, or `off`",
                     environ="WOOLLY_DRAFT", flags="--draft", metavar="MODEL")
    mcp_servers: Mapping[str, McpServer] = row("mcp.servers", {}, "servers of the Model Context Protocol whose tools a "
                                               "chat may use, each a table with a command or a url")
    mcp_timeout: float = row("mcp.default_timeout", 30.0, "seconds for each answer of such a server", least=0.1,
                             most=600)
    peer_python: str = row("bench.peer_python", "", "a Python that has llama_cpp, for `bench --against`; none: our own",
                           environ="WOOLLY_PEER_PYTHON")
    # fmt: on


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a server."""

    # fmt: off
    bind: tuple[str, ...] = row("bind", (), f"where to listen (default {HOST}:{PORT}); again for more",
                                environ="WOOLLY_BIND", flags="--bind -b", aliases="server.bind", metavar="HOST:PORT")
    host: str = row("server.host", "", "the same in two parts", environ="WOOLLY_HOST", flags="--host", metavar="HOST")
    ports: tuple[int, ...] = row("server.port", (), "0 takes a free one and prints it; again for more", most=65_535,
                                 environ="WOOLLY_PORT", flags="--port")
    ollama_port: int = row("server.ollama_port", 0, "listen there too; 11434 is where clients of Ollama look",
                           most=65_535, flags="--ollama-port", metavar="PORT")
    hosts: tuple[str, ...] = row("server.allowed_hosts", (), "names in `Host` that are ours beside the obvious ones")
    strict: bool = row("strict", False, "refuse unknown fields of a request", environ="WOOLLY_STRICT")
    use_model_defaults: bool = row(
        "models.use_model_defaults", False, "sample as the model's file recommends where a request says nothing"
    )
    keys: tuple[bytes, ...] = row("auth.api_keys", (), "a key to ask for; WOOLLY_API_KEY is not seen by other users",
                                  secret=True, environ="WOOLLY_API_KEY", flags="--api-key", metavar="KEY")  # SHA-256
    anonymous: bool = row("auth.allow_anonymous", True, "answer without a key, too; by default where there is none")
    token_secret: bytes = row("auth.jwt_secret", b"", "signs tokens; none: a random one for each start", secret=True)
    token_life_s: int = row("auth.jwt_expiration", 3600, "seconds for which a token is valid", least=1)
    known_rpm: int = row("rate_limit.authenticated_rpm", 0, "requests a minute of each key or address; 0: any number",
                         environ="WOOLLY_RATE_LIMIT", flags="--rate-limit", aliases="rate_limit.requests_per_minute")
    anonymous_rpm: int = row("rate_limit.anonymous_rpm", 0, "requests a minute of each address without a key",
                             environ="WOOLLY_RATE_LIMIT", flags="--rate-limit",
                             aliases="rate_limit.requests_per_minute")
    burst: int = row("rate_limit.burst_capacity", 10, "requests at once", least=1, aliases="rate_limit.burst_size")
    certificate: Path | None = row("tls.cert_path", None, "certificate of TLS")
    certificate_key: Path | None = row("tls.key_path", None, "key of the certificate")
    cors: bool = row("cors.enabled", True, "pages of other servers of this machine, and listed ones, may ask")
    origins: tuple[str, ...] = row("cors.allowed_origins", (), "web pages that may ask, separated by commas",
                                   flags="--cors-origins", metavar="LIST")
    cors_methods: tuple[str, ...] = row("cors.allowed_methods", (), "methods for them; none: all that there are")
    cors_headers: tuple[str, ...] = row("cors.allowed_headers", (), "headers for them; none: all that there are")
    cors_max_age: int = row("cors.max_age", 3600, "seconds for which a browser remembers this")
    mcp_urls: tuple[str, ...] = row("mcp.allowed_servers", (), "URLs of such servers that requests may name, with all "
                                    "that begins with one")
    default_model: str = row("models.default_model", "", "for a request that names none", environ="WOOLLY_MODEL")
    max_sessions: int = row("models.max_sessions", 10, "conversations that are kept for each caller", least=1)
    preload: tuple[str, ...] = row("models.preload_models", (), "models that are loaded at the start")
    keep_alive: Duration = row("models.keep_alive", -1, "how long a model that nobody uses stays loaded: seconds, or "
                               "a time as 5m; below 0: until another needs its memory", least=-1,
                               environ="WOOLLY_KEEP_ALIVE", flags="--keep-alive", metavar="TIME")
    max_loaded: int = row("models.max_loaded", 0, "models that are loaded at once; 0: as many as memory holds",
                          most=1024, environ="WOOLLY_MAX_LOADED_MODELS", flags="--max-loaded")
    manage_models: bool = row("models.manage", False, "clients may download and delete models; where there are keys, "
                              "those that have one", flags="--manage-models")
    fleet_key: str = row("fleet.key", "", "the secret that a gate and its replicas share; none: a fleet within one "
                         "machine", secret=True, environ="WOOLLY_FLEET_KEY")
    join: tuple[str, ...] = row("fleet.join", (), "be a replica of the gate at this URL; again for more",
                                environ="WOOLLY_JOIN", flags="--join", metavar="URL")
    advertise: str = row("fleet.url", "", "where gates reach this replica (default: its address as they see it)",
                         environ="WOOLLY_ADVERTISE", flags="--advertise", metavar="URL")
    replicas: Processes = row("fleet.replicas", 0, "answer with so many processes of this machine, each with its own "
                              "cores; auto: one for each memory node; 0: with this one", least=-1, most=256,
                              environ="WOOLLY_REPLICAS", flags="--replicas")
    insecure_fleet: bool = row("fleet.insecure", False, "a gate and its replicas may speak unencrypted beyond private "
                               "networks")
    aliases: Mapping[str, str] = row("aliases", {}, "other names of models")
    configs: tuple[ModelConfig, ...] = row("models.configs", (), "models with sizes of their own")
    log_level: str = row("logging.level", "info", "the least that is logged", words=LOG_LEVELS,
                         environ="WOOLLY_LOG_LEVEL", flags="--log-level -l")
    log_format: str = row("logging.format", "text", "of log lines", words=("text", "json"), environ="WOOLLY_LOG_FORMAT")
    log_file: Path | None = row("logging.file", None, "where log lines go; none: standard output")
    # fmt: on
    limits: Serving = SERVING
    models: tuple[Path, ...] = ()  # files given on the command line
    insecure: bool = False  # another address than loopback without a key, by express wish
    warnings: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Where to listen: each `bind`; a host and ports win over its parts, and each port is one more address."""
        pairs = [_address(bind) for bind in self.bind or (f"{HOST}:{PORT}",)]
        if self.host:
            pairs = [(self.host, port) for _, port in pairs]
        if self.ports:
            pairs = [(host, port) for host in dict.fromkeys(host for host, _ in pairs) for port in self.ports]
        if self.ollama_port:
            pairs += [(host, self.ollama_port) for host in dict.fromkeys(host for host, _ in pairs)]
        return tuple(pair for index, pair in enumerate(pairs) if pair[1] == 0 or pair not in pairs[:index])


SETTINGS = (*rows(Config), *rows(Settings), *rows(Serving))
BY_KEY = {key: one for one in reversed(SETTINGS) for key in one.keys}  # the first of two that share an older key
WITHOUT_EFFECT = (  # keys of older files, or the beginnings of several
    "mcp.",
    "performance.",
    "engine.device.",
    "engine.memory.",
    "engine.cache.",
    "engine.optimizations.",
    "engine.logging.",
    "gpu_layers",
    "use_gpu",
    "use_mlx",
)


@dataclass(frozen=True, slots=True)
class Found:
    """A value that somebody gave, and where."""

    value: Any
    source: str


def find_values(
    wanted: Iterable[Setting], flags: Mapping[str, Any], env: Mapping[str, str], file: Mapping[str, Any], path: Path
) -> dict[str, Found]:
    """The settings that are given, by name; `flags` are by name too. Text that is empty says nothing."""
    found = {}
    for one in wanted:
        variable = next((name for name in one.variables if env.get(name, "").strip()), None)
        key = next((key for key in one.keys if file.get(key, "") != ""), None)
        if flags.get(one.name) is not None:
            what = one.flags[0] if one.flags else one.name
            found[one.name] = Found(one.read(flags[one.name], what), "option")
        elif variable is not None:
            found[one.name] = Found(one.read(env[variable], variable), f"environment, {variable}")
        elif key is not None:
            found[one.name] = Found(one.read(file[key], f"{key} in '{printable(path)}'"), "file")
    return found


def read_config(environ: Mapping[str, str] | None = None, **flags: Any) -> Config:
    """The settings of a command; `flags` are its options by the names of Config's fields, None where not given."""
    env = os.environ if environ is None else environ
    found = find_values(rows(Config), flags, env, file_values(env), settings_file(env))
    values = {"models": _models(env)} | {name: one.value for name, one in found.items()}
    values.setdefault("kv", default_kv(values.get("exact", False)))
    user = _user(env)
    return Config(
        folders=(values["models"], user / ".woolly" / "models", Path("models")),
        hub=_hub(env, user),
        ollama=_ollama(env, user),
        lm_studio=(user / ".lmstudio" / "models", user / ".cache" / "lm-studio" / "models"),
        state=_state(env, user),
        caches=_caches(env, user),
        **values,
    )


def default_kv(exact: bool) -> str:
    """The type of the keys and values kept where nobody asks for one."""
    return "f32" if exact else "f16"


def check_arguments(**given: object) -> None:
    """Refuse what keyword arguments of the library cannot be."""
    for one in rows(Config):
        if one.name in given and (given[one.name] is not None or one.default is not None):
            one.check(given[one.name], one.name)


def read_setting(key: str, environ: Mapping[str, str] | None = None) -> Any:
    """The value of one setting alone, from the environment or the file."""
    env, one = os.environ if environ is None else environ, BY_KEY[key]
    found = find_values([one], {}, env, file_values(env), settings_file(env))
    return found[one.name].value if found else one.default


def settings_file(environ: Mapping[str, str] | None = None) -> Path:
    """Where settings are kept: the file that WOOLLY_CONFIG names, else one in the user's folder for settings."""
    env = os.environ if environ is None else environ
    if env.get("WOOLLY_CONFIG"):
        return user_path(env["WOOLLY_CONFIG"])
    if env.get("WOOLLY_HOME"):
        return user_path(env["WOOLLY_HOME"]) / "config.toml"
    if env.get("XDG_CONFIG_HOME"):
        return user_path(env["XDG_CONFIG_HOME"]) / "woolly" / "config.toml"
    folder = ("Library", "Application Support") if sys.platform == "darwin" else (".config",)
    return _user(env).joinpath(*folder, "woolly", "config.toml")


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file by their whole keys, as `engine.kv`; what they mean is not looked at."""
    return parse(file_text(path), f"the settings file '{printable(path)}'")


def file_text(path: Path) -> str:
    """The text of a settings file."""
    try:
        with path.open("rb") as file:
            raw = file.read(LIMITS.settings + 1)
        if len(raw) > LIMITS.settings:
            raise FileError(f"the settings file '{printable(path)}' has more than {LIMITS.settings:,} bytes")
        return raw.decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no settings file '{printable(path)}'") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"the settings file '{printable(path)}' cannot be read: {printable(error)}") from error


def parse(text: str, what: str) -> dict[str, Any]:
    """The same from the text of a file."""
    import tomllib  # only where there is a file: most commands start without it

    try:
        return dict(_flat(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{what} is not TOML: {printable(error)}") from None
    except RecursionError:
        raise RequestError(f"{what} has tables or lists within each other, too deep to be read") from None


def _flat(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in tree.items():
        one = BY_KEY.get(prefix + name)
        whole = not isinstance(value, dict) or (one is not None and one.kind.startswith("Mapping"))
        found += [(prefix + name, value)] if whole else _flat(value, f"{prefix}{name}.")
    return found


def file_values(env: Mapping[str, str]) -> dict[str, Any]:
    """What the settings file says; nothing where there is none and nobody named one."""
    path = settings_file(env)
    return read_file(path) if env.get("WOOLLY_CONFIG") or path.is_file() else {}


def near(name: str, names: Iterable[str] = BY_KEY) -> str:
    """The nearest name that there is, as the end of a sentence."""
    import difflib  # only for a name that is wrong

    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_keys(keys: Iterable[str]) -> list[str]:
    """A sentence for each key of a settings file that changes nothing."""
    return [
        f"the setting '{printable(key)}' has no effect in this version"
        if key.startswith(WITHOUT_EFFECT)
        else f"the setting '{printable(key)}' has no meaning{near(key)}"
        for key in keys
        if key not in BY_KEY
    ]


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each WOOLLY_ variable that means nothing."""
    env = os.environ if environ is None else environ
    known = [*ELSEWHERE, *(name for one in SETTINGS for name in one.variables)]
    return [
        f"the environment variable {printable(name)} has no meaning{near(name, known)}"
        for name in sorted(env)
        if name.startswith("WOOLLY_") and name not in known
    ]


def _address(bind: str) -> tuple[str, int]:
    host, _, digits = bind.rpartition(":")
    if not host or not digits.isascii() or not digits.isdigit() or len(digits) > 5 or int(digits) > 65535:
        raise RequestError(f"bind is '{printable(bind)}'; expected HOST:PORT", param="bind")
    return host.removeprefix("[").removesuffix("]"), int(digits)


def _user(env: Mapping[str, str]) -> Path:
    if env.get("HOME"):
        return Path(env["HOME"])
    try:
        return Path.home()
    except RuntimeError:  # no home, as in some containers: the current folder, as `./models` is read too
        return Path()


def _models(env: Mapping[str, str]) -> Path:
    if env.get("WOOLLY_HOME"):
        return user_path(env["WOOLLY_HOME"]) / "models"
    if env.get("XDG_DATA_HOME"):
        return user_path(env["XDG_DATA_HOME"]) / "woolly" / "models"
    data = ("Library", "Application Support") if sys.platform == "darwin" else (".local", "share")
    return _user(env).joinpath(*data, "woolly", "models")


def _state(env: Mapping[str, str], user: Path) -> Path:
    if env.get("WOOLLY_HOME"):
        return user_path(env["WOOLLY_HOME"]) / "state"
    if env.get("XDG_STATE_HOME"):
        return user_path(env["XDG_STATE_HOME"]) / "woolly"
    if sys.platform == "darwin":
        return user / "Library" / "Application Support" / "woolly" / "state"
    return user / ".local" / "state" / "woolly"


def _caches(env: Mapping[str, str], user: Path) -> Path:
    if env.get("WOOLLY_HOME"):
        return user_path(env["WOOLLY_HOME"]) / "cache"
    if env.get("XDG_CACHE_HOME"):
        return user_path(env["XDG_CACHE_HOME"]) / "woolly"
    return user.joinpath(*(("Library", "Caches") if sys.platform == "darwin" else (".cache",)), "woolly")


def _hub(env: Mapping[str, str], user: Path) -> Path:
    if env.get("HF_HUB_CACHE"):
        return user_path(env["HF_HUB_CACHE"])
    home = user_path(env["HF_HOME"]) if env.get("HF_HOME") else user / ".cache" / "huggingface"
    return home / "hub"


def _ollama(env: Mapping[str, str], user: Path) -> tuple[Path, ...]:
    if env.get("OLLAMA_MODELS"):
        return (user_path(env["OLLAMA_MODELS"]),)
    return user / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")  # the second is the service's own user
