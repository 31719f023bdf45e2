"""What `woolly batch` gains by asking rows side by side, and near to rows that begin alike.

    python -m tests.measure.batch smollm2

Each is measured beside its opposite, with the same rows; the bytes of the output must be the same.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TEXT = "wool sheep warm winter spin yarn dye loom cloth knit felt soft fleece shear lamb barn cart river"
WORDS = TEXT.split()
SMALL = ("--context", "1024", "--sequences", "4", "--cache", str(60 << 20))  # holds some of the system prompts
COMMAND = """
import dataclasses, sys, woolly.limits
woolly.limits.LIMITS = dataclasses.replace(woolly.limits.LIMITS, batch_prefix={prefix})
from woolly.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def rows(count: int, tokens: int, systems: list[str]) -> list[dict[str, Any]]:
    """Questions, which take turns with the system prompts if there are any."""
    out = []
    for index in range(count):
        system = [{"role": "system", "content": systems[index % len(systems)]}] if systems else []
        asked = {"role": "user", "content": f"Question {index}: what is {WORDS[index % len(WORDS)]}?"}
        body = {"messages": [*system, asked], "max_tokens": tokens}
        out.append({"custom_id": str(index), "method": "POST", "url": "/v1/chat/completions", "body": body})
    return out


def measure(what: str, model: str, source: Path, *options: str, prefix: int = 2048) -> bytes:
    """Print what a job says of its time; its output. prefix: 0 asks rows in the order of the file."""
    output = source.with_name(f"{what}.out")
    words = ["batch", str(source), str(output), "--model", model, "-q", *options]
    code = COMMAND.format(prefix=prefix)
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    print(f"{what:20} {done.stdout.strip()}", flush=True)
    return output.read_bytes()


def main(model: str) -> None:
    draw = random.Random(1)
    systems = [" ".join(draw.choice(WORDS) for _ in range(450)) for _ in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        plain, shared = Path(folder) / "plain.jsonl", Path(folder) / "shared.jsonl"
        plain.write_text("".join(json.dumps(row) + "\n" for row in rows(64, 64, [])))
        shared.write_text("".join(json.dumps(row) + "\n" for row in rows(96, 4, systems)))
        one, other = measure("side by side", model, plain), measure("one at a time", model, plain, "--concurrency", "1")
        near, far = measure("near", model, shared, *SMALL), measure("as in the file", model, shared, *SMALL, prefix=0)
    assert (one, near) == (other, far), "the bytes are not the same"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "smollm2")
