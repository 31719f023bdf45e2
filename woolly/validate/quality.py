"""quality_validation: is the text the model's, are the counts its tokens, is the same question answered the same?

Scores of questions are a property of the model: they stand beside those of the library with the same file.
"""

from __future__ import annotations

import json
from functools import partial
from statistics import mean
from typing import Any

from woolly.llm import LLM
from woolly.validate.client import Answer
from woolly.validate.found import Found, together
from woolly.validate.gates import Finding, Measure, Missing
from woolly.validate.honesty import count_error, recompute
from woolly.validate.prompts import CHATTER, QUESTIONS
from woolly.validate.subject import Subject

BEGINNINGS = ("The capital of France is", "Once upon a time there was", "One, two, three, four,", "def factorial(n):")
WORDS = 48  # tokens of an answer to a question
LONG = 64
NEIGHBOURS = 3
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}  # fmt: skip


def measure(subject: Subject) -> Found:
    wishes = subject.settings.tests.quality_validation
    asked = [subject.fresh(8), *BEGINNINGS][: wishes.checked_prompts]
    subject.say("answers for the reference")
    answers = [subject.client.complete(text, max_tokens=wishes.checked_tokens, temperature=0) for text in asked]
    checked, texts = _same_text(subject, asked, answers)
    counts = _counts(subject, [(p, a, wishes.checked_tokens) for p, a in zip(asked, answers, strict=True)], checked)
    again = _again(subject, wishes.consistency_runs)
    details: dict[str, Any] = {"reference": texts, "counts": counts[1], "same_answer": again[1]}
    if subject.file.card.chat:
        details |= _scores(subject, wishes.prompts)
    return Found(details, {"same_text": checked_finding(texts), "honest_counts": counts[0], "same_answer": again[0]})


def checked_finding(texts: list[dict[str, Any]]) -> Finding:
    """The share of answers that the reference gives too."""
    if not any(row["tokens"] or row["why"] for row in texts):
        return Missing("no answer had a text that could be compared")
    wrong = [row["why"] for row in texts if row["why"]]
    return Measure(
        tuple(0.0 if row["why"] else 1.0 for row in texts),
        mean(not row["why"] for row in texts),
        note="; ".join(wrong[:1]),
    )


def _same_text(
    subject: Subject, asked: list[str], answers: list[Answer]
) -> tuple[list[int | None], list[dict[str, Any]]]:
    """For each answer the tokens that it has for sure, and the row of the report."""
    subject.say("the reference computes the answers again")
    good = [(prompt, answer) for prompt, answer in zip(asked, answers, strict=True) if answer.ok]
    found = iter(recompute(subject.file, [(prompt, answer.text) for prompt, answer in good]))
    counts: list[int | None] = []
    rows = []
    for prompt, answer in zip(asked, answers, strict=True):
        if not answer.ok:
            counts.append(None)
            rows.append({"prompt": prompt, "text": answer.text, "tokens": 0, "why": answer.error or "an empty answer"})
            continue
        one = next(found)
        counts.append(one.tokens if one.whole and answer.reason == "length" and not one.why else None)
        rows.append({"prompt": prompt, "text": answer.text, "tokens": one.tokens, "why": one.why})
    return counts, rows


def _counts(
    subject: Subject, asked: list[tuple[str, Answer, int]], exact: list[int | None]
) -> tuple[Finding, list[str]]:
    """Counts of prompts and answers: to the token where the reference knows them, of long ones as they may be."""
    errors = []
    for (prompt, answer, most), tokens in zip(asked, exact, strict=True):
        error = count_error(subject.file, prompt, answer, most) if answer.ok else ""
        if not error and tokens is not None and answer.completion_tokens != tokens:
            error = f"an answer of {tokens} tokens was counted as {answer.completion_tokens}"
        errors.append(error)
    for length in (16, 100):
        prompt = subject.fresh(length)
        answer = subject.client.complete(prompt, max_tokens=LONG, temperature=0, logit_bias=subject.no_end())
        errors.append(count_error(subject.file, prompt, answer, LONG) if answer.ok else answer.error)
    wrong = [error for error in errors if error]
    share = mean(not error for error in errors)
    return Measure(tuple(0.0 if error else 1.0 for error in errors), share, note="; ".join(wrong[:1])), wrong


def _again(subject: Subject, runs: int) -> tuple[Finding, dict[str, Any]]:
    """The same question several times: greedy, by a seed, and while others are answered."""
    ask = partial(subject.client.complete, subject.fresh(16), max_tokens=24)
    greedy, drawn = {"temperature": 0}, {"temperature": 0.8, "seed": 42}
    shares = {}
    for name, fields in (("greedy", greedy), ("seeded", drawn)):
        subject.say(f"the same question again, {name}")
        texts = [ask(**fields).text for _ in range(runs)]
        others = [partial(subject.client.complete, subject.fresh(24), max_tokens=24) for _ in range(NEIGHBOURS)]
        beside = together([partial(ask, **fields), *others])[0].text
        shares[name] = [float(text == texts[0] != "") for text in (*texts[1:], beside)]
    every = tuple(share for row in shares.values() for share in row)
    return Measure(every, mean(every)), shares


def _scores(subject: Subject, most: int) -> dict[str, Any]:
    """Words that answers should have, beside what the library's answers have; and JSON that is forced."""
    kinds = {question.kind for question in QUESTIONS}
    asked = [q for kind in sorted(kinds) for q in [q for q in QUESTIONS if q.kind == kind][:most]]
    ours: list[dict[str, Any]] = []
    library = []
    subject.say("questions, to the library too")
    with LLM(subject.file.path, context=1024) as llm:
        for question in asked:
            chat = [{"role": "user", "content": question.text}]
            said = subject.client.chat(chat, max_tokens=WORDS, temperature=0).text
            right = llm.chat(chat, max_tokens=WORDS, temperature=0).text
            ours.append({"kind": question.kind, "score": _share(said, question.words), "text": said})
            library.append(_share(right, question.words))
    return {
        "quality_score": 100 * mean(row["score"] for row in ours),
        "library_score": 100 * mean(library),
        "questions": ours,
        "forced_json": _forced(subject),
    }


def _share(text: str, words: tuple[str, ...]) -> float:
    return mean(word in text.lower() for word in words)


def _forced(subject: Subject) -> str:
    """Whether a schema is kept to: yes, no, or what the server says."""
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
