"""OpenAI's Responses: an answer as a record of items, streamed as events, kept so that a later request can go on.

Nothing runs in the background, no prompt is cut, and a tool is a function of the caller, or one of an MCP server that
the operator allows (responses_mcp.py): tools that only their provider could run are skipped and noted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from woolly.config.serving import Serving
from woolly.errors import NotFoundError, RequestError, UnsupportedError, WoollyError, printable
from woolly.request import Arguments, CallStart, Completion, End, Logprob, Request, Sampling, Text, Thought
from woolly.request.format import Format
from woolly.server.dialects.base.bodies import sampling_of, schema_format, seed_of, thinking
from woolly.server.dialects.base.fields import REFUSED_EVERYWHERE, notes, one_system, read_struct, refuse
from woolly.server.dialects.base.remote_tools import ApprovalNeeded, ToolCallDone, ToolCallStarted, ToolsListed
from woolly.server.dialects.base.response_store import ResponseStore, StoredResponse
from woolly.server.dialects.base.timings import timings_of
from woolly.server.dialects.openai.chat import InputTokens, TokenLogprob, token_logprobs
from woolly.server.dialects.openai.responses_items import as_items, read_items, stored_items
from woolly.server.dialects.openai.responses_mcp import Teller, read_remote, without_secrets
from woolly.server.dialects.openai.responses_shapes import (
    ArgumentsDelta,
    ArgumentsDone,
    CallItem,
    Completed,
    Created,
    Cut,
    Deleted,
    FailedEvent,
    Incomplete,
    InProgress,
    InputDetails,
    InputItems,
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
    ResponseEvent,
    ResponseEvents,
    ResponseFault,
    ResponseUsage,
    Status,
    TextConfig,
    TextFormat,
)
from woolly.server.generate.counting import prompt_tokens
from woolly.server.http.caller import Caller
from woolly.server.http.framing import NAMED
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Body, Call, Events, Generation, Head, Job, Memory, Query, Route, aliases
from woolly.server.workers import Workers

REFUSED: dict[str, Callable[[Any], bool]] = {
    "background": lambda v: v is False,
    "conversation": lambda v: False,
    "prompt": lambda v: False,
    "truncation": lambda v: v == "disabled",
}
KNOWN = frozenset((*ResponseBody.__struct_fields__, *REFUSED, *REFUSED_EVERYWHERE))
LOGPROBS = "message.output_text.logprobs"  # an entry of `include`
PAGE, MOST = 20, 100  # input items that are listed at once


# What is asked


def read(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Answer items, as OpenAI's Responses do."""
    refuse(body, REFUSED)
    fields = read_struct(ResponseBody, body)
    noted = (*notes(body, KNOWN), *_skipped(fields))
    remote = read_remote(fields.tools or (), as_items(fields.input), fields.max_tool_calls)
    return Job((_request(fields, limits),), fields, fields.model or "", bool(fields.stream), noted, remote=remote)


def _request(fields: ResponseBody, limits: Serving) -> Request:
    messages = read_items(as_items(fields.input), fields.instructions, limits)
    effort = fields.reasoning.effort if fields.reasoning else None
    return Request(
        messages=tuple(one_system(messages)),
        tools=tuple(tool for tool in fields.tools or () if _is_function(tool)),  # type: ignore[misc]
        tool_choice=_choice(fields.tool_choice),
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        format=_format(fields.text.format) if fields.text else None,
        sampling=sampling_of(fields, seed=seed_of(fields.seed)),
        max_tokens=fields.max_output_tokens,
        logprobs=(fields.top_logprobs or 0) if LOGPROBS in (fields.include or ()) else None,
        chat_template_kwargs={}
        if effort is None
        else thinking(None if effort == "minimal" else effort != "none", effort),
    )


