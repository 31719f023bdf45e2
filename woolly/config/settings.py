"""Every setting, as a row: `EngineOptions` has those of a model, `Config` these and those of commands, `Settings` the
further ones of a server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypedDict

from woolly.config.rows import Duration, McpServer, ModelConfig, Networks, Processes, Scalar, row, rows
from woolly.config.serving import SERVING, Serving
from woolly.errors import RequestError, printable

PathText: TypeAlias = str | os.PathLike[str]
Adapted: TypeAlias = PathText | Iterable[PathText] | Mapping[str, PathText]  # adapters: FILE or FILE=SCALE

KV_TYPES = ("f32", "f16", "q8")
LOG_LEVELS = ("debug", "info", "warning", "error")
HOST, PORT = "127.0.0.1", 8080
OTHER_VARIABLES = (
    "WOOLLY_CONFIG",
    "WOOLLY_HOME",
    "WOOLLY_ISA",
    "WOOLLY_DISABLE_SIMD",
)  # not settings: config/sources.py and device/cpu/machine.py read them


class EngineArguments(TypedDict, total=False):
    """The options of an engine as keyword arguments of the library, which takes more kinds of values."""

    context: int | None
    threads: int | None
    kv: str | None
    exact: bool
    batch: int
    sequences: int
    cache: int | None
    lora: Adapted
    cache_dir: PathText | None
    disk_bytes: int
    draft: PathText
    thinking: str
    chat_template_kwargs: Mapping[str, Scalar]
    tokenizer: bool


WIDER = ("lora", "cache_dir", "draft", "chat_template_kwargs")  # of these, those that their rows do not check


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is loaded and answers: one value from the settings, or the arguments of an LLM, to the loader."""

    # fmt: off
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
    thinking: str = row("models.thinking", "on", "whether a model that can think first does, where a request does not "
                        "say: on, off, or template: as its chat template has it", words=("on", "off", "template"),
                        environ="WOOLLY_THINKING", flags="--thinking")
    chat_template_kwargs: Mapping[str, Scalar] = row("models.chat_template_kwargs", {}, "variables of chat templates, "
                                                     "for requests that do not set them: a table, or JSON",
                                                     environ="WOOLLY_CHAT_TEMPLATE_KWARGS", metavar="JSON",
                                                     flags="--chat-template-kwargs")
    batch: int = 512  # the most tokens of one step
    tokenizer: bool = True  # False: for token ids alone
    # fmt: on


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
    offline: bool = row("models.offline", False, "download nothing", environ="WOOLLY_OFFLINE", flags="--offline")
    engine: EngineOptions = field(default_factory=EngineOptions, metadata={"rows": EngineOptions})
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
    proxies: Networks = row("server.trusted_proxies", (), "addresses or networks of your proxies, whose "
                            "X-Forwarded-For tells who asks")
    strict: bool = row("strict", False, "refuse unknown fields of a request", environ="WOOLLY_STRICT")
    sampling: str = row("server.sampling", "recommended", "where a request says nothing: as the model's file or its "
                        "publisher recommends, or `openai`: temperature 1 and no tokens left out",
                        words=("recommended", "openai"))
    defaults: Mapping[str, float] = row("defaults", {}, "sampling parameters and the seed of requests that do not say: "
                                        "a table, or as temperature=0.2,seed=1", environ="WOOLLY_DEFAULTS")
    keys: tuple[bytes, ...] = row("auth.api_keys", (), "a key to ask for; WOOLLY_API_KEY is not seen by other users",
                                  secret=True, environ="WOOLLY_API_KEY", flags="--api-key", metavar="KEY")  # SHA-256
    keys_file: Path | None = row("auth.api_keys_file", None, "a file with such keys, one on each line",
                                 flags="--api-key-file", metavar="FILE")
    anonymous: bool = row("auth.allow_anonymous", True, "answer without a key, too; by default where there is none")
    token_secret: bytes = row("auth.jwt_secret", b"", "signs tokens; none: a random one for each start", secret=True)
    token_life_s: int = row("auth.jwt_expiration", 3600, "seconds for which a token is valid", least=1)
    known_rpm: int = row("rate_limit.authenticated_rpm", 0, "requests a minute of each key or address; 0: any number",
                         environ="WOOLLY_RATE_LIMIT", flags="--rate-limit", aliases="rate_limit.requests_per_minute")
    anonymous_rpm: int = row("rate_limit.anonymous_rpm", 0, "requests a minute of each address without a key",
                             environ="WOOLLY_RATE_LIMIT", flags="--rate-limit",
                             aliases="rate_limit.requests_per_minute")
    burst: int = row("rate_limit.burst_capacity", 10, "requests at once", least=1, aliases="rate_limit.burst_size")
    certificate: Path | None = row("tls.cert_path", None, "certificate of TLS", flags="--tls-cert", metavar="FILE")
    certificate_key: Path | None = row("tls.key_path", None, "key of the certificate", flags="--tls-key",
                                       metavar="FILE")
    cors: bool = row("cors.enabled", True, "pages of other servers of this machine, and listed ones, may ask")
    origins: tuple[str, ...] = row("cors.allowed_origins", (), "web pages that may ask, separated by commas",
                                   flags="--cors-origins", metavar="LIST")
    cors_methods: tuple[str, ...] = row("cors.allowed_methods", (), "methods for them; none: all that there are")
    cors_headers: tuple[str, ...] = row("cors.allowed_headers", (), "headers for them; none: all that there are")
    cors_max_age: int = row("cors.max_age", 3600, "seconds for which a browser remembers this")
    mcp_urls: tuple[str, ...] = row("mcp.allowed_servers", (), "URLs of such servers that requests may name, with all "
                                    "that begins with one")
    default_model: str = row("models.default_model", "", "for a request that names none, or none that is "
                             "here", environ="WOOLLY_MODEL")
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
                         "machine, whose clients need no key", secret=True, environ="WOOLLY_FLEET_KEY")
    join: tuple[str, ...] = row("fleet.join", (), "be a replica of the gate at this URL; again for more",
                                environ="WOOLLY_JOIN", flags="--join", metavar="URL")
    advertise: str = row("fleet.url", "", "where gates reach this replica (default: its address as they see it)",
                         environ="WOOLLY_ADVERTISE", flags="--advertise", metavar="URL")
    replicas: Processes = row("fleet.replicas", 0, "answer with so many processes of this machine, each with its own "
                              "cores; auto: one for each memory node; 0: with this one", least=-1, most=256,
                              environ="WOOLLY_REPLICAS", flags="--replicas")
    insecure_fleet: bool = row("fleet.insecure", False, "a gate and its replicas may speak unencrypted beyond private "
                               "networks")
    aliases: Mapping[str, str] = row("aliases", {}, "other names of models; `*` stands for all that mean none")
    configs: tuple[ModelConfig, ...] = row("models.configs", (), "models with sizes of their own")
    log_level: str = row("logging.level", "info", "the least that is logged", words=LOG_LEVELS,
                         environ="WOOLLY_LOG_LEVEL", flags="--log-level -l")
    log_format: str = row("logging.format", "text", "of log lines", words=("text", "json"), environ="WOOLLY_LOG_FORMAT")
    log_file: Path | None = row("logging.file", None, "where log lines go; none: standard output", flags="--log-file",
                                metavar="FILE")
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


def _address(bind: str) -> tuple[str, int]:
    host, _, digits = bind.rpartition(":")
    if not host or not digits.isascii() or not digits.isdigit() or len(digits) > 5 or int(digits) > 65535:
        raise RequestError(f"bind is '{printable(bind)}'; expected HOST:PORT", param="bind")
    return host.removeprefix("[").removesuffix("]"), int(digits)
