"""The pause of an answer whose replica is killed, beside what the arithmetic says: (prompt + tokens so far) / rate.

    python -m tests.measure.replay                  smollm2, or another model by name or path

A gateway and two replicas with a thread each: an answer undisturbed, then the same while its replica is killed halfway.
"""

from __future__ import annotations

import argparse
import json
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.server.fleets import CHAT, Fleets
from tests.server.stand_in import until
from woolly.store import DEFAULT, resolve

TOKENS = 300
WORDS = "Tell me a long story about " + "the sea and the wind and " * 40


def answer(port: int, seen: Callable[[int], None] = lambda _: None) -> tuple[str, list[float], dict[str, Any]]:
    """The text of one answer, the seconds between its frames, and its usage."""
    body = {"messages": [{"role": "user", "content": WORDS}], "max_tokens": TOKENS, "stream": True, "seed": 3}
    data = json.dumps(body | {"stream_options": {"include_usage": True}}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    text, gaps, usage, last, rest = "", [], {}, 0.0, b""
    with socket.create_connection(("127.0.0.1", port)) as sock:  # read piece by piece: a library would wait for more
        sock.sendall(head.encode() + data)
        while piece := sock.recv(65536):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if not line.startswith(b"data: {"):
                    continue
                frame = json.loads(line[6:])
                usage = frame.get("usage") or usage
                for choice in frame["choices"]:
                    text += choice["delta"].get("content") or ""
                now = time.monotonic()
                gaps.append(now - last if last else 0.0)
                last = now
                seen(len(gaps))
    return text, gaps, usage


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.replay", description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default=DEFAULT, help="a path or name (default smollm2)")
    model = resolve(parser.parse_args().model)
    with tempfile.TemporaryDirectory(prefix="woolly-measure-") as home:
        fleet = Fleets(Path(home), model)
        try:
            fleet.join(2)
            replicas = fleet.fleet.replicas
            assert until(
                lambda: sum(bool(one.models) for one in replicas.values()) == 2 and fleet.app.models.loaded, 60
            )
            undisturbed, gaps, _ = answer(fleet.port)
            time.sleep(1.5)  # rates are reported

            def seen(count: int) -> None:
                if count == TOKENS // 2:
                    fleet.kill(fleet.busy()[0])

            text, pauses, usage = answer(fleet.port, seen)
            assert text == undisturbed, "the answer is another one"
            rate = max(model.load.prompt_rate for one in replicas.values() for model in one.models.values())
        finally:
            fleet.close()
    known = usage["prompt_tokens"] + TOKENS // 2
    print(f"{model.name}: undisturbed, the longest gap between frames {max(gaps) * 1e3:.0f} ms")
    print(f"killed after {TOKENS // 2} tokens, the longest gap {max(pauses):.2f} s")
    print(f"{known} tokens at {rate:.0f} a second, as replicas have measured it: {known / rate:.2f} s")


if __name__ == "__main__":
    main()
