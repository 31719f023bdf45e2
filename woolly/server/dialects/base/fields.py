"""How all dialects read a body: a Struct from an object, and the fate of every field that was sent.

A field is honoured, has no effect on the text (a note says so), would change the answer and is refused by name, or is
unknown (a note says so). Nothing that changes an answer is ignored in silence.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from woolly.config.serving import SERVING, Serving
from woolly.errors import RequestError, UnsupportedError, printable
from woolly.limits import LIMITS
from woolly.request import Scalar
from woolly.request.messages import ROLES
from woolly.server.http.body import read_json

T = TypeVar("T", bound=msgspec.Struct)

# Fields without effect on the text: they name, sort, bill or route a request, or switch what no model here has.
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
        "id_slot",
        "cache_prompt",
        "n_keep",
        "n_discard",
        "n_cache_reuse",
        "t_max_prompt_ms",
        "sse_ping_interval",
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
# The fields of messages that templates can show, beside role and content.
MESSAGE_FIELDS = ("name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning")
# Checked by request.Request, which names the place of a wrong message.
Messages = Annotated[list[Any], Meta(extra_json_schema={"items": MESSAGE, "minItems": 1, "maxItems": SERVING.messages})]
# Variables of the chat template; request.Request checks their names.
Variables = Annotated[dict[str, Scalar], Meta(max_length=LIMITS.variables)]
# Fields that would change every answer, and that no request may have.
REFUSED_EVERYWHERE: dict[str, Callable[[Any], bool]] = {"chat_template": lambda v: False}
# msgspec prepares a type, and those within it, at its first use, and crashes where two threads do so at once.
_PREPARING = threading.Lock()
_PREPARED = set[type[msgspec.Struct]]()
_NUMBER = re.compile(r"[-+]?[0-9.]+")
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def read_body(data: bytes, limits: Serving, *, listed: str = "") -> Mapping[str, Any]:
    """The fields of a body. listed: the field that a list in place of an object becomes, on routes that allow it.

    A template is refused here, for all routes at once, so that none can forget to.
    """
    body = read_json(data, limits, listed=listed)
    refuse(body, REFUSED_EVERYWHERE)
    return body


def read_struct(kind: type[T], body: Mapping[str, Any], sent: Mapping[str, str] | None = None) -> T:
    """The body as a Struct; what does not fit is a RequestError that names the field.

    sent: the names by which fields were sent, where they are not those of the Struct.
    """
    _prepare(kind)
    try:
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


def _prepare(kind: type[msgspec.Struct]) -> None:
    if kind not in _PREPARED:
        with _PREPARING, suppress(msgspec.ValidationError):
            msgspec.convert({}, kind)
        _PREPARED.add(kind)


def notes(body: Mapping[str, Any], known: frozenset[str]) -> tuple[str, ...]:
    """The names of fields that were sent and had no effect, the first 16."""
    return tuple(printable(name, 40) for name in body if name not in known)[:16]


def refuse_unknown(names: tuple[str, ...]) -> None:
    """Refuse unknown fields by name, for callers that ask for it."""
    for name in names:  # `notes` gives at most 16
        if name not in HARMLESS:
            raise RequestError(
                f"the field '{name}' is not known here",
                suggestion="leave it out, or do not ask for X-Woolly-Strict",
                code="validation_error",
                param=name,
            )


def refuse(body: Mapping[str, Any], reasons: Mapping[str, Callable[[Any], bool]]) -> None:
    """Refuse a field that would change the answer; each name has a test for the values that change nothing."""
    for name, harmless in reasons.items():
        value = body.get(name)
        if value is not None and not harmless(value):
            raise UnsupportedError(
                f"'{name}' is not supported by this version",
                suggestion="leave the field out",
                param=name,
            )


def check_count(messages: list[Any], limits: Serving) -> None:
    if len(messages) > limits.messages:
        raise RequestError(
            f"messages has {len(messages):,} entries; at most {limits.messages:,} are read", param="messages"
        )


def chat_messages(messages: list[Any], limits: Serving) -> list[Any]:
    """The fields of messages that a Request reads and checks; too many messages or parts are refused here."""
    check_count(messages, limits)
    checked: list[Any] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            checked.append(message)
            continue
        content = message.get("content")
        if isinstance(content, list) and len(content) > limits.message_parts:
            place = f"messages[{index}].content"
            most = limits.message_parts
            raise RequestError(f"{place} has {len(content):,} parts; at most {most} are read", param=place)
        extra = {name: message[name] for name in MESSAGE_FIELDS if message.get(name)}
        checked.append({"role": message.get("role"), "content": content, **extra})
    return checked


def one_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as every template takes them: those of the system at the beginning become one message; later ones become
    messages of the user."""
    merged: list[tuple[dict[str, Any], list[Any]]] = []  # each with the texts that become its content
    for message in messages:
        is_system = message["role"] in ("system", "developer")
        if is_system and merged and merged[-1][0]["role"] in ("system", "user"):
            merged[-1][1].append(message["content"])
        elif is_system:
            merged.append((message | {"role": "user" if merged else "system"}, [message["content"]]))
        else:
            merged.append((message, [message["content"]]))
    return [
        message if len(texts) == 1 else message | {"content": "\n\n".join(map(str, texts))} for message, texts in merged
    ]


def read_biases(
    biases: Mapping[str, float | Literal[False]] | list[tuple[int | str, float | Literal[False]]],
) -> dict[int | str, float]:
    """Biases of token ids, which JSON can only write as text in an object, and of texts; false for never."""
    pairs = biases if isinstance(biases, list) else [(_biased(token), bias) for token, bias in biases.items()]
    return {token: -LIMITS.bias if bias is False else bias for token, bias in pairs}


def _biased(name: str) -> int | str:
    """The token id that a name of an object is, else the text. A number that is no id is no text either."""
    if name.isascii() and name.isdigit() and len(name) < 10:
        return int(name)
    if _NUMBER.fullmatch(name):
        raise RequestError("logit_bias maps token ids and texts to numbers from -100 to 100", param="logit_bias")
    return name
