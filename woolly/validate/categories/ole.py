"""ole: the first requests of the desktop client Ole, and a conversation that resends its history, as Ole does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from woolly.validate.categories.result import CategoryResult
from woolly.validate.client import Unreachable
from woolly.validate.gates import Finding, Measurement, NotMeasured
from woolly.validate.prompts import CHATTER
from woolly.validate.subject import Subject

HEADERS = {"X-Ole-Client": "1", "User-Agent": "Ole/1.0"}
CHAT = "/api/v1/inference/chat"  # skipped for models without a chat template
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
TURNS, TOKENS = 10, 24

# Method, path, body, and a check of those fields of the answer that Ole reads: steps D1, D2, M1 and T1 of Ole.
Reads = Callable[[Any], bool]
STEPS: dict[str, tuple[str, str, dict[str, Any] | None, Reads]] = {
    "health": ("GET", "/api/v1/health", None, lambda body: body["status"] == "ok"),
    "ready": ("GET", "/api/v1/health/ready", None, lambda body: body["status"] == "ready"),
    "models": ("GET", "/api/v1/models", None, lambda body: body["success"] is True and bool(body["data"][0]["name"])),
    "chat": (
        "POST",
        CHAT,
        BODY,
        lambda body: isinstance(body["choices"][0]["message"]["content"], str),
    ),
}


def measure(subject: Subject) -> CategoryResult:
    subject.say("the steps of Ole")
    steps = [name for name, (_, path, *_) in STEPS.items() if subject.file.card.chat or path != CHAT]
    wrong = {name: why for name in steps if (why := _step(subject, name))}
    if subject.file.card.chat:
        steps.append("stream")
        streamed = subject.client.stream(CHAT, BODY)
        if not streamed.ok:
            wrong["stream"] = streamed.error or "no text, or no reason at its end"
    count = len(steps)
    steps_held = Measurement(tuple([1.0] * (count - len(wrong)) + [0.0] * len(wrong)), 1 - len(wrong) / count,
                          note="; ".join(f"{name}: {why}" for name, why in wrong.items()))  # fmt: skip
    hits, rows = _conversation(subject)
    return CategoryResult({"wrong": wrong, "turns": rows}, {"ole_connects": steps_held, "cache_hits": hits})


def _step(subject: Subject, name: str) -> str:
    method, path, body, reads = STEPS[name]
    try:
        status, answer = subject.client.ask(method, path, body, headers=HEADERS)
        return "" if status == 200 and reads(answer) else f"status {status}"
    except Unreachable as error:
        return str(error)
    except (KeyError, IndexError, TypeError) as error:
        return f"the answer lacks {error}"


def _conversation(subject: Subject) -> tuple[Finding, list[dict[str, Any]]]:
    """The share of cached prompt tokens over ten turns, without the first, which has nothing in the cache."""
    if not subject.file.card.chat:
        return NotMeasured("the model has no chat template", applies=False), []
    messages = [{"role": "system", "content": f"You are helpful. {subject.fresh_prompt(64)}"}]
    rows: list[dict[str, Any]] = []
    for turn in range(TURNS):
        subject.say(f"turn {turn + 1} of {TURNS}")
        messages.append({"role": "user", "content": CHATTER[turn % len(CHATTER)]})
        answer = subject.client.chat(messages, max_tokens=TOKENS, temperature=0)
        if not answer.ok:
            return NotMeasured(f"turn {turn + 1} has no answer: {answer.error}"), rows
        rows.append({"prompt": answer.prompt_tokens, "cached": answer.cached_tokens, "first_ms": answer.first_s * 1e3})
        messages.append({"role": "assistant", "content": answer.text})
    later = [(row["cached"], row["prompt"]) for row in rows[1:]]
    if any(cached is None or not prompt for cached, prompt in later):
        return NotMeasured("the server does not tell how many tokens it had computed before", applies=False), rows
    return Measurement(tuple(c / p for c, p in later), sum(c for c, _ in later) / sum(p for _, p in later)), rows
