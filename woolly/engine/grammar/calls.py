"""The grammar of calls: where a request asks for one, or a tool is strict, the answer can only have calls that the
schemas of their tools allow.

Calls are written in the form of the model's style. Where a call is required nothing else is written; where the model
may call or not, its text is free up to the mark that begins a call.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from woolly.engine.grammar.compiler import Budget
from woolly.engine.grammar.constrain import Delimiters, Grammar, Grammars, NamedFormats, left_out
from woolly.errors import RequestError
from woolly.io.cancellation import check
from woolly.request import Request
from woolly.request.format import Format, closed
from woolly.request.messages import Tool
from woolly.text import Calls, Form, Output, Tokenizer, with_form

MORE = 15  # calls after the first, where an answer may have several


@dataclass(frozen=True, slots=True)
class CallGrammar:
    """What an answer with calls is held to: a grammar, and the formats that it refers to, by name. tools: the names of
    those that it has calls of."""

    format: Format
    parts: NamedFormats
    tools: frozenset[str]

    def compiled(self, grammars: Grammars, frame: str, request: Request, budget: Budget) -> Grammar:
        """All in one, compiled once. RequestError names the tool whose schema cannot be kept to."""
        try:
            return grammars.grammar(self.format, frame, self.parts, budget=budget)
        except RequestError as error:
            if not budget.spent:
                check_tools(grammars, request, budget)
            if request.format is not None:
                raise
            raise RequestError(f"the schemas of the tools together: {error}", param="tools") from None


def is_required(request: Request) -> bool:
    """Whether the answer must be a call."""
    return request.tool_choice not in ("auto", "none")


def call_grammar_of(output: Output, tokenizer: Tokenizer, request: Request, *, several: bool) -> CallGrammar | None:
    """The grammar of the calls of a request; None where its answer needs none. several: the template can show
    several."""
    required = is_required(request)
    if not request.tools or request.tool_choice == "none":
        return None
    native = with_form(output.style) is output.style and output.style.heads is None
    if not required and not (native and (request.format or _is_constrained(request))):
        return None
    calls = with_form(output.style).calls
    assert calls is not None and calls.form is not None
    tools = [tool for tool in request.tools if not required or request.tool_choice in ("required", tool.name)]
    several = several and request.parallel_tool_calls and request.tool_choice in ("auto", "required")
    rules = _Rules(calls, calls.form, Delimiters(tokenizer), tools, several)
    lark = rules.required() if required else rules.free("@format" if request.format else "")
    parts = tuple((f"tool_{index}", _schema(request, tool)) for index, tool in enumerate(tools))
    if request.format and not required:
        parts = (*parts, ("format", request.format))
    return CallGrammar(Format("lark", lark), parts, frozenset(tool.name for tool in tools))


def check_tools(grammars: Grammars, request: Request, budget: Budget, compiled: Container[str] = ()) -> None:
    """Refuse a strict tool whose schema cannot be kept to, whether or not it may be called. compiled: the names of
    those that are in a grammar already."""
    for index, tool in enumerate(request.tools):
        if tool.strict and tool.name not in compiled:
            with _at(index):
                grammars.check(_schema(request, tool), budget)


def notes_of_tools(request: Request, budget: Budget) -> tuple[str, ...]:
    """What is left out of the schemas of tools that are not strict, where a call of them is required."""
    if not is_required(request):
        return ()
    notes: list[str] = []
    for index, tool in enumerate(request.tools):
        if not tool.strict:
            with _at(index) as place:
                notes += (f"{place}: {what}" for what in left_out(_schema(request, tool), budget))
    return tuple(notes)


@contextmanager
def _at(index: int) -> Iterator[str]:
    """The place of a tool's schema, which errors of the block name."""
    check()
    place = f"tools[{index}].function.parameters"
    try:
        yield place
    except RequestError as error:
        raise RequestError(f"{place}: {error}", suggestion="take it out, or leave out strict", param=place) from None


def _is_constrained(request: Request) -> bool:
    return not request.parallel_tool_calls or any(tool.strict for tool in request.tools)


def _schema(request: Request, tool: Tool) -> Format:
    """The arguments of a strict tool follow all of its schema; in a free answer those of others are any object."""
    if not tool.strict and not is_required(request):
        return Format("json")
    return closed(Format("schema", tool.parameters, strict=tool.strict))


@dataclass(frozen=True, slots=True)
class _Rules:
    """Rules of Lark for calls of some tools."""

    calls: Calls
    form: Form
    marks: Delimiters
    tools: Sequence[Tool]
    several: bool

    def required(self) -> str:
        return "\n".join((f"start: {self._written(self.form.before)} call {self._rest()}", *self._each("call")))

    def free(self, otherwise: str) -> str:
        """Calls, or some text before them, or text alone; or, in place of text, a format."""
        begin = self.form.before + self.form.around("")[0]
        mark = next((m for m in (*self.calls.sections, *self.calls.openings) if begin.startswith(m)), "")
        rules = [*self._each("call"), *self._each("first", skipped=len(mark))]
        if otherwise:
            return "\n".join((f"start: {otherwise} | {self._written(mark)} first {self._rest()}", *rules))
        if not mark:  # a call can only begin the answer
            start = re.escape(begin.split("NAME")[0])
            rules += [f"start: TEXT | first {self._rest()}", f"TEXT: /(.|\\n)*/ & ~/[ \\n]*{start}(.|\\n)*/"]
        elif self.marks.pieces(mark)[0].startswith("<["):
            rules += [f"start: TEXT? ({self._written(mark)} first {self._rest()})?", "TEXT: /(.|\\n)+/"]
        else:
            rules += [f"start: TEXT | said first {self._rest()}", f"TEXT: ~/(.|\\n)*{re.escape(mark)}(.|\\n)*/"]
            rules += [f'said[suffix="{mark}"]: /(.|\\n)*/']
        return "\n".join(rules)

    def _rest(self) -> str:
        """Lark for what follows the first call: further calls, if there may be several, and the end."""
        more = f"({self._written(self.form.between or '')} call){{0,{MORE}}}"
        several = self.several and self.form.between is not None
        return f"{more if several else ''} {self._written(self.form.after)}"

    def _each(self, rule: str, skipped: int | None = None) -> list[str]:
        """A rule for a call of any tool. skipped: for a first call, the characters that are written already."""
        rules = [f"{rule}: " + " | ".join(f"{rule}_{index}" for index in range(len(self.tools)))]
        for index, tool in enumerate(self.tools):
            before, after = self.form.around(tool.name)
            if skipped is not None:
                before = (self.form.before + before)[skipped:]
            rules.append(f"{rule}_{index}: {self._written(before)} @tool_{index} {self._written(after)}")
        return rules

    def _written(self, text: str) -> str:
        """A text as Lark; the answer ends before a mark that is an end token."""
        return " ".join(self.marks.pieces(text)) if text and not self.marks.ends(text) else ""
