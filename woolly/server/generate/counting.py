"""How many tokens the prompt of a request has, without an answer to it."""

from __future__ import annotations

from woolly.request import Request
from woolly.server.http.caller import Caller
from woolly.server.models.lifecycle import Models
from woolly.server.workers import Workers


async def prompt_tokens(models: Models, workers: Workers, caller: Caller, model: str | None, request: Request) -> int:
    async with models.lease(model or "", wanted="logits", any_name=not caller.strict) as loaded:
        prepared = await workers.run(caller.name, lambda: loaded.model.prepare(request))
    return len(prepared.ids)
