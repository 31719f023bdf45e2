"""Tools of MCP servers in answers: this server calls them, and the model continues with their results.

Off unless the operator allows a server: one of [mcp.servers] with `serve = true`, or a URL that begins with one of
`mcp.allowed_servers`; and never for a caller without a key, where there are keys. A request says which calls the user
has to approve first; where approval is missing, the answer ends with the question (approvals.py). Every wait has a
limit, and so has the number of rounds.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from woolly.config import Config, Settings
from woolly.config.rows import McpServer
from woolly.errors import NotFoundError, RequestError, printable
from woolly.limits import LIMITS
from woolly.mcp import CallToolResult, Client, OfferedTool, Toolbox
from woolly.request import Arguments, Call, CallStart, End, Event, Request, Text, Usage
from woolly.server.accounts import Accounts, Bound, Resource
from woolly.server.dialects.base.remote_tools import (
    ApprovalNeeded,
    McpServerRef,
    RemoteEvent,
    RemoteTools,
    ToolCallDone,
    ToolCallStarted,
    ToolsListed,
)
from woolly.server.generate.approvals import Approvals
from woolly.server.generate.deadline import before
from woolly.server.http.caller import Caller
from woolly.server.http.errors import key_needed
from woolly.server.routes import Job
from woolly.server.workers import Workers

T = TypeVar("T")
TOOLS = Bound(each=2, all=6)  # threads that wait for servers, each up to mcp.default_timeout for an answer
_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._~-]*")  # a part of a path that is not one of the folders . and ..
REFUSED = CallToolResult("the user did not allow this call", wrong=True)


class Remotes:
    """The MCP servers that clients of this server may use. Owned by the event loop; they are asked in threads.

    secret: by which approvals are known.
    """

    def __init__(self, settings: Settings, config: Config, secret: bytes, accounts: Accounts) -> None:
        self.approvals = Approvals(secret)
        self._urls = tuple(map(urlsplit, settings.mcp_urls))
        self._timeout_s = config.mcp_timeout
        served = {name: server for name, server in config.mcp_servers.items() if server.serve}
        self._known = {name: Client(name, server, config.mcp_timeout) for name, server in served.items()}
        self._workers = Workers(accounts, Resource.TOOLS, TOOLS, name="mcp")

    def begin(self) -> None:
        """Begin, where there is anything to ask."""
        if self._known or self._urls:
            self._workers.begin()

    async def boxes(self, caller: Caller) -> dict[str, Toolbox]:
        """The tools of each server that the settings offer."""
        boxes = await asyncio.gather(*(self._run(caller, Toolbox, [client]) for client in self._known.values()))
        return dict(zip(self._known, boxes, strict=True))

    async def call(self, caller: Caller, server: str, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """The result of a tool of a server that the settings offer."""
        if server not in self._known:
            raise NotFoundError(f"there is no MCP server '{printable(server)}' for clients")
        return await self._run(caller, self._known[server].call, name, arguments)

    def check(self, remote: RemoteTools, caller: Caller) -> None:
        """Refuse, before anything is asked or computed, a caller that may use no tools, and forged approvals."""
        if not caller.trusted:
            raise key_needed()
        urls = {ref.label: ref.url for ref in remote.servers}
        for call in remote.allowed:
            self.approvals.check(caller.name, urls.get(call.label, ""), call)

    async def box(self, remote: RemoteTools, caller: Caller) -> Toolbox:
        """The tools of the servers that a request names; a server that the operator does not allow is refused."""
        clients = [self._client(ref) for ref in remote.servers]
        box = await self._run(caller, Toolbox, clients)
        only = {ref.label: ref.only for ref in remote.servers}
        box.offered = {
            name: one
            for name, one in box.offered.items()
            if (names := only[one.client.name]) is None or one.name in names
        }
        return box

    async def use(self, caller: Caller, offered: OfferedTool, arguments: str) -> CallToolResult:
        return await self._run(caller, offered.call, arguments)

    async def close(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(client.close) for client in self._known.values()))
        self._workers.close()

    def _client(self, ref: McpServerRef) -> Client:
        known = self._known.get(ref.label)
        if known is not None and ref.url in ("", known.server.url):
            return known
        if ref.url and self._allows(ref.url):
            return Client(ref.label, McpServer(url=ref.url, headers=ref.headers or {}), self._timeout_s)
        raise RequestError(
            f"the MCP server '{printable(ref.label)}' is not allowed here",
            suggestion="the operator allows it with `serve` in [mcp.servers], or its URL with mcp.allowed_servers",
            param="tools",
        )

    def _allows(self, url: str) -> bool:
        """Whether a URL begins with one that the operator wrote: the same host, and a path below."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return False
        return any(
            (parts.scheme, parts.netloc.lower()) == (allowed.scheme, allowed.netloc.lower())
            and (_is_below(parts.path, allowed.path) if not allowed.query else parts[2:4] == allowed[2:4])
            for allowed in self._urls
        )

    async def _run(self, caller: Caller, work: Callable[..., T], *words: Any) -> T:
        return await self._workers.run(caller.name, functools.partial(work, *words))


