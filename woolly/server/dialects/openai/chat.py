"""OpenAI's chat completions, whole or streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from msgspec import UNSET

from woolly.config.serving import Serving
from woolly.errors import RequestError, UnsupportedError, printable
from woolly.request import Arguments, CallStart, Completion, End, Logprob, Piece, Request, Text, Thought
from woolly.request import Call as ToolRequest
from woolly.server.dialects.base.bodies import (
    length,
    samplings,
    scales_of,
    stops,
    thinking,
    wants_usage,
)
from woolly.server.dialects.base.fields import (
    REFUSED_EVERYWHERE,
    chat_messages,
    notes,
    read_struct,
    refuse,
)
from woolly.server.dialects.base.llama_fields import REFUSED as LLAMA_REFUSED
from woolly.server.dialects.base.llama_fields import chosen, course, form
from woolly.server.dialects.base.shapes import Usage, delta, reasoning, usage
from woolly.server.dialects.base.timings import Measured, timings_of
from woolly.server.dialects.openai.chat_shapes import (
    CalledFunction,
    ChatLogprobs,
    FunctionDelta,
    InputTokens,
    OpenAIChat,
    OpenAIChatBody,
    OpenAIChatChoice,
    OpenAIChatChunk,
    OpenAIChatPiece,
    OpenAIDelta,
    OpenAIMessage,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    TopLogprob,
)
from woolly.server.generate.counting import prompt_tokens
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Body, Call, Events, Generation, Head, Job, Query, Route, aliases
from woolly.server.workers import Workers

REFUSED: dict[str, Any] = {
    "functions": lambda v: v == [],
    "function_call": lambda v: v in ("none", "auto"),
    "modalities": lambda v: v == ["text"],
    "audio": lambda v: False,
    "prediction": lambda v: False,
    "web_search_options": lambda v: False,
    **LLAMA_REFUSED,
    "post_sampling_probs": lambda v: v is False,
    "reasoning_format": lambda v: v in ("auto", "deepseek", "deepseek-legacy"),
    "reasoning_in_content": lambda v: v is False,
    "reasoning_budget_tokens": lambda v: v == -1,
    "thinking_budget_tokens": lambda v: v == -1,
    "thinking_forced_open": lambda v: v is False,
    "parse_tool_calls": lambda v: v is True,
}
REASONS = {"calls": "tool_calls"}  # other reasons have the same name
KNOWN = frozenset((*OpenAIChatBody.__struct_fields__, *REFUSED, *REFUSED_EVERYWHERE))


def read(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Answer a conversation, as OpenAI does."""
    refuse(body, REFUSED)
    fields = read_struct(OpenAIChatBody, body)
    if fields.top_logprobs and not fields.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    conversation, skipped = _conversation(fields, limits)
    first, *others = samplings(fields, limits, **chosen(fields))
    request = Request(
        **conversation,
        **length(_most(fields), limits),
        sampling=first,
        stop=stops(fields.stop),
        indent=fields.n_indent or 0,
        format=form(fields, fields.response_format),
        lora=scales_of(fields.lora),
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
    )
    requests = (request, *(request.with_values(sampling=sampling) for sampling in others))
    noted = (*notes(body, KNOWN), *skipped)
    return Job(requests, fields, fields.model or "", bool(fields.stream), noted, **course(fields))


def read_unnamed(body: Body, path: Mapping[str, str], limits: Serving) -> Job:
    """Answer a conversation, as llama-server does, where the schema of an answer needs no name."""
    form = body.get("response_format")
    schema = form.get("json_schema") if isinstance(form, dict) else None
    if isinstance(form, dict) and isinstance(schema, dict):
        body = {**body, "response_format": form | {"json_schema": {"name": "schema", **schema}}}
    return read(body, path, limits)


def _most(fields: OpenAIChatBody) -> int | None:
    """The tokens of the answer; of llama-server's name, 0 is none that anybody sees."""
    named = fields.max_completion_tokens if fields.max_completion_tokens is not None else fields.max_tokens
    return named if named is not None or fields.n_predict is None else fields.n_predict or 1


