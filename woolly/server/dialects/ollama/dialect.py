"""Ollama's dialect under /api: its routes of generation and those about models, its errors, each of which is a text.

Routes that Woolly has no counterpart for refuse: a model is a GGUF file, not a recipe. Downloading and deleting are
off unless the server was started to allow them.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from time import perf_counter_ns
from typing import Any, Literal, NoReturn

from msgspec import UNSET, Struct, UnsetType

from woolly import store
from woolly.config import Settings
from woolly.errors import NotFoundError, RequestError, UnsupportedError, WoollyError, printable
from woolly.server.dialects.base.bodies import Positive
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.dialects.ollama.generation import CHAT, GENERATE, TAG, keep_alive_s
from woolly.server.dialects.openai.embeddings import embedded, shortest_of
from woolly.server.generate.answering import Answering
from woolly.server.http.caller import Caller
from woolly.server.http.framing import LINES
from woolly.server.http.reply import Reply
from woolly.server.models.downloads import Downloads
from woolly.server.models.lifecycle import Models
from woolly.server.models.records import ModelRecord
from woolly.server.routes import Call, Dialect, Query, Streamed
from woolly.version import __version__

VERSION = "0.30.0"  # the version of Ollama to clients, which check whether it is new enough
NEVER = "2200-01-01T00:00:00Z"  # the expiry of a model that stays loaded
PLAIN = "text/plain; charset=utf-8"
HUB = ("hf.co/", "huggingface.co/", "hf:")  # how names on the hub begin
PULL_S = 0.25  # seconds between two lines about a download


class OllamaVersion(Shape, kw_only=True):
    version: str = VERSION
    woolly: str = __version__


class OllamaDetails(Shape, kw_only=True):
    parent_model: str = ""
    format: Literal["gguf"] = "gguf"
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModel(Shape, kw_only=True):
    """digest: names this version of the file, and is no digest of its bytes."""

    name: str
    model: str
    modified_at: str
    size: Count
    digest: str
    details: OllamaDetails
    capabilities: list[str]


class OllamaModels(Shape):
    models: list[OllamaModel]


class OllamaRunning(OllamaModel, kw_only=True):
    expires_at: str
    size_vram: Count = 0
    context_length: Count


class OllamaProcesses(Shape):
    models: list[OllamaRunning]


class OllamaShown(Shape, kw_only=True):
    license: str
    modelfile: str
    parameters: str
    template: str
    details: OllamaDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class OllamaProgress(Shape, kw_only=True):
    status: str
    digest: str | UnsetType = UNSET
    total: Count | UnsetType = UNSET
    completed: Count | UnsetType = UNSET


class OllamaError(Shape):
    error: str


class NameBody(Struct, kw_only=True):
    model: str | None = None
    name: str | None = None  # as older clients call it


class ShowBody(NameBody, kw_only=True):
    verbose: bool = False


class PullBody(NameBody, kw_only=True):
    stream: bool = True


class CopyBody(Struct):
    source: str
    destination: str


async def version(_call: Call) -> OllamaVersion:
    """The version of Ollama that these routes are like, and our own."""
    return OllamaVersion()


async def tags(models: Models, _call: Call) -> OllamaModels:
    """All models, as Ollama lists them."""
    return OllamaModels(models=[OllamaModel(**_row(record)) for record in await models.records()])


async def ps(models: Models, _call: Call) -> OllamaProcesses:
    """The models that are loaded."""
    rows = []
    for loaded in models.loaded:
        record = await models.record(loaded.id)
        left_s = loaded.left_s()
        until = NEVER if left_s is None else _time(int(time.time() + left_s))
        rows.append(OllamaRunning(**_row(record), context_length=loaded.model.info.context, expires_at=until))
    return OllamaProcesses(models=rows)


async def show(models: Models, call: Call) -> OllamaShown:
    """What the file of a model says; its arrays only where they are asked for."""
    body: ShowBody = call.body
    record, meta = await models.metadata(_name(body))
    template = meta.get("tokenizer.chat_template")
    licence = meta.get("general.license")
    return OllamaShown(
        license=licence if isinstance(licence, str) else "",
        modelfile=f"# {record.path}, a GGUF file that Woolly reads as it is\nFROM {record.path}\n",
        parameters="\n".join(f"{name} {value}" for name, value in record.sampling.items()),
        template=template if isinstance(template, str) else "",
        details=_details(record),
        model_info={name: _plain(value, arrays=body.verbose) for name, value in meta.items()},
        capabilities=_capabilities(record, meta),
        modified_at=_time(record.created),
    )


def _plain(value: Any, *, arrays: bool) -> Any:
    """A value of a file's metadata as JSON has it."""
    if isinstance(value, list) or hasattr(value, "tolist"):
        plain = value.tolist() if hasattr(value, "tolist") else value
        return plain if arrays or not isinstance(plain, list) else None
    return value


