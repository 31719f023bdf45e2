"""A model at a server: what a chat asks of an `LLM`, asked over /v1/chat/completions, streamed.

Any server that speaks OpenAI's dialect will do. What it does not tell (the context of a model, its architecture) is not
shown; what it sends is bounded and checked like everything else from outside.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from woolly import __version__
from woolly.errors import DownloadError, NotFoundError, RequestError, WoollyError, printable
from woolly.limits import LIMITS
from woolly.messages import Message
from woolly.request import End, Event, Reason, Text, Thought, Timings, Usage

LINE = 1 << 20  # bytes of an event
AGAIN_S = 20.0  # for a server that broke off to be there again
REPLY = 4 << 20  # bytes of a list of models, or of an error
REASONS: Mapping[str, Reason] = {"length": "length", "tool_calls": "calls"}  # all others are ends


@dataclass(frozen=True, slots=True)
class RemoteCard:
    """What is known of a model at a server; what its sampling is without options, the server says."""

    name: str
    path: str
    architecture: str = "at a server"
    context: int = 0
    chat: bool = True
    sampling: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoteInfo:
    context: int = 0
    threads: int = 0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer whose body is not yet read, and what it comes over."""

    connection: http.client.HTTPConnection
    sock: socket.socket
    answer: http.client.HTTPResponse


