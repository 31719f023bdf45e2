"""Scripts that drive real client libraries, each run against a small random model of every style of output.

    python -m tests.measure.clients SCRIPT.py ... [--python PYTHON] [--style NAME ...] [--templates FOLDER ...]

A script is given the address of a server, prints `ok` or `FAIL` and the name of a step for each, and last `N of M
steps`. A random model writes noise: a step that forces a call or a format must hold, one that reads the noise may not.
--python: that of an environment with the libraries. --templates: folders of chat templates; a model has one of its
style, or else ChatML with what the style is found by. Its marks are control tokens of the model. Last come the counts
of each script and the failed steps with their styles and what the first of them said: by the reason for which a step
cannot be asked of such a model, where there is one, and then those that nothing is known about.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.server.process import Process, environ
from tests.tiny import CHATML, byte_letters, byte_vocabulary, tiny
from woolly.errors import WoollyError
from woolly.request import Text, Thought
from woolly.text import ChatTemplate, Output
from woolly.text.output.style import Style
from woolly.text.output.styles import STYLES, find_style, with_form

BY_NAME = {style.name: style for style in STYLES}
SIZE = 512  # of the vocabulary
FEW = 8  # of so many tokens one is followed by the end of a thought
CONTROL = 3  # the type of a control token
SURE, NEVER = 30, -40  # beside noise, at any temperature: what follows a token for certain, and what never does
MARK = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]")  # what of a mark is one token
SWITCHES: tuple[dict[str, Any], ...] = (
    {},
    {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    {"enable_thinking": False, "thinking": False, "reasoning_effort": "none"},
)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why steps cannot be asked of models like this. steps: by their scripts."""

    said: str
    applies: Callable[[Style, str], bool]  # to a style and its template
    steps: Mapping[str, tuple[str, ...]]


def switched(_style: Style, template: str) -> bool:
    """Whether a prompt depends on how a model is to think."""
    return len({asked(template, **variables) for variables in SWITCHES}) > 1


def thinks(style: Style, template: str) -> bool:
    """Whether prompts open a thought whose end is more than one token, so that the model cannot leave it empty."""
    opened = Output(style).opened(asked(template))
    return opened is not None and not MARK.fullmatch(opened.closing)


REASONS = (
    Reason(
        "the step is for a model that cannot think, and this template has a switch for it",
        switched,
        {
            "openai_tools": ("reasoning fields",),
            "openai_responses": ("reasoning fields are taken",),
            "anthropic_sdk": ("thinking on a model that cannot",),
            "ollama_client": ("thinking",),
        },
    ),
    Reason(
        "the prompt opens a thought, and the step takes what comes first for the text of the answer, or for all of it",
        thinks,
        {
            "openai_responses": (
                "events of a text in order",
                "events of a call in order",
                "previous response is the conversation",
            ),
            "anthropic_sdk": (
                "equals chat completions",
                "system forms are equal",
                "content forms are equal",
                "max tokens and stop sequences",
                "events in order",
                "stream helper of the sdk",
                "a named tool and none",
                "structured output",
                "beta client",
                "seeds decide",
                "litellm",
            ),
            "ollama_client": ("options are mapped",),
        },
    ),
)


def template_of(style: Style, folders: Iterable[Path]) -> str:
    """A template of a style in these folders that takes a question by itself; where there is none, one taken for it.

    The scripts are for models that take a system message and do not think: the first of these, if there is one.
    """
    texts = [path.read_text("utf-8") for folder in folders for path in sorted(folder.glob("*.jinja"))]
    known = [text for text in texts if find_style(text).name == style.name and asked(text)]
    made_up = "{# " + " ".join(style.found_by) + " #}" + CHATML

    def unfit(text: str) -> tuple[bool, ...]:
        opened = Output(style).opened(asked(text)) is not None
        return not ChatTemplate(text).capabilities.system, switched(style, text), opened

    return min(known, key=unfit, default=made_up)


def asked(template: str, **variables: Any) -> str:
    """The prompt of a question; nothing if the template wants more than one."""
    try:
        return ChatTemplate(template).render([{"role": "user", "content": "Hello"}], **variables).plain
    except WoollyError:
        return ""


def model_of(style: Style, folder: Path, template: str) -> Path:
    """A model whose vocabulary ends with the marks of its style, and whose every token tells by itself what may follow.

    It does not think by itself, and ends the thought that a prompt opens: at once, if a token can. It ends an answer
    where JSON or a call ends, and nowhere else. One that is all noise would go on until it is cut.
    """
    marks = sorted({mark for text in style.written for mark in MARK.findall(text)})
    words = byte_vocabulary(SIZE)
    tokens, kinds = words["tokenizer.ggml.tokens"], words["tokenizer.ggml.token_type"]
    for id_, mark in zip(range(SIZE - len(marks), SIZE), marks, strict=True):
        tokens[id_], kinds[id_] = mark, CONTROL
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
            "attn_output.weight": np.zeros((SIZE, SIZE), np.float32),
            "ffn_down.weight": np.zeros((SIZE, SIZE), np.float32),
            "output.weight": follows(style, template, tokens, words["tokenizer.ggml.eos_token_id"]) / SIZE**0.5,
        },  # the norm makes one of SIZE numbers so large
        meta={
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.chat_template": template,
        },
    )


