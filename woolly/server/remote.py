"""Tools of MCP servers in answers: the server itself calls them, and the model goes on with what they say.

Off unless the operator allows a server: one of [mcp.servers] with `serve = true`, or a URL that begins with one of
`mcp.allowed_servers`. Which calls need a word of the user first says the request; where one is needed, the answer ends
with the question. Every wait has an end, and so have the rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from woolly.config import Config, Settings
from woolly.errors import NativeError, NotFoundError, RequestError, printable
from woolly.limits import LIMITS
from woolly.mcp import Client, Offered, Result, Toolbox
from woolly.messages import Tool
from woolly.request import Arguments, Call, CallStart, End, Event, Request, Text, Usage
from woolly.settings import McpServer

if TYPE_CHECKING:
    from woolly.server.door import Job

T = TypeVar("T")
AT_ONCE = 5  # servers that are asked at the same time
REFUSED = Result("the user did not allow this call", wrong=True)


@dataclass(frozen=True, slots=True)
class Asked:
    """A server that a request names. only: its tools that may be used, all where it is None. asks: whether a call of a
    tool needs a word of the user."""

    label: str
    asks: Callable[[str], bool]
    url: str = ""
    headers: Mapping[str, str] | None = None
    only: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """A call that waited for the user's word, which is there now."""

    id: str
    label: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Remote:
    """What a request wants of MCP servers. listed: labels whose tools were listed before."""

    servers: tuple[Asked, ...]
    allowed: tuple[Wish, ...] = ()
    listed: frozenset[str] = frozenset()
    most: int = 2**31  # calls


# Events beside those of the model


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server, which the model is offered; of one that could not be asked, why."""

    label: str
    tools: tuple[Tool, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A call that needs a word of the user. The answer ends after it."""

    label: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Calling:
    """A call is made. approval: the question that came before it."""

    label: str
    name: str
    arguments: str
    approval: str = ""


@dataclass(frozen=True, slots=True)
class Called:
    """What the call said that is being made."""

    result: Result


RemoteEvent: TypeAlias = Listing | Question | Calling | Called


class Remotes:
    """The MCP servers that clients of this server may use. Owned by the event loop; they are asked in threads."""

    def __init__(self, settings: Settings, config: Config) -> None:
        self._urls = tuple(map(urlsplit, settings.mcp_urls))
        self._timeout_s = config.mcp_timeout
        served = {name: server for name, server in config.mcp_servers.items() if server.serve}
        self._known = {name: Client(name, server, config.mcp_timeout) for name, server in served.items()}
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="woolly-mcp")

    async def boxes(self) -> dict[str, Toolbox]:
        """The tools of each server that the settings offer."""
        made = await asyncio.gather(*(self._run(Toolbox, [client]) for client in self._known.values()))
        return dict(zip(self._known, made, strict=True))

    async def call(self, server: str, name: str, arguments: Mapping[str, Any]) -> Result:
        """What a tool of a server says that the settings offer."""
        if server not in self._known:
            raise NotFoundError(f"there is no MCP server '{printable(server)}' for clients")
        return await self._run(self._known[server].call, name, arguments)

    async def box(self, remote: Remote) -> Toolbox:
        """The tools of the servers that a request names; a server that the operator does not allow is refused."""
        clients = [self._client(asked) for asked in remote.servers]
        box = await self._run(Toolbox, clients)
        only = {asked.label: asked.only for asked in remote.servers}
        box.offered = {
            name: one
            for name, one in box.offered.items()
            if (names := only[one.client.name]) is None or one.name in names
        }
        return box

    async def use(self, offered: Offered, arguments: str) -> Result:
        return await self._run(offered.call, arguments)

    async def close(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(client.close) for client in self._known.values()))
        self._threads.shutdown(wait=False)

    def _client(self, asked: Asked) -> Client:
        known = self._known.get(asked.label)
        if known is not None and asked.url in ("", known.server.url):
            return known
        if asked.url and self._allows(asked.url):
            return Client(asked.label, McpServer(url=asked.url, headers=asked.headers or {}), self._timeout_s)
        raise RequestError(
            f"the MCP server '{printable(asked.label)}' is not allowed here",
            suggestion="the operator allows it with `serve` in [mcp.servers], or its URL with mcp.allowed_servers",
            param="tools",
        )

    def _allows(self, url: str) -> bool:
        """Whether a URL begins with one that the operator wrote: the same host, and a path below."""
        given = urlsplit(url)
        if "@" in given.netloc or "\\" in url or ".." in given.path.split("/") or "%2e" in url.lower():
            return False
        return any(
            (given.scheme, given.netloc.lower()) == (own.scheme, own.netloc.lower())
            and f"{given.path}/".startswith(own.path if own.path.endswith("/") else f"{own.path}/")
            for own in self._urls
        )

    async def _run(self, work: Callable[..., T], *words: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *words)