async def pull(
    settings: Settings, downloads: Downloads, models: Models, call: Call
) -> Streamed[OllamaProgress] | OllamaProgress:
    """Have a model on this machine; one that is here already is not downloaded again."""
    body: PullBody = call.body
    pieces = _pulling(settings, downloads, models, call.caller, _name(body))
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


async def delete(settings: Settings, models: Models, call: Call) -> Reply[bytes]:
    """Delete the file of a model that is Woolly's own."""
    name = _name(call.body)
    await models.record(name)
    if not settings.manage_models:
        raise RequestError(
            "this server deletes nothing for its clients",
            suggestion="run `woolly rm MODEL`, or start the server with --manage-models",
            code="access_denied",
        )
    await models.remove(name)
    return Reply(b"", media_type=PLAIN)


async def copy(models: Models, call: Call) -> NoReturn:
    """Another name for a model, which only the settings can give."""
    body: CopyBody = call.body
    await models.record(body.source.removesuffix(":latest"))
    raise _not_here("copy", "give a model another name under [aliases] of the settings")


async def create(_call: Call) -> NoReturn:
    """A model from a recipe, which there is none of."""
    raise _not_here("create", "a model is a GGUF file in the models folder")


async def push(_call: Call) -> NoReturn:
    """A model sent elsewhere, which this server does not do."""
    raise _not_here("push", "a model is a GGUF file in the models folder")


class EmbedBody(Struct, kw_only=True):
    model: str
    input: str | list[str]
    truncate: bool | None = None
    dimensions: Positive | None = None
    keep_alive: float | str | None = None


class OllamaEmbeddings(Shape, kw_only=True):
    model: str
    embeddings: list[list[float]]
    total_duration: Count
    load_duration: Count = 0
    prompt_eval_count: Count


async def embed(services: Answering, call: Call) -> OllamaEmbeddings:
    """Embeddings of texts, each of length 1; longer texts than the context are cut unless `truncate` is false."""
    body: EmbedBody = call.body
    begun, texts = perf_counter_ns(), [body.input] if isinstance(body.input, str) else body.input
    if len(texts) > services.settings.limits.inputs:
        raise RequestError(f"input has {len(texts):,} entries; at most {services.settings.limits.inputs:,} are read")
    name, cut = body.model.removesuffix(":latest"), body.truncate is not False
    keep_s = keep_alive_s(body.keep_alive)
    result, rows = await embedded(
        services, call, name, texts, write=shortest_of, truncate=cut, dimensions=body.dimensions, keep_s=keep_s
    )
    return OllamaEmbeddings(
        model=body.model,
        embeddings=rows,
        total_duration=perf_counter_ns() - begun,
        prompt_eval_count=result.tokens,
    )


class EmbeddingsBody(Struct, kw_only=True):
    model: str
    prompt: str
    keep_alive: float | str | None = None