def follows(style: Style, template: str, tokens: list[str], end: int) -> NDArray[np.float32]:
    """How likely a token (row) is after another (column)."""
    rng = np.random.default_rng(5)
    logits = 3 * rng.standard_normal((SIZE, SIZE), np.float32) + NEVER * np.eye(SIZE, dtype=np.float32)
    logits[:256] -= 6  # bytes make no text
    logits[end] = NEVER
    for part in style.parts:
        for mark in MARK.findall(part.opening):
            logits[tokens.index(mark)] = NEVER
    thoughts = [part for part in style.parts if part.kind is Thought]
    for mark in sorted({mark for part in thoughts for mark in MARK.findall(part.closing)[:1]} - {*style.ignored}):
        logits[tokens.index(mark)] = np.where(rng.integers(FEW, size=SIZE) == 0, SURE, -SURE)
    calls = with_form(style).calls
    assert calls is not None and calls.form is not None
    for opening in {part.opening for part in thoughts}:
        for other in (calls.form.before + calls.form.call, *(p.opening for p in style.parts if p.kind is Text)):
            _avoid(logits, tokens, opening, other)
    logits[[tokens.index("]"), tokens.index("}")], tokens.index("}")] = SURE - 1, SURE - 2
    prompt = asked(template)
    for closing in ("}", "]", *calls.closings, *(style.calls.closings if style.calls else ())):
        if (last := _last(tokens, closing)) != _last(tokens, prompt):
            logits[end, last] = SURE
    opened = Output(style).opened(prompt)
    if opened and MARK.fullmatch(opened.closing):
        logits[tokens.index(opened.closing), _last(tokens, prompt)] = SURE
    return logits


def _avoid(logits: NDArray[np.float32], tokens: list[str], text: str, other: str) -> None:
    """Where a text and another one part, the model never goes on with the first."""
    shared = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    rest = text[shared:].replace(" ", "Ġ")
    mark = MARK.match(rest)
    first = [id_ for id_, token in enumerate(tokens) if (token == mark[0] if mark else rest.startswith(token))]
    logits[first, _last(tokens, text[:shared]) if shared else slice(None)] = NEVER


def _last(tokens: list[str], text: str) -> int:
    """The token with which a text ends."""
    mark = next((mark for mark in MARK.findall(text) if text.endswith(mark) and mark in tokens), "")
    return tokens.index(mark or byte_letters()[text.encode()[-1]])


def steps(python: str, script: Path, url: str) -> tuple[int, int, list[tuple[str, str]]]:
    """How many steps held, of how many, and the names of those that failed, each with what it said."""
    done = subprocess.run([python, str(script), url], cwd=script.parent, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    counted = re.fullmatch(r"(\d+) of (\d+) steps", lines[-1] if lines else "")
    if not counted:
        raise SystemExit(f"{script.name} did not come to its end: {(done.stderr or done.stdout)[-2000:]}")
    failed = [line.removeprefix("FAIL ").partition(": ") for line in lines if line.startswith("FAIL ")]
    return int(counted[1]), int(counted[2]), [(name, detail) for name, _, detail in failed]


def reason_of(style: Style, template: str, script: str, step: str) -> str:
    """Why such a step cannot be asked of such a model; nothing if it can."""
    known = (row.said for row in REASONS if step in row.steps.get(script, ()) and row.applies(style, template))
    return next(known, "")


@dataclass(slots=True)
class Failures:
    """A step that failed, in which styles, and what the first of them said."""

    styles: list[str]
    said: str


def show(counts: Mapping[str, list[int]], failed: Mapping[str, Mapping[str, Failures]]) -> None:
    print()
    for script, (passed, total) in counts.items():
        print(f"{script:<20} {passed:,} of {total:,} steps")
    for reason, rows in sorted(failed.items(), reverse=True):  # what has no reason is last
        print(f"\n{sum(len(row.styles) for row in rows.values())} steps: {reason or 'nothing is known about these'}")
        for step, row in rows.items():
            print(f"{len(row.styles):3} {step} ({', '.join(row.styles)}): {row.said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="+", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--templates", nargs="*", type=Path, default=())
    parser.add_argument("--style", nargs="*", choices=sorted(BY_NAME), default=list(BY_NAME))
    args = parser.parse_args()
    python = str(Path(args.python).absolute())
    counts = {script.stem: [0, 0] for script in args.scripts}
    failed: dict[str, dict[str, Failures]] = defaultdict(dict)
    for name in args.style:
        style = BY_NAME[name]
        template = template_of(style, args.templates)
        with tempfile.TemporaryDirectory() as folder:
            model = model_of(style, Path(folder), template)
            # The model is found, not named: where one alone is named, it answers under every name that clients send.
            with Process(environ(Path(folder), model.parent)) as server:
                for script in args.scripts:
                    passed, total, wrong = steps(python, script.resolve(), f"http://127.0.0.1:{server.port}")
                    print(f"{name:<16} {script.stem:<20} {passed} of {total} steps", flush=True)
                    counts[script.stem] = [counts[script.stem][0] + passed, counts[script.stem][1] + total]
                    for step, detail in wrong:
                        rows = failed[reason_of(style, template, script.stem, step)]
                        rows.setdefault(f"{script.stem}: {step}", Failures([], detail)).styles.append(name)
    show(counts, failed)


if __name__ == "__main__":
    main()
