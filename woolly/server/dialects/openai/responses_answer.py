"""An answer of OpenAI's Responses: a record of items, or the events by which it is written."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any

import msgspec

from woolly.errors import WoollyError
from woolly.request import Arguments, CallStart, Completion, End, Logprob, Sampling, Text, Thought
from woolly.request import Usage as Counts
from woolly.server.dialects.base.remote_tools import ApprovalNeeded, ToolCallDone, ToolCallStarted, ToolsListed
from woolly.server.dialects.openai.chat import TokenLogprob, token_logprobs
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


def _ended(job: Job, head: Head, reason: str, counts: Counts, output: list[Item]) -> Response:
    cut = reason == "length"
    usage = ResponseUsage(
        input_tokens=counts.prompt_tokens,
        input_tokens_details=InputDetails(cached_tokens=counts.cached_tokens),
        output_tokens=counts.completion_tokens,
        output_tokens_details=ReasoningTokens(),
        total_tokens=counts.total_tokens,
    )
    details = Incomplete() if cut else None
    return _record(job, head, "incomplete" if cut else "completed", output, usage=usage, incomplete_details=details)


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
    return _ended(job, head, answer.finish_reason, answer.usage, output)


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


async def frames(job: Job, head: Head, events: Events) -> AsyncGenerator[ResponseEvents, None]:
    """An error is an event, also one about the context before anything was computed: agents look for it there."""
    number, ids = iter(range(2**63)), _Ids(head)
    output: list[Item] = []
    opened: _Open | None = None
    begun = _record(job, head, "in_progress", [])
    yield Created(response=begun, sequence_number=next(number))
    yield InProgress(response=begun, sequence_number=next(number))

    def closing(status: Status = "completed") -> Iterator[ResponseEvents]:
        if opened is not None:
            yield from opened.end(number, status)
            output.append(opened.item)

    def opening(item: Item) -> Iterator[ResponseEvents]:
        nonlocal opened
        yield from closing()
        opened = _Open(item, len(output))
        yield from opened.begin(number)

    teller = Teller(ids.next, number)
    try:
        async for _, event in events:
            match event:
                case ToolsListed() | ApprovalNeeded() | ToolCallStarted() | ToolCallDone():
                    for frame in closing():
                        yield frame
                    opened = None
                    for frame in teller.events(event, len(output)):
                        if isinstance(frame, ItemDone):
                            output.append(frame.item)
                        yield frame
                case Text() if event.text:
                    if opened is None or not isinstance(opened.item, MessageItem):
                        for frame in opening(MessageItem(id=ids.next("msg"), status="in_progress", content=[])):
                            yield frame
                    assert opened is not None
                    likely = _likely(job, event.logprobs)
                    opened.pieces.append(event.text)
                    opened.logprobs += likely
                    yield OutputTextDelta(
                        **opened.place, delta=event.text, logprobs=likely, sequence_number=next(number)
                    )
                case Thought() if event.text:
                    if opened is None or not isinstance(opened.item, ReasoningItem):
                        for frame in opening(ReasoningItem(id=ids.next("rs"), status="in_progress", content=[])):
                            yield frame
                    assert opened is not None
                    opened.pieces.append(event.text)
                    yield ReasoningDelta(**opened.place, delta=event.text, sequence_number=next(number))
                case CallStart(id=call, name=name):
                    begins = CallItem(id=ids.next("fc"), call_id=call, name=name, arguments="", status="in_progress")
                    for frame in opening(begins):
                        yield frame
                case Arguments() if event.text and opened is not None:
                    opened.pieces.append(event.text)
                    yield ArgumentsDelta(**opened.place, delta=event.text, sequence_number=next(number))
                case End():
                    if opened is None and not (
                        output and isinstance(output[-1], McpQuestionItem)
                    ):  # an answer without text
                        for frame in opening(MessageItem(id=ids.next("msg"), status="in_progress", content=[])):
                            yield frame
                    for frame in closing("incomplete" if event.reason == "length" else "completed"):
                        yield frame
                    record = _ended(job, head, event.reason, event.usage, output)
                    kind = Cut if event.reason == "length" else Completed
                    yield kind(response=record, sequence_number=next(number))
    except WoollyError as problem:
        fault = ResponseFault(code=CODES.get(problem.code, problem.code), message=str(problem))
        yield FailedEvent(response=_record(job, head, "failed", output, error=fault), sequence_number=next(number))


CODES = {
    "context_error": "context_length_exceeded",
    "overloaded": "server_is_overloaded",
    "busy": "server_is_overloaded",
}
