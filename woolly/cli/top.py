"""Watch the replicas of a gate: what each does, how fast, and what it remembers.

    woolly top                             the gate at http://127.0.0.1:8080, until Ctrl-C
    woolly top http://10.0.0.1:8080        another one; its key comes by WOOLLY_API_KEY
    woolly top --once                      one look

RUNNING is answers of the slots that there are, QUEUED tokens of prompts that wait, PROMPT/S and ANSWER/S tokens a
second as measured, CACHE pages that are in use, FOUND the share of the prompts' tokens that were remembered.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from woolly.cli.terminal import can_redraw
from woolly.config import HOST, PORT
from woolly.errors import printable

HEAD = (
    *("REPLICA", "STATE", "MODEL", "THREADS"),
    *("RUNNING", "WAITING", "QUEUED", "PROMPT/S", "ANSWER/S", "CACHE", "FOUND"),
)
MOST = 16 << 20  # bytes of the gateway's answer
CLEAR = "\x1b[H\x1b[J"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", default=f"http://{HOST}:{PORT}", metavar="URL", help="of the gate")
    parser.add_argument("--api-key", default="", metavar="KEY", help="WOOLLY_API_KEY is not seen by other users")
    parser.add_argument("--once", action="store_true", help="look once, and end")


def call(args: argparse.Namespace) -> int:
    from woolly.cli.chat.remote import Server

    server = Server(args.url, args.api_key or os.environ.get("WOOLLY_API_KEY", ""))
    over = can_redraw(sys.stdout) and not args.once
    while True:
        lines = table(_fetch_state(server))
        print(CLEAR * over + "\n".join(lines), flush=True)
        if args.once:
            return 0
        time.sleep(1.0)


def _fetch_state(server: Any) -> dict[str, Any]:
    try:
        with server.ask("GET", "/fleet", base="/woolly/v1") as answer:
            state = json.loads(answer.read(MOST))
        if not isinstance(state, dict) or not isinstance(state.get("replicas"), list):
            raise server.protocol_error()
        return state
    except (ValueError, OSError):
        raise server.protocol_error() from None


def table(state: dict[str, Any]) -> list[str]:
    """The state that a gateway reports, as the lines of a table."""
    rows: list[tuple[str, ...]] = [HEAD]
    for replica in state["replicas"]:
        for model in replica.get("models") or [{}]:
            rows.append(_row(replica, model))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    moved, lost = _int_of(state, "replays"), _int_of(state, "lost")
    count = len(state["replicas"])
    return [*lines, f"replicas: {count}; answers that went on at another one: {moved:,}; lost: {lost:,}"]


def _row(replica: dict[str, Any], model: dict[str, Any]) -> tuple[str, ...]:
    pages, prompts = _int_of(model, "pages"), _int_of(model, "prompt_tokens")
    return (
        printable(replica.get("url", "?"), 60),
        printable(replica.get("state", "?"), 20),
        printable(model.get("name", "-"), 40) + ("" if model.get("serves", True) else " (not used)"),
        str(_int_of(model, "threads")),
        f"{_int_of(model, 'running')}/{_int_of(model, 'slots')}",
        str(_int_of(model, "waiting")),
        f"{_int_of(model, 'queued_tokens'):,}",
        f"{_int_of(model, 'prompt_rate'):,}",
        f"{_int_of(model, 'answer_rate'):,}",
        f"{100 * (pages - _int_of(model, 'pages_free')) // pages} %" if pages else "-",
        f"{100 * _int_of(model, 'cached_tokens') // prompts} %" if prompts else "-",
    )


def _int_of(table: dict[str, Any], name: str) -> int:
    value = table.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0