def _is_function(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") == "function"


def _skipped(fields: ResponseBody) -> Iterator[str]:
    kinds = (tool.get("type") for tool in fields.tools or () if tool.get("type") not in ("function", "mcp"))
    return (f"tools.{kind}" for kind in dict.fromkeys(printable(kind, 40) for kind in kinds))


def _choice(choice: str | dict[str, Any] | None) -> str:
    if isinstance(choice, dict):
        if choice.get("type") == "mcp" and choice.get("name") is None:
            return "required"
        if choice.get("type") not in ("function", "mcp"):
            kind = printable(choice.get("type"))
            raise UnsupportedError(f"tool_choice of the type '{kind}' is not supported", param="tool_choice")
        return str(choice.get("name"))
    if choice not in (None, "auto", "none", "required"):
        raise RequestError(
            f"tool_choice is '{printable(choice)}'; expected auto, none or required", param="tool_choice"
        )
    return choice or "auto"


def _format(format: TextFormat) -> Format | None:
    if format.type == "json_schema":
        if format.schema is UNSET:
            raise RequestError("text.format.schema is missing", param="text.format.schema")
        return schema_format(format.schema)
    return Format("json") if format.type == "json_object" else None


def recall(store: ResponseStore, caller: Caller, body: Body) -> Body:
    """The body with the conversation that it continues."""
    id_ = body.get("previous_response_id")
    if not isinstance(id_, str):
        return body
    previous = store.find(caller.name, id_)
    if previous is None:
        raise RequestError(
            f"Previous response with id '{printable(id_)}' not found.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    return {**body, "input": [*previous.items, *as_items(body.get("input"))]}


def keep(store: ResponseStore, caller: Caller, job: Job, answer: msgspec.Struct) -> None:
    """Keep an answer under its id, streamed or not, unless the caller does not want it."""
    record = answer.response if isinstance(answer, ResponseEvent) else answer
    if job.fields.store is False or not isinstance(record, Response) or record.status in ("in_progress", "failed"):
        return
    asked = stored_items(as_items(job.fields.input))
    items = (*asked, *map(msgspec.to_builtins, record.output))
    nbytes = len(msgspec.json.encode(items)) + len(msgspec.json.encode(record))
    store.put(caller.name, record.id, StoredResponse(record, items, len(asked), nbytes))


# What is answered


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
                    record = _ended(job, head, event.reason, event, output)
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


# What was kept


def _stored(store: ResponseStore, call: Call) -> StoredResponse:
    id_ = call.path["id"]
    stored: StoredResponse | None = store.find(call.caller.name, id_)
    if stored is None:
        raise NotFoundError(f"Response with id '{printable(id_)}' not found.", param="id")
    return stored


async def retrieve(store: ResponseStore, call: Call) -> Response:
    """An answer that was kept."""
    record: Response = _stored(store, call).record
    return record


async def delete(store: ResponseStore, call: Call) -> Deleted:
    """Forget an answer that was kept."""
    _stored(store, call)
    store.remove(call.caller.name, call.path["id"])
    return Deleted(id=call.path["id"])


async def cancel(store: ResponseStore, call: Call) -> Response:
    """Stop an answer in the background, where none is made."""
    _stored(store, call)
    raise RequestError("only a response in the background can be cancelled, and none is made there", param="background")


async def input_items(store: ResponseStore, call: Call) -> InputItems:
    """What an answer was asked, the newest first."""
    stored = _stored(store, call)
    items = list(stored.items[: stored.inputs])
    if call.query.get("order") != "asc":
        items.reverse()
    if after := call.query.get("after"):
        places = [index for index, item in enumerate(items) if item["id"] == after]
        if not places:
            raise RequestError(f"there is no item '{printable(after)}'", param="after")
        items = items[places[0] + 1 :]
    digits = call.query.get("limit", str(PAGE))
    if not (digits.isascii() and digits.isdigit() and len(digits) < 4 and 1 <= int(digits) <= MOST):
        raise RequestError(f"limit is '{printable(digits)}'; expected a number from 1 to {MOST}", param="limit")
    page = items[: int(digits)]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return InputItems(data=page, first_id=first, last_id=last, has_more=len(page) < len(items))


async def input_tokens(limits: Serving, models: Models, workers: Workers, call: Call) -> InputTokens:
    """How many tokens a request has."""
    body: ResponseBody = call.body
    request = _request(body, limits)
    return InputTokens(input_tokens=await prompt_tokens(models, workers, call.caller, body.model, request))


RESPONSES = Generation(
    "/v1/responses",
    read,
    render,
    frames,
    ResponseBody,
    "OpenAI",
    prefix="resp_",
    framing=NAMED,
    memory=Memory(recall, keep),
    streamed_error_codes=frozenset(("context_error",)),
    last=lambda event: event.response,
)
COUNT = Query("POST", "", input_tokens, "OpenAI", ResponseBody, errors=(404, 504))
ROUTES: tuple[Route, ...] = (
    *aliases(RESPONSES, "/v1/responses", "/responses"),
    *aliases(COUNT, "/v1/responses/input_tokens", "/responses/input_tokens"),
    Query("GET", "/v1/responses/{id}", retrieve, "OpenAI"),
    Query("DELETE", "/v1/responses/{id}", delete, "OpenAI"),
    Query("POST", "/v1/responses/{id}/cancel", cancel, "OpenAI"),
    Query("GET", "/v1/responses/{id}/input_items", input_items, "OpenAI", query=("limit", "order", "after")),
)