def _is_below(path: str, allowed: str) -> bool:
    """Whether a path is an allowed one, or goes on from it by plain names: what is behind an escape, a `;` or a
    backslash, some servers read as another folder."""
    folder = allowed if allowed.endswith("/") else f"{allowed}/"
    names = f"{path}/".removeprefix(folder).split("/")
    return f"{path}/".startswith(folder) and all(_NAME.fullmatch(name) for name in names)


def offering(job: Job, box: Toolbox) -> Job:
    """The job with the tools of the box beside its own; raises RequestError where two have one name."""
    (request,) = job.requests
    return replace(job, requests=(replace(request, tools=(*request.tools, *box.tools)),))


Answers: TypeAlias = Callable[[Job], AsyncGenerator[tuple[int, Event], None]]


class _Round:
    """One answer of the model: its text, and the tools of the box that it calls."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self._ours = False  # the call that is being written is for the box
        self._said: list[str] = []
        self._calls: list[tuple[CallStart, list[str]]] = []
        self.others = False  # it calls a tool of the caller as well, who has to continue
        self.end: End

    def takes(self, event: Event) -> bool:
        """Whether an event is handled here, and not passed on to the reader."""
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
        """The complete calls; none where the answer was cut short."""
        complete = self.end.reason == "calls"
        return [Call(start.id, start.name, "".join(parts)) for start, parts in self._calls if complete]


async def rounds(
    remotes: Remotes, box: Toolbox, job: Job, answers: Answers, caller: Caller
) -> AsyncGenerator[tuple[int, Event | RemoteEvent], None]:
    """The events of a job whose model may call tools of the box: round after round, until it answers without a call.

    answers: the events of one round.
    """
    remote, (request,) = job.remote, job.requests
    assert remote is not None
    refs = {ref.label: ref for ref in remote.servers}
    for listing in _listings(box, remote):
        yield 0, listing
    for approved in remote.allowed:
        yield 0, ToolCallStarted(approved.label, approved.name, approved.arguments, approved.id)
        tool = next(
            (o for o in box.offered.values() if (o.client.name, o.name) == (approved.label, approved.name)), None
        )
        result = await _called(remotes, tool, approved.arguments, caller)
        yield 0, ToolCallDone(result)
        name = tool.tool.name if tool else approved.name
        request = _going_on(request, "", [(Call(approved.id, name, approved.arguments), result)])
    left, most, used = LIMITS.mcp_rounds, remote.most - len(remote.allowed), Usage(0, 0, 0)
    while True:
        last = left == 0 or most <= 0  # no more calls: this answer is the end
        if last:
            request = request.with_values(tool_choice="none")
        round_, results = _Round(box), list[tuple[Call, CallToolResult]]()
        async with aclosing(answers(replace(job, requests=(request,)))) as events:
            async for index, event in events:
                if not round_.takes(event):
                    yield index, event
        used = _sum(used, round_.end.usage)
        for call in () if last else round_.calls[:most]:
            offered = box.offered[call.name]
            label = offered.client.name
            if refs[label].needs_approval(offered.name):
                round_.others = True
                asked = refs[label].url, label, offered.name, call.arguments
                yield 0, ApprovalNeeded(remotes.approvals.id_of(caller.name, *asked), *asked[1:])
                continue
            yield 0, ToolCallStarted(label, offered.name, call.arguments)
            result = await _called(remotes, offered, call.arguments, caller)
            yield 0, ToolCallDone(result)
            results.append((call, result))
        if round_.others or not results:
            yield 0, replace(round_.end, usage=used)
            return
        left, most = left - 1, most - len(results)
        request = _going_on(request, round_.text, results).with_values(tool_choice="auto")


def _listings(box: Toolbox, remote: RemoteTools) -> Iterator[ToolsListed]:
    """The tools of each server that were not listed in an earlier request."""
    for client in box.clients:
        if client.name not in remote.listed:
            tools = tuple(replace(one.tool, name=one.name) for one in box.offered.values() if one.client is client)
            yield ToolsListed(client.name, tools, box.faults.get(client.name, ""))


async def _called(remotes: Remotes, offered: OfferedTool | None, arguments: str, caller: Caller) -> CallToolResult:
    if offered is None:
        return CallToolResult("there is no such tool", wrong=True)
    return await before(caller.deadline_s, remotes.use(caller, offered, arguments))


def _going_on(request: Request, text: str, results: list[tuple[Call, CallToolResult]]) -> Request:
    """The request with the text and the calls of a round, and the results of the calls."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call, _ in results
    ]
    outputs = [{"role": "tool", "tool_call_id": call.id, "content": result.text} for call, result in results]
    messages = (*(request.messages or ()), {"role": "assistant", "content": text, "tool_calls": calls}, *outputs)
    return replace(request, messages=messages)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.prompt_tokens + other.prompt_tokens,
        one.cached_tokens + other.cached_tokens,
        one.completion_tokens + other.completion_tokens,
        one.disk_tokens + other.disk_tokens,
    )
