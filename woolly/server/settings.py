"""The settings of a server: flags over the environment over a TOML file over the defaults.

KEYS is the whole list. A key `auth.api_keys` of the file is `WOOLLY_AUTH__API_KEYS` in the environment; some have a
short name there too. Unknown keys are a warning with the nearest known one; those in WITHOUT_EFFECT, which older files
have, are a warning that says so.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import ipaddress
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from woolly.config import LOG_LEVELS, NO, YES, read_file, settings_file, user_path
from woolly.errors import RequestError, printable
from woolly.limits import SERVING, Serving

HOST, PORT = "127.0.0.1", 8080
PLACES = 4
LOG_FORMATS = ("text", "json")
SEVERAL = ("bind", "server.bind", "server.port")  # one or a list
SHORT_KEY = 20  # characters; a shorter key can be guessed
MOST = 2**40  # of a limit: beyond every machine, and no counter overflows at it

KEYS: dict[str, type] = {
    "bind": list,
    "strict": bool,
    "server.bind": list,
    "server.host": str,
    "server.port": list,
    "server.allowed_hosts": list,
    "auth.api_keys": list,
    "auth.allow_anonymous": bool,
    "auth.jwt_secret": str,
    "auth.jwt_expiration": int,
    "rate_limit.authenticated_rpm": int,
    "rate_limit.anonymous_rpm": int,
    "rate_limit.requests_per_minute": int,
    "rate_limit.burst_capacity": int,
    "rate_limit.burst_size": int,
    "cors.enabled": bool,
    "cors.allowed_origins": list,
    "cors.allowed_methods": list,
    "cors.allowed_headers": list,
    "cors.max_age": int,
    "tls.cert_path": str,
    "tls.key_path": str,
    "aliases": dict,
    "models.models_dir": str,
    "models.models_directory": str,
    "models.default_model": str,
    "models.preload_models": list,
    "models.offline": bool,
    "models.configs": list,
    "engine.max_context_length": int,
    "performance.max_context_length": int,
    "engine.max_batch_size": int,
    "engine.num_threads": int,
    "performance.inference_threads": int,
    "engine.kv": str,
    "logging.level": str,
    "logging.format": str,
    "logging.file": str,
} | {f"limits.{row.name}": float if isinstance(row.default, float) else int for row in dataclasses.fields(Serving)}

WITHOUT_EFFECT = (  # keys of older files, or the beginnings of several
    "models.max_sessions",
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
ENVIRON = {  # short names
    "WOOLLY_BIND": "bind",
    "WOOLLY_HOST": "server.host",
    "WOOLLY_PORT": "server.port",
    "WOOLLY_MODEL": "models.default_model",
    "WOOLLY_API_KEY": "auth.api_keys",
    "WOOLLY_RATE_LIMIT": "rate_limit.requests_per_minute",
    "WOOLLY_STRICT": "strict",
    "WOOLLY_LOG_LEVEL": "logging.level",
    "WOOLLY_LOG_FORMAT": "logging.format",
}
SECRET = ("WOOLLY_API_KEY", "WOOLLY_AUTH__API_KEYS", "WOOLLY_AUTH__JWT_SECRET")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model under a name of the settings, with its own sizes."""

    name: str
    path: Path
    context: int | None = None
    places: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server is told."""

    host: str = HOST
    port: int = PORT
    more: tuple[tuple[str, int], ...] = ()  # further addresses
    both: bool = True  # ::1 too, where the machine has it
    hosts: tuple[str, ...] = ()  # names in `Host` that are ours beside the obvious ones
    keys: tuple[bytes, ...] = field(default=(), repr=False)  # SHA-256 of each key
    anonymous: bool = True  # whether somebody without a key may ask
    token_secret: bytes = field(default=b"", repr=False)  # empty: a random one for each start
    token_life_s: int = 3600
    known_rpm: int = 0  # requests a minute of each key; 0: any number
    anonymous_rpm: int = 0  # of each address
    burst: int = 10
    certificate: Path | None = None  # of TLS, with its key
    certificate_key: Path | None = None
    insecure: bool = False  # another address than loopback without a key, by express wish
    cors: bool = True  # pages of other servers of this machine, and listed ones, may ask
    origins: tuple[str, ...] = ()  # web pages that may ask beside those of this machine
    cors_methods: tuple[str, ...] = ()  # empty: all that there are
    cors_headers: tuple[str, ...] = ()
    cors_max_age: int = 3600
    models: tuple[Path, ...] = ()  # files given on the command line
    models_dir: Path | None = None
    default_model: str = ""
    preload: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)  # in lower case; other names of models
    configs: tuple[ModelConfig, ...] = ()
    places: int = PLACES  # requests that are with the engine of one model at once
    context: int | None = None
    threads: int | None = None
    kv: str | None = None
    log_level: str = "info"
    log_json: bool = False
    log_file: Path | None = None  # None: standard output
    strict: bool = False  # unknown fields of a request are refused
    limits: Serving = SERVING
    warnings: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return ((self.host, self.port), *self.more)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_settings(
    flags: Mapping[str, Any] | None = None,
    environ: MutableMapping[str, str] | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    insecure: bool = False,
) -> Settings:
    """Gather the settings; `flags` are keys of KEYS whose value is not None. A key in the environment is taken out
    of it, so that no child process inherits it."""
    env = os.environ if environ is None else environ
    values, warnings = _file(Path(file) if file else settings_file(env), needed=bool(file or env.get("WOOLLY_CONFIG")))
    values |= environ_values(env, warnings)
    values |= {name: typed(name, value) for name, value in (flags or {}).items() if value is not None}
    for name in SECRET:
        env.pop(name, None)
    return settings_of(values, warnings, insecure)


def settings_of(values: Mapping[str, Any], warnings: list[str], insecure: bool) -> Settings:
    """The settings that these values of KEYS mean together."""
    (host, port), *more = _addresses(values)
    keys = _keys(values, warnings)
    far = [name for name, _ in ((host, port), *more) if not is_loopback(name)]
    if far and not keys and not insecure:
        raise RequestError(
            f"{printable(far[0])} can be reached by other machines, and there is no API key",
            suggestion="set WOOLLY_API_KEY, or say --insecure if everybody may use this server",
            param="host",
        )
    rpm = values.get("rate_limit.requests_per_minute", 0)
    return Settings(
        host=host,
        port=port,
        more=tuple(more),
        both=not any(values.get(name) for name in ("bind", "server.bind", "server.host")),
        hosts=tuple(name.lower() for name in _texts(values, "server.allowed_hosts")),
        keys=keys,
        anonymous=bool(values.get("auth.allow_anonymous", not keys)),
        token_secret=_secret(values, warnings),
        token_life_s=_least(values, "auth.jwt_expiration", 3600, 1),
        known_rpm=_least(values, "rate_limit.authenticated_rpm", rpm),
        anonymous_rpm=_least(values, "rate_limit.anonymous_rpm", rpm),
        burst=_least(values, "rate_limit.burst_capacity", values.get("rate_limit.burst_size", 10), 1),
        certificate=_path(values, "tls.cert_path"),
        certificate_key=_path(values, "tls.key_path"),
        insecure=bool(far) and not keys,
        cors=values.get("cors.enabled", True),
        origins=_texts(values, "cors.allowed_origins"),
        cors_methods=_texts(values, "cors.allowed_methods"),
        cors_headers=_texts(values, "cors.allowed_headers"),
        cors_max_age=_least(values, "cors.max_age", 3600),
        models_dir=_path(values, "models.models_dir") or _path(values, "models.models_directory"),
        default_model=values.get("models.default_model", ""),
        preload=_texts(values, "models.preload_models"),
        aliases=_aliases(values.get("aliases", {})),
        configs=tuple(_model(row) for row in values.get("models.configs", ())),
        places=_least(values, "engine.max_batch_size", PLACES, 1),
        context=values.get("engine.max_context_length", values.get("performance.max_context_length")),
        threads=values.get("engine.num_threads", values.get("performance.inference_threads")),
        kv=values.get("engine.kv"),
        log_level=_one_of(values, "logging.level", "info", LOG_LEVELS),
        log_json=_one_of(values, "logging.format", "text", LOG_FORMATS) == "json",
        log_file=_path(values, "logging.file"),
        strict=values.get("strict", False),
        limits=_limits(values),
        warnings=tuple(warnings),
    )


def _keys(values: Mapping[str, Any], warnings: list[str]) -> tuple[bytes, ...]:
    """The digests of the keys that open the server."""
    keys = [key for key in _texts(values, "auth.api_keys") if key]
    warnings += [f"an API key has fewer than {SHORT_KEY} characters" for key in keys if len(key) < SHORT_KEY]
    return tuple(hashlib.sha256(key.encode()).digest() for key in keys)


def _secret(values: Mapping[str, Any], warnings: list[str]) -> bytes:
    secret: str = values.get("auth.jwt_secret", "")
    if secret and len(secret) < SHORT_KEY:
        warnings.append(f"auth.jwt_secret has fewer than {SHORT_KEY} characters")
    return secret.encode()


def _limits(values: Mapping[str, Any]) -> Serving:
    limits = {name.removeprefix("limits."): v for name, v in values.items() if name.startswith("limits.")}
    for name, value in limits.items():
        if not 0 <= value <= MOST:
            raise RequestError(
                f"limits.{name} is {value}; expected a number from 0 to {MOST:,}", param=f"limits.{name}"
            )
    return dataclasses.replace(SERVING, **limits)


def _texts(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(map(str, values.get(name, ())))


def _path(values: Mapping[str, Any], name: str) -> Path | None:
    return user_path(values[name]) if values.get(name) else None


def _one_of(values: Mapping[str, Any], name: str, default: str, known: tuple[str, ...]) -> str:
    value: str = values.get(name, default)
    if value not in known:
        raise RequestError(f"{name} is '{printable(value)}'; expected one of {', '.join(known)}", param=name)
    return value


def _addresses(values: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Where to listen: each `bind` is HOST:PORT; `host` and `port` win over their parts, and each port is one more."""
    pairs = []
    for bind in values.get("bind") or values.get("server.bind") or (f"{HOST}:{PORT}",):
        name, colon, digits = str(bind).rpartition(":")
        if not colon or not _is_port(digits) or not name:
            raise RequestError(f"bind is '{printable(bind)}'; expected HOST:PORT", param="bind")
        pairs.append((name.removeprefix("[").removesuffix("]"), int(digits)))
    host, ports = values.get("server.host"), values.get("server.port")
    if host:
        pairs = [(host, port) for _, port in pairs]
    if ports:
        pairs = [(name, port) for name in dict.fromkeys(name for name, _ in pairs) for port in ports]
    for _, port in pairs:
        if type(port) is not int or not 0 <= port <= 65535:
            raise RequestError(f"port is '{printable(port)}'; expected a number from 0 to 65535", param="port")
    return [pair for index, pair in enumerate(pairs) if pair[1] == 0 or pair not in pairs[:index]]


