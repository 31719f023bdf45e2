"""What drafts, formats and adapters cost or save: the speed of an answer with them over the speed without.

    python -m tests.measure.features [MODEL] [--seconds N] [--only WORD]

Both sides take turns in one process (A B B A), each with an answer of its own; the figure is the median of the ratios
of seconds a token, with its quartiles. Above 1, the feature makes answers faster.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.lora import adapter
from woolly import LLM
from woolly.bench.ratios import Slice, compare, ratio_of
from woolly.bench.state import Watch
from woolly.store import DEFAULT, resolve

TOKENS = 128
FILE = "\n".join(f"def area_{shape}(width, height):\n    return width * height / {n}\n" for n, shape in enumerate(
    ("square", "triangle", "diamond", "kite", "hexagon", "window", "door", "table", "carpet", "garden"), 1
))  # fmt: skip
TABLE = "\n".join(
    f"| {2001 + n} | {150 + 7 * n % 40} | {31 * n % 97} | {'north' if n % 2 else 'south'} |" for n in range(24)
)
EDIT = f"{FILE}\n\nWrite this file again, with the word width changed to breadth."
HEAD = "| year | wool | sheep | side |\n| --- | --- | --- | --- |"
ANSWER = f"Here is a table:\n\n{HEAD}\n{TABLE}\n\nWrite down the rows of the table."
STORY = "Tell me a long story about a fisherman who finds a door in the sea."
OBJECT: dict[str, Any] = {  # most of its tokens are the model's own choice
    "type": "object",
    "properties": {"story": {"type": "string", "minLength": 2000}},
    "required": ["story"],
    "additionalProperties": False,
}
WORDS = ("width", "height", "depth", "weight", "colour", "age", "owner")
KEYS = [f"the_{word}_of_the_measured_object" for word in WORDS]
FORM: dict[str, Any] = {  # most of its tokens are forced
    "type": "object",
    "properties": {key: {"type": "integer", "minimum": 0, "maximum": 9} for key in KEYS},
    "required": KEYS,
    "additionalProperties": False,
}


def answer(llm: LLM, text: str, **options: Any) -> Slice:
    """An answer of TOKENS, or a whole form; what TOKENS of it would have taken. Each time with another seed."""
    seeds = iter(range(1, 1 << 30))

    def run() -> float:
        options.setdefault("temperature", 0.0)
        completion = llm.chat([{"role": "user", "content": text}], max_tokens=TOKENS, seed=next(seeds), **options)
        return completion.timings.answer_s / (len(completion.tokens) - 1) * TOKENS

    return run


Row = tuple[str, Slice, Slice]


def rows(opened: Callable[..., LLM], lora: Path) -> Iterator[Row]:
    """Name, the side with the feature, the side without."""
    plain, drafting, adapted = opened(draft="off"), opened(draft="text"), opened(draft="off", lora=(str(lora),))
    for name, text, options in (
        ("drafts: a file is edited", EDIT, {}),
        ("drafts: a table is told", ANSWER, {}),
        ("drafts: a story, greedy", STORY, {}),
        ("drafts: a story, sampled", STORY, {"temperature": 1.0}),
    ):
        yield name, answer(drafting, text, **options), answer(plain, text, **options)
    loose = {"temperature": 1.0}
    yield "schema: a long text", answer(plain, STORY, format=OBJECT, **loose), answer(plain, STORY, **loose)
    yield "schema: a form", answer(plain, STORY, format=FORM, **loose), answer(plain, STORY, **loose)
    base = {"lora": {}}
    yield "adapters loaded, none used", answer(adapted, STORY, **base), answer(plain, STORY)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default=DEFAULT)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each row")
    parser.add_argument("--only", default="", help="rows with this word")
    args = parser.parse_args()
    path, watch = resolve(args.model), Watch()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        lora = adapter(Path(folder) / "lora.gguf", path, size=0.01)
        for name, with_it, without in rows(lambda **how: stack.enter_context(LLM(path, context=4096, **how)), lora):
            if args.only not in name:
                continue
            with_it(), without()  # the prompt is remembered from here on
            ratio = ratio_of(compare(with_it, without, seconds=args.seconds, watch=watch))
            low, high = ratio.quartiles
            doubt = "  (others worked meanwhile)" if ratio.disturbed else ""
            print(
                f"{name:28} {ratio.median:.3f}  ({low:.3f} to {high:.3f}, {ratio.count} quadruples){doubt}", flush=True
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
