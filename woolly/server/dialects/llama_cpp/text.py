"""llama-server's routes of texts: their tokens, the text of tokens, the prompt of a chat."""

from __future__ import annotations

import functools
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from woolly.config.serving import Serving
from woolly.io.cancellation import check
from woolly.server.dialects.base.fields import Messages, Variables, chat_messages
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.dialects.llama_cpp.completion import TAG
from woolly.server.generate.counting import text_tokens
from woolly.server.models.lifecycle import Models
from woolly.server.models.loaded import ServedModel
from woolly.server.routes import Call, Query
from woolly.server.workers import Workers


class LlamaTextBody(msgspec.Struct, kw_only=True):
    content: str
    model: str | None = None
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class LlamaTokensBody(msgspec.Struct):
    tokens: list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]
    model: str | None = None


class LlamaMessagesBody(msgspec.Struct, kw_only=True):
    messages: Messages
    tools: list[Any] | None = None
    chat_template_kwargs: Variables | None = None
    add_generation_prompt: bool = True
    model: str | None = None


class LlamaPieceOf(Shape):
    """piece: the bytes of a token that is no whole character."""

    id: Count
    piece: str | list[Count]


class LlamaTokens(Shape):
    tokens: list[Count | LlamaPieceOf]


class LlamaText(Shape):
    content: str


class LlamaPrompt(Shape):
    prompt: str


async def tokenize(limits: Serving, models: Models, workers: Workers, call: Call) -> LlamaTokens:
    """The tokens of a text, with their pieces where they are asked for."""
    body: LlamaTextBody = call.body
    async with models.lease(body.model or "", any_name=not call.caller.strict) as loaded:
        bos = None if body.add_special else False
        ids = await text_tokens(loaded, workers, limits, call.caller, body.content, special=body.parse_special, bos=bos)
        if not body.with_pieces:
            return LlamaTokens(tokens=[*ids])
        return LlamaTokens(tokens=await workers.run(call.caller.name, lambda: _pieces(loaded.model, ids)))


def _pieces(model: ServedModel, ids: list[int]) -> list[Count | LlamaPieceOf]:
    pieces: list[Count | LlamaPieceOf] = []
    for token in ids:
        check()
        pieces.append(LlamaPieceOf(id=token, piece=_piece(model.prompter.spell(token))))
    return pieces


def _piece(spelling: bytes) -> str | list[int]:
    try:
        return spelling.decode()
    except UnicodeDecodeError:
        return list(spelling)


async def detokenize(models: Models, workers: Workers, call: Call) -> LlamaText:
    """The text of tokens."""
    body: LlamaTokensBody = call.body
    async with models.lease(body.model or "", any_name=not call.caller.strict) as loaded:
        return LlamaText(content=await workers.run(call.caller.name, lambda: loaded.model.detokenize(body.tokens)))


async def apply_template(limits: Serving, models: Models, workers: Workers, call: Call) -> LlamaPrompt:
    """The prompt that the chat template writes for a conversation."""
    body: LlamaMessagesBody = call.body
    messages = chat_messages(body.messages, limits)
    async with models.lease(body.model or "", any_name=not call.caller.strict) as loaded:
        render = functools.partial(
            loaded.model.render,
            messages,
            tools=body.tools or (),
            chat_template_kwargs=body.chat_template_kwargs or {},
            add_generation_prompt=body.add_generation_prompt,
        )
        text = await workers.run(call.caller.name, render)
    return LlamaPrompt(prompt=text)


ROUTES = (
    Query("POST", "/tokenize", tokenize, TAG, LlamaTextBody, errors=(404,)),
    Query("POST", "/detokenize", detokenize, TAG, LlamaTokensBody, errors=(404,)),
    Query("POST", "/apply-template", apply_template, TAG, LlamaMessagesBody, errors=(404, 504)),
)
