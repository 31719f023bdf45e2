"""Show the settings and where each comes from, change one, or check a file.

    woolly config show                        every setting, its value, and where it came from
    woolly config show engine                 those whose names begin so
    woolly config set engine.num_threads 4    write it into the settings file, whole or not at all
    woolly config set auth.api_keys - < key   a value from standard input, so that no list of processes shows it
    woolly config check                       name every wrong line of the file and of the environment
    woolly config check server.toml           of another file

An option of a command wins over the environment, that over the file, that over the default.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from woolly import system
from woolly.cli.files import write_private
from woolly.cli.words import read_input
from woolly.config import FILE_KEYS, Config, read_config, read_file, settings_file, unknown_settings, user_path
from woolly.errors import NotFoundError, RequestError, WoollyError, printable

FAILED = 1
ALL = "`woolly config show` lists them all"
SECRETS = ("auth.api_keys", "auth.jwt_secret")  # never shown
ALIASES = {
    "bind": "server.host",
    "server.bind": "server.host",
    "models.models_directory": "models.models_dir",
    "rate_limit.requests_per_minute": "rate_limit.authenticated_rpm",
    "rate_limit.burst_size": "rate_limit.burst_capacity",
    "performance.max_context_length": "engine.max_context_length",
    "performance.inference_threads": "engine.num_threads",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A setting: its value, and where it came from."""

    key: str
    value: Any
    source: str


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s show [PREFIX] | set KEY VALUE | check [FILE]"
    parser.add_argument("action", choices=("show", "set", "check"), help="what to do")
    parser.add_argument("words", nargs="*", metavar="WORD", help="a key and its value, a prefix, or a file")
    parser.add_argument("-c", "--config", metavar="FILE", help="another settings file")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing where all is well")
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def call(args: argparse.Namespace) -> int:
    path = user_path(args.config) if args.config else settings_file()
    most = {"show": 1, "set": 2, "check": 1}[args.action]
    if len(args.words) > most or (args.action == "set" and len(args.words) < 2):
        expected = {"show": "at most a prefix", "set": "a key and a value", "check": "at most a file"}[args.action]
        raise RequestError(f"config {args.action} got {len(args.words)} words; expected {expected}")
    if args.action == "show":
        return _show(args, path)
    if args.action == "set":
        return _set(args, path)
    return _check(args, user_path(args.words[0]) if args.words else path, asked=bool(args.words or args.config))


def _show(args: argparse.Namespace, path: Path) -> int:
    rows = _rows(path, asked=bool(args.config))
    if args.words:
        rows = [row for row in rows if row.key.startswith(args.words[0])]
        if not rows:
            from woolly.server.settings import near

            raise RequestError(
                f"no setting begins with '{printable(args.words[0])}'",
                suggestion=near(args.words[0]).removeprefix("; ") or ALL,
            )
    if args.json:
        values = {row.key: {"value": row.value, "source": row.source} for row in rows}
        print(json.dumps({"file": str(path), "settings": values}, ensure_ascii=False))
        return 0
    if not args.quiet:
        print(f"settings file: {printable(path, 300)}{'' if path.is_file() else ' (not there)'}")
    wide = max(len(row.key) for row in rows)
    shown = [_shown(row.value) for row in rows]
    broad = min(40, max(map(len, shown)))
    for row, value in zip(rows, shown, strict=True):
        print(f"{row.key:<{wide}}  {value:<{broad}}  {row.source}")
    return 0


def _rows(path: Path, *, asked: bool) -> list[Row]:
    """Every setting with the value that counts."""
    from woolly.server.settings import KEYS, environ_values, read_settings

    environ = dict(os.environ) | ({"WOOLLY_CONFIG": str(path)} if asked else {})
    config = read_config(environ)
    settings = read_settings(environ=dict(environ), insecure=True)
    said = read_file(path) if asked or path.is_file() else {}
    spoken = environ_values(environ, [])
    values = _values(config, settings)
    rows = []
    for key in KEYS:
        if key in ALIASES:
            continue
        names = [key, *(alias for alias, real in ALIASES.items() if real == key)]
        if key == "server.port":
            names += ["bind", "server.bind"]
        short = FILE_KEYS.get(key, "")
        if short and environ.get(short):
            source = f"environment, {short}"
        elif any(name in spoken for name in names):
            source = f"environment, {_variable(next(name for name in names if name in spoken), environ)}"
        elif any(name in said for name in names):
            source = "file"
        else:
            source = "default"
        rows.append(Row(key, values[key], source))
    return rows


