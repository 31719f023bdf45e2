"""What a host of the Model Context Protocol may use here: a table each of tools, resources and prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from woolly.server.answer import answer
from woolly.server.dialects import api_v1, api_v1_generation
from woolly.server.dialects.bodies import Positive, SamplingFields
from woolly.server.dialects.fields import Messages
from woolly.server.dialects.figures import measured
from woolly.server.dialects.openai_embeddings import EmbeddingBody, embeddings
from woolly.server.door import Call, Caller, Generation, Reply

if TYPE_CHECKING:
    from woolly.server.app import App


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


class Answered:
    """A writer that keeps the one answer it is given."""

    id = "mcp"

    def __init__(self) -> None:
        self.extra: dict[str, str] = {}
        self.body: Any = None

    async def reply(self, reply: Reply[Any]) -> None:
        self.body = reply.body

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        raise AssertionError("whole answers only")

    async def write(self, data: bytes, *, more: bool = True) -> None:
        raise AssertionError("whole answers only")


async def _generated(app: App, caller: Caller, door: Generation, arguments: Mapping[str, Any]) -> Any:
    """The only choice of an answer, made as over HTTP."""
    out = Answered()
    job = door.read({**arguments, "stream": False}, {}, app.settings.limits)
    await answer(app, api_v1.DIALECT, door, job, caller, out)
    return out.body.choices[0]


async def _generate(app: App, caller: Caller, arguments: Mapping[str, Any]) -> str:
    return str((await _generated(app, caller, api_v1_generation.COMPLETE, arguments)).text)


async def _chat(app: App, caller: Caller, arguments: Mapping[str, Any]) -> str:
    return str((await _generated(app, caller, api_v1_generation.CHAT, arguments)).message.content)


async def _embed(app: App, caller: Caller, arguments: Mapping[str, Any]) -> str:
    body = EmbeddingBody(input=arguments["texts"], model=arguments.get("model"))
    made = await embeddings(app, Call(body, {}, {}, caller))
    return msgspec.json.encode([row.embedding for row in made.data]).decode()


async def _tokenize(app: App, _caller: Caller, arguments: Mapping[str, Any]) -> str:
    async with app.models.lease(arguments.get("model") or "") as loaded:
        ids = await app.in_thread(lambda: loaded.model.tokenize(arguments["text"], special=False))
    return msgspec.json.encode(ids).decode()


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    arguments: type[msgspec.Struct]
    call: Callable[[App, Caller, Mapping[str, Any]], Awaitable[str]]

    @property
    def schema(self) -> dict[str, Any]:
        made = msgspec.json.schema(self.arguments)
        return {**made["$defs"].pop(self.arguments.__name__), **({"$defs": made["$defs"]} if made["$defs"] else {})}


@dataclass(frozen=True, slots=True)
class Resource:
    uri: str
    name: str
    description: str
    read: Callable[[App], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text` has the arguments in braces; all of them must be given."""

    name: str
    description: str
    arguments: tuple[str, ...]
    text: str


async def _info(app: App) -> Any:
    return await app.models.record("")


async def _models(app: App) -> Any:
    return await app.models.records()


async def _figures(app: App) -> Any:
    return measured(app)


TOOLS = (
    Tool("generate", "Continue a text with a language model that runs on this machine.", GenerateArguments, _generate),
    Tool("chat", "Answer a conversation with a language model that runs on this machine.", ChatArguments, _chat),
    Tool("inference", "The same as generate, by the name that Ole knows.", GenerateArguments, _generate),
    Tool("embed", "Tell the embeddings of texts, as a JSON list of lists of numbers.", EmbedArguments, _embed),
    Tool("tokenize", "Tell the token ids of a text, as a JSON list.", TokenizeArguments, _tokenize),
)
RESOURCES = (
    Resource("model://info", "model", "What the current model is: size, family, context.", _info),
    Resource("model://models", "models", "Every model that can be asked for.", _models),
    Resource("model://figures", "figures", "What was measured since the server began.", _figures),
)
PROMPTS = (
    Prompt("system", "A beginning that tells a model its task.", ("task",), "You are a careful assistant. {task}"),
    Prompt("summarize", "Ask for a short summary.", ("text",), "Summarize this text in a few sentences:\n\n{text}"),
)
