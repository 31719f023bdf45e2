"""Asks every case, and keeps the shape of what came."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tools.http_transcripts.case import AnyCase, Case, Socket
from tools.http_transcripts.shape import body_of, headers_of, once, shape

NAME = re.compile(r"<([a-z_]+)>")
TIMEOUT_S = 60


class Recorder:
    """known: what cases have kept, by name."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports = ports
        self._known: dict[str, Any] = {}

    def record(self, cases: Iterable[AnyCase]) -> dict[str, Any]:
        transcripts: dict[str, Any] = {}
        for case in cases:
            assert case.name not in transcripts, f"two cases have the name '{case.name}'"
            transcripts[case.name] = self._socket(case) if isinstance(case, Socket) else self._until(case)
        return transcripts

    def openapi(self, server: str) -> Any:
        return json.loads(self._ask(Case(name="", path="/openapi.json", server=server))[2])

    def _until(self, case: Case) -> dict[str, Any]:
        end = time.monotonic() + TIMEOUT_S
        while True:
            status, headers, data = self._ask(case)
            media_type = dict(headers).get("content-type", "")
            answer = json.loads(data) if media_type.startswith("application/json") and data else {}
            if case.until is None or answer.get(case.until[0]) in case.until[1]:
                break
            if time.monotonic() > end:
                raise SystemExit(f"{case.name}: {case.until[0]} is still {answer.get(case.until[0])}")
            time.sleep(0.02)
        for name, place in case.keep.items():
            self._known[name] = at(answer, place, case.name)
        body = body_of(data, media_type, vague=case.vague, unordered=case.unordered)
        return {"status": status, "headers": headers_of(headers), "body": body}

    def _ask(self, case: Case) -> tuple[int, list[tuple[str, str]], bytes]:
        data = self._fill_data(case.data)
        named = {"Content-Type": "application/json"} if data is not None else {}
        headers = named | {name: self._fill(value) for name, value in case.headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[case.server], timeout=TIMEOUT_S)
        try:
            connection.request(case.method, self._fill(case.path), data, headers)
            answer = connection.getresponse()
            pairs = [(name.lower(), value) for name, value in answer.getheaders()]
            return answer.status, pairs, answer.read()
        except (ConnectionResetError, BrokenPipeError):
            return 0, [], b""  # closed before all of the body was sent
        finally:
            connection.close()

    def _fill(self, text: str) -> str:
        return NAME.sub(lambda name: str(self._known.get(name[1], name[0])), text)

    def _fill_data(self, data: bytes | None) -> bytes | None:
        """A kept value that is not a text takes the quotes along."""
        if data is None or b"<" not in data:
            return data
        for name, value in self._known.items():
            if not isinstance(value, str):
                data = data.replace(f'"<{name}>"'.encode(), json.dumps(value).encode())
            data = data.replace(f"<{name}>".encode(), str(value).encode())
        return data

    def _socket(self, case: Socket) -> dict[str, Any]:
        rows: list[Any] = []
        url = f"ws://127.0.0.1:{self._ports[case.server]}{case.path}"
        headers = dict(case.headers)
        protocols = [headers.pop("Sec-WebSocket-Protocol")] if "Sec-WebSocket-Protocol" in headers else None
        try:
            with connect(url, proxy=None, additional_headers=headers, subprotocols=protocols) as socket:  # type: ignore[arg-type]
                answer = socket.response
                assert answer is not None
                handshake = {"status": answer.status_code, "headers": headers_of(answer.headers.raw_items())}
                rows.append(shape(json.loads(socket.recv(TIMEOUT_S))))
                for turn in case.turns:
                    message = turn.message
                    socket.send(message if isinstance(message, str | bytes) else self._text(message))
                    while turn.ends:
                        came = json.loads(socket.recv(TIMEOUT_S))
                        rows.append(shape(came))
                        if came.get("type", "rpc") in turn.ends:
                            break
                return handshake | {"messages": once(rows)}
        except InvalidStatus as refused:
            answer = refused.response
            media_type = answer.headers.get("content-type", "")
            body = body_of(bytes(answer.body or b""), media_type)
            return {"status": answer.status_code, "headers": headers_of(answer.headers.raw_items()), "body": body}
        except ConnectionClosed as closed:
            return {"messages": once(rows), "closed": closed.rcvd.code if closed.rcvd else None}

    def _text(self, message: Any) -> str:
        data = self._fill_data(json.dumps(message).encode())
        assert data is not None
        return data.decode()


def at(value: Any, place: str, case: str) -> Any:
    """What stands at `data.0.id` of an answer."""
    for part in place.split("."):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError) as missing:
            raise SystemExit(f"{case}: there is no {place} in {json.dumps(value)[:300]}") from missing
    return value