class Server:
    """A server by its address, http://HOST:PORT with or without /v1."""

    def __init__(self, url: str, key: str = "") -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise RequestError(
                f"'{printable(url)}' is no address of a server",
                suggestion="it looks like http://127.0.0.1:8080",
                param="--server",
            )
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._root = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"User-Agent": f"woolly/{__version__}", "Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def model(self, name: str) -> Remote:
        return Remote(self, name)

    def models(self) -> list[str]:
        """The names of its models, the first of which it has loaded."""
        reply = self.ask("GET", "/models")
        try:
            rows = json.loads(reply.answer.read(REPLY))["data"]
            names = [row["id"] for row in rows if isinstance(row["id"], str)]
        except (ValueError, LookupError, TypeError, http.client.HTTPException, OSError):
            raise self.strange() from None
        finally:
            reply.connection.close()
        if not names:
            raise NotFoundError(f"the server at {self.url} has no model", suggestion="start it with one")
        return names

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        base: str = "/v1",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """An answer with status 200, its body not yet read; what the server refuses is an error in its words."""
        reply = self.send(method, path, body, base=base, headers=headers)
        if reply.answer.status == 200:
            return reply
        try:
            refusal = self.refusal(reply.answer.status, reply.answer.read(REPLY))
        except (OSError, http.client.HTTPException) as error:
            raise self.silent(error) from None
        finally:
            reply.connection.close()
        raise refusal

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        base: str = "/v1",
        headers: Mapping[str, str] | None = None,
        connected: Callable[[socket.socket], None] = lambda sock: None,
    ) -> Reply:
        """An answer of any status, its body not yet read. connected: is given what to shut down to end the waiting."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=LIMITS.stall_s)
        try:
            connection.connect()
            sock: socket.socket = connection.sock
            connected(sock)
            data = json.dumps(body) if body else None
            connection.request(method, self._root + base + path, data, {**self._headers, **(headers or {})})
            sock.settimeout(None)  # a long prompt is read in silence, and Ctrl-C ends the waiting
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a machine that is gone is noticed
            return Reply(connection, sock, connection.getresponse())
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise self.silent(error) from None

    def silent(self, error: Exception) -> DownloadError:
        return DownloadError(
            f"the server at {self.url} does not answer: {printable(error)}",
            suggestion="start one with `woolly serve`, or look at the address",
        )

    def refusal(self, status: int, data: bytes) -> WoollyError:
        try:
            said = json.loads(data)["error"]
            told = said["message"] if isinstance(said, dict) else said
        except (ValueError, LookupError, TypeError):
            told = f"status {status}"
        if status == 401:
            return RequestError(
                f"the server at {self.url} wants a key", suggestion="give it by WOOLLY_API_KEY", param="--api-key"
            )
        return RequestError(f"the server at {self.url} says: {printable(told, 500)}")

    def strange(self) -> DownloadError:
        return DownloadError(
            f"the server at {self.url} does not speak OpenAI's dialect", suggestion="look at the address"
        )


class Remote:
    """A model at a server, in a chat's place for an `LLM`."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.card = RemoteCard(name, name)
        self.info = RemoteInfo()

    def chat_stream(self, messages: Sequence[Message], **options: Any) -> RemoteStream:
        body: dict[str, Any] = {"model": self.card.name, "messages": messages, **options, "stream": True}
        if (think := body.pop("think", None)) is not None:
            body["chat_template_kwargs"] = {"enable_thinking": think, "thinking": think}
        if biases := body.get("logit_bias"):
            body["logit_bias"] = [[token, bias] for token, bias in biases.items()]
        return RemoteStream(self.server, body | {"stream_options": {"include_usage": True}})

    def render(self, messages: Iterable[Message], think: bool | None = None) -> str:
        """The server renders; a model without a switch for thinking passes it by."""
        return ""

    def close(self) -> None:
        """Nothing is kept between two answers."""

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteStream:
    """The events of one answer. Cancelling closes the connection, and by that the server stops.

    A connection that breaks is no end where the server is a Woolly: it is asked again, by the number of the last event,
    and gives the rest.
    """

    def __init__(self, server: Server, body: Mapping[str, Any]) -> None:
        self._begun = time.monotonic()
        self._server, self._seed, self._body = server, int(body.get("seed") or 0), body
        self._seen = 0
        self._again: dict[str, str] = {}  # headers by which the same answer can be had again
        self._cancelled = False
        self._reply = self._ask()

    def _ask(self) -> Reply:
        headers = {"Last-Event-ID": str(self._seen), **self._again}
        reply = self._server.ask("POST", "/chat/completions", self._body, headers=headers)
        told = {name: reply.answer.getheader(name, "") for name in ("X-Woolly-Seed", "X-Request-Id")}
        self._again = told if all(told.values()) else {}
        return reply

    def _asked_again(self) -> bool:
        """Whether the rest of the answer comes over another connection."""
        late = time.monotonic() + AGAIN_S
        while self._again and not self._cancelled and time.monotonic() < late:
            self._reply.connection.close()
            try:
                self._reply = self._ask()
                return True
            except DownloadError:  # it is not there, or not yet
                time.sleep(AGAIN_S / 40)
        return False

    def cancel(self) -> None:
        """From a handler of Ctrl-C, while the answer is waited for."""
        self._cancelled = True
        with contextlib.suppress(OSError):  # the other side was faster
            self._reply.sock.shutdown(socket.SHUT_RDWR)

    def __iter__(self) -> Iterator[Event]:
        reason: Reason = "stop"
        usage = Usage(0, 0, 0)
        first = last = 0.0
        try:
            for chunk in self._chunks():
                for choice in chunk.get("choices") or ():
                    delta = choice.get("delta") or {}
                    for kind, name in ((Thought, "reasoning_content"), (Text, "content")):
                        if text := delta.get(name):
                            last = time.monotonic()
                            first = first or last
                            yield kind(str(text), ())
                    if ended := choice.get("finish_reason"):
                        reason = REASONS.get(ended, "stop")
                if counts := chunk.get("usage"):
                    held = (counts.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                    usage = Usage(int(counts["prompt_tokens"]), int(held), int(counts["completion_tokens"]))
        except (AttributeError, LookupError, TypeError, ValueError):
            raise self._server.strange() from None
        finally:
            self._reply.connection.close()
        yield End("cancelled" if self._cancelled else reason, usage, self._timings(usage, first, last), self._seed)

    def _chunks(self) -> Iterator[Mapping[str, Any]]:
        """The objects of the events; an error among them is raised."""
        number = 0
        while True:
            try:
                line = self._reply.answer.readline(LINE)
            except (OSError, http.client.HTTPException, ValueError):
                line = b""
            if not line and not self._cancelled and self._asked_again():
                continue
            if not line or line.strip() == b"data: [DONE]":
                if not line and not self._cancelled:
                    raise DownloadError(f"the server at {self._server.url} broke off in the middle of its answer")
                return
            if line.startswith(b"id:"):
                number = int(line[3:])
            if line.startswith(b"data:"):
                chunk = json.loads(line[5:])
                if "error" in chunk:
                    raise self._server.refusal(500, line[5:])
                self._seen = number
                yield chunk

    def _timings(self, usage: Usage, first: float, last: float) -> Timings:
        """As they look from here: the server's waiting, and the way to it, are in the time to the first token."""
        before = (first or time.monotonic()) - self._begun
        rate = (usage.completion_tokens - 1) / (last - first) if last > first else 0.0
        return Timings(0.0, before, last - first, (usage.prompt_tokens - usage.cached_tokens) / before, rate)
