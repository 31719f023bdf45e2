"""Answer a file of requests, as OpenAI's batches have them, into another: each once, in order, whatever happens.

    woolly batch in.jsonl out.jsonl                              models as the rows name them
    woolly batch in.jsonl out.jsonl --model smollm2              this one, whatever they name
    woolly batch in.jsonl out.jsonl --errors failed.jsonl        rows that fail go to a file of their own
    woolly batch in.jsonl out.jsonl --server http://host:8080    answered by a server, or by several behind one address
    woolly batch in.jsonl out.jsonl --ray auto --workers 8       answered on a Ray cluster

A line of IN is {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [...]}}; the
url may be /v1/completions, /v1/embeddings or /v1/responses, too. A job that was stopped or killed goes on where OUT
ends, by the same command, and gives the bytes that it would have given undisturbed. Ends with 1 where a row failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from woolly.cli.find import find_model
from woolly.cli.flags import add_flags, flag_values
from woolly.cli.status import status
from woolly.cli.terminal import can_redraw, time_left
from woolly.config import Config, Settings, read_config
from woolly.errors import RequestError
from woolly.limits import LIMITS

if TYPE_CHECKING:
    from woolly.server.batch import Input, Journal, RowAnswerer, Tally

LOGGED_S = 30.0  # between two lines of progress in a log
FAILED = 1
AT_ONCE, MOST_AT_ONCE = 16, 1024  # rows sent to a server at the same time
SPARE = 4  # rows that wait beside a full step, so that a free place is taken at once
MODEL_FLAGS = ("context", "threads", "kv", "exact", "lora", "sequences", "cache", "cache_dir", "draft")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help="a file of requests, a line each")
    parser.add_argument("output", metavar="OUT", help="where answers are appended, a line each")
    parser.add_argument("--errors", metavar="FILE", help="rows that fail go here and not to OUT")
    parser.add_argument("--model", metavar="MODEL", help="a path or name; answers every row, whatever it names")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what the seeds of rows are drawn from")
    parser.add_argument("--server", metavar="URL", help="ask this server; --model is one of its names")
    parser.add_argument("--api-key", dest="key", metavar="KEY", help="of that server; others do not see WOOLLY_API_KEY")
    parser.add_argument(
        "--concurrency",
        type=int,
        metavar="N",
        help=f"rows asked at once (default: a few more than --sequences; of a server {AT_ONCE})",
    )
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="answer on this Ray cluster; `auto` finds one, `local` begins one here"
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="with --ray, models that answer side by side"
    )
    add_flags(parser, *MODEL_FLAGS)
    parser.add_argument("--quiet", "-q", action="store_true", help="no word on how far it is")


def call(args: argparse.Namespace) -> int:
    from woolly.server.batch import Input, Journal, Tally, Terms
    from woolly.server.settings import read_settings

    if not 0 <= args.seed < 2**63:
        raise RequestError("--seed is a number from 0 to 9223372036854775807", param="--seed")
    if args.concurrency is not None and not 1 <= args.concurrency <= MOST_AT_ONCE:
        raise RequestError(f"--concurrency is a number from 1 to {MOST_AT_ONCE:,}", param="--concurrency")
    place = _choose_backend(args)
    if args.server is not None:  # before the settings are read, which takes the key out of the environment
        args.key = args.key or os.environ.get("WOOLLY_API_KEY", "")
    settings = dataclasses.replace(read_settings({}, insecure=True), log_level="error")  # no port, so no key
    model, answer = place(args, settings)
    with contextlib.ExitStack() as stack:
        most = {"most_bytes": LIMITS.batch_file, "most_rows": LIMITS.batch_rows}
        terms = Terms(args.seed, model)
        source = stack.enter_context(contextlib.closing(Input(Path(args.input), terms, settings.limits, **most)))
        errors = Path(args.errors) if args.errors else None
        journal = stack.enter_context(contextlib.closing(Journal(Path(args.output), errors, source=source.handle)))
        say = status(quiet=args.quiet)
        say("reading the rows")
        tally = Tally(source.check())
        tally.done, tally.failed = journal.resume(source.rows())
        say("")
        start = RunStart(tally.done, time.monotonic())
        if tally.done:
            _note(f"{tally.done:,} of {tally.rows:,} rows are there already", quiet=args.quiet)
        try:
            answer(source, journal, tally, _progress_reporter(start, say, quiet=args.quiet))
        except BaseException:
            say("")
            _note(f"{tally.done:,} of {tally.rows:,} rows are written; the same command goes on", quiet=args.quiet)
            raise
        say("")
        print(_summary(start, tally))
        return FAILED if tally.failed else 0


# Answers those rows of an input that the journal does not have yet, and reports its progress.
AnswerRows: TypeAlias = "Callable[[Input, Journal, Tally, Callable[[Tally], None]], None]"


def _choose_backend(args: argparse.Namespace) -> Callable[[argparse.Namespace, Settings], tuple[str, AnswerRows]]:
    """The function for this process, a server or Ray; it returns the model of all rows, or "", and an AnswerRows."""
    if args.key is not None and args.server is None:
        raise RequestError("--api-key is for --server", suggestion="name one", param="--api-key")
    if args.server is not None and args.ray is not None:
        raise RequestError("--server and --ray are two places; name one of them", param="--ray")
    if args.workers != 1 and args.ray is None:
        raise RequestError("--workers is for --ray", suggestion="name a cluster", param="--workers")
    return _at_server if args.server is not None else _on_ray if args.ray is not None else _in_process


def _in_process(args: argparse.Namespace, settings: Settings) -> tuple[str, AnswerRows]:
    """Rows are answered in this process."""
    config, path = _model(args)
    if path is not None:
        settings = dataclasses.replace(settings, models=(path,))

    @contextlib.asynccontextmanager
    async def open_ask() -> AsyncIterator[RowAnswerer]:
        from woolly.server.app import build
        from woolly.server.http.caller import Caller

        app = build(settings, config)
        try:
            if path is not None:
                # A model that cannot be loaded ends the command here, before any row fails.
                await app.models.load(path.name)
            yield app.row_answerer(Caller("batch", b"", 0.0, 0.0))
        finally:
            await app.close()

    return _name(path), _row_by_row(open_ask, args.concurrency or config.engine.sequences + SPARE)


def _at_server(args: argparse.Namespace, _settings: Settings) -> tuple[str, AnswerRows]:
    """Rows are answered by a server."""
    from woolly.cli.batch_server import row_answerer
    from woolly.cli.chat.remote import Server

    if flags := flag_values(args):
        names = ", ".join(flags)
        raise RequestError(f"with --server, its settings count: {names}", suggestion="give them to `woolly serve`")
    server = Server(args.server, args.key)
    at_once = args.concurrency or AT_ONCE

    @contextlib.asynccontextmanager
    async def open_ask() -> AsyncIterator[RowAnswerer]:
        with row_answerer(server, at_once) as ask:
            yield ask

    return args.model or "", _row_by_row(open_ask, at_once)


def _on_ray(args: argparse.Namespace, settings: Settings) -> tuple[str, AnswerRows]:
    """Rows are answered on the machines of a Ray cluster."""
    from woolly.server.app import build_row_answerer
    from woolly.server.batch.on_ray import Work, answer_on_ray

    if not 1 <= args.workers <= MOST_AT_ONCE:
        raise RequestError(f"--workers is a number from 1 to {MOST_AT_ONCE:,}", param="--workers")
    config, path = _model(args)
    model = args.model or ""
    if path is not None and Path(model).exists():  # a relative path would mean another file in a worker
        model = str(path.absolute())

    def answer(source: Input, journal: Journal, tally: Tally, report: Callable[[Tally], None]) -> None:
        nbytes = os.fstat(source.handle).st_size
        work = Work(Path(args.input).absolute(), nbytes, source.terms, model, settings, config, build_row_answerer)
        answer_on_ray(work, source, journal, tally, address=args.ray, workers=args.workers, tell=report)

    return _name(path), answer


def _model(args: argparse.Namespace) -> tuple[Config, Path | None]:
    """The settings for models that this command loads, and the file of --model, if that is given."""
    config = read_config(**flag_values(args))
    if config.engine.cache_dir is None:  # the pages of a job would displace those that `serve` keeps on disk
        engine = dataclasses.replace(config.engine, disk_bytes=0)
        config = dataclasses.replace(config, engine=engine)
    return config, find_model(args.model, config, quiet=args.quiet) if args.model else None


def _name(path: Path | None) -> str:
    from woolly.store import identity

    return "" if path is None else identity(path)


def _row_by_row(
    open_ask: Callable[[], contextlib.AbstractAsyncContextManager[RowAnswerer]], at_once: int
) -> AnswerRows:
    """An AnswerRows that sends each row on its own, at most `at_once` at the same time."""

    async def work(source: Input, journal: Journal, tally: Tally, report: Callable[[Tally], None]) -> None:
        from woolly.server.batch import answer_rows

        rows = itertools.islice(source.rows(), tally.done, None)
        async with open_ask() as ask:
            await answer_rows(rows, ask, journal, tally, at_once=at_once, created=source.terms.created, tell=report)

    return lambda *words: asyncio.run(work(*words))


@dataclasses.dataclass(frozen=True, slots=True)
class RunStart:
    """How many rows were done when this run began, and when it began."""

    done: int
    at_s: float

    def left(self, tally: Tally) -> str:
        """The time that is left, at the pace of this run."""
        done, seconds = tally.done - self.done, time.monotonic() - self.at_s
        return f", {time_left(seconds / done * (tally.rows - tally.done))} left" if done else ""


def _progress_reporter(start: RunStart, say: Callable[[str], None], *, quiet: bool) -> Callable[[Tally], None]:
    """Shows progress: on a terminal a line that is redrawn, in a log a line every LOGGED_S seconds."""
    reported_s = start.at_s

    def report(tally: Tally) -> None:
        nonlocal reported_s
        rate = tally.tokens / max(time.monotonic() - start.at_s, 1e-9)
        failed = f", {tally.failed:,} failed" if tally.failed else ""
        line = f"{tally.done:,} of {tally.rows:,} rows{failed}, {rate:,.0f} tokens/s{start.left(tally)}"
        if can_redraw(sys.stderr):
            say(line)
        elif time.monotonic() - reported_s >= LOGGED_S:
            reported_s = time.monotonic()
            _note(line, quiet=quiet)

    return report


def _summary(start: RunStart, tally: Tally) -> str:
    seconds = time.monotonic() - start.at_s
    failed = f", {tally.failed:,} of them failed" if tally.failed else ""
    rate = f"; this run {tally.done - start.done:,} in {seconds:,.1f} s, {tally.tokens / seconds:,.0f} tokens/s"
    return f"{tally.done:,} rows{failed}{rate if tally.tokens else ''}"


def _note(line: str, *, quiet: bool) -> None:
    if not quiet:
        print(f"woolly: {line}", file=sys.stderr, flush=True)
