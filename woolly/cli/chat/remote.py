"""A model at a server, used by a chat in place of an `LLM`: over /v1/chat/completions, streamed.

Any server that speaks OpenAI's dialect will do. Figures that it does not give (the context of a model, its
architecture) are not shown; its answers are bounded and checked like everything else from outside.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from woolly.errors import DownloadError, NotFoundError, RequestError, WoollyError, printable
from woolly.io.http import AGENT, Response, Terms, ask
from woolly.limits import LIMITS
from woolly.request import End, Event, Reason, Text, Thought, Timings, Usage
from woolly.request.messages import Message

LINE = 1 << 20  # bytes of an event
RECONNECT_S = 20.0  # how long a server that broke off has to answer again
REPLY = 4 << 20  # bytes of a list of models, or of an error
REASONS: Mapping[str, Reason] = {"length": "length", "tool_calls": "calls"}  # every other reason is an ordinary end


@dataclass(frozen=True, slots=True)
class RemoteCard:
    """The card of a model at a server. It has no sampling of its own: the server has its defaults."""

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
        self._root = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"User-Agent": AGENT, "Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def model(self, name: str) -> ServerModel:
        return ServerModel(self, name)

    def models(self) -> list[str]:
        """The names of its models, the first of which it has loaded."""
        try:
            with self.ask("GET", "/models") as answer:
                rows = json.loads(answer.read(REPLY))["data"]
            names = [row["id"] for row in rows if isinstance(row["id"], str)]
        except (ValueError, LookupError, TypeError, OSError):
            raise self.protocol_error() from None
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
    ) -> Response:
        """An answer with status 200, its body not yet read; a refusal is raised as an error in the server's words."""
        answer = self.send(method, path, body, base=base, headers=headers)
        if answer.status == 200:
            return answer
        try:
            with answer:
                refusal = self.refusal(answer.status, answer.read(REPLY))
        except OSError as error:
            raise self.connection_error(error) from None
        raise refusal

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        base: str = "/v1",
        headers: Mapping[str, str] | None = None,
        connected: Callable[[Callable[[], None]], None] = lambda cut: None,
    ) -> Response:
        """An answer of any status, its body not yet read. connected: given a function that ends the wait."""
        data = json.dumps(body).encode() if body else None
        terms = Terms(LIMITS.stall_s, wait_s=None)  # nothing comes while a long prompt is read; Ctrl-C ends the wait
        url, named = self.url + self._root + base + path, {**self._headers, **(headers or {})}
        try:
            return ask(method, url, data, named, terms=terms, connected=connected)
        except (OSError, ValueError) as error:
            raise self.connection_error(error) from None

    def connection_error(self, error: Exception) -> DownloadError:
        return DownloadError(
            f"the server at {self.url} does not answer: {printable(error)}",
            suggestion="start one with `woolly serve`, or look at the address",
        )

    def refusal(self, status: int, data: bytes) -> WoollyError:
        try:
            error = json.loads(data)["error"]
            reason = error["message"] if isinstance(error, dict) else error
        except (ValueError, LookupError, TypeError):
            reason = f"status {status}"
        if status == 401:
            return RequestError(
                f"the server at {self.url} wants a key", suggestion="give it by WOOLLY_API_KEY", param="--api-key"
            )
        return RequestError(f"the server at {self.url} says: {printable(reason, 500)}")

    def protocol_error(self) -> DownloadError:
        return DownloadError(
            f"the server at {self.url} does not speak OpenAI's dialect", suggestion="look at the address"
        )


class ServerModel:
    """A model at a server, with those methods of an `LLM` that a chat calls."""

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
        """Empty: the server renders the prompt, and cannot be asked whether the model has a switch for thinking."""
        return ""

    def close(self) -> None:
        """Does nothing: no connection is kept between two answers."""

    def __enter__(self) -> ServerModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteStream:
    """The events of one answer. Cancelling closes the connection, which makes the server stop.

    Where the connection breaks and the server is a Woolly, the rest of the answer is requested by the number of the
    last event.
    """

    def __init__(self, server: Server, body: Mapping[str, Any]) -> None:
        self._began_s = time.monotonic()
        self._server, self._seed, self._body = server, int(body.get("seed") or 0), body
        self._seen = 0
        self._resume_headers: dict[str, str] = {}  # headers by which the server gives the rest of the same answer
        self._cancelled = False
        self._answer = self._ask()

    def _ask(self) -> Response:
        headers = {"Last-Event-ID": str(self._seen), **self._resume_headers}
        answer = self._server.ask("POST", "/chat/completions", self._body, headers=headers)
        answer_ids = {name: answer.headers.get(name, "") for name in ("X-Woolly-Seed", "X-Request-Id")}
        self._resume_headers = answer_ids if all(answer_ids.values()) else {}
        return answer

    def _reconnect(self) -> bool:
        """Connect again for the rest of the answer. Returns whether that worked."""
        late = time.monotonic() + RECONNECT_S
        while self._resume_headers and not self._cancelled and time.monotonic() < late:
            self._answer.close()
            try:
                self._answer = self._ask()
                return True
            except DownloadError:  # the server does not answer, or not yet
                time.sleep(RECONNECT_S / 40)
        return False

    def cancel(self) -> None:
        """Shut down the connection. A handler of Ctrl-C may call it while the answer is waited for."""
        self._cancelled = True
        self._answer.cut()

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
                    cached = (counts.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                    usage = Usage(int(counts["prompt_tokens"]), int(cached), int(counts["completion_tokens"]))
        except (AttributeError, LookupError, TypeError, ValueError):
            raise self._server.protocol_error() from None
        finally:
            self._answer.close()
        yield End("cancelled" if self._cancelled else reason, usage, self._timings(usage, first, last), self._seed)

    def _chunks(self) -> Iterator[Mapping[str, Any]]:
        """The objects of the events; an error among them is raised."""
        number = 0
        while True:
            try:
                line = self._answer.readline(LINE)
            except OSError:
                line = b""
            if not line and not self._cancelled and self._reconnect():
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
        """The times measured here: the first token includes the network and the queue of the server."""
        before = (first or time.monotonic()) - self._began_s
        rate = (usage.completion_tokens - 1) / (last - first) if last > first else 0.0
        return Timings(0.0, before, last - first, (usage.prompt_tokens - usage.cached_tokens) / before, rate)
