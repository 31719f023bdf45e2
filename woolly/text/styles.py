"""How models mark the parts of an answer: what they think first, and what they say.

A row of `STYLES` is recognised by the text of a file's chat template, never by a model's name. The first row whose
parts of the template all occur is the style; the last one fits every file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from woolly.request import Text, Thought

Kind: TypeAlias = type[Text] | type[Thought]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an answer between two marks, and the kind of event that its text becomes."""

    opening: str
    closing: str
    kind: Kind = Thought


@dataclass(frozen=True, slots=True)
class Style:
    """found_by: texts that all occur in the template. ignored: marks that are dropped wherever they mean nothing else.

    No mark is contained in another one of its style.
    """

    name: str
    found_by: tuple[str, ...]
    parts: tuple[Part, ...]
    ignored: tuple[str, ...] = ()

    @property
    def marks(self) -> frozenset[str]:
        return frozenset((*self.ignored, *(mark for part in self.parts for mark in (part.opening, part.closing))))


THINK = Part("<think>", "</think>")
BRACKETS = Part("[THINK]", "[/THINK]")

_GRANITE = (
    THINK,
    Part("<response>", "</response>", Text),
    Part("Here is my thought process:", "Here is my response:"),
    Part("Here's my thought process:", "Here's my response:"),
)

STYLES = (
    Style(
        "glimmer",
        ("<atem:function_calls>",),
        (Part(" to=self<|message|>", "<|eom|>"), Part(" to=user<|message|>", "<|eom|>", Text)),
        ("<|start|>assistant", "<|eot|>"),
    ),
    Style(
        "harmony",
        ("<|channel|>", "<|message|>"),
        (
            Part("<|channel|>analysis<|message|>", "<|end|>"),
            Part("<|channel|>commentary<|message|>", "<|end|>", Text),
            Part("<|channel|>final<|message|>", "<|end|>", Text),
        ),
        ("<|start|>assistant", "<|channel|>commentary to=assistant", "<|return|>"),
    ),
    Style(
        "kimi_k3",
        ("<|open|>", "<|end_of_msg|>"),
        (
            Part("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
            Part("<|open|>response<|sep|>", "<|close|>response<|sep|>", Text),
        ),
        ("<|close|>message<|sep|>", "<|end_of_msg|>"),
    ),
    Style("minimax_m3", ("]<]minimax[>[",), (Part("<mm:think>", "</mm:think>"),)),
    Style("gemma4", ("<|tool_call>call:",), (Part("<|channel>thought", "<channel|>"),), ("<channel|>",)),
    Style(
        "cohere",
        ("<|START_ACTION|>",),
        (
            Part("<|START_THINKING|>", "<|END_THINKING|>"),
            Part("<|START_RESPONSE|>", "<|END_RESPONSE|>", Text),
            Part("<|START_TEXT|>", "<|END_TEXT|>", Text),
        ),
    ),
    Style("hy3", ("tool_sep", "arg_key"), (Part("<think:opensource>", "</think:opensource>"),)),
    Style(
        "solar",
        ("<|tool_call:begin|>",),
        (Part("<|think|>", "<|end|>"), Part("<|content|>", "<|end|>", Text)),
        ("<|begin|>assistant",),
    ),
    Style("apertus", ("<|tools_prefix|>",), (Part("<|inner_prefix|>", "<|inner_suffix|>"),)),
    Style("seed_oss", ("seed:tool_call",), (Part("<seed:think>", "</seed:think>"),)),
    Style("mistral", ("[TOOL_CALLS]",), (BRACKETS, THINK)),
    Style(
        "tool_calls",
        ("</tool_calls>",),
        (
            THINK,
            Part("<answer>", "</answer>", Text),
            Part("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
        ),
    ),
    Style("hermes", ("<tool_call>",), (THINK,)),
    Style("granite3", ("<|tool_call|>",), _GRANITE),
    Style("granite3", ("<|start_of_role|>", "available_tools"), _GRANITE),
    Style("plain", (), (THINK, BRACKETS)),
)


def find_style(template: str) -> Style:
    """The style of a file, by the text of its chat template."""
    return next(row for row in STYLES if all(text in template for text in row.found_by))
