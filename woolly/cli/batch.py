"""Answer a file of requests, as OpenAI's batches have them, into another: each once, in order, whatever happens.

    woolly batch in.jsonl out.jsonl                              models as the rows name them
    woolly batch in.jsonl out.jsonl --model smollm2              this one, whatever they name
    woolly batch in.jsonl out.jsonl --errors failed.jsonl        rows that fail go to a file of their own
    woolly batch in.jsonl out.jsonl --server http://host:8080    answered by a server, or by several behind one address

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

from woolly.cli.find import find
from woolly.cli.flags import add_flags, given
from woolly.cli.status import status
from woolly.cli.terminal import draws, time_left
from woolly.config import Settings, read_config
from woolly.errors import RequestError
from woolly.limits import LIMITS

if TYPE_CHECKING:
    from woolly.server.batch import Ask, Input, Journal, Tally

LOGGED_S = 30.0  # between two lines where nothing can be drawn over
FAILED = 1
AT_ONCE, MOST_AT_ONCE = 16, 1024  # rows that a server is asked
SPARE = 4  # rows in line beside those that a step holds: a place that becomes free is taken at once
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
    add_flags(parser, *MODEL_FLAGS)
    parser.add_argument("--quiet", "-q", action="store_true", help="no word on how far it is")


def call(args: argparse.Namespace) -> int:
    from woolly.server.batch import Input, Journal, Tally, Terms
    from woolly.server.settings import read_settings

    if not 0 <= args.seed < 2**63:
        raise RequestError("--seed is a number from 0 to 9223372036854775807", param="--seed")
    if args.concurrency is not None and not 1 <= args.concurrency <= MOST_AT_ONCE:
        raise RequestError(f"--concurrency is a number from 1 to {MOST_AT_ONCE:,}", param="--concurrency")
    settings = dataclasses.replace(read_settings({}), log_level="error")
    model, answering = _at_server(args) if args.server is not None else _here(args, settings)
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
        begun = Begun(tally.done, time.monotonic())
        if tally.done:
            _note(f"{tally.done:,} of {tally.rows:,} rows are there already", quiet=args.quiet)
        try:
            asyncio.run(_work(answering, source, journal, tally, _teller(begun, say, quiet=args.quiet)))
        except BaseException:
            say("")
            _note(f"{tally.done:,} of {tally.rows:,} rows are written; the same command goes on", quiet=args.quiet)
            raise
        say("")
        print(_summary(begun, tally))
        return FAILED if tally.failed else 0


# Who answers: what to ask, and how many rows at once.
Answering: TypeAlias = "Callable[[], contextlib.AbstractAsyncContextManager[tuple[Ask, int]]]"


def _here(args: argparse.Namespace, settings: Settings) -> tuple[str, Answering]:
    """The model for all rows, if one is named, and what answers them in this process."""
    from woolly.store import identity

    if args.key is not None:
        raise RequestError("--api-key is for --server", suggestion="name one", param="--api-key")
    config = read_config(**given(args))
    path = find(args.model, config, quiet=args.quiet) if args.model else None
    if path is not None:
        settings = dataclasses.replace(settings, models=(path,))
    if config.cache_dir is None:  # what a job computes would take the place of what `serve` keeps on disk
        config = dataclasses.replace(config, disk_bytes=0)

    @contextlib.asynccontextmanager
    async def answering() -> AsyncIterator[tuple[Ask, int]]:
        from woolly.server.app import build
        from woolly.server.batch.inside import asking
        from woolly.server.door import Caller

        app = build(settings, config)
        try:
            yield asking(app, Caller("batch", b"", 0.0, 0.0)), args.concurrency or config.sequences + SPARE
        finally:
            await app.close()

    return identity(path) if path is not None else "", answering


def _at_server(args: argparse.Namespace) -> tuple[str, Answering]:
    """The same for rows that a server answers."""
    from woolly.cli.batch_server import asking
    from woolly.cli.chat.remote import Server

    if flags := given(args):
        names = ", ".join(flags)
        raise RequestError(f"with --server, its settings count: {names}", suggestion="give them to `woolly serve`")
    server = Server(args.server, args.key or os.environ.get("WOOLLY_API_KEY", ""))
    at_once = args.concurrency or AT_ONCE

    @contextlib.asynccontextmanager
    async def answering() -> AsyncIterator[tuple[Ask, int]]:
        with asking(server, at_once) as ask:
            yield ask, at_once

    return args.model or "", answering


async def _work(
    answering: Answering, source: Input, journal: Journal, tally: Tally, tell: Callable[[Tally], None]
) -> None:
    from woolly.server.batch import answer_rows

    rows = itertools.islice(source.rows(), tally.done, None)
    async with answering() as (ask, at_once):
        await answer_rows(rows, ask, journal, tally, at_once=at_once, created=source.terms.created, tell=tell)


@dataclasses.dataclass(frozen=True, slots=True)
class Begun:
    """What was there when this run began, and when that was."""

    done: int
    at_s: float

    def left(self, tally: Tally) -> str:
        """The time that is left, at the pace of this run."""
        done, seconds = tally.done - self.done, time.monotonic() - self.at_s
        return f", {time_left(seconds / done * (tally.rows - tally.done))} left" if done else ""


def _teller(begun: Begun, say: Callable[[str], None], *, quiet: bool) -> Callable[[Tally], None]:
    """What shows how far a job is: a line that is drawn over or, in a log, one now and then."""
    told_s = begun.at_s

    def tell(tally: Tally) -> None:
        nonlocal told_s
        rate = tally.tokens / max(time.monotonic() - begun.at_s, 1e-9)
        failed = f", {tally.failed:,} failed" if tally.failed else ""
        line = f"{tally.done:,} of {tally.rows:,} rows{failed}, {rate:,.0f} tokens/s{begun.left(tally)}"
        if draws(sys.stderr):
            say(line)
        elif time.monotonic() - told_s >= LOGGED_S:
            told_s = time.monotonic()
            _note(line, quiet=quiet)

    return tell


def _summary(begun: Begun, tally: Tally) -> str:
    seconds = time.monotonic() - begun.at_s
    failed = f", {tally.failed:,} of them failed" if tally.failed else ""
    rate = f"; this run {tally.done - begun.done:,} in {seconds:,.1f} s, {tally.tokens / seconds:,.0f} tokens/s"
    return f"{tally.done:,} rows{failed}{rate if tally.tokens else ''}"


def _note(line: str, *, quiet: bool) -> None:
    if not quiet:
        print(f"woolly: {line}", file=sys.stderr, flush=True)
