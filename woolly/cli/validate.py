"""Measure a server and judge it: speed, text, counts, memory, load, each by a gate that can fail.

    woolly validate                              everything, with the default model, by a server of its own
    woolly validate --quick                      the most important in two minutes
    woolly validate model.gguf --url http://127.0.0.1:8080     a server that runs, of any maker
    woolly validate --test load_testing --test ole             these categories alone
    woolly validate --save before.json           keep the figures; later: --compare before.json
    woolly validate --test comparative --against llama-server  beside another server with the same file

MODEL is the file that the server is said to answer with: its tokenizer and its arithmetic are what answers are held
against. The report (JSON, Markdown, HTML) goes to validation_results. Ends with 0 where all gates hold, 1 where one
fails, 2 where something could not be measured.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from woolly.cli.find import find_model
from woolly.cli.status import status
from woolly.config import read_config, read_setting
from woolly.errors import RequestError, WoollyError, printable
from woolly.store import DEFAULT

if TYPE_CHECKING:
    from woolly.validate.settings import Settings
    from woolly.validate.subject import Subject

UNMEASURED = 2
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
MARKS = {"pass": "holds", "fail": "FAILS", "not measured": "NOT MEASURED", "does not apply": "-"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a path or name (default smollm2)")
    parser.add_argument("--url", metavar="URL", help="a server that runs; without it, one is started")
    parser.add_argument("--quick", action="store_true", help="the most important categories, two minutes at the most")
    parser.add_argument("--test", action="append", default=[], metavar="CATEGORY", help="this one; may be repeated")
    parser.add_argument("--gate", metavar="PHASE", help="the gates up to phase1 ... phase5 alone (default phase5)")
    parser.add_argument("--duration", metavar="TIME", help="of reliability, as 90, 30m or 1h (default 1h)")
    parser.add_argument("--against", metavar="PEER", help="comparative: a URL, or the path of a llama-server")
    parser.add_argument("--save", metavar="FILE", help="keep the report for --compare")
    parser.add_argument("--compare", metavar="FILE", help="regression: a report of --save, of this machine and model")
    parser.add_argument("--config", metavar="FILE", help="settings in JSON: woolly, models, tests, reporting")
    parser.add_argument("--output", metavar="DIR", help="where the report goes (default validation_results)")
    parser.add_argument("--skip-server-check", action="store_true", help="do not ask first whether the server answers")
    parser.add_argument("-q", "--quiet", action="store_true", help="no word on what is being done")


def call(args: argparse.Namespace) -> int:
    try:
        return _validate(args)
    except WoollyError as error:
        print(f"woolly: error: {error}", file=sys.stderr)
        return UNMEASURED


def _validate(args: argparse.Namespace) -> int:
    from woolly.validate import validate  # NumPy and the native core: not for `--help`
    from woolly.validate.categories.regression import read_saved
    from woolly.validate.gates import PHASES, exit_code
    from woolly.validate.report.files import save, write_report

    phase = args.gate or "phase5"
    if phase not in PHASES:
        raise RequestError(f"--gate is '{printable(phase)}', expected {', '.join(PHASES)}", param="--gate")
    settings = _settings(args)
    categories = _categories(args, settings)
    saved = read_saved(args.compare) if args.compare else None
    say = status(quiet=args.quiet)
    say("reading the model")
    with _subject(args, settings) as subject:
        report = validate(subject, categories, phase=phase, saved=saved, say=say)
    say("")
    _print(report)
    for path in write_report(report, Path(args.output or settings.reporting.output_dir)):
        print(f"report  {printable(path, 300)}")
    if args.save:
        save(report, Path(args.save))
    return exit_code([row["state"] for row in report["gates"]])


def _settings(args: argparse.Namespace) -> Settings:
    import msgspec

    from woolly.validate.settings import read_settings, shortened

    settings = read_settings(args.config)
    settings = shortened(settings) if args.quick else settings
    tests = settings.tests
    if args.duration is not None:
        match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([smh]?)", args.duration)
        if match is None or not 0 < float(match[1]) * UNITS[match[2]] <= 7 * 86400:
            raise RequestError(
                f"--duration is '{printable(args.duration)}', expected a time as 90, 30m or 1h", param="--duration"
            )
        seconds = float(match[1]) * UNITS[match[2]]
        tests = msgspec.structs.replace(tests, reliability=msgspec.structs.replace(tests.reliability, duration=seconds))
    if args.against is not None:
        tests = msgspec.structs.replace(
            tests, comparative=msgspec.structs.replace(tests.comparative, compare_with=args.against)
        )
    return msgspec.structs.replace(settings, tests=tests)


def _categories(args: argparse.Namespace, settings: Settings) -> list[str]:
    """The categories of --test; without it all that can be measured, or those of --quick."""
    from woolly.validate.settings import CATEGORIES, QUICK

    for name in args.test:
        if name not in CATEGORIES:
            raise RequestError(
                f"there is no category '{printable(name)}'",
                suggestion=f"known are {', '.join(CATEGORIES)}",
                param="--test",
            )
    peer, saved = settings.tests.comparative.compare_with, args.compare
    if "comparative" in args.test and not peer:
        raise RequestError("comparative needs a peer", suggestion="name one with --against", param="--test")
    if "regression" in args.test and not saved:
        raise RequestError("regression needs a saved run", suggestion="name one with --compare", param="--test")
    chosen = set(args.test) or set(QUICK if args.quick else CATEGORIES) - {"comparative", "regression"}
    chosen |= ({"comparative"} if peer and not args.test else set()) | ({"regression"} if saved else set())
    chosen |= {"inference_speed"} if args.save or "regression" in chosen else set()
    return [name for name in CATEGORIES if name in chosen]


@contextmanager
def _subject(args: argparse.Namespace, settings: Settings) -> Iterator[Subject]:
    """The server of --url, or one that is started here, with its model file and its process."""
    from dataclasses import replace
    from urllib.parse import urlsplit

    from woolly import system
    from woolly.validate.client import Client, check_url
    from woolly.validate.process import listening_pid, woolly_server
    from woolly.validate.subject import Subject, check_health, model_name, read_file, wait_ready
    from woolly.validate.yardstick import Yardstick

    place, named = settings.woolly, settings.models[0] if settings.models else None
    word = args.model or (named.path or named.name if named else "") or DEFAULT
    path = find_model(word, read_config(), quiet=args.quiet)
    url = args.url or (f"http://{place.host or '127.0.0.1'}:{place.port or 8080}" if place.host or place.port else "")
    url = check_url(url) if url else ""
    file, threads = read_file(path), system.cores()
    yardstick = Yardstick(file.card.size, threads)

    def subject(url: str, pid: int | None, started: Any) -> Subject:
        client = Client(url, key=place.api_key or _key(), timeout_s=place.inference_timeout)
        if not args.skip_server_check:
            check_health(client)
        client = replace(client, model=model_name(client, path))
        return Subject(client, file, settings, pid, started, yardstick)

    if url:
        where = urlsplit(url)
        near = where.hostname in ("127.0.0.1", "localhost", "::1")
        port = where.port or (443 if where.scheme == "https" else 80)
        yield subject(url, listening_pid(port) if near else None, None)
        return
    with woolly_server(path, seconds=place.timeout) as (own, started):
        own_subject = subject(own, started.pid, started)
        wait_ready(own_subject.client, place.timeout)
        yield own_subject


def _key() -> str:
    """The first key of the settings, which a server that is started here requires."""
    keys = read_setting("auth.api_keys")
    return keys[0].decode() if keys else ""


def _print(report: dict[str, Any]) -> None:
    """Print each gate on a line."""
    from woolly.validate.report.markdown import must, summary, value

    model, machine = report["model"], report["machine"]
    print(f"{printable(model['name'])} ({printable(model['file'])}), {machine['processor']}, {machine['state']} cores")
    for row in report["gates"]:
        name, why = row["name"].replace("_", " "), f": {row['why']}" if row["why"] and row["state"] != "pass" else ""
        print(f"{row['id']:<4} {name:<22} {value(row):>20}  {must(row):<16} {MARKS[row['state']]}{why}")
    print(summary(report))
