"""Files and batches over HTTP, as any client sends them."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.server.process import Process
from tests.server.raw import ask

BOUNDARY = "a-boundary-of-tests"


def form(content: bytes, *, filename: str = "in.jsonl", **fields: str) -> bytes:
    data = b""
    for name, value in fields.items():
        data += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    data += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n\r\n'.encode()
    return data + content + f"\r\n--{BOUNDARY}--\r\n".encode()


class Client:
    """A client of the routes for files and batches."""

    def __init__(self, port: int, key: str = "") -> None:
        self.port = port
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        status, _, answer = ask(self.port, method, path, body, self.headers | (headers or {}))
        return status, answer

    def send(self, data: bytes) -> tuple[int, Any]:
        return self.ask("POST", "/v1/files", data, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})

    def upload(self, content: bytes | list[dict[str, Any]]) -> str:
        data = content if isinstance(content, bytes) else b"\n".join(json.dumps(row).encode() for row in content)
        status, answer = self.send(form(data, purpose="batch"))
        assert status == 200, answer
        return str(answer["id"])

    def begin(self, rows: bytes | list[dict[str, Any]], endpoint: str = "/v1/chat/completions", **more: Any) -> str:
        body = {"input_file_id": self.upload(rows), "endpoint": endpoint, "completion_window": "24h"} | more
        status, answer = self.ask("POST", "/v1/batches", body)
        assert status == 200, answer
        return str(answer["id"])

    def batch(self, id_: str) -> dict[str, Any]:
        status, answer = self.ask("GET", f"/v1/batches/{id_}")
        assert status == 200, answer
        return dict(answer)

    def ended(self, id_: str, seconds: float = 30) -> dict[str, Any]:
        late = time.monotonic() + seconds
        while (record := self.batch(id_))["status"] not in ("completed", "failed", "cancelled"):
            assert time.monotonic() < late, record
            time.sleep(0.02)
        return record

    def lines(self, file: str | None) -> list[dict[str, Any]]:
        if file is None:
            return []
        status, answer = self.ask("GET", f"/v1/files/{file}/content")
        assert status == 200, answer
        return [json.loads(line) for line in answer.splitlines()]


def client(process: Process) -> Client:
    return Client(process.port)