def _is_port(text: str) -> bool:
    """Whether a text can be the number of a port. A superscript is a digit too, and a thousand digits are no number."""
    return text.isascii() and text.isdigit() and len(text) <= 5


def _least(values: Mapping[str, Any], name: str, default: int, least: int = 0) -> int:
    value: int = values.get(name, default)
    if not least <= value <= 2**31 - 1:
        raise RequestError(f"{name} is {value}; expected a number of at least {least}", param=name)
    return value


def _aliases(given: Mapping[str, Any]) -> dict[str, str]:
    """Other names, in lower case. One step: what an alias means is a model, not another alias."""
    names = {name.lower(): target for name, target in given.items()}
    for name, target in names.items():
        if not isinstance(target, str) or not target:
            raise RequestError(f"aliases.{printable(name)} must be the name of a model", param="aliases")
        if target.lower() in names:
            raise RequestError(
                f"the alias '{printable(name)}' means '{printable(target)}', which is an alias too",
                suggestion="name the model itself",
                param="aliases",
            )
    return names


def _model(row: Any) -> ModelConfig:
    """A table of [[models.configs]]."""
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in ("name", "path")):
        raise RequestError("each of models.configs needs a name and a path", param="models.configs")
    for name in row.keys() - {"name", "path"}:
        if name not in ("context_size", "batch_size") or type(row[name]) is not int or row[name] < 1:
            raise RequestError(
                f"{printable(name)} of models.configs: expected context_size or batch_size, at least 1",
                param="models.configs",
            )
    return ModelConfig(row["name"], user_path(row["path"]), row.get("context_size"), row.get("batch_size"))


