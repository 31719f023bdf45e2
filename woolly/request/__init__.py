"""request: the language between callers and the engine, checked in one place.

In: messages or a prompt, wishes, and the form that an answer must have. Out: `Event`s. The library, the command line
and the server use these types and no others; nothing here knows a model.
"""

from __future__ import annotations

from woolly.config.rows import Scalar
from woolly.request.events import (
    Arguments,
    Call,
    CallStart,
    Completion,
    End,
    Event,
    Failed,
    Logprob,
    PartText,
    Piece,
    Prompt,
    Reason,
    Start,
    Text,
    Thought,
    Timings,
    Usage,
    complete,
)
from woolly.request.request import (
    TEMPLATE_NAMES,
    Options,
    Request,
    read_variables,
    request_of,
)
from woolly.request.sampling import (
    SAMPLING,
    Parameter,
    Sampling,
)
from woolly.request.submit import NOBODY, SubmitOptions

__all__ = [
    "NOBODY",
    "SAMPLING",
    "TEMPLATE_NAMES",
    "Arguments",
    "Call",
    "CallStart",
    "Completion",
    "End",
    "Event",
    "Failed",
    "Logprob",
    "Options",
    "Parameter",
    "PartText",
    "Piece",
    "Prompt",
    "Reason",
    "Request",
    "Sampling",
    "Scalar",
    "Start",
    "SubmitOptions",
    "Text",
    "Thought",
    "Timings",
    "Usage",
    "complete",
    "read_variables",
    "request_of",
]
