"""Makes the transcripts of the README and of docs/command.md anew, or checks that they are true:

    .venv/bin/python tools/transcripts.py            write what the commands print now
    .venv/bin/python tools/transcripts.py --check    exit 1 and name the first command that prints something else

A transcript is a fenced block with lines `$ woolly ...`; what follows such a line, up to the next, is what it printed
on both of its streams. Where lines `>>> ...` follow, they are typed into the chat that the command is. `broken.gguf`
is a small model with a scale that is no number, `notes.txt` a text. Speeds and times are not compared.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PAGES = (ROOT / "README.md", ROOT / "docs/command.md")
BLOCK = re.compile(r"^```\n(.*?)^```$", re.M | re.S)
PROMPT = "$ woolly "
TYPED = ">>> "
SPEED = re.compile(r"[\d,.]+ tokens/s|[\d.]+ s\b")
NOTES = "Mammoths lived in herds on the cold steppe. The last ones died on Wrangel Island about 4,000 years ago.\n"


def printed(line: str, folder: Path) -> str:
    """What a command prints, on both streams."""
    words = shlex.split(line.removeprefix("$ "))
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def spoken(line: str, messages: list[str], folder: Path) -> str:
    """A chat as one sees it on a terminal without colours."""
    from tests.cli.chat.terminal import Terminal

    environ = os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder)}
    with Terminal(*shlex.split(line)[2:], environ=environ, term="dumb", folder=folder) as person:
        seen = person.until(TYPED)
        for message in messages:
            person.type(message + "\r")
            seen += TYPED + person.until(TYPED)
        person.type(b"\x04")
        person.leave()
    return seen


def with_output(block: str, folder: Path) -> str:
    """The block with the output of each of its commands; blank lines between transcripts stay."""
    out: list[str] = []
    for part in re.split(r"^(?=\$ )", block, flags=re.M):
        line, _, rest = part.partition("\n")
        if not line.startswith(PROMPT):
            out.append(part)
            continue
        gap = "\n" if rest.endswith("\n\n") else ""
        messages = [typed.removeprefix(TYPED) for typed in rest.splitlines() if typed.startswith(TYPED)]
        now = spoken(line, messages, folder) if messages else printed(line, folder)
        out.append(f"{line}\n{now}{gap}")
    return "".join(out)


def break_one(path: Path) -> None:
    """A model whose first scale is no number."""
    from tests.tiny import tiny
    from woolly import gguf

    tiny(path)
    with gguf.open(path) as file:
        at = file.tensors["token_embd.weight"].offset
    data = bytearray(path.read_bytes())
    data[at : at + 2] = b"\x00\x7e"  # a NaN of 16 bits
    path.write_bytes(data)


def main() -> int:
    check, code = "--check" in sys.argv[1:], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        break_one(folder / "broken.gguf")
        (folder / "notes.txt").write_text(NOTES)

        def again(match: re.Match[str]) -> str:
            block = match[1]
            return f"```\n{with_output(block, folder)}```" if f"\n{PROMPT}" in f"\n{block}" else match[0]

        for page in PAGES:
            text = page.read_text("utf-8")
            now = BLOCK.sub(again, text)
            if not check:
                page.write_text(now, "utf-8")
            elif differs(page, text, now):
                code = 1
    return code


def differs(page: Path, text: str, now: str) -> bool:
    """Whether a page says something else than the commands print now; the first such line is told."""
    for before, after in zip_longest(text.splitlines(), now.splitlines(), fillvalue=""):
        if SPEED.sub("", before) != SPEED.sub("", after):
            print(f"{page.relative_to(ROOT)} says:  {before}\nit is now:  {after}", file=sys.stderr)
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
