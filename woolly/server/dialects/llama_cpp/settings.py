"""How an answer is generated, as llama-server lists it: of an answer, and of a model for requests that say nothing."""

from __future__ import annotations

from typing import Any

from woolly.request import SAMPLING, Request, Sampling
from woolly.server.dialects.base.bodies import NO_LIMIT
from woolly.server.dialects.base.llama_fields import STAGES
from woolly.server.routes import Job

NAMES = {"repetition_penalty": "repeat_penalty"}  # a parameter of ours -> its name there


def params_of(sampling: Sampling) -> dict[str, Any]:
    """Every parameter of a sampling, and the stages in their order."""
    values = {NAMES.get(name, name): getattr(sampling, name) for name in SAMPLING}
    return {
        **values,
        "dry_sequence_breakers": list(sampling.dry_sequence_breakers),
        "samplers": [name for name in STAGES if name != "infill" or sampling.infill],
        "ignore_eos": sampling.ignore_eos,
    }


def settings_of(job: Job, request: Request, seed: int) -> dict[str, Any]:
    """All that says how this answer was made."""
    fields, most = job.fields, request.max_tokens
    limit = 0 if job.silent else -1 if most in (None, NO_LIMIT) else most
    return {
        "seed": seed,
        **params_of(request.sampling),
        "logit_bias": [{"token": token, "bias": bias} for token, bias in request.sampling.logit_bias.items()],
        "stop": list(request.stop),
        "max_tokens": limit,
        "n_predict": limit,
        "n_keep": 0,
        "n_discard": 0,
        "n_indent": request.indent,
        "n_probs": fields.n_probs or 0,
        "post_sampling_probs": request.post_sampling,
        "timings_per_token": job.timed,
        "stream": job.stream,
        "grammar": fields.grammar or "",
        "lora": [{"id": name, "scale": scale} for name, scale in (request.lora or {}).items()],
    }
