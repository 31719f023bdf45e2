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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from woolly import system
from woolly.cli.input_text import read_input
from woolly.config import (
    BY_KEY,
    SETTINGS,
    file_values,
    find_values,
    near,
    read_config,
    settings_file,
    unknown_variables,
)
from woolly.config.rows import Setting
from woolly.errors import NotFoundError, RequestError, WoollyError, printable
from woolly.io.files import write_private
from woolly.system import user_path

FAILED = 1
ALL = "`woolly config show` lists them all"
NOT_SHOWN = "(not shown)"


@dataclass(frozen=True, slots=True)
class ShownSetting:
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
    rows = _shown_settings(path, asked=bool(args.config))
    if args.words:
        rows = [row for row in rows if row.key.startswith(args.words[0])]
        if not rows:
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
    shown = [_as_text(row.value) for row in rows]
    broad = min(40, max(map(len, shown)))
    for row, value in zip(rows, shown, strict=True):
        print(f"{row.key:<{wide}}  {value:<{broad}}  {row.source}")
    return 0


def _shown_settings(path: Path, *, asked: bool) -> list[ShownSetting]:
    """Every setting with its effective value; `bind` is shown as host and ports."""
    from woolly.server.settings import read_settings

    environ = dict(os.environ) | ({"WOOLLY_CONFIG": str(path)} if asked else {})
    config, settings = read_config(environ), read_settings(environ=dict(environ), insecure=True)
    values = find_values(SETTINGS, {}, environ, file_values(environ), path)
    shown = {
        "host": settings.addresses[0][0],
        "ports": [port for _, port in settings.addresses] if settings.addresses[1:] else settings.addresses[0][1],
        "threads": system.threads(config.engine.threads),
        "keys": f"{len(settings.keys)} {NOT_SHOWN}",
        "token_secret": NOT_SHOWN if settings.token_secret else "random",
    }
    rows = []
    for one in SETTINGS:
        written = values.get(one.name) or (values.get("bind") if one.name in ("host", "ports") else None)
        value = shown.get(one.name, _value(one, config, config.engine, settings, settings.limits))
        if one.name != "bind":
            rows.append(ShownSetting(one.key, value, written.source if written else "default"))
    return rows


def _value(one: Setting, *tables: object) -> Any:
    value = next(getattr(table, one.name) for table in tables if hasattr(table, one.name))
    if isinstance(value, tuple):
        return [getattr(part, "name", part) for part in value]
    if isinstance(value, Mapping):
        return {name: str(one) for name, one in value.items()}
    return str(value) if isinstance(value, Path) else "" if value is None and one.kind == "Path" else value


def _as_text(value: Any) -> str:
    if value is None:
        return "chosen when a model is loaded"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(printable(word) for word in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{printable(name)} = {printable(word)}" for name, word in value.items()) or "none"
    return printable(value, 300) if value != "" else "none"


def _set(args: argparse.Namespace, path: Path) -> int:
    from woolly.cli.toml import changed, read_text

    key, word = args.words
    if key not in BY_KEY:
        raise RequestError(
            f"there is no setting '{printable(key)}'", suggestion=near(key).removeprefix("; ") or ALL, param=key
        )
    text = read_input(lossy=False).strip() if word == "-" else word
    value = BY_KEY[key].plain(text, f"the setting {key}")
    after = changed(read_text(path), key, value)
    write_private(
        path, after.encode(), suggestion="make room or change the permissions; WOOLLY_CONFIG names another file"
    )
    shown = NOT_SHOWN if BY_KEY[key].secret else value
    if args.json:
        print(json.dumps({"file": str(path), "key": key, "value": shown}, ensure_ascii=False))
    elif not args.quiet:
        print(f"{key} = {_as_text(shown)} in {printable(path, 300)}")
    return 0


def _check(args: argparse.Namespace, path: Path, *, asked: bool) -> int:
    from woolly.cli.toml import problems, read_text

    if asked and not path.is_file():
        raise NotFoundError(f"there is no settings file '{printable(path)}'")
    faults = [(printable(path, 300), row.line, row.what) for row in problems(read_text(path))]
    warnings = unknown_variables()
    for one in SETTINGS:
        try:
            find_values([one], {}, os.environ, {}, path)
        except WoollyError as error:
            warnings.append(error.message)
    faults += [("environment", 0, sentence) for sentence in warnings]
    if args.json:
        rows = [{"where": where, "line": line or None, "what": what} for where, line, what in faults]
        print(json.dumps({"file": str(path), "problems": rows}, ensure_ascii=False))
    else:
        for where, line, what in faults:
            print(f"{where}{f':{line}' if line else ''}: {what}")
        if not faults and not args.quiet:
            print(f"{printable(path, 300)}: {'right' if path.is_file() else 'not there, so every default counts'}")
    return FAILED if faults else 0
