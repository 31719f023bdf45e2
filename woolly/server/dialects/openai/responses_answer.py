"""An answer of OpenAI's Responses: a record of items, or the events by which it is written."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from typing import Any

import msgspec

from woolly.errors import WoollyError
from woolly.request import Arguments, CallStart, Completion, End, Event, Logprob, Sampling, Text, Thought
from woolly.server.dialects.base.remote_tools import (
    ApprovalNeeded,
    RemoteEvent,
    ToolCallDone,
    ToolCallStarted,
    ToolsListed,
)
from woolly.server.dialects.base.timings import Measured, timings_of
from woolly.server.dialects.openai.chat import token_logprobs
from woolly.server.dialects.openai.chat_shapes import TokenLogprob
from woolly.server.dialects.openai.responses_mcp import Teller, without_secrets
from woolly.server.dialects.openai.responses_shapes import (
    ArgumentsDelta,
    ArgumentsDone,
    CallItem,
    Completed,
    Created,
    Cut,
    FailedEvent,
    Incomplete,
    InProgress,
    InputDetails,
    Item,
    ItemAdded,
    ItemDone,
    McpQuestionItem,
    MessageItem,
    OutputText,
    OutputTextDelta,
    OutputTextDone,
    PartAdded,
    PartDone,
    ReasoningConfig,
    ReasoningDelta,
    ReasoningDone,
    ReasoningItem,
    ReasoningText,
    ReasoningTokens,
    Response,
    ResponseBody,
    ResponseEvents,
    ResponseFault,
    ResponseUsage,
    Status,
    TextConfig,
)
from woolly.server.routes import Events, Head, Job


def _record(job: Job, head: Head, status: Any, output: list[Item], **more: Any) -> Response:
    fields: ResponseBody = job.fields
    sampling: Sampling = job.requests[0].sampling
    return Response(
        id=head["id"],
        created_at=head["created"],
        status=status,
        instructions=fields.instructions,
        max_output_tokens=fields.max_output_tokens,
        max_tool_calls=fields.max_tool_calls,
        metadata=fields.metadata or {},
        model=head["model"],
        output=output,
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        previous_response_id=fields.previous_response_id,
        reasoning=fields.reasoning or ReasoningConfig(),
        store=fields.store is not False,
        temperature=sampling.temperature,
        text=fields.text or TextConfig(),
        tool_choice=fields.tool_choice or "auto",
        tools=[without_secrets(tool) for tool in fields.tools or ()],
        top_p=sampling.top_p,
        user=fields.user,
        **more,
    )


def _ended(job: Job, head: Head, reason: str, end: Completion | End, output: list[Item]) -> Response:
    cut, counts = reason == "length", end.usage
    usage = ResponseUsage(
        input_tokens=counts.prompt_tokens,
        input_tokens_details=InputDetails(cached_tokens=counts.cached_tokens),
        output_tokens=counts.completion_tokens,
        output_tokens_details=ReasoningTokens(),
        total_tokens=counts.total_tokens,
    )
    details = Incomplete() if cut else None
    status: Status = "incomplete" if cut else "completed"
    more = {"usage": usage, "incomplete_details": details, "timings": timings_of(end)}
    return _record(job, head, status, output, **more)


class _Ids:
    """The ids of an answer's items, made of the answer's id."""

    def __init__(self, head: Head) -> None:
        self._own = head["id"].partition("_")[2]
        self._count = 0

    def next(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._own}{self._count:03x}"


def _likely(job: Job, rows: Iterable[Logprob]) -> list[TokenLogprob]:
    return token_logprobs(rows) if job.requests[0].logprobs is not None else []


def render(job: Job, head: Head, answers: list[Completion]) -> Response:
    (answer,) = answers
    status: Status = "incomplete" if answer.finish_reason == "length" else "completed"
    ids, output = _Ids(head), list[Item]()
    if answer.thought:
        text = [ReasoningText(text=answer.thought)]
        output.append(ReasoningItem(id=ids.next("rs"), status="completed", content=text))
    if answer.text or not answer.calls:
        likelihoods = (
            row for piece in answer.pieces if isinstance(piece, Text) and piece.text for row in piece.logprobs
        )
        part = OutputText(text=answer.text, logprobs=_likely(job, likelihoods))
        output.append(MessageItem(id=ids.next("msg"), status=status, content=[part]))
    for call in answer.calls:
        item = CallItem(id=ids.next("fc"), call_id=call.id, name=call.name, arguments=call.arguments, status=status)
        output.append(item)
    return _ended(job, head, answer.finish_reason, answer, output)


class _Open:
    """The item that is being written: its pieces so far, and the events by which it begins and ends."""

    def __init__(self, item: Item, index: int) -> None:
        self.item, self.index = item, index
        self.pieces: list[str] = []
        self.logprobs: list[TokenLogprob] = []
        self.place: dict[str, Any] = {"item_id": item.id, "output_index": index}

    def begin(self, number: Iterator[int]) -> Iterator[ResponseEvents]:
        yield ItemAdded(output_index=self.index, item=self.item, sequence_number=next(number))
        if isinstance(self.item, MessageItem):
            yield PartAdded(**self.place, part=OutputText(text=""), sequence_number=next(number))

    def end(self, number: Iterator[int], status: Status) -> Iterator[ResponseEvents]:
        """The events that end the item; afterwards `item` has all of its content."""
        text, item = "".join(self.pieces), self.item
        match item:
            case MessageItem():
                part = OutputText(text=text, logprobs=self.logprobs)
                yield OutputTextDone(**self.place, text=text, logprobs=self.logprobs, sequence_number=next(number))
                yield PartDone(**self.place, part=part, sequence_number=next(number))
                self.item = MessageItem(id=item.id, status=status, content=[part])
            case ReasoningItem():
                yield ReasoningDone(**self.place, text=text, sequence_number=next(number))
                self.item = ReasoningItem(id=item.id, status=status, content=[ReasoningText(text=text)])
            case CallItem():
                yield ArgumentsDone(**self.place, name=item.name, arguments=text, sequence_number=next(number))
                self.item = msgspec.structs.replace(item, arguments=text, status=status)
        yield ItemDone(output_index=self.index, item=self.item, sequence_number=next(number))


class _Items:
    """The items of an answer that is streamed: those that are written, the open one, and the events that each piece of
    the answer becomes."""

    def __init__(self, job: Job, head: Head) -> None:
        self.number = iter(range(2**63))
        self.written: list[Item] = []
        self._job, self._head = job, head
        self._ids = _Ids(head)
        self._opened: _Open | None = None
        self._teller = Teller(self._ids.next, self.number)

    def events(self, event: Event | RemoteEvent | Measured) -> Iterator[ResponseEvents]:
        match event:
            case Text() if event.text:
                item = yield from self._of(MessageItem, "msg")
                likely = _likely(self._job, event.logprobs)
                item.pieces.append(event.text)
                item.logprobs += likely
                number = next(self.number)
                yield OutputTextDelta(**item.place, delta=event.text, logprobs=likely, sequence_number=number)
            case Thought() if event.text:
                item = yield from self._of(ReasoningItem, "rs")
                item.pieces.append(event.text)
                yield ReasoningDelta(**item.place, delta=event.text, sequence_number=next(self.number))
            case CallStart(id=call, name=name):
                id_ = self._ids.next("fc")
                yield from self._open(CallItem(id=id_, call_id=call, name=name, arguments="", status="in_progress"))
            case Arguments() if event.text and self._opened is not None:
                item = self._opened
                item.pieces.append(event.text)
                yield ArgumentsDelta(**item.place, delta=event.text, sequence_number=next(self.number))
            case ToolsListed() | ApprovalNeeded() | ToolCallStarted() | ToolCallDone():
                yield from self._close("completed")
                for frame in self._teller.events(event, len(self.written)):
                    if isinstance(frame, ItemDone):
                        self.written.append(frame.item)
                    yield frame
            case End():
                yield from self._end(event)

    def _of(self, kind: type[MessageItem | ReasoningItem], prefix: str) -> Generator[ResponseEvents, None, _Open]:
        """The open item, if it is of this kind, or else a new one."""
        if self._opened is None or not isinstance(self._opened.item, kind):
            yield from self._open(kind(id=self._ids.next(prefix), status="in_progress", content=[]))
        assert self._opened is not None
        return self._opened

    def _open(self, item: Item) -> Iterator[ResponseEvents]:
        yield from self._close("completed")
        self._opened = _Open(item, len(self.written))
        yield from self._opened.begin(self.number)

    def _close(self, status: Status) -> Iterator[ResponseEvents]:
        if self._opened is not None:
            yield from self._opened.end(self.number, status)
            self.written.append(self._opened.item)
            self._opened = None

    def _end(self, end: End) -> Iterator[ResponseEvents]:
        asks = bool(self.written) and isinstance(self.written[-1], McpQuestionItem)
        if self._opened is None and not asks:  # an answer without text
            yield from self._of(MessageItem, "msg")
        cut = end.reason == "length"
        yield from self._close("incomplete" if cut else "completed")
        record = _ended(self._job, self._head, end.reason, end, self.written)
        yield (Cut if cut else Completed)(response=record, sequence_number=next(self.number))


async def frames(job: Job, head: Head, events: Events) -> AsyncGenerator[ResponseEvents, None]:
    """An error is an event, also one about the context before anything was computed: agents look for it there."""
    items = _Items(job, head)
    begun = _record(job, head, "in_progress", [])
    yield Created(response=begun, sequence_number=next(items.number))
    yield InProgress(response=begun, sequence_number=next(items.number))
    try:
        async for _, event in events:
            for frame in items.events(event):
                yield frame
    except WoollyError as problem:
        fault = ResponseFault(code=CODES.get(problem.code, problem.code), message=str(problem))
        record = _record(job, head, "failed", items.written, error=fault)
        yield FailedEvent(response=record, sequence_number=next(items.number))


CODES = {
    "context_error": "context_length_exceeded",
    "overloaded": "server_is_overloaded",
    "busy": "server_is_overloaded",
}
