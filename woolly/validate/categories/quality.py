"""quality_validation: is the text the model's, are token counts right, does the same question get the same answer?

Scores of questions are a property of the model, so the library's scores with the same file stand beside the server's.
"""

from __future__ import annotations

import json
from functools import partial
from statistics import mean
from typing import Any

from woolly.llm.llm import LLM
from woolly.validate.categories.result import CategoryResult, run_concurrently
from woolly.validate.client import Answer
from woolly.validate.gates import Finding, Measurement, NotMeasured
from woolly.validate.honesty import count_error, recompute
from woolly.validate.prompts import CHATTER, QUESTIONS
from woolly.validate.subject import Subject

BEGINNINGS = ("The capital of France is", "Once upon a time there was", "One, two, three, four,", "def factorial(n):")
WORDS = 48  # the most tokens of an answer to a question
LONG = 64
NEIGHBOURS = 3
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}  # fmt: skip


def measure(subject: Subject) -> CategoryResult:
    settings = subject.settings.tests.quality_validation
    asked = [subject.fresh_prompt(8), *BEGINNINGS][: settings.checked_prompts]
    subject.say("answers for the reference")
    answers = [subject.client.complete(text, max_tokens=settings.checked_tokens, temperature=0) for text in asked]
    checked, texts = _same_text(subject, asked, answers)
    counts = _counts(subject, [(p, a, settings.checked_tokens) for p, a in zip(asked, answers, strict=True)], checked)
    again = _repeatability(subject, settings.consistency_runs)
    details: dict[str, Any] = {"reference": texts, "counts": counts[1], "same_answer": again[1]}
    if subject.file.card.chat:
        details |= _scores(subject, settings.prompts)
    return CategoryResult(
        details, {"same_text": checked_finding(texts), "honest_counts": counts[0], "same_answer": again[0]}
    )


def checked_finding(texts: list[dict[str, Any]]) -> Finding:
    """The share of answers that equal those of the reference."""
    if not any(row["tokens"] or row["why"] for row in texts):
        return NotMeasured("no answer had a text that could be compared")
    wrong = [row["why"] for row in texts if row["why"]]
    return Measurement(
        tuple(0.0 if row["why"] else 1.0 for row in texts),
        mean(not row["why"] for row in texts),
        note="; ".join(wrong[:1]),
    )


def _same_text(
    subject: Subject, asked: list[str], answers: list[Answer]
) -> tuple[list[int | None], list[dict[str, Any]]]:
    """For each answer its number of tokens, where the reference knows it, and its row of the report."""
    subject.say("the reference computes the answers again")
    good = [(prompt, answer) for prompt, answer in zip(asked, answers, strict=True) if answer.ok]
    recomputed = iter(recompute(subject.file, [(prompt, answer.text) for prompt, answer in good]))
    counts: list[int | None] = []
    rows = []
    for prompt, answer in zip(asked, answers, strict=True):
        if not answer.ok:
            counts.append(None)
            rows.append({"prompt": prompt, "text": answer.text, "tokens": 0, "why": answer.error or "an empty answer"})
            continue
        one = next(recomputed)
        counts.append(one.tokens if one.covers_text and answer.reason == "length" and not one.why else None)
        rows.append({"prompt": prompt, "text": answer.text, "tokens": one.tokens, "why": one.why})
    return counts, rows


def _counts(
    subject: Subject, asked: list[tuple[str, Answer, int]], exact: list[int | None]
) -> tuple[Finding, list[str]]:
    """Check the token counts of prompts and answers: exactly where the reference knows them, else for plausibility."""
    errors = []
    for (prompt, answer, most), tokens in zip(asked, exact, strict=True):
        error = count_error(subject.file, prompt, answer, most) if answer.ok else ""
        if not error and tokens is not None and answer.completion_tokens != tokens:
            error = f"an answer of {tokens} tokens was counted as {answer.completion_tokens}"
        errors.append(error)
    for length in (16, 100):
        prompt = subject.fresh_prompt(length)
        answer = subject.client.complete(prompt, max_tokens=LONG, temperature=0, logit_bias=subject.no_end_bias())
        errors.append(count_error(subject.file, prompt, answer, LONG) if answer.ok else answer.error)
    wrong = [error for error in errors if error]
    share = mean(not error for error in errors)
    return Measurement(tuple(0.0 if error else 1.0 for error in errors), share, note="; ".join(wrong[:1])), wrong


def _repeatability(subject: Subject, runs: int) -> tuple[Finding, dict[str, Any]]:
    """The same question several times: greedy, with a seed, and beside other requests."""
    ask = partial(subject.client.complete, subject.fresh_prompt(16), max_tokens=24)
    greedy, drawn = {"temperature": 0}, {"temperature": 0.8, "seed": 42}
    shares = {}
    for name, fields in (("greedy", greedy), ("seeded", drawn)):
        subject.say(f"the same question again, {name}")
        texts = [ask(**fields).text for _ in range(runs)]
        others = [partial(subject.client.complete, subject.fresh_prompt(24), max_tokens=24) for _ in range(NEIGHBOURS)]
        with_others = run_concurrently([partial(ask, **fields), *others])[0].text
        shares[name] = [float(text == texts[0] != "") for text in (*texts[1:], with_others)]
    all_shares = tuple(share for row in shares.values() for share in row)
    return Measurement(all_shares, mean(all_shares)), shares


def _scores(subject: Subject, most: int) -> dict[str, Any]:
    """The share of expected words in the server's answers and in those of the library; and JSON of a schema."""
    kinds = {question.kind for question in QUESTIONS}
    asked = [q for kind in sorted(kinds) for q in [q for q in QUESTIONS if q.kind == kind][:most]]
    ours: list[dict[str, Any]] = []
    library = []
    subject.say("questions, to the library too")
    with LLM(subject.file.path, context=1024) as llm:
        for question in asked:
            chat = [{"role": "user", "content": question.text}]
            text = subject.client.chat(chat, max_tokens=WORDS, temperature=0).text
            right = llm.chat(chat, max_tokens=WORDS, temperature=0).text
            ours.append({"kind": question.kind, "score": _share(text, question.words), "text": text})
            library.append(_share(right, question.words))
    return {
        "quality_score": 100 * mean(row["score"] for row in ours),
        "library_score": 100 * mean(library),
        "questions": ours,
        "forced_json": _forced_json(subject),
    }


def _share(text: str, words: tuple[str, ...]) -> float:
    return mean(word in text.lower() for word in words)


def _forced_json(subject: Subject) -> str:
    """Whether the answer follows a schema: yes, no, or the server's error."""
    shape = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    answer = subject.client.chat([{"role": "user", "content": CHATTER[1]}], max_tokens=200, response_format=shape)
    if not answer.ok:
        return answer.error or "no answer"
    if answer.reason == "length":
        return "not at its end"
    try:
        return "yes" if set(json.loads(answer.text)) == {"name", "age"} else "no"
    except (ValueError, TypeError):
        return "no"