def _conversation(fields: OpenAIChatBody, limits: Serving) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a Request that the prompt and the calls depend on, and notes of tools that are left out."""
    tools, choice, skipped = _tools(fields)
    messages, begun = _begun(fields, chat_messages(fields.messages, limits))
    effort = fields.reasoning_effort
    variables = {} if effort is None else thinking(None if effort == "minimal" else effort != "none", effort)
    what = {
        "messages": tuple(messages),
        "begun": begun,
        "chat_template_kwargs": variables | (fields.chat_template_kwargs or {}),
        "tools": tools,
        "tool_choice": choice,
        "parallel_tool_calls": fields.parallel_tool_calls is not False,
    }
    return what, skipped


def _begun(fields: OpenAIChatBody, messages: list[Any]) -> tuple[list[Any], str]:
    """The messages, and the beginning of the answer, which is the last of them where it is to be continued."""
    if not fields.continue_final_message:
        if fields.add_generation_prompt is False:
            raise UnsupportedError(
                "an answer always begins as the chat template says",
                suggestion="send continue_final_message to go on with the last message",
                param="add_generation_prompt",
            )
        return messages, ""
    if fields.add_generation_prompt:
        raise RequestError(
            "add_generation_prompt begins an answer, and continue_final_message goes on with one: send one of them",
            param="add_generation_prompt",
        )
    begun = _said(messages[-1]) if messages else None
    if begun is None:
        raise RequestError(
            "continue_final_message needs a last message of the assistant, of text alone",
            param="continue_final_message",
        )
    return messages[:-1], begun


def _said(message: Any) -> str | None:
    """The text of a message of the assistant that has nothing else."""
    if not isinstance(message, dict) or message["role"] != "assistant" or message.keys() - {"role", "content", "name"}:
        return None
    content: Any = message["content"]
    parts = content if isinstance(content, list) else [{"text": content}]
    texts: list[Any] = [part.get("text") if isinstance(part, dict) else None for part in parts]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else None


def _tools(fields: OpenAIChatBody) -> tuple[Any, str, tuple[str, ...]]:
    """The functions among the tools, the choice of one, and notes of the tools that only their provider could run."""
    tools = [tool for tool in fields.tools or () if tool.get("type") == "function"]
    kinds = (tool.get("type") for tool in fields.tools or ())
    others = dict.fromkeys(f"tools.{printable(kind, 40)}" for kind in kinds if kind != "function")
    choice = fields.tool_choice or "auto"
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = _within(choice, "allowed_tools")
        named = (_within(tool, "function").get("name") for tool in allowed.get("tools") or () if isinstance(tool, dict))
        names = {name for name in named if isinstance(name, str)}
        tools = [tool for tool in tools if str(_within(tool, "function").get("name")) in names]
        choice = allowed.get("mode", "auto")
    elif isinstance(choice, dict):
        choice = _within(choice, "function").get("name", "")
    return tools, choice, tuple(others)


def _within(outer: dict[str, Any], name: str) -> dict[str, Any]:
    inner = outer.get(name)
    return inner if isinstance(inner, dict) else {}


def render(job: Job, head: Head, answers: list[Completion]) -> OpenAIChat:
    choices = [
        OpenAIChatChoice(
            index=index,
            message=OpenAIMessage(
                content=answer.text or None if answer.calls else answer.text,
                tool_calls=[_call(call) for call in answer.calls] or UNSET,
                **reasoning(answer.thought),
            ),
            logprobs=_logprobs(answer.pieces) if job.fields.logprobs else None,
            finish_reason=REASONS.get(answer.finish_reason, answer.finish_reason),
        )
        for index, answer in enumerate(answers)
    ]
    counts = usage(answers, len(answers))
    return OpenAIChat(**head, choices=choices, usage=counts, timings=timings_of(answers[0]))


def _call(call: ToolRequest) -> ToolCall:
    return ToolCall(id=call.id, function=CalledFunction(name=call.name, arguments=call.arguments))


async def frames(job: Job, head: Head, events: Events) -> AsyncGenerator[OpenAIChatChunk, None]:
    counted = wants_usage(job.fields)

    def chunk(
        *choices: OpenAIChatPiece, usage: Usage | None = None, timed: End | Measured | None = None
    ) -> OpenAIChatChunk:
        return OpenAIChatChunk(
            **head,
            choices=list(choices),
            usage=usage if counted else UNSET,
            timings=UNSET if timed is None else timings_of(timed),
        )

    for index in range(len(job.requests)):
        yield chunk(OpenAIChatPiece(index=index, delta=OpenAIDelta(role="assistant", content="")))
    ends: dict[int, End] = {}
    calls = [-1] * len(job.requests)  # the index of the last call of each answer
    so_far: Measured | None = None
    async for index, event in events:
        match event:
            case Measured():
                so_far = event
            case Text() | Thought() | Arguments() if event.text or _likely(event):
                likely = _logprobs([event]) if job.fields.logprobs else None
                content = _piece(event, calls[index]) if isinstance(event, Arguments) else delta(event, OpenAIDelta)
                yield chunk(OpenAIChatPiece(index=index, delta=content, logprobs=likely), timed=so_far)
            case CallStart():
                calls[index] += 1
                yield chunk(OpenAIChatPiece(index=index, delta=_start(event, calls[index])))
            case End():
                ends[index] = event
                reason = REASONS.get(event.reason, event.reason)
                last = OpenAIChatPiece(index=index, delta=OpenAIDelta(), finish_reason=reason)
                yield chunk(last, timed=None if counted else event)
    if counted:
        yield chunk(usage=usage([ends[index] for index in sorted(ends)], len(ends)), timed=ends[0])


def _start(call: CallStart, index: int) -> OpenAIDelta:
    function = FunctionDelta(name=call.name, arguments="")
    return OpenAIDelta(tool_calls=[ToolCallDelta(index=index, id=call.id, type="function", function=function)])


def _piece(piece: Arguments, index: int) -> OpenAIDelta:
    return OpenAIDelta(tool_calls=[ToolCallDelta(index=index, function=FunctionDelta(arguments=piece.text))])


def _logprobs(pieces: Iterable[Piece]) -> ChatLogprobs:
    return ChatLogprobs(content=token_logprobs(row for piece in pieces for row in _likely(piece)))


def _likely(piece: Piece) -> tuple[Logprob, ...]:
    """The likelihoods of content, whose bytes joined are the content, and of calls; thoughts and marks have none."""
    return piece.logprobs if isinstance(piece, Arguments) or (isinstance(piece, Text) and piece.text) else ()


def token_logprobs(rows: Iterable[Logprob]) -> list[TokenLogprob]:
    """How likely each token was, and the likeliest tokens in its place."""
    return [
        TokenLogprob(
            token=_text(row.spelling),
            logprob=row.value,
            bytes=list(row.spelling),
            top_logprobs=[
                TopLogprob(token=_text(spelling), logprob=value, bytes=list(spelling)) for _, spelling, value in row.top
            ],
        )
        for row in rows
    ]


def _text(spelling: bytes) -> str:
    return spelling.decode("utf-8", "replace")


async def input_tokens(limits: Serving, models: Models, workers: Workers, call: Call) -> InputTokens:
    """How many tokens the prompt of a conversation has."""
    fields: OpenAIChatBody = call.body
    request = Request(**_conversation(fields, limits)[0])
    return InputTokens(input_tokens=await prompt_tokens(models, workers, call.caller, fields.model, request))


CHAT = Generation("/v1/chat/completions", read, render, frames, OpenAIChatBody, "OpenAI", prefix="chatcmpl-")
COUNT = Query("POST", "", input_tokens, "OpenAI", OpenAIChatBody, errors=(404, 504))
ROUTES: tuple[Route, ...] = (
    CHAT,
    replace(CHAT, path="/chat/completions", read=read_unnamed),
    *aliases(COUNT, "/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"),
)
