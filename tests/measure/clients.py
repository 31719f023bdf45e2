"""Scripts that drive real client libraries, each run against a small random model of every style of output.

    python -m tests.measure.clients SCRIPT.py ... [--python PYTHON] [--style NAME ...] [--templates FOLDER ...]

A script is given the address of a server, prints `ok` or `FAIL` and the name of a step for each, and last `N of M
steps`. A random model writes noise: a step that forces a call or a format must hold, one that reads the noise may not.
--python: that of an environment with the libraries. --templates: folders of chat templates; a model has the first of
its style, or else ChatML with what the style is found by. Its marks are control tokens of the model. The failed steps
are told with the styles in which they failed, and with what the first of them said.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tests.server.process import Process, environ
from tests.tiny import CHATML, byte_vocabulary, tiny
from woolly.errors import WoollyError
from woolly.text import ChatTemplate, Output
from woolly.text.styles import STYLES, Style, find_style

BY_NAME = {style.name: style for style in STYLES}
SIZE = 512  # of the vocabulary
FEW = 8  # of so many tokens one is followed by the end of a thought
CONTROL = 3  # the type of a control token
MARK = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]")  # what of a mark is one token


def template_of(style: Style, folders: Iterable[Path]) -> str:
    """A template of a style in these folders that takes a question by itself, the first that opens no thought if any.

    Where there is none, one that is taken for it.
    """
    texts = [path.read_text("utf-8") for folder in folders for path in sorted(folder.glob("*.jinja"))]
    known = [(text, prompt) for text in texts if find_style(text).name == style.name and (prompt := asked(text))]
    plain = (text for text, prompt in known if Output(style).opened(prompt) is None)
    made = "{# " + " ".join(style.found_by) + " #}" + CHATML
    return next(plain, known[0][0] if known else made)


def asked(template: str) -> str:
    """The prompt of a question; nothing if the template wants more than one."""
    try:
        return ChatTemplate(template).render([{"role": "user", "content": "Hello"}]).plain
    except WoollyError:
        return ""


def model_of(style: Style, folder: Path, templates: Iterable[Path]) -> Path:
    """A model whose vocabulary ends with the marks of its style, and whose every token tells by itself what may follow.

    It does not think by itself, and soon ends the thought that a prompt opens; it ends an answer where JSON or a
    call ends. One that is all noise would go on until it is cut.
    """
    marks = sorted({mark for text in style.written for mark in MARK.findall(text)})
    words = byte_vocabulary(SIZE)
    tokens, kinds = words["tokenizer.ggml.tokens"], words["tokenizer.ggml.token_type"]
    rng = np.random.default_rng(5)
    follows = 3 * rng.standard_normal((SIZE, SIZE), np.float32) - 12 * np.eye(SIZE, dtype=np.float32)
    follows[:256] -= 6  # bytes make no text
    end = words["tokenizer.ggml.eos_token_id"]
    follows[end, tokens.index("}")] = 12
    for id_, mark in zip(range(SIZE - len(marks), SIZE), marks, strict=True):
        tokens[id_], kinds[id_] = mark, CONTROL
        if style.calls and mark in style.calls.closings:
            follows[end, id_] = 12
        if any(mark in part.opening for part in style.parts):
            follows[id_] -= 40
        elif any(mark in part.closing for part in style.parts):
            follows[id_] = np.where(rng.integers(FEW, size=SIZE) == 0, 12, -12)
    nothing = np.zeros((SIZE, SIZE), np.float32)
    return tiny(
        folder / f"{style.name}.gguf",
        format="F16",
        layers=1,
        width=SIZE,
        vocab=SIZE,
        context=8192,
        tied=False,
        values={
            "token_embd.weight": np.eye(SIZE, dtype=np.float32),
            "attn_output.weight": nothing,
            "ffn_down.weight": nothing,
            "output.weight": follows / SIZE**0.5,  # the norm makes one of SIZE numbers so large
        },
        meta={
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.chat_template": template_of(style, templates),
        },
    )


def steps(python: str, script: Path, url: str) -> tuple[str, list[tuple[str, str]]]:
    """`N of M steps`, and the names of those that failed, each with what it said."""
    done = subprocess.run([python, str(script), url], cwd=script.parent, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines() or done.stderr.splitlines() or ["nothing was said"]
    failed = [line.removeprefix("FAIL ").partition(": ") for line in lines if line.startswith("FAIL ")]
    return lines[-1], [(name, said) for name, _, said in failed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="+", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--templates", nargs="*", type=Path, default=())
    parser.add_argument("--style", nargs="*", choices=sorted(BY_NAME), default=list(BY_NAME))
    args = parser.parse_args()
    python = str(Path(args.python).absolute())
    failed: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in args.style:
        with tempfile.TemporaryDirectory() as folder:
            model = model_of(BY_NAME[name], Path(folder), args.templates)
            with Process(environ(Path(folder), model.parent), str(model)) as server:
                for script in args.scripts:
                    counted, wrong = steps(python, script.resolve(), f"http://127.0.0.1:{server.port}")
                    print(f"{name:<16} {script.stem:<20} {counted}", flush=True)
                    for step, said in wrong:
                        failed[f"{script.stem}: {step}"].append((name, said))
    for step, rows in sorted(failed.items(), key=lambda row: -len(row[1])):
        print(f"{len(rows):3} {step} ({', '.join(name for name, _ in rows)}): {rows[0][1]}")


if __name__ == "__main__":
    main()
