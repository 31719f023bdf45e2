"""An answer as Anthropic has it: a message of blocks, or the events of one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

from woolly.request import Arguments, CallStart, Completion, End, Start, Text, Thought
from woolly.server.dialects.anthropic.shapes import (
    SIGNATURE,
    AnthropicEvent,
    AnthropicMessage,
    AnthropicUsage,
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    SignatureDelta,
    Stopped,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)
from woolly.server.dialects.base.bodies import call_arguments
from woolly.server.routes import Events, Head, Job

REASONS = {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"}


def render(_job: Job, head: Head, answers: list[Completion]) -> AnthropicMessage:
    (answer,) = answers
    content: list[Block] = []
    if answer.thought:
        content.append(ThinkingBlock(thinking=answer.thought))
    if answer.text:
        content.append(TextBlock(text=answer.text))
    for call in answer.calls:
        content.append(ToolUseBlock(id=_id(call.id), name=call.name, input=call_arguments(call)))
    return AnthropicMessage(
        id=head["id"],
        model=head["model"],
        content=content,
        usage=_usage(answer),
        **_stopped(answer.finish_reason, answer.stopped_by),
    )


def _id(call: str) -> str:
    """The id of a call, with the beginning by which Anthropic's are known."""
    return "toolu_" + call.removeprefix("call_")


def _stopped(reason: str, by: str) -> dict[str, Any]:
    if reason == "stop" and by:
        return {"stop_reason": "stop_sequence", "stop_sequence": by}
    return {"stop_reason": REASONS[reason], "stop_sequence": None}


def _usage(answer: Completion | End) -> AnthropicUsage:
    usage = answer.usage
    return AnthropicUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
    )


async def frames(_job: Job, head: Head, events: Events) -> AsyncGenerator[AnthropicEvent, None]:
    index = -1  # the index of the open block
    kind: type | None = None  # the type of the open block's pieces
    block: Block

    def closing() -> Iterator[AnthropicEvent]:
        if kind is Thought:
            yield BlockDelta(index=index, delta=SignatureDelta(signature=SIGNATURE))
        if kind is not None:
            yield BlockStop(index=index)

    async for _, event in events:
        match event:
            case Text() | Thought() if event.text:
                if kind is not type(event):
                    for frame in closing():
                        yield frame
                    kind, index = type(event), index + 1
                    block = TextBlock(text="") if kind is Text else ThinkingBlock(thinking="", signature="")
                    yield BlockStart(index=index, content_block=block)
                delta = TextDelta(text=event.text) if kind is Text else ThinkingDelta(thinking=event.text)
                yield BlockDelta(index=index, delta=delta)
            case Arguments() if event.text:
                yield BlockDelta(index=index, delta=InputDelta(partial_json=event.text))
            case CallStart():
                for frame in closing():
                    yield frame
                kind, index = CallStart, index + 1
                block = ToolUseBlock(id=_id(event.id), name=event.name, input={})
                yield BlockStart(index=index, content_block=block)
            case Start(prompt_tokens=prompt, cached_tokens=cached):
                counts = AnthropicUsage(input_tokens=prompt - cached, cache_read_input_tokens=cached, output_tokens=0)
                yield MessageStart(
                    message=AnthropicMessage(
                        id=head["id"],
                        model=head["model"],
                        content=[],
                        stop_reason=None,
                        stop_sequence=None,
                        usage=counts,
                    )
                )
            case End(reason=reason):
                for frame in closing():
                    yield frame
                yield MessageDelta(delta=Stopped(**_stopped(reason, event.stopped_by)), usage=_usage(event))
                yield MessageStop()
