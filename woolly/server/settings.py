"""The settings of a server, gathered: options over the environment over the settings file over the defaults.

The rows are `config.Settings` and `serving.Serving`. What only makes sense together is decided here: keys are kept as
digests, and an address that other machines reach needs one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from woolly.config import SETTINGS, Settings, file_values, find_values, near, settings_file, unknown_keys
from woolly.config.rows import rows
from woolly.config.serving import SERVING, Serving
from woolly.errors import RequestError, printable
from woolly.io.files import read_text
from woolly.limits import LIMITS
from woolly.request import SAMPLING, Sampling

SHORT_KEY = 20  # characters; a shorter key can be guessed


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
    """Gather the settings; `flags` are by the names of fields. A secret in the environment is taken out of it, so that
    no child process inherits it."""
    env = os.environ if environ is None else environ
    named = {**env, "WOOLLY_CONFIG": os.fspath(file)} if file else env
    values = file_values(named)
    settings = settings_of(values, named, flags or {}, insecure=insecure)
    for name in (name for one in SETTINGS if one.secret for name in one.variables):
        env.pop(name, None)
    return dataclasses.replace(settings, warnings=(*unknown_keys(values), *settings.warnings))


def settings_of(
    values: Mapping[str, Any], env: Mapping[str, str], flags: Mapping[str, Any], *, insecure: bool
) -> Settings:
    """The settings that a file, the environment and options mean together."""
    path = settings_file(env)
    options = flags.get("defaults") or {}  # options are added to the table of the file, and do not replace it
    flags = {name: value for name, value in flags.items() if name != "defaults"}
    limits = {name: one.value for name, one in find_values(rows(Serving), flags, env, values, path).items()}
    named_values = {name: one.value for name, one in find_values(rows(Settings), flags, env, values, path).items()}
    named_values["defaults"] = _checked({**named_values.get("defaults", {}), **options})
    keys, secret = named_values.pop("keys", ()), named_values.pop("token_secret", "")
    if "keys_file" in named_values:
        keys = (*keys, *_keys_in(named_values["keys_file"]))
    warnings = [f"an API key has fewer than {SHORT_KEY} characters" for key in keys if len(key) < SHORT_KEY]
    if secret and len(secret) < SHORT_KEY:
        warnings.append(f"auth.jwt_secret has fewer than {SHORT_KEY} characters")
    settings = Settings(
        **{"anonymous": not keys} | named_values,
        keys=tuple(hashlib.sha256(key.encode()).digest() for key in keys),
        token_secret=secret.encode(),
        limits=dataclasses.replace(SERVING, **limits),
        warnings=tuple(warnings),
    )
    far = [host for host, _ in settings.addresses if not is_loopback(host)]
    if far and not keys and not insecure:
        raise RequestError(
            f"{printable(far[0])} can be reached by other machines, and there is no API key",
            suggestion="set WOOLLY_API_KEY, or say --insecure if everybody may use this server",
            param="host",
        )
    return dataclasses.replace(settings, insecure=bool(far) and not keys)


def _keys_in(path: Path) -> tuple[str, ...]:
    """The keys of a file; one that has none is refused, because the server would then ask for none."""
    keys = tuple(filter(None, map(str.strip, read_text(path, LIMITS.settings).splitlines())))
    if not keys:
        raise RequestError(f"{printable(path, 300)} has no key", suggestion="write one on each line", param="keys")
    return keys


def _checked(defaults: Mapping[str, float]) -> Mapping[str, float]:
    """The defaults of requests, after refusing names and values that no request could have."""
    names = (*SAMPLING, "seed")
    for name in defaults:
        if name not in names:
            raise RequestError(f"defaults.{printable(name)} has no meaning{near(name, names)}", param="defaults")
    Sampling(**defaults)  # type: ignore[arg-type]  # which checks each by its name
    return defaults
