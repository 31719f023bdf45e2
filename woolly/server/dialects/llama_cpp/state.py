"""llama-server's routes that tell how a model is loaded, and what is busy."""

from __future__ import annotations

from typing import Any, Literal

from woolly.config import Settings
from woolly.errors import BusyError
from woolly.request import Sampling
from woolly.server.dialects.base.shapes import Count, Shape
from woolly.server.dialects.llama_cpp.completion import TAG
from woolly.server.dialects.llama_cpp.settings import params_of
from woolly.server.generate.sampling import with_defaults
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Call, Query
from woolly.version import __version__


class LlamaDefaults(Shape):
    n_ctx: Count
    params: dict[str, Any]


class LlamaModalities(Shape, kw_only=True):
    vision: Literal[False] = False
    audio: Literal[False] = False


class LlamaProps(Shape, kw_only=True):
    default_generation_settings: LlamaDefaults
    total_slots: Count
    model_path: str
    model_alias: str
    chat_template: str
    modalities: LlamaModalities
    build_info: str = f"woolly-{__version__}"
    is_sleeping: Literal[False] = False


class LlamaSlot(Shape, kw_only=True):
    """A place of the engine. What is computed there is not told."""

    id: Count
    n_ctx: Count
    is_processing: bool


async def props(models: Models, config: Settings, call: Call) -> LlamaProps:
    """How a model is loaded; without a name, the current one."""
    async with models.lease(call.query.get("model", ""), any_name=not call.caller.strict) as loaded:
        record, meta = await models.metadata(loaded.id)
        sampling = with_defaults(Sampling.of({}), config, loaded.model.card)
        settings = LlamaDefaults(n_ctx=loaded.model.info.context, params=params_of(sampling))
        return LlamaProps(
            default_generation_settings=settings,
            total_slots=loaded.admission.permits,
            model_path=record.path,
            model_alias=loaded.id,
            chat_template=str(meta.get("tokenizer.chat_template", "")),
            modalities=LlamaModalities(),
        )


async def slots(models: Models, call: Call) -> list[LlamaSlot]:
    """The places of the engine, and which are taken; with fail_on_no_slot, an error where all are."""
    async with models.lease("") as loaded:
        slots, busy, context = loaded.admission.permits, loaded.admission.busy, loaded.model.info.context
        if call.query.get("fail_on_no_slot") and busy >= slots:
            raise BusyError("no slot available", suggestion="try again in a moment", code="overloaded")
        return [LlamaSlot(id=index, n_ctx=context, is_processing=index < busy) for index in range(slots)]


ROUTES = (
    Query("GET", "/props", props, TAG, query=("model",), errors=(404,)),
    Query("GET", "/slots", slots, TAG, query=("fail_on_no_slot",), errors=(404,)),
)
