"""The sampling and length of requests that say nothing of them, and a job as its model can answer it: one decision for
the routes of all dialects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from woolly.config import Settings
from woolly.config.serving import Serving
from woolly.errors import RequestError
from woolly.examine import Card
from woolly.request import Request, Sampling
from woolly.server.dialects.base.bodies import NO_LIMIT
from woolly.server.http.caller import Caller
from woolly.server.models.loaded import LoadedModel
from woolly.server.routes import Job

OPENAI = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}  # the model's own probabilities


def with_defaults(sampling: Sampling, settings: Settings, card: Card) -> Sampling:
    """What nobody chose is as the settings have it, then as the model's card recommends, else as `Sampling` has it; or
    as OpenAI's server has it."""
    sampling = sampling.recommended(settings.defaults)
    if settings.sampling == "openai":
        return replace(sampling.recommended(OPENAI), unset=frozenset())
    return sampling.recommended(card.sampling)


def seeded(job: Job, seed: int) -> Job:
    """The job with this seed where its requests name none; choice i of a prompt is drawn with seed + i, as if it had
    been sent."""
    choices = getattr(job.fields, "n", None) or 1
    requests = (
        request
        if request.sampling.seed is not None
        else request.with_values(sampling=replace(request.sampling, seed=(seed + index % choices) % 2**64))
        for index, request in enumerate(job.requests)
    )
    return replace(job, requests=tuple(requests))


def bounded(request: Request, limits: Serving) -> Request:
    """The request with the length of the settings where it names none, and no longer than they allow."""
    tokens = request.max_tokens or limits.answer_tokens
    if limits.max_tokens and not 0 < tokens <= limits.max_tokens:
        tokens = limits.max_tokens
    if not tokens or tokens == request.max_tokens:
        return request
    return request.with_values(max_tokens=tokens, shorten=request.shorten or request.max_tokens is None)


def described(sampling: Sampling) -> str:
    """A header: how the tokens of an answer were chosen."""
    values: dict[str, Any] = {name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k", "min_p")}
    return ", ".join(f"{name}={value:g}" for name, value in values.items())


def sampled(job: Job, change: Callable[[Sampling], Sampling]) -> Job:
    """The job with the sampling of each request changed."""
    requests = (request.with_values(sampling=change(request.sampling)) for request in job.requests)
    return replace(job, requests=tuple(requests))


def fitted(settings: Settings, loaded: LoadedModel, job: Job, caller: Caller) -> Job:
    """The job as this model answers it: with the defaults of its file, and within its context."""
    context = loaded.model.info.context
    if job.context > context:
        raise RequestError(
            f"a context of {job.context:,} tokens is asked for; {loaded.id} was loaded with {context:,}",
            suggestion="ask for less, or load it with a larger context",
            param="num_ctx",
        )
    card = loaded.model.card
    job = sampled(job, lambda sampling: with_defaults(sampling, settings, card))
    endless = any(request.shorten and request.max_tokens == NO_LIMIT for request in job.requests)
    job = replace(job, window=context, endless=endless)
    if "seed" in settings.defaults:
        job = seeded(job, int(settings.defaults["seed"]))
    if caller.strict:
        return job
    # For other callers max_tokens is an upper bound.
    return replace(job, requests=tuple(request.with_values(shorten=True) for request in job.requests))
