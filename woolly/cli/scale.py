"""Keep replicas of a model on a Ray cluster, as many as what waits at a gate asks for.

    woolly scale smollm2 --join http://10.0.0.1:8080 --replicas 2..20 --threads 16
    woolly scale smollm2 --join http://10.0.0.1:8080 --ray 10.0.0.1:6379       a cluster at another address
    woolly scale smollm2 --join http://127.0.0.1:8080 --ray local              a cluster of this machine alone

Ray (`pip install 'woolly[ray]'` on each machine) places the replicas and starts those again that die; answers go
between gate and replicas directly. More come when prompts of more than a second, or requests without a place, have
waited for --up-after seconds; fewer when they would have done for --down-after. One that is let go finishes what it
answers. Ctrl-C ends all of them in good order; if the command is killed, they stay, and the same command goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from woolly.cli.flags import add_flags, flag_values
from woolly.cli.replicas import flags_of
from woolly.config import Config, read_config
from woolly.config.rows import rows
from woolly.errors import BusyError, RequestError, WoollyError, printable

if TYPE_CHECKING:
    from woolly.fleet.http import Address
    from woolly.fleet.scaling import Bounds, FleetLoad

EVERY_S = 1.0  # between two looks; replicas report as often
ANSWER_S = 2.0  # how long the gateway may take to answer
MOST = 1024  # replicas
MOST_BYTES = 16 << 20  # of the gateway's answer
LONGEST_S = 3_600.0  # the longest --up-after and --down-after


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a path or name, the same on all machines")
    parser.add_argument("--join", required=True, metavar="URL", help="of the gate")
    parser.add_argument("--ray", default="auto", metavar="ADDRESS", help="of the cluster; `local` begins one here")
    parser.add_argument("--replicas", default="1..4", metavar="MIN..MAX", help="how many there may be (default 1..4)")
    parser.add_argument("--up-after", type=float, default=10.0, metavar="S", help="seconds of need (default 10)")
    parser.add_argument("--down-after", type=float, default=300.0, metavar="S", help="seconds of calm (default 300)")
    parser.add_argument("--api-key", default="", metavar="KEY", help="of the gate; others do not see WOOLLY_API_KEY")
    add_flags(parser, *(one.name for one in rows(Config)))


def call(args: argparse.Namespace) -> int:
    from woolly.cli.replicas_on_ray import ActorPool
    from woolly.fleet.http import read_address
    from woolly.fleet.scaling import Scale, decide
    from woolly.server.batch.ray_cluster import connected, cores

    bounds = read_bounds(args.replicas, args.up_after, args.down_after)
    gateway = read_address(args.join, "--join")
    key = args.api_key or os.environ.get("WOOLLY_API_KEY", "")
    flags = flag_values(args)
    config = read_config(**flags)
    # An actor has another current folder, where a relative path would mean another file.
    model = str(Path(args.model).absolute()) if Path(args.model).exists() else args.model
    with connected(args.ray, logs=True) as ray:
        threads = config.engine.threads or cores(ray)
        words = [model, *flags_of({**flags, "threads": threads})]
        pool = ActorPool(ray, model, words, str(gateway), threads)
        ending = _end_on_signals()
        scale, last_news = Scale(bounds.clamp(pool.count)), ("", "")
        while not ending.is_set():
            pool.keep(scale.wanted)
            load, why = _read_load(gateway, key, args.model)
            if load is not None:
                scale = decide(scale, load, bounds, time.monotonic())
            why = pool.fault or why
            news = f"{scale.wanted} wanted, {pool.begun} placed", why
            if news != last_news:
                last_news = news
                print(f"woolly: replicas: {news[0]}{why and '; '}{why}{_load_words(load)}", flush=True)
            ending.wait(EVERY_S)
        print("woolly: ending; replicas finish what they answer", flush=True)
        pool.close()  # skipped after an error: the replicas stay, as they do when this command is killed
    return 0


def read_bounds(count: str, up_s: float, down_s: float) -> Bounds:
    """The bounds of the number of replicas, from MIN..MAX or one number, and the times after which it changes."""
    from woolly.fleet.scaling import Bounds

    match = re.fullmatch(r"(\d{1,6})(?:\.\.(\d{1,6}))?", count, re.ASCII)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most <= MOST:
        raise RequestError(
            f"--replicas is '{printable(count)}'; expected MIN..MAX, as 1..4, up to {MOST:,}", param="--replicas"
        )
    for name, seconds in (("--up-after", up_s), ("--down-after", down_s)):
        if not 0 <= seconds <= LONGEST_S:
            raise RequestError(f"{name} is a number of seconds up to {LONGEST_S:,.0f}", param=name)
    return Bounds(least, most, up_s, down_s)


def _end_on_signals() -> threading.Event:
    """An event that SIGINT or SIGTERM sets; a second signal raises KeyboardInterrupt."""
    ending = threading.Event()

    def end(_sign: int, _frame: object) -> None:
        if ending.is_set():
            raise KeyboardInterrupt
        ending.set()

    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, end)
    return ending


def _read_load(gateway: Address, key: str, model: str) -> tuple[FleetLoad | None, str]:
    """The load of a model as the gateway reports it; or None and the reason, which changes nothing."""
    try:
        return asyncio.run(_fetch_load(gateway, key, model)), ""
    except WoollyError as error:
        return None, str(error)


async def _fetch_load(gateway: Address, key: str, model: str) -> FleetLoad | None:
    import msgspec

    from woolly.fleet.gateway_routes import FLEET, FleetState
    from woolly.fleet.http import ask
    from woolly.fleet.scaling import FleetLoad
    from woolly.store import identity

    headers = {"authorization": f"Bearer {key}"} if key else {}
    status, body = await ask(gateway, "GET", FLEET, b"", headers, most=MOST_BYTES, timeout_s=ANSWER_S)
    if status != 200:
        raise RequestError(
            f"the gate at {gateway} answers with status {status}",
            suggestion="set WOOLLY_API_KEY to its key" if status == 401 else "see that it is a `woolly gate`",
        )
    try:
        state = msgspec.json.decode(body, type=FleetState)
    except msgspec.MsgspecError as error:
        raise BusyError(
            f"the gate at {gateway} tells what this version does not read: {printable(error, 200)}"
        ) from None
    meant = {model.lower(), identity(Path(model)).lower()}
    for one in state.models:
        if meant & {one.name.lower(), *one.names}:
            return FleetLoad(one.replicas, one.queued_seconds, one.running, one.waiting, one.slots)
    return None


def _load_words(load: FleetLoad | None) -> str:
    if load is None:
        return ""
    taken = f"{load.running} of {load.slots} places taken, {load.waiting} in line"
    return f"; {load.replicas} at work, {taken}, prompts of {load.queued_s:.1f} s wait"
