"""Tokens without an answer: how many the prompt of a request has, and those of a text."""

from __future__ import annotations

import functools

from woolly.config.serving import Serving
from woolly.errors import RequestError
from woolly.request import Request
from woolly.server.http.caller import Caller
from woolly.server.models.lifecycle import Models
from woolly.server.models.loaded import LoadedModel
from woolly.server.workers import Workers


async def prompt_tokens(models: Models, workers: Workers, caller: Caller, model: str | None, request: Request) -> int:
    async with models.lease(model or "", wanted="logits", any_name=not caller.strict) as loaded:
        prepared = await workers.run(caller.name, lambda: loaded.model.prepare(request))
    return len(prepared.ids)


async def text_tokens(
    loaded: LoadedModel,
    workers: Workers,
    limits: Serving,
    caller: Caller,
    text: str,
    *,
    special: bool,
    bos: bool | None = None,
) -> list[int]:
    """The tokens of a text. No context bounds it, each of its bytes takes a hundred while it is read, and nobody can
    stop that."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limits.tokenized:
        raise RequestError(
            f"the text has {size:,} bytes; the tokens of {limits.tokenized:,} at most are told",
            suggestion="send it in pieces",
            code="payload_too_large",
        )
    work = functools.partial(loaded.model.tokenize, text, special=special, bos=bos)
    return await workers.run(caller.name, work)
