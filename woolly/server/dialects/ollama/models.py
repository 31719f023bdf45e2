"""Ollama's routes about models: which there are, what their files say. A model is a GGUF file, not a recipe, so
routes for which Woolly has no counterpart refuse; deleting is off unless the server was started to allow it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

from msgspec import Struct

from woolly.config import Settings
from woolly.errors import RequestError, UnsupportedError
from woolly.server.dialects.base.shapes import Count, Shape, time_text
from woolly.server.http.reply import Reply
from woolly.server.models.lifecycle import Models
from woolly.server.models.records import ModelRecord
from woolly.server.routes import Call

NEVER = "2200-01-01T00:00:00Z"  # the expiry of a model that stays loaded
PLAIN = "text/plain; charset=utf-8"


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


class NameBody(Struct, kw_only=True):
    model: str | None = None
    name: str | None = None  # as older clients call it


class ShowBody(NameBody, kw_only=True):
    verbose: bool = False


class CopyBody(Struct):
    source: str
    destination: str


async def tags(models: Models, _call: Call) -> OllamaModels:
    """All models, as Ollama lists them."""
    return OllamaModels(models=[OllamaModel(**_row(record)) for record in await models.records()])


async def ps(models: Models, _call: Call) -> OllamaProcesses:
    """The models that are loaded."""
    rows = []
    for loaded in models.loaded:
        record = await models.record(loaded.id)
        left_s = loaded.left_s()
        until = NEVER if left_s is None else time_text(int(time.time() + left_s))
        rows.append(OllamaRunning(**_row(record), context_length=loaded.model.info.context, expires_at=until))
    return OllamaProcesses(models=rows)


async def show(models: Models, call: Call) -> OllamaShown:
    """What the file of a model says; its arrays only where they are asked for."""
    body: ShowBody = call.body
    record, meta = await models.metadata(name_of(body))
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
        modified_at=time_text(record.created),
    )


def _plain(value: Any, *, arrays: bool) -> Any:
    """A value of a file's metadata as JSON has it."""
    if isinstance(value, list) or hasattr(value, "tolist"):
        plain = value.tolist() if hasattr(value, "tolist") else value
        return plain if arrays or not isinstance(plain, list) else None
    return value


async def delete(settings: Settings, models: Models, call: Call) -> Reply[bytes]:
    """Delete the file of a model that is Woolly's own."""
    name = name_of(call.body)
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


def _not_here(what: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"{what} is not supported: {why}")


def name_of(body: NameBody) -> str:
    name = (body.model or body.name or "").removesuffix(":latest")
    if not name:
        raise RequestError("model is required", param="model")
    return name


def _row(record: ModelRecord) -> dict[str, Any]:
    version = f"{record.id}:{record.size}:{record.created}"
    return {
        "name": record.id,
        "model": record.id,
        "modified_at": time_text(record.created),
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