def offering(job: Job, box: Toolbox) -> Job:
    """The job with the tools of the box beside its own; raises RequestError where two have one name."""
    (request,) = job.requests
    return replace(job, requests=(replace(request, tools=(*request.tools, *box.tools)),))


Answers: TypeAlias = Callable[["Job"], AsyncGenerator[tuple[int, Event], None]]


class _Round:
    """One answer of the model: what it says, and which tools of the box it asks for."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self._ours = False  # the call that is being written is for the box
        self._said: list[str] = []
        self._calls: list[tuple[CallStart, list[str]]] = []
        self.others = False  # it asks for a tool of the caller, too, who has to go on
        self.end: End

    def takes(self, event: Event) -> bool:
        """Whether an event is for us, and not for the reader."""
        match event:
            case CallStart(name=name):
                self._ours = name in self._box.offered
                self.others = self.others or not self._ours
                if self._ours:
                    self._calls.append((event, []))
                return self._ours
            case Arguments() if self._ours:
                self._calls[-1][1].append(event.text)
                return True
            case Text():
                self._said.append(event.text)
            case End():
                self.end = event
                return True
        return False

    @property
    def text(self) -> str:
        return "".join(self._said)

    @property
    def calls(self) -> list[Call]:
        """None where the last was cut short."""
        whole = self.end.reason == "calls"
        return [Call(start.id, start.name, "".join(parts)) for start, parts in self._calls if whole]


async def rounds(
    remotes: Remotes, box: Toolbox, job: Job, answers: Answers, deadline_s: float
) -> AsyncGenerator[tuple[int, Event | RemoteEvent], None]:
    """The events of a job whose model may call tools of the box: round by round, until it says something.

    answers: the events of one round.
    """
    remote, (request,) = job.remote, job.requests
    assert remote is not None
    asks = {asked.label: asked.asks for asked in remote.servers}
    for listing in _listings(box, remote):
        yield 0, listing
    for wish in remote.allowed:
        yield 0, Calling(wish.label, wish.name, wish.arguments, wish.id)
        found = next((o for o in box.offered.values() if (o.client.name, o.name) == (wish.label, wish.name)), None)
        result = await _called(remotes, found, wish.arguments, deadline_s)
        yield 0, Called(result)
        name = found.tool.name if found else wish.name
        request = _going_on(request, "", [(Call(wish.id, name, wish.arguments), result)])
    left, most, used = LIMITS.mcp_rounds, remote.most - len(remote.allowed), Usage(0, 0, 0)
    while True:
        last = left == 0 or most <= 0  # whatever it says is the end
        if last:
            request = replace(request, tool_choice="none")
        heard, results = _Round(box), list[tuple[Call, Result]]()
        async with aclosing(answers(replace(job, requests=(request,)))) as events:
            async for index, event in events:
                if not heard.takes(event):
                    yield index, event
        used = _sum(used, heard.end.usage)
        for call in () if last else heard.calls[:most]:
            offered = box.offered[call.name]
            label = offered.client.name
            if asks[label](offered.name):
                heard.others = True
                yield 0, Question(label, offered.name, call.arguments)
                continue
            yield 0, Calling(label, offered.name, call.arguments)
            result = await _called(remotes, offered, call.arguments, deadline_s)
            yield 0, Called(result)
            results.append((call, result))
        if heard.others or not results:
            yield 0, replace(heard.end, usage=used)
            return
        left, most = left - 1, most - len(results)
        request = replace(_going_on(request, heard.text, results), tool_choice="auto")


def _listings(box: Toolbox, remote: Remote) -> Iterator[Listing]:
    """The tools of each server whose tools were not listed before."""
    for client in box.clients:
        if client.name not in remote.listed:
            tools = tuple(replace(one.tool, name=one.name) for one in box.offered.values() if one.client is client)
            yield Listing(client.name, tools, box.faults.get(client.name, ""))


async def _called(remotes: Remotes, offered: Offered | None, arguments: str, deadline_s: float) -> Result:
    if offered is None:
        return Result("there is no such tool", wrong=True)
    try:
        async with asyncio.timeout_at(deadline_s):
            return await remotes.use(offered, arguments)
    except TimeoutError:
        raise NativeError("the answer took too long", suggestion="ask for less, or later", code="timeout") from None


def _going_on(request: Request, said: str, results: list[tuple[Call, Result]]) -> Request:
    """The request with what was said and called, and what came of it."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call, _ in results
    ]
    told = [{"role": "tool", "tool_call_id": call.id, "content": result.text} for call, result in results]
    messages = (*(request.messages or ()), {"role": "assistant", "content": said, "tool_calls": calls}, *told)
    return replace(request, messages=messages)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.prompt_tokens + other.prompt_tokens,
        one.cached_tokens + other.cached_tokens,
        one.completion_tokens + other.completion_tokens,
        one.disk_tokens + other.disk_tokens,
    )
