"""OpenAI's files and batches."""

from __future__ import annotations

import json
from typing import Any

from tests.server.batch.uploads import BOUNDARY, form
from tools.http_transcripts.case import HELLO, Case, delete, get, named, post, refused

FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
CHAT = {"model": "talker", "messages": HELLO, "max_tokens": 4, "temperature": 0}
WHEN = frozenset(("status", "cancelling_at", "cancelled_at", "in_progress_at", "finalizing_at", "completed_at"))
ENDED = ("status", ("completed", "failed", "cancelled"))
BATCH: dict[str, Any] = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}


def rows(*bodies: dict[str, Any], url: str = "/v1/chat/completions") -> bytes:
    lines = [
        {"custom_id": f"row-{number}", "method": "POST", "url": url, "body": body} for number, body in enumerate(bodies)
    ]
    return b"\n".join(json.dumps(line).encode() for line in lines)


def upload(name: str, content: bytes, **more: Any) -> Case:
    return post(name, "/v1/files", form(content, purpose="batch"), headers=FORM, **more)


def begun(name: str, file: str, **more: Any) -> Case:
    body = BATCH | {"input_file_id": f"<{file}>"} | more
    return post(name, "/v1/batches", body, keep={"batch": "id"}, vague=WHEN)


CASES = named(
    "openai files",
    get("none", "/v1/files"),
    upload("a file", rows(CHAT, CHAT | {"temperature": -1}), keep={"input_file": "id"}),
    get("listed", "/v1/files"),
    get("listed, a page", "/v1/files?limit=1&order=asc"),
    get("listed, after one", "/v1/files?after=<input_file>&order=asc"),
    get("listed by purpose", "/v1/files?purpose=batch_output"),
    get("one", "/v1/files/<input_file>"),
    get("its content", "/v1/files/<input_file>/content"),
    get("refused, a page of nothing", "/v1/files?limit=0"),
    get("an order that is none", "/v1/files?order=up"),
    get("refused, after nobody", "/v1/files?after=file-nobody"),
    get("refused, not there", "/v1/files/file-nobody"),
    get("refused, the content of nothing", "/v1/files/file-nobody/content"),
    delete("refused, deleted though not there", "/v1/files/file-nobody"),
    post("refused, no form", "/v1/files", {"purpose": "batch"}),
    post("refused, a form without a file", "/v1/files", form(b"x").partition(b"Content-Disp")[0], headers=FORM),
    post("refused, another purpose", "/v1/files", form(b"x", purpose="vision"), headers=FORM),
    post("refused, no purpose", "/v1/files", form(b"x"), headers=FORM),
    upload("refused, too large", b"x" * 4000, server="small"),
) + named(
    "openai batches",
    get("none", "/v1/batches"),
    begun("begun", "input_file", metadata={"who": "ada"}),
    get(
        "ended",
        "/v1/batches/<batch>",
        until=ENDED,
        keep={"output_file": "output_file_id", "error_file": "error_file_id"},
    ),
    get("its answers", "/v1/files/<output_file>/content"),
    get("its errors", "/v1/files/<error_file>/content"),
    get("the file of its answers", "/v1/files/<output_file>"),
    get("listed", "/v1/batches"),
    get("listed, a page", "/v1/batches?limit=1"),
    get("listed, after the last", "/v1/batches?after=<batch>"),
    post("refused, cancelled when it is over", "/v1/batches/<batch>/cancel", {}),
    upload("another file", rows(CHAT, url="/v1/embeddings"), keep={"wrong_file": "id"}),
    upload("a file of words", b"no JSON at all", keep={"words_file": "id"}),
    upload("a long one", rows(*[CHAT | {"max_tokens": 600} for _ in range(200)]), keep={"long_file": "id"}),
    begun("begun for another route", "wrong_file"),
    get("failed for another route", "/v1/batches/<batch>", until=ENDED),
    begun("begun without JSON", "words_file"),
    get("failed without JSON", "/v1/batches/<batch>", until=ENDED),
    begun("begun to be cancelled", "long_file"),
    delete("refused, a file that is being read", "/v1/files/<long_file>"),
    post("cancelled", "/v1/batches/<batch>/cancel", {}, vague=WHEN),
    get(
        "ended by its cancelling",
        "/v1/batches/<batch>",
        until=ENDED,
        vague=frozenset(("output_file_id", "error_file_id")),
    ),
    delete("the file of its answers, deleted", "/v1/files/<output_file>"),
    get("refused, the file is deleted", "/v1/files/<output_file>"),
    refused(
        "/v1/batches",
        BATCH | {"input_file_id": "<input_file>"},
        {
            "a file that is not there": {"input_file_id": "file-nobody"},
            "no file": {"input_file_id": ...},
            "unknown endpoint": {"endpoint": "/v1/moderations"},
            "another window": {"completion_window": "1h"},
            "metadata of another type": {"metadata": "ada"},
        },
    ),
    get("refused, not there", "/v1/batches/batch_nobody"),
    get("refused, a page of nothing", "/v1/batches?limit=0"),
    get("refused, after nobody", "/v1/batches?after=batch_nobody"),
    post("refused, cancelled though not there", "/v1/batches/batch_nobody/cancel", {}),
)
