"""The settings of a server: flags over the environment over a TOML file over the defaults.

KEYS is the whole list. A key `auth.api_keys` of the file is `WOOLLY_AUTH__API_KEYS` in the environment; some have a
short name there too. Unknown keys are a warning with the nearest known one.
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

from woolly.config import LOG_LEVELS, read_file, settings_file
from woolly.errors import RequestError, printable
from woolly.limits import SERVING, Serving

HOST, PORT = "127.0.0.1", 8080
LOG_FORMATS = ("text", "json")
SHORT_KEY = 20  # characters; a shorter key can be guessed

KEYS: dict[str, type] = {
    "bind": str,
    "strict": bool,
    "server.bind": str,
    "server.host": str,
    "server.port": int,
    "server.allowed_hosts": list,
    "auth.api_keys": list,
    "auth.allow_anonymous": bool,
    "cors.allowed_origins": list,
    "models.models_dir": str,
    "models.models_directory": str,
    "models.default_model": str,
    "models.preload_models": list,
    "models.offline": bool,
    "engine.max_context_length": int,
    "engine.num_threads": int,
    "engine.kv": str,
    "logging.level": str,
    "logging.format": str,
    "logging.file": str,
} | {f"limits.{row.name}": float if isinstance(row.default, float) else int for row in dataclasses.fields(Serving)}

ENVIRON = {  # short names
    "WOOLLY_BIND": "bind",
    "WOOLLY_HOST": "server.host",
    "WOOLLY_PORT": "server.port",
    "WOOLLY_MODEL": "models.default_model",
    "WOOLLY_API_KEY": "auth.api_keys",
    "WOOLLY_LOG_LEVEL": "logging.level",
    "WOOLLY_LOG_FORMAT": "logging.format",
}
SECRET = ("WOOLLY_API_KEY", "WOOLLY_AUTH__API_KEYS")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server is told."""

    host: str = HOST
    port: int = PORT
    hosts: tuple[str, ...] = ()  # names in `Host` that are ours beside the obvious ones
    keys: tuple[bytes, ...] = field(default=(), repr=False)  # SHA-256 of each key
    anonymous: bool = True  # whether somebody without a key may ask
    insecure: bool = False  # another address than loopback without a key, by express wish
    origins: tuple[str, ...] = ()  # web pages that may ask beside those of this machine
    models: tuple[Path, ...] = ()  # files given on the command line
    models_dir: Path | None = None
    default_model: str = ""
    preload: tuple[str, ...] = ()
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
    def loopback(self) -> bool:
        return is_loopback(self.host)


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
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    for name in SECRET:
        env.pop(name, None)
    return settings_of(values, warnings, insecure)


def settings_of(values: Mapping[str, Any], warnings: list[str], insecure: bool) -> Settings:
    """The settings that these values of KEYS mean together."""
    host, port = _address(values)
    raw = [str(key) for key in values.get("auth.api_keys", ()) if str(key)]
    warnings += [f"an API key has fewer than {SHORT_KEY} characters" for key in raw if len(key) < SHORT_KEY]
    keys = tuple(hashlib.sha256(key.encode()).digest() for key in raw)
    limits = {name.removeprefix("limits."): v for name, v in values.items() if name.startswith("limits.")}
    for name, value in limits.items():
        if not 0 <= value <= 2**40:
            raise RequestError(f"limits.{name} is {value}; expected a number that is not negative", param=name)
    local = is_loopback(host)
    if not local and not keys and not insecure:
        raise RequestError(
            f"{printable(host)} can be reached by other machines, and there is no API key",
            suggestion="set WOOLLY_API_KEY, or say --insecure if everybody may use this server",
            param="host",
        )
    level = values.get("logging.level", "info")
    form = values.get("logging.format", "text")
    for name, value, known in (("logging.level", level, LOG_LEVELS), ("logging.format", form, LOG_FORMATS)):
        if value not in known:
            raise RequestError(f"{name} is '{printable(value)}'; expected one of {', '.join(known)}", param=name)
    models_dir = values.get("models.models_dir") or values.get("models.models_directory")
    return Settings(
        host=host,
        port=port,
        hosts=tuple(str(name).lower() for name in values.get("server.allowed_hosts", ())),
        keys=keys,
        anonymous=bool(values.get("auth.allow_anonymous", not keys and (local or insecure))),
        insecure=insecure and not local and not keys,
        origins=tuple(map(str, values.get("cors.allowed_origins", ()))),
        models_dir=Path(models_dir).expanduser() if models_dir else None,
        default_model=values.get("models.default_model", ""),
        preload=tuple(map(str, values.get("models.preload_models", ()))),
        context=values.get("engine.max_context_length"),
        threads=values.get("engine.num_threads"),
        kv=values.get("engine.kv"),
        log_level=level,
        log_json=form == "json",
        log_file=Path(values["logging.file"]).expanduser() if values.get("logging.file") else None,
        strict=values.get("strict", False),
        limits=dataclasses.replace(SERVING, **limits),
        warnings=tuple(warnings),
    )


def _address(values: Mapping[str, Any]) -> tuple[str, int]:
    """Where to listen: `bind` is HOST:PORT, `host` and `port` win over its parts."""
    host, port = HOST, PORT
    bind = values.get("bind") or values.get("server.bind")
    if bind:
        name, colon, digits = bind.rpartition(":")
        if not colon or not digits.isdigit() or not name:
            raise RequestError(f"bind is '{printable(bind)}'; expected HOST:PORT", param="bind")
        host, port = name.removeprefix("[").removesuffix("]"), int(digits)
    host, port = values.get("server.host", host), values.get("server.port", port)
    if not 0 <= port <= 65535:
        raise RequestError(f"port is {port}; expected a number from 0 to 65535", param="port")
    return host, port


def _file(path: Path, *, needed: bool) -> tuple[dict[str, Any], list[str]]:
    if not needed and not path.is_file():
        return {}, []
    values: dict[str, Any] = {}
    warnings: list[str] = []
    for name, value in read_file(path).items():
        if name in KEYS:
            values[name] = typed(name, value)
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
    if kind is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind is bool and text.lower() in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        return text.lower() in ("1", "true", "yes", "on")
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
    if type(value) is not kind:
        wanted = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}[kind]
        raise RequestError(f"the setting {name} is '{printable(value)}'; expected {wanted}", param=name)
    return value


def near(name: str) -> str:
    """The nearest key that there is, as the end of a sentence."""
    close = difflib.get_close_matches(name, KEYS, n=1)
    return f"; did you mean {close[0]}?" if close else ""