def _file(path: Path, *, needed: bool) -> tuple[dict[str, Any], list[str]]:
    if not needed and not path.is_file():
        return {}, []
    values: dict[str, Any] = {}
    warnings: list[str] = []
    for name, value in read_file(path).items():
        if name in KEYS:
            values[name] = typed(name, value)
        elif name.startswith(WITHOUT_EFFECT):
            warnings.append(f"the setting '{printable(name)}' has no effect in this version")
        else:
            warnings.append(f"the setting '{printable(name)}' has no meaning{near(name)}")
    return values, warnings


def environ_values(env: Mapping[str, str], warnings: list[str]) -> dict[str, Any]:
    """The values of KEYS that the environment holds."""
    values: dict[str, Any] = {}
    for name, text in env.items():
        key = ENVIRON.get(name)
        if key is None and name.startswith("WOOLLY_") and "__" in name:
            key = name.removeprefix("WOOLLY_").lower().replace("__", ".")
            if key not in KEYS:
                warnings.append(f"the environment variable {printable(name)} has no meaning{near(key)}")
                continue
        if key is not None and text:
            values[key] = typed(key, parsed(key, text))
    return values


def parsed(name: str, text: str) -> Any:
    """A value of the environment, which is always text, as the type of its key."""
    kind = KEYS[name]
    if name in SEVERAL:
        parts = [int(part) if name == "server.port" and _is_port(part.strip()) else part for part in text.split(",")]
        return parts[0] if len(parts) == 1 else parts
    if kind is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind is bool and text.lower() in (*YES, *NO):
        return text.lower() in YES
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def typed(name: str, value: Any) -> Any:
    """A value, if it is of the type of its key."""
    kind = KEYS[name]
    if kind is float and type(value) is int:
        return float(value)
    if name in SEVERAL and type(value) in (int, str):
        return [value]
    if type(value) is not kind:
        wanted = {
            str: "a text",
            int: "a whole number",
            float: "a number",
            bool: "true or false",
            list: "a list",
            dict: "a table",
        }[kind]
        raise RequestError(f"the setting {name} is '{printable(value)}'; expected {wanted}", param=name)
    return value


def near(name: str) -> str:
    """The nearest key that there is, as the end of a sentence."""
    close = difflib.get_close_matches(name, KEYS, n=1)
    return f"; did you mean {close[0]}?" if close else ""
