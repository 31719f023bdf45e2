"""Chat templates: messages in, the text of a prompt out.

The template of a file is a Jinja program by a stranger. It is rendered in a sealed child process (renderer.py), and
what the request holds cannot become a control token (escape.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from woolly.errors import FileError, RequestError, printable
from woolly.limits import LIMITS
from woolly.request import TEMPLATE_NAMES
from woolly.text.template.capabilities import TemplateCapabilities, find_capabilities
from woolly.text.template.escape import Escaper
from woolly.text.template.renderer import LIMIT, RENDERER, refusal
from woolly.text.tokenizer.tokenizer import Tokenizer
from woolly.text.tokenizer.vocab import text_value

_THINKING = ("enable_thinking", "thinking")  # the variables of templates that switch thinking on or off

_EFFORT = "reasoning_effort"  # the variable that says how much to think
ABOUT_THINKING = frozenset((*_THINKING, _EFFORT))
_NEAREST = {  # where a template refuses an effort, what comes nearest to it, best first
    "none": ("no_think",),
    "minimal": ("low", "no_think"),
    "low": ("minimal", "medium"),
    "medium": ("high", "low"),
    "high": ("medium", "max"),
    "xhigh": ("max", "high"),
}

_QUESTION = ({"role": "user", "content": "a word of the user"},)  # the chat that a template is tried with


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt with the escape characters that keep user text apart; `Tokenizer.encode_chat` takes both."""

    text: str
    escape: str

    @property
    def plain(self) -> str:
        """The prompt without escape characters: exactly what the template writes."""
        return self.text.replace(self.escape, "")

    def followed_by(self, begun: str) -> Rendered:
        """The prompt with the beginning of the answer, escaped at each character: it has no control token."""
        signs = (sign + self.escape for sign in begun.replace(self.escape, ""))
        return Rendered(self.text + self.escape + "".join(signs), self.escape) if begun else self


class ChatTemplate:
    """The chat template of one model. Safe to use from several threads; no render changes the next one."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "", control: Iterable[str] = ()) -> None:
        """bos, eos: the texts of these tokens. control: texts that no string of a request may become."""
        size = len(source.encode("utf-8", "surrogatepass"))
        if size > LIMITS.template:
            raise FileError(f"the chat template has {size:,} bytes, the limit is {LIMITS.template:,}", size=size)
        self.source = source
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._escaper = Escaper(control)
        self._capabilities: TemplateCapabilities | None = None  # None until it is first used
        self._efforts: dict[str, str] = {}  # the effort that the template takes in place of one that was asked for
        self._switch: str | None = None  # one of _THINKING, "" if it takes none, None until it is first used

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        now: datetime | None = None,
        **kwargs: Any,
    ) -> Rendered:
        """The prompt for these messages.

        now: the time that the template may print; None is the present. kwargs: variables that the template knows.
        """
        _check_messages(messages)
        for name in kwargs:
            if name in TEMPLATE_NAMES:
                raise RequestError(f"'{name}' is not for a request to set", param=name)
        clock = (now or datetime.now()).isoformat()
        if any(message.get("tool_calls") for message in messages):
            messages = [_shaped(message, self.capabilities.text) for message in messages]
        return self._render(messages, add_generation_prompt, tools, clock, kwargs)

    @property
    def capabilities(self) -> TemplateCapabilities:
        """What this template takes and shows."""
        if self._capabilities is None:
            clock = datetime.now().isoformat()
            self._capabilities = find_capabilities(
                lambda messages, tools: self._render(messages, True, tools, clock, {}).plain
            )
        return self._capabilities

    def thinking(self, think: bool) -> dict[str, Any]:
        """The variable that tells this template to let the model think first, or not to; {} if it takes none."""
        if self._switch is None:
            clock = datetime.now().isoformat()

            def changes(name: str) -> bool:
                if name not in self.source:
                    return False
                try:
                    on, off = (self._render(_QUESTION, True, None, clock, {name: value}) for value in (True, False))
                except RequestError as error:
                    if error.facts.get("error_code") == LIMIT:
                        raise
                    return False  # what it refuses here it may take in the chat of a request
                return on.plain != off.plain

            self._switch = next(filter(changes, _THINKING), "")
        return {self._switch: think} if self._switch else {}

    def effort(self, asked: object) -> object:
        """The effort to tell this template: as asked, or where it refuses that, the nearest that it takes."""
        if not isinstance(asked, str) or asked not in _NEAREST or _EFFORT not in self.source:
            return asked
        if asked not in self._efforts:
            clock = datetime.now().isoformat()

            def takes(effort: str) -> bool:
                try:
                    self._render(_QUESTION, True, None, clock, {_EFFORT: effort})
                except RequestError:
                    return False
                return True

            self._efforts[asked] = next(filter(takes, (asked, *_NEAREST[asked])), asked)
        return self._efforts[asked]

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Which of these variables the template does not know; of those about thinking it is enough to know one."""
        known = {name for name in names if name in self.source}
        return [n for n in names if n not in known and not (n in ABOUT_THINKING and known & ABOUT_THINKING)]

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        clock: str,
        kwargs: Mapping[str, Any],
    ) -> Rendered:
        request = {"messages": list(messages), "tools": tools, **kwargs}
        try:
            escaped, escape = self._escaper.escape(request, self.source)
            variables = {"documents": None, "add_generation_prompt": add_generation_prompt, **escaped, **self._tokens}
            asked = {"source": self.source, "now": clock, "variables": variables}
            data = json.dumps(asked, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError as error:
            code = ord(error.object[error.start])
            raise RequestError(f"the messages or the template hold a lone surrogate (U+{code:04X})") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestError(f"the messages cannot be written as JSON: {printable(error)}") from None
        kind, text = RENDERER.ask(self.source, data)
        if kind == "T":
            return Rendered(text, escape)
        raise refusal(kind, printable(text, 300))


def chat_template(meta: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate | None:
    """The template that a file brings, None if it has none."""
    source = text_value(meta, "tokenizer.chat_template")
    if not source:
        return None
    bos, eos = ("" if i is None else tokenizer.text_of(i) for i in (tokenizer.bos, tokenizer.eos))
    return ChatTemplate(source, bos=bos, eos=eos, control=tokenizer.control)


def start_renderer() -> None:
    """Starts the process that renders, without waiting for it; otherwise the first render does."""
    RENDERER.start()


def _check_messages(messages: object) -> None:
    if not isinstance(messages, list | tuple) or not all(isinstance(m, Mapping) for m in messages):
        raise RequestError("messages must be a list of mappings with 'role' and 'content'", param="messages")
    if not messages:
        raise RequestError("messages is empty", suggestion="give at least one message", param="messages")
    for i, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            raise RequestError(f"message {i} has no role", suggestion="use system, user, assistant or tool", index=i)


def _shaped(message: Mapping[str, Any], as_text: bool) -> Mapping[str, Any]:
    """The message with the arguments of its tool calls as objects, or all as JSON text."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list | tuple):
        return message
    return {**message, "tool_calls": [_shaped_call(call, as_text) for call in calls]}


def _shaped_call(call: Any, as_text: bool) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or "arguments" not in function:
        return call
    arguments = function["arguments"]
    if as_text and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    elif not as_text and isinstance(arguments, str):
        try:
            read = json.loads(arguments)
        except (ValueError, RecursionError):
            read = None
        arguments = read if isinstance(read, dict) else arguments
    return {**call, "function": {**function, "arguments": arguments}}
