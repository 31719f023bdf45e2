"""The child processes that render chat templates (worker.py), and the errors that they report.

A template is a stranger's program, and may take all the time that it has: it delays no chat with another template.
"""

from __future__ import annotations

from pathlib import Path

from woolly.errors import RequestError
from woolly.io.sandbox import Child
from woolly.io.sandbox_pool import ChildPool
from woolly.limits import LIMITS

LIMIT = "TEMPLATE_LIMIT"  # the code of an error that names a limit which a render has reached


def _child() -> Child:
    limits = LIMITS.template_memory, LIMITS.template_output, 2 * LIMITS.template_s
    script = Path(__file__).with_name("worker.py")
    return Child("renders chat templates", script, ("jinja2", "markupsafe"), limits, LIMITS.template_s)


RENDERER = ChildPool(_child)


def refusal(kind: str, text: str) -> RequestError:
    """The error that an answer of the worker stands for."""
    if kind == "R":
        return RequestError(f"the chat template refuses these messages: {text}")
    if kind == "L":
        limits = {
            "time": f"took longer than {LIMITS.template_s:g} s",
            "memory": f"needed more than {LIMITS.template_memory >> 20} MiB of memory",
            "output": f"wrote more than {LIMITS.template_output >> 20} MiB",
            "crash": "broke the process that renders it",
        }
        return RequestError(f"the chat template {limits[text]}", code="model_error", error_code=LIMIT)
    return RequestError(f"the chat template failed: {text}", code="model_error", error_code="TEMPLATE_ERROR")
