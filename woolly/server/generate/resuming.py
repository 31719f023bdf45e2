"""Streams that a reader who was cut off can ask for again: numbered events, and a seed that the reader is told."""

from __future__ import annotations

import secrets
from dataclasses import replace

from woolly.errors import RequestError
from woolly.server.http.caller import Caller
from woolly.server.http.framing import EVENTS
from woolly.server.routes import Generation, Job


def seen_of(job: Job, route: Generation, caller: Caller) -> int | None:
    """How many events of a stream its reader has already; None where the stream cannot be resumed.

    The events of one answer are a pure function of its request and seed: a reader that was cut off asks again, and is
    sent the events that it has not seen. Several answers of one request have no fixed order among each other, a session
    would get the question twice, and remote tools would be called again.
    """
    alone = len(job.requests) == 1 and not job.session and job.remote is None
    if caller.seen is None or (alone and job.stream and route.framing.media_type == EVENTS.media_type):
        return caller.seen
    if caller.seen:
        raise RequestError("this answer cannot be gone on with; ask for it anew", param="Last-Event-ID")
    return None


def with_seed(job: Job, seed: int | None) -> Job:
    """The job with a seed that its reader is told, and can send when it asks again."""
    request = job.requests[0]
    if request.sampling.seed is not None:
        return job
    drawn = secrets.randbits(53) if seed is None else seed  # 53 bits: exact in every JSON reader
    return replace(job, requests=(request.with_values(sampling=replace(request.sampling, seed=drawn)),))
