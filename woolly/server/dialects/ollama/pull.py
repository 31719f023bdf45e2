"""Ollama's route that has a model downloaded: off unless the server was started to allow it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import UNSET, UnsetType

from woolly import store
from woolly.config import Settings
from woolly.errors import NotFoundError, RequestError, printable
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.dialects.ollama.models import NameBody, name_of
from woolly.server.http.caller import Caller
from woolly.server.http.framing import LINES
from woolly.server.models.downloads import Downloads
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Call, Streamed

HUB = ("hf.co/", "huggingface.co/", "hf:")  # how names on the hub begin
PULL_S = 0.25  # seconds between two lines about a download


class OllamaProgress(Shape, kw_only=True):
    status: str
    digest: str | UnsetType = UNSET
    total: Count | UnsetType = UNSET
    completed: Count | UnsetType = UNSET


class PullBody(NameBody, kw_only=True):
    stream: bool = True


async def pull(
    settings: Settings, downloads: Downloads, models: Models, call: Call
) -> Streamed[OllamaProgress] | OllamaProgress:
    """Have a model on this machine; one that is here already is not downloaded again."""
    body: PullBody = call.body
    pieces = _pulling(settings, downloads, models, call.caller, name_of(body))
    if body.stream:
        return Streamed(pieces, LINES)
    return [piece async for piece in pieces][-1]


async def _pulling(
    settings: Settings, downloads: Downloads, models: Models, caller: Caller, name: str
) -> AsyncGenerator[OllamaProgress, None]:
    yield OllamaProgress(status="pulling manifest")
    if not await _is_here(models, name):
        async with aclosing(_downloading(downloads, caller, _download_name(settings, name))) as pieces:
            async for progress in pieces:
                yield progress
    yield OllamaProgress(status="verifying sha256 digest")  # it was verified before the file had its name
    yield OllamaProgress(status="writing manifest")
    yield OllamaProgress(status="success")


async def _is_here(models: Models, name: str) -> bool:
    try:
        await models.record(name)
    except NotFoundError:
        return False
    return True


def _download_name(settings: Settings, name: str) -> str:
    """The name of a model of the catalogue or the hub. A name never chooses the server that it comes from."""
    hub = next((name.removeprefix(prefix) for prefix in HUB if name.startswith(prefix)), "")
    right = store.NAME.fullmatch(name) is not None and ".." not in name
    if not right or not (hub or store.is_in_catalogue(name)):
        raise NotFoundError("there is no such model", code="model_not_found", model=printable(name))
    if not settings.manage_models:
        raise RequestError(
            "this server downloads nothing for its clients",
            suggestion=f"run `woolly pull {name}`, or start the server with --manage-models",
            code="access_denied",
        )
    return f"hf:{hub}" if hub else name


async def _downloading(downloads: Downloads, caller: Caller, name: str) -> AsyncGenerator[OllamaProgress, None]:
    """How far a download is. A client that leaves ends it."""
    seen = [0, 0]

    def progress(done: int, total: int) -> None:
        seen[:] = done, total

    digest = hashlib.sha256(name.encode()).hexdigest()
    task = asyncio.create_task(downloads.pull(caller, name, progress))
    try:
        while not task.done():
            await asyncio.wait([task], timeout=PULL_S)
            done, total = seen
            if total:
                status = f"pulling {digest[:12]}"
                yield OllamaProgress(status=status, digest=f"sha256:{digest}", total=total, completed=done)
        task.result()
    finally:
        task.cancel()
