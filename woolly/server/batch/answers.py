"""The lines of a batch's output, as OpenAI writes them, without anything that depends on a clock or on chance.

    {"id": ..., "custom_id": ..., "response": {"status_code": 200, "request_id": ..., "body": {...}}, "error": null}

An answer's ids and the ids of its calls are made of the row's stamp. Its time is the job's, and it has no timings. How
many tokens of a prompt came from a cache depends on what else ran before, so it is written as 0.
"""

from __future__ import annotations

from typing import Any

import msgspec

from woolly.server.batch.rows import CHAT, COMPLETIONS, RESPONSES, BatchRow

PREFIXES = {CHAT: "chatcmpl-", COMPLETIONS: "cmpl-", RESPONSES: "resp_"}  # embeddings have no id
BEGINNING = b'{"id":"batch_req_'  # the beginning of every line
CREATED = {CHAT: "created", COMPLETIONS: "created", RESPONSES: "created_at"}


def output_line(row: BatchRow, status: int, body: Any, created: int) -> bytes:
    """The line of a row that was answered, or refused with that status."""
    if status == 200 and isinstance(body, dict):
        body = _settled(row, body, created)
    response = {"status_code": status, "request_id": row.request_id, "body": body}
    return msgspec.json.encode({"id": row.id, "custom_id": row.custom_id, "response": response, "error": None}) + b"\n"


def _settled(row: BatchRow, body: dict[str, Any], created: int) -> dict[str, Any]:
    settled = {name: value for name, value in body.items() if name != "timings"}
    if row.url in PREFIXES:
        settled["id"], settled[CREATED[row.url]] = PREFIXES[row.url] + row.stamp, created
    if row.url == CHAT:
        calls = (call for choice in _dicts(body.get("choices")) for call in _calls(choice))
        for count, call in enumerate(calls):
            call["id"] = f"call_{row.stamp}{count:03x}"
    if row.url == RESPONSES:
        for count, item in enumerate(_dicts(body.get("output"))):
            for name in ("id", "call_id"):
                if isinstance(item.get(name), str):
                    item[name] = f"{item[name].partition('_')[0]}_{row.stamp}{count:03x}"
    usage = body.get("usage")
    for name in ("prompt_tokens_details", "input_tokens_details"):
        if isinstance(usage, dict) and isinstance(usage.get(name), dict) and "cached_tokens" in usage[name]:
            usage[name]["cached_tokens"] = 0
    return settled


def _calls(choice: dict[str, Any]) -> list[dict[str, Any]]:
    message = choice.get("message")
    return _dicts(message.get("tool_calls")) if isinstance(message, dict) else []


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def tokens_of(body: Any) -> int:
    """The tokens of an answer and its prompt, as far as its body says."""
    usage = body.get("usage") if isinstance(body, dict) else None
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) else 0
