"""What a host of the Model Context Protocol may use here: a table each of tools, resources and prompts."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from woolly.server.dialects.base.bodies import Positive, SamplingFields
from woolly.server.dialects.base.fields import Messages
from woolly.server.dialects.openai.embeddings import EmbeddingBody, embeddings
from woolly.server.dialects.woolly import dialect as api_v1
from woolly.server.dialects.woolly import generation
from woolly.server.dialects.woolly.figures import Stats, measured
from woolly.server.generate.answering import Answering
from woolly.server.generate.counting import text_tokens
from woolly.server.generate.generate import answer
from woolly.server.generate.send import Answered
from woolly.server.http.caller import Caller
from woolly.server.mcp.mcp import Offers, Prompt, Resource, Tool
from woolly.server.metrics.prometheus import Metering
from woolly.server.routes import Call, Generation


class _Sampled(SamplingFields, kw_only=True):
    max_tokens: Annotated[Positive, Meta(description="the most tokens of the answer")] | None = None
    seed: Annotated[int, Meta(ge=0, description="the same seed gives the same text")] | None = None
    stop: Annotated[list[str], Meta(description="the answer ends before the first of these texts")] | None = None
    model: Annotated[str, Meta(description="one of model://models; the current one where it is left out")] | None = None


class GenerateArguments(_Sampled, kw_only=True):
    prompt: Annotated[str, Meta(description="the text to go on with")]


class ChatArguments(_Sampled, kw_only=True):
    messages: Annotated[Messages, Meta(description="the conversation: objects with role and content")]


class EmbedArguments(msgspec.Struct, kw_only=True):
    texts: Annotated[list[str], Meta(min_length=1, description="each becomes a list of numbers")]
    model: str | None = None


class TokenizeArguments(msgspec.Struct, kw_only=True):
    text: str
    model: str | None = None


async def _first_choice(services: Answering, caller: Caller, route: Generation, arguments: Mapping[str, Any]) -> Any:
    """The only choice of an answer, generated as over HTTP."""
    out = Answered("mcp")
    limits = services.settings.limits
    job = await services.workers.run(caller.name, lambda: route.read({**arguments, "stream": False}, {}, limits))
    await answer(services, api_v1.DIALECT, route, job, caller, out)
    return out.body.choices[0]


async def _generate(services: Answering, caller: Caller, arguments: Mapping[str, Any]) -> str:
    return str((await _first_choice(services, caller, generation.COMPLETE, arguments)).text)


async def _chat(services: Answering, caller: Caller, arguments: Mapping[str, Any]) -> str:
    return str((await _first_choice(services, caller, generation.CHAT, arguments)).message.content)


async def _embed(services: Answering, caller: Caller, arguments: Mapping[str, Any]) -> str:
    body = EmbeddingBody(input=arguments["texts"], model=arguments.get("model"))
    result = await embeddings(services, Call(body, {}, {}, caller))
    return msgspec.json.encode([row.embedding for row in result.data]).decode()


async def _tokenize(services: Answering, caller: Caller, arguments: Mapping[str, Any]) -> str:
    name = arguments.get("model") or ""
    async with services.models.lease(name, any_name=not caller.strict) as loaded:
        limits, text = services.settings.limits, arguments["text"]
        ids = await text_tokens(loaded, services.workers, limits, caller, text, special=False)
    return msgspec.json.encode(ids).decode()


ToolCall = Callable[[Answering, Caller, Mapping[str, Any]], Awaitable[str]]


def offers(services: Answering, metering: Metering) -> Offers:
    """The tools, resources and prompts of this server."""
    models = services.models

    def tool(name: str, description: str, arguments: type[msgspec.Struct], call: ToolCall) -> Tool:
        return Tool(name, description, arguments, functools.partial(call, services))

    async def figures() -> Stats:
        return measured(metering)

    return Offers(
        tools=(
            tool(
                "generate",
                "Continue a text with a language model that runs on this machine.",
                GenerateArguments,
                _generate,
            ),
            tool(
                "chat", "Answer a conversation with a language model that runs on this machine.", ChatArguments, _chat
            ),
            tool("inference", "The same as generate, by the name that Ole knows.", GenerateArguments, _generate),
            tool("embed", "Tell the embeddings of texts, as a JSON list of lists of numbers.", EmbedArguments, _embed),
            tool("tokenize", "Tell the token ids of a text, as a JSON list.", TokenizeArguments, _tokenize),
        ),
        resources=(
            Resource(
                "model://info", "model", "What the current model is: size, family, context.", lambda: models.record("")
            ),
            Resource("model://models", "models", "Every model that can be asked for.", models.records),
            Resource("model://figures", "figures", "What was measured since the server began.", figures),
        ),
        prompts=(
            Prompt(
                "system", "A beginning that tells a model its task.", ("task",), "You are a careful assistant. {task}"
            ),
            Prompt(
                "summarize", "Ask for a short summary.", ("text",), "Summarize this text in a few sentences:\n\n{text}"
            ),
        ),
    )