class OllamaEmbedding(Shape):
    embedding: list[float]


async def embeddings(services: Answering, call: Call) -> OllamaEmbedding:
    """The embedding of one text, as the model gives it; Ollama's older route."""
    body: EmbeddingsBody = call.body
    if not body.prompt:
        return OllamaEmbedding(embedding=[])
    name = body.model.removesuffix(":latest")
    keep_s = keep_alive_s(body.keep_alive)
    _, [row] = await embedded(
        services, call, name, [body.prompt], write=shortest_of, truncate=True, normalize=False, keep_s=keep_s
    )
    return OllamaEmbedding(embedding=row)


def _not_here(what: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"{what} is not supported: {why}")


def _name(body: NameBody) -> str:
    name = (body.model or body.name or "").removesuffix(":latest")
    if not name:
        raise RequestError("model is required", param="model")
    return name


def _row(record: ModelRecord) -> dict[str, Any]:
    version = f"{record.id}:{record.size}:{record.created}"
    return {
        "name": record.id,
        "model": record.id,
        "modified_at": _time(record.created),
        "size": record.size,
        "digest": hashlib.sha256(version.encode()).hexdigest(),
        "details": _details(record),
        "capabilities": list(_capabilities(record, {})),
    }


def _details(record: ModelRecord) -> OllamaDetails:
    count = record.parameters
    return OllamaDetails(
        family=record.architecture,
        families=[record.architecture],
        parameter_size=f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.2f}M",
        quantization_level=record.quantization,
    )


def _capabilities(record: ModelRecord, meta: Mapping[str, Any]) -> list[str]:
    """What a model can be used for. Tools are described to a template that knows none, so every chat has them."""
    template = str(meta.get("tokenizer.chat_template", ""))
    capabilities = {
        "completion": "completion" in record.capabilities,
        "embedding": "embedding" in record.capabilities,
        "tools": "chat" in record.capabilities,
        "thinking": "thinking" in template,
        "insert": "tokenizer.ggml.fim_pre_token_id" in meta,
    }
    return [name for name, there in capabilities.items() if there]


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def error(problem: WoollyError, _id: str) -> OllamaError:
    """A text; the two errors that clients look for are in Ollama's own words."""
    name = problem.facts.get("model")
    if problem.code == "model_not_found":
        return OllamaError(error=f"model '{name}' not found")
    if problem.facts.get("param") == "think" and name:
        return OllamaError(error=f'"{name}" does not support thinking')
    return OllamaError(error=str(problem))


PATHS = ("version", "tags", "ps", "show", "pull", "delete", "copy", "create", "push", "embed", "blobs/")
DIALECT = Dialect(
    name="ollama",
    routes=(
        GENERATE,
        CHAT,
        Query("GET", "/api/version", version, TAG, access="open"),
        Query("GET", "/api/tags", tags, TAG),
        Query("GET", "/api/ps", ps, TAG),
        Query("POST", "/api/show", show, TAG, ShowBody, errors=(404,)),
        Query("POST", "/api/pull", pull, TAG, PullBody, access="key", errors=(404, 502)),
        Query(
            "DELETE", "/api/delete", delete, TAG, NameBody, access="key", texts=("text/plain",), errors=(404, 409, 500)
        ),
        Query("POST", "/api/copy", copy, TAG, CopyBody, access="key", errors=(404,)),
        Query("POST", "/api/create", create, TAG, access="key"),
        Query("POST", "/api/push", push, TAG, access="key"),
        Query("POST", "/api/embed", embed, TAG, EmbedBody, errors=(404,)),
        Query(
            "POST",
            "/api/embeddings",
            embeddings,
            TAG,
            EmbeddingsBody,
            errors=(404,),
            accepts=lambda body: "prompt" in body,
        ),
    ),
    error=error,
    prefixes=("/api/generate", "/api/chat", *(f"/api/{path}" for path in PATHS)),
)
