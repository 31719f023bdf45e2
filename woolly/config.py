"""One frozen Config from the settings file, the environment and the flags of a command, each over the one before.

Nothing else in Woolly reads the environment for settings, except `native` for its
instruction set and `server.settings` for what a server is told. The library takes
keyword arguments and asks here for one thing only: where models lie.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from woolly.errors import FileError, NotFoundError, RequestError, printable
from woolly.limits import LIMITS

KV_TYPES = ("f32", "f16", "q8")
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
LOG_LEVELS = ("debug", "info", "warning", "error")
KNOWN = (
    "WOOLLY_API_KEY",  # those of the server are read by server.settings
    "WOOLLY_BIND",
    "WOOLLY_CONFIG",
    "WOOLLY_CONTEXT",
    "WOOLLY_CPU_THREADS",
    "WOOLLY_DISABLE_SIMD",  # these two choose the instruction set and are read by native
    "WOOLLY_HOME",
    "WOOLLY_HOST",
    "WOOLLY_ISA",
    "WOOLLY_KV",
    "WOOLLY_LOG_FORMAT",
    "WOOLLY_LOG_LEVEL",
    "WOOLLY_MODEL",
    "WOOLLY_MODELS_DIR",
    "WOOLLY_OFFLINE",
    "WOOLLY_PEER_PYTHON",
    "WOOLLY_PORT",
    "WOOLLY_RATE_LIMIT",
    "WOOLLY_STRICT",
)

# What commands and the library read of the settings file, and the name in the environment that wins over it. The
# server's own keys are `server.settings.KEYS`, of which these are some.
TABLES = ("aliases",)  # keys whose value is a table with names of the user's own
FILE_KEYS = {
    "models.models_dir": "WOOLLY_MODELS_DIR",
    "models.offline": "WOOLLY_OFFLINE",
    "engine.num_threads": "WOOLLY_CPU_THREADS",
    "engine.max_context_length": "WOOLLY_CONTEXT",
    "engine.kv": "WOOLLY_KV",
    "logging.level": "WOOLLY_LOG_LEVEL",
}


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one process."""

    models: Path  # downloads go here
    folders: tuple[Path, ...]  # where models are looked for, in this order; the first is `models`
    hub: Path  # the hub cache of other programs; read, never written
    state: Path  # saved chats and what was typed in them
    ollama: tuple[Path, ...] = ()  # where Ollama and LM Studio keep their models; read, never written
    lm_studio: tuple[Path, ...] = ()
    threads: int | None = None  # None: what system.cores() says
    context: int | None = None  # None: the model's own, as far as it fits
    kv: str = "f16"
    offline: bool = False
    log_level: str = "warning"
    peer_python: str = ""  # a Python that has llama_cpp, for `bench --against`; empty: our own


def read_config(
    environ: Mapping[str, str] | None = None,
    *,
    threads: int | None = None,
    context: int | None = None,
    kv: str | None = None,
) -> Config:
    """The settings: a flag (a keyword that is not None) wins over the environment, that over the file, that over the
    default."""
    env = _with_file(os.environ if environ is None else environ)
    models = _models(env)
    user = _user(env)
    return Config(
        models=models,
        folders=(models, user / ".woolly" / "models", Path("models")),
        hub=_hub(env, user),
        ollama=_ollama(env, user),
        lm_studio=(user / ".lmstudio" / "models", user / ".cache" / "lm-studio" / "models"),
        state=_state(env, user),
        threads=threads if threads is not None else _count(env, "WOOLLY_CPU_THREADS"),
        context=context if context is not None else _count(env, "WOOLLY_CONTEXT"),
        kv=kv if kv is not None else _word(env, "WOOLLY_KV", KV_TYPES, "f16"),
        offline=_flag(env, "WOOLLY_OFFLINE"),
        log_level=_word(env, "WOOLLY_LOG_LEVEL", LOG_LEVELS, "warning"),
        peer_python=env.get("WOOLLY_PEER_PYTHON", ""),
    )


def user_path(text: str | os.PathLike[str]) -> Path:
    """A path as a user writes it: `~` is a home. That of a user who is not here stays a name, which nothing has."""
    return Path(os.path.expanduser(text))


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
    rows: list[tuple[str, Any]] = []
    for name, value in tree.items():
        whole = not isinstance(value, dict) or prefix + name in TABLES
        rows += [(prefix + name, value)] if whole else _flat(value, f"{prefix}{name}.")
    return rows


def _with_file(env: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with what the settings file says for names that it leaves out; a wrong value is refused."""
    path = settings_file(env)
    if not path.is_file() and not env.get("WOOLLY_CONFIG"):
        return env
    values, found = read_file(path), dict(env)
    for key, name in FILE_KEYS.items():
        if key in values:
            text = file_value(key, values[key], f"{key} in '{printable(path)}'")
            if not env.get(name):
                found[name] = text
    return found


def file_value(key: str, value: object, what: str) -> str:
    """A value of the file as the environment would say it, if it is one of those that are allowed."""
    if key == "models.models_dir":
        if not isinstance(value, str) or not value:
            raise RequestError(f"{what} is '{printable(value)}'; expected the name of a folder", param=key)
        return value
    text = str(value).lower() if isinstance(value, str | bool | int) else "another type"
    if key == "models.offline":
        _flag({what: text}, what)
    elif key in ("engine.num_threads", "engine.max_context_length"):
        _count({what: text}, what)
    else:
        words, default = (KV_TYPES, "f16") if key == "engine.kv" else (LOG_LEVELS, "warning")
        _word({what: text}, what, words, default)
    return text


def unknown_settings(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each WOOLLY_ variable that means nothing, with the nearest name that does."""
    env = os.environ if environ is None else environ
    sentences = []
    for name in sorted(env):
        if name.startswith("WOOLLY_") and name not in KNOWN and "__" not in name:  # sections: server.settings
            near = difflib.get_close_matches(name, KNOWN, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the known ones are {', '.join(KNOWN)}"
            sentences.append(f"the environment variable {printable(name)} has no meaning; {hint}")
    return sentences


def _user(env: Mapping[str, str]) -> Path:
    if env.get("HOME"):
        return Path(env["HOME"])
    try:
        return Path.home()
    except RuntimeError:  # no home, as in some containers: the current folder, as `./models` is read too
        return Path()


def _models(env: Mapping[str, str]) -> Path:
    if env.get("WOOLLY_MODELS_DIR"):
        return user_path(env["WOOLLY_MODELS_DIR"])
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


def _hub(env: Mapping[str, str], user: Path) -> Path:
    if env.get("HF_HUB_CACHE"):
        return user_path(env["HF_HUB_CACHE"])
    home = user_path(env["HF_HOME"]) if env.get("HF_HOME") else user / ".cache" / "huggingface"
    return home / "hub"


def _ollama(env: Mapping[str, str], user: Path) -> tuple[Path, ...]:
    if env.get("OLLAMA_MODELS"):
        return (user_path(env["OLLAMA_MODELS"]),)
    return user / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")  # the second is the service's own user


def _count(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        raise RequestError(f"{name} is '{printable(text)}'; expected a whole number of at least 1", param=name)
    return int(text)


def _word(env: Mapping[str, str], name: str, words: tuple[str, ...], default: str) -> str:
    text = env.get(name, "").strip().lower() or default
    if text not in words:
        raise RequestError(f"{name} is '{printable(text)}'; expected one of {', '.join(words)}", param=name)
    return text


def _flag(env: Mapping[str, str], name: str) -> bool:
    return _word(env, name, (*YES, *NO), "0") in YES