def _variable(key: str, environ: dict[str, str]) -> str:
    from woolly.server.settings import ENVIRON

    long = "WOOLLY_" + key.upper().replace(".", "__")
    return next((name for name, real in ENVIRON.items() if real == key and environ.get(name)), long)


def _values(config: Config, settings: Any) -> dict[str, Any]:
    threads = config.threads or settings.threads
    return {
        "strict": settings.strict,
        "server.host": settings.host,
        "server.port": [port for _, port in settings.addresses] if settings.more else settings.port,
        "server.allowed_hosts": list(settings.hosts),
        "auth.api_keys": f"{len(settings.keys)} (not shown)",
        "auth.jwt_secret": "(not shown)" if settings.token_secret else "random",
        "auth.jwt_expiration": settings.token_life_s,
        "rate_limit.authenticated_rpm": settings.known_rpm,
        "rate_limit.anonymous_rpm": settings.anonymous_rpm,
        "rate_limit.burst_capacity": settings.burst,
        "auth.allow_anonymous": settings.anonymous,
        "cors.enabled": settings.cors,
        "cors.allowed_origins": list(settings.origins),
        "cors.allowed_methods": list(settings.cors_methods),
        "cors.allowed_headers": list(settings.cors_headers),
        "cors.max_age": settings.cors_max_age,
        "tls.cert_path": str(settings.certificate or ""),
        "tls.key_path": str(settings.certificate_key or ""),
        "aliases": dict(settings.aliases),
        "models.models_dir": str(config.models),
        "models.default_model": settings.default_model,
        "models.preload_models": list(settings.preload),
        "models.configs": [model.name for model in settings.configs],
        "models.offline": config.offline,
        "engine.max_context_length": config.context or settings.context,
        "engine.max_batch_size": settings.places,
        "engine.num_threads": threads or system.cores(),
        "engine.kv": config.kv,
        "logging.level": settings.log_level,
        "logging.format": "json" if settings.log_json else "text",
        "logging.file": str(settings.log_file or ""),
    } | {f"limits.{name}": value for name, value in asdict(settings.limits).items()}


def _shown(value: Any) -> str:
    if value is None:
        return "the model's own"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(printable(word) for word in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{printable(name)} = {printable(word)}" for name, word in value.items()) or "none"
    return printable(value, 300) if value != "" else "none"


def _set(args: argparse.Namespace, path: Path) -> int:
    from woolly.server.settings import KEYS, SEVERAL, near, parsed, typed
    from woolly.server.toml import changed, read_text

    key, word = args.words
    if key not in KEYS:
        raise RequestError(
            f"there is no setting '{printable(key)}'", suggestion=near(key).removeprefix("; ") or ALL, param=key
        )
    text = read_input(lossy=False).strip() if word == "-" else word
    value = parsed(key, text)
    checked = typed(key, value)
    if key not in SEVERAL:  # one of several is written as it is, without the brackets of a list
        value = checked
    after = changed(read_text(path), key, value)
    write_private(
        path, after.encode(), suggestion="make room or change the permissions; WOOLLY_CONFIG names another file"
    )
    shown = "(not shown)" if key in SECRETS else value
    if args.json:
        print(json.dumps({"file": str(path), "key": key, "value": shown}, ensure_ascii=False))
    elif not args.quiet:
        print(f"{key} = {_shown(shown)} in {printable(path, 300)}")
    return 0


def _check(args: argparse.Namespace, path: Path, *, asked: bool) -> int:
    from woolly.server.settings import environ_values
    from woolly.server.toml import problems, read_text

    if asked and not path.is_file():
        raise NotFoundError(f"there is no settings file '{printable(path)}'")
    found = [(printable(path, 300), row.line, row.what) for row in problems(read_text(path))]
    warnings = unknown_settings()
    try:
        environ_values(os.environ, warnings)
        read_config(dict(os.environ) | {"WOOLLY_CONFIG": os.devnull})  # the environment alone
    except WoollyError as error:
        warnings.append(error.message)
    found += [("environment", 0, sentence) for sentence in warnings]
    if args.json:
        rows = [{"where": where, "line": line or None, "what": what} for where, line, what in found]
        print(json.dumps({"file": str(path), "problems": rows}, ensure_ascii=False))
    else:
        for where, line, what in found:
            print(f"{where}{f':{line}' if line else ''}: {what}")
        if not found and not args.quiet:
            print(f"{printable(path, 300)}: {'right' if path.is_file() else 'not there, so every default counts'}")
    return FAILED if found else 0
