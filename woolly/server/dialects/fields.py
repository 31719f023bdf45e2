"""What the dialects share in reading a body: a Struct from an object, and what becomes of every field that was sent.

A field is honoured, has no effect on the text (a note says so), would change the answer and is refused by name, or is
unknown (a note says so). Nothing that changes an answer is ignored in silence.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from woolly.errors import RequestError, UnsupportedError, printable
from woolly.limits import LIMITS, SERVING, Serving
from woolly.messages import ROLES
from woolly.request import Scalar
from woolly.server.body import read_json

T = TypeVar("T", bound=msgspec.Struct)

# Without effect on the text: they name, sort, bill or place a request, or ask for what no model here can switch.
HARMLESS = frozenset(
    [
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "parallel_tool_calls",
        "keep_alive",
        "truncate",
        "shift",
        "context_management",
        "container",
        "gpu_layers",
        "reasoning_effort",
        "reasoning",
        "verbosity",
    ]
)
PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"enum": [role for role in ROLES if role != "tool"]},
        "content": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": PART, "minItems": 1, "maxItems": SERVING.message_parts},
            ]
        },
        "name": {"type": "string"},
    },
    "required": ["role", "content"],
}
# Of messages, beside their role and content: what templates can show.
MESSAGE_FIELDS = ("name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning")
# Read by request.Request, which tells a wrong one by its place.
Messages = Annotated[list[Any], Meta(extra_json_schema={"items": MESSAGE, "minItems": 1, "maxItems": SERVING.messages})]
# Variables of the chat template; which names are free, request.Request knows.
Variables = Annotated[dict[str, Scalar], Meta(max_length=LIMITS.variables)]
# Would change every answer, and is not for a request to bring.
EVERYWHERE: dict[str, Callable[[Any], bool]] = {"chat_template": lambda v: False}
# What is known of a type is made at its first use; msgspec crashes where two threads do so at once.
_ONE = threading.Lock()
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def read_body(data: bytes, limits: Serving, *, listed: str = "") -> Mapping[str, Any]:
    """The fields that a body holds; listed: the one that a list stands for, where it may be one.

    A template is refused on every route, or one would be the door somebody forgot.
    """
    body = read_json(data, limits, listed=listed)
    refuse(body, EVERYWHERE)
    return body


def read_struct(kind: type[T], body: Mapping[str, Any], sent: Mapping[str, str] | None = None) -> T:
    """The body as a Struct; what does not fit is a RequestError that names the field.

    sent: the names by which fields were sent, where they are not those of the Struct.
    """
    try:
        with _ONE:
            return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        place = _PLACE.search(text)
        what = text[: place.start()] if place else text
        missing = re.search(r"missing required field `([^`]*)`", text)
        param = place["path"] if place and place["path"] else missing[1] if missing else ""
        name = re.split(r"[.\[]", param, maxsplit=1)[0]
        param = (sent or {}).get(name, name) + param[len(name) :]
        where = f"{param}: " if param else ""
        text = printable(where + what[:1].lower() + what[1:], 300)
        raise RequestError(text, code="validation_error", param=param) from None


def notes(body: Mapping[str, Any], known: frozenset[str]) -> tuple[str, ...]:
    """The fields that were sent and had no effect."""
    return tuple(printable(name, 40) for name in body if name not in known)[:16]


def refuse_unknown(names: tuple[str, ...]) -> None:
    """For who would rather be refused than misunderstood: a field that we do not know is an error by its name."""
    for name in names:  # more notes are kept than there are harmless names, so none that is not is overlooked
        if name not in HARMLESS:
            raise RequestError(
                f"the field '{name}' is not known here",
                suggestion="leave it out, or do not ask for X-Woolly-Strict",
                code="validation_error",
                param=name,
            )


def refuse(body: Mapping[str, Any], reasons: Mapping[str, Callable[[Any], bool]]) -> None:
    """Refuse a field that would change the answer; each name has a test for the values that ask for nothing."""
    for name, harmless in reasons.items():
        value = body.get(name)
        if value is not None and not harmless(value):
            raise UnsupportedError(
                f"'{name}' is not supported by this version",
                suggestion="leave the field out",
                param=name,
            )


def chat_messages(messages: list[Any], limits: Serving) -> list[Any]:
    """What a Request reads of messages, if they are not too many; it tells what else may be wrong with them."""
    if len(messages) > limits.messages:
        raise RequestError(
            f"messages has {len(messages):,} entries; at most {limits.messages:,} are read", param="messages"
        )
    made: list[Any] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            made.append(message)
            continue
        content = message.get("content")
        if isinstance(content, list) and len(content) > limits.message_parts:
            place = f"messages[{index}].content"
            most = limits.message_parts
            raise RequestError(f"{place} has {len(content):,} parts; at most {most} are read", param=place)
        kept = {name: message[name] for name in MESSAGE_FIELDS if message.get(name)}
        made.append({"role": message.get("role"), "content": content, **kept})
    return made


def one_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as every template takes them: what the system says stands at the beginning, in one message; what it says
    later is told by the user."""
    made: list[dict[str, Any]] = []
    for message in messages:
        told = message["role"] in ("system", "developer")
        last = made[-1] if made else {}
        if told and last.get("role") in ("system", "user"):
            made[-1] = last | {"content": f"{last['content']}\n\n{message['content']}"}
        elif told:
            made.append(message | {"role": "user" if made else "system"})
        else:
            made.append(message)
    return made


def read_biases(biases: Mapping[str, float] | list[tuple[int | str, float | Literal[False]]]) -> dict[int | str, float]:
    """Biases by token id, which JSON can only write as text; or pairs of an id or text and a bias, false for never."""
    if isinstance(biases, list):
        return {token: -LIMITS.bias if bias is False else bias for token, bias in biases}
    made: dict[int | str, float] = {}
    for token, bias in biases.items():
        if not (token.isascii() and token.isdigit() and len(token) < 10):
            raise RequestError("logit_bias maps token ids to numbers from -100 to 100", param="logit_bias")
        made[int(token)] = bias
    return made
