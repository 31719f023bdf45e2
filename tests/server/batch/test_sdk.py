"""OpenAI's own client with files and batches of `woolly serve`."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.batch.lines import HELLO, row
from tests.server.process import Process

openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")


@pytest.fixture
def client(served: Process) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def rows(count: int, **body: Any) -> io.BytesIO:
    asked: dict[str, Any] = {"model": "talker", "messages": HELLO, "max_tokens": 6} | body
    lines = [row(f"r{number}", **asked) for number in range(count)]
    upload = io.BytesIO("".join(json.dumps(line) + "\n" for line in lines).encode())
    upload.name = "questions.jsonl"
    return upload


def ended(client: Any, batch: Any) -> Any:
    late = time.monotonic() + 60
    while batch.status not in ("completed", "failed", "cancelled"):
        assert time.monotonic() < late, batch
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def begin(client: Any, file: Any, **fields: Any) -> Any:
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **fields
    )


def test_a_batch_from_the_upload_to_its_answers(client: Any) -> None:
    file = client.files.create(file=rows(12), purpose="batch")
    assert (file.filename, file.purpose, file.status) == ("questions.jsonl", "batch", "processed")
    assert client.files.retrieve(file.id) == file and file.id in [each.id for each in client.files.list()]
    assert client.files.content(file.id).read() == rows(12).getvalue()
    batch = ended(client, begin(client, file, metadata={"project": "wool"}))
    assert (batch.status, batch.request_counts.completed, batch.metadata) == ("completed", 12, {"project": "wool"})
    lines = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert [line["custom_id"] for line in lines] == [f"r{number}" for number in range(12)]
    answers = [openai.types.chat.ChatCompletion.model_validate(line["response"]["body"]) for line in lines]
    assert all(answer.usage.completion_tokens <= 6 and answer.model == "talker" for answer in answers)
    assert batch.id in [each.id for each in client.batches.list(limit=1)]  # the client walks all pages
    for id_ in (file.id, batch.output_file_id):
        assert client.files.delete(id_).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(batch.output_file_id)


def test_a_wrong_file_and_a_cancelled_batch_are_told_as_openai_tells_them(client: Any) -> None:
    failed = ended(client, begin(client, client.files.create(file=("x.jsonl", b"{oh\n"), purpose="batch")))
    assert failed.status == "failed" and failed.errors.data[0].line == 1
    assert failed.errors.data[0].code == "invalid_json_line"
    batch = begin(client, client.files.create(file=rows(50, max_tokens=4000), purpose="batch"))
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    assert ended(client, batch).status == "cancelled"
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)
    with pytest.raises(openai.BadRequestError, match="purpose is batch"):
        client.files.create(file=("x.jsonl", b"{}"), purpose="fine-tune")
