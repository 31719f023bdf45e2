"""How models mark the parts of an answer: what they think first, what they say, and the tools that they ask for.

A row of `STYLES` is recognised by the text of a file's chat template, never by a model's name. The style is the first
row whose `found_by` texts all occur in the template; the last row fits every file.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from woolly.limits import LIMITS
from woolly.request import Text
from woolly.text.output.calls import GemmaCalls, JsonCalls, MessageCalls, NamedCalls, NestedCalls, PythonCalls, TagCalls
from woolly.text.output.heads import functionary, glimmer, harmony
from woolly.text.output.style import THINK, AnswerPart, Calls, Form, Heads, Style

CALL = '{"name": "NAME", "arguments": ARGUMENTS}'


def _json(
    *openings: str, form: Form, closings: tuple[str, ...] = (), first: tuple[str, ...] = (), keyed: bool = False
) -> Calls:
    return Calls(JsonCalls(keyed), openings, closings=closings, first=first, joined=True, form=form)


def _list(opening: str, closing: str = "", call: str = CALL, **more: Any) -> Calls:
    """Calls in a JSON list."""
    form = Form(call, f"{opening}[", ", ", f"]{closing}")
    return _json(*([opening] if opening else []), form=form, closings=(closing,) if closing else (), **more)


def _named(
    header: str,
    opening: str,
    *closings: str,
    form: Form,
    sections: tuple[str, ...] = (),
    inner: tuple[str, ...] = (),
) -> Calls:
    return Calls(NamedCalls(re.compile(header)), (opening,), sections, closings, inner=inner, form=form)


def _parameters(section: str, opening: str = "<function=") -> Calls:
    """As Qwen and similar models write: <parameter=KEY>VALUE</parameter>."""
    tags = TagCalls((">",), "<parameter=", (">",), "</parameter>", "</function>", wrapped=True)
    return Calls(tags, (opening,), (f"<{section}>",), (f"</{section}>",), known=True)


def _invoked(sign: str, section: str) -> Calls:
    """<invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>, with a sign in each tag."""
    tags = TagCalls(('">',), f'<{sign}parameter name="', (">",), f"</{sign}parameter>", f"</{sign}invoke>")
    sections, closings = (f"<{section}>",), (f"</{section}>",)
    return Calls(tags, (f'<{sign}invoke name="',), sections, closings, known=True, inner=(f"</{sign}invoke>",))


def _keys(suffix: str, named: tuple[str, ...], section: str = "") -> Calls:
    """<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>; a suffix may be in each tag."""
    key, closing = f"<arg_key{suffix}>", f"</tool_call{suffix}>"
    keyed, value = (f"</arg_key{suffix}>", f"<arg_value{suffix}>"), f"</arg_value{suffix}>"
    tags = TagCalls((*named, key, closing), key, keyed, value, closing)
    inner = (key, closing, *keyed, value, *named)
    if not section:
        return Calls(tags, (f"<tool_call{suffix}>",), inner=inner)
    return Calls(tags, (f"<tool_call{suffix}>",), (f"<{section}>",), (f"</{section}>",), inner=inner)


def _deepseek(header: str, call: str, between: str, *closings: str) -> Calls:
    """Calls in a section, each a header and an object."""
    begin, end = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
    section = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
    form = Form(f"{begin}{call}{end}", section[0], between, section[1])
    inner = ("<｜tool▁sep｜>",)
    return _named(header, begin, *closings, end, section[1], form=form, sections=section[:1], inner=inner)


HERMES = _json("<tool_call>", closings=("</tool_call>",), form=Form(f"<tool_call>\n{CALL}\n</tool_call>"))
K3 = TagCalls(("<|sep|>",), '<|open|>argument key="', ("<|sep|>",), "<|close|>argument<|sep|>", "<|close|>call<|sep|>")
M3 = "]<]minimax[>["
_GRANITE = (
    THINK,
    AnswerPart("<response>", "</response>", Text),
    AnswerPart("Here is my thought process:", "Here is my response:"),
    AnswerPart("Here's my thought process:", "Here's my response:"),
)
_GRANITE_CALLS = _json("<|tool_call|>", "<tool_call>", form=Form(CALL, "<|tool_call|>[", ", ", "]"))
_ANSWER = (
    THINK,
    AnswerPart("<answer>", "</answer>", Text),
    AnswerPart("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
)
_TOOL_CALLS = _list("<tool_calls>", "</tool_calls>")
_HARMONY = Form("<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS", between=None)
_KIMI = Form(
    "<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>",
    "<|tool_calls_section_begin|>",
    None,
    "<|tool_calls_section_end|>",
)
_SOLAR = Form(
    "<|tool_call:begin|>call0<|tool_call:name|>NAME<|tool_call:args|>ARGUMENTS<|tool_call:end|>", "<|tool_calls|>", None
)
_PARAMETERS = CALL.replace("arguments", "parameters")
_INTERNLM = Form(f"<|action_start|><|plugin|>\n{_PARAMETERS}<|action_end|>", between="")
_COMMAND_R = Form('{"tool_name": "NAME", "parameters": ARGUMENTS}', "Action: ```json\n[", ", ", "]\n```")
_LFM2 = Calls(PythonCalls(), ("<|tool_call_start|>",), closings=("<|tool_call_end|>",))
_PYTHONIC = Calls(PythonCalls(), ("<|python_start|>",), closings=("<|python_end|>",), first=("[",))
_LIST = _list("", first=("[",))
STYLES = (
    Style(
        "glimmer",
        ("<atem:function_calls>",),
        (AnswerPart(" to=self<|message|>", "<|eom|>"), AnswerPart(" to=user<|message|>", "<|eom|>", Text)),
        ("<|start|>assistant", "<|eom|>", "<|eot|>"),
        _invoked("atem:", "atem:function_calls"),
        Heads(("<|start|>",), glimmer, ("<|message|>",)),
    ),
    Style(
        "harmony",
        ("<|channel|>", "<|message|>"),
        (
            AnswerPart("<|channel|>analysis<|message|>", "<|end|>"),
            AnswerPart("<|channel|>final<|message|>", "<|end|>", Text),
        ),
        ("<|start|>assistant", "<|end|>", "<|call|>", "<|return|>"),
        Calls(MessageCalls(("<|call|>", "<|end|>")), form=_HARMONY),
        Heads(("<|start|>", "<|channel|>"), harmony, ("<|message|>", "<|constrain|>")),
    ),
    Style(
        "kimi_k3",
        ("<|open|>", "<|end_of_msg|>"),
        (
            AnswerPart("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
            AnswerPart("<|open|>response<|sep|>", "<|close|>response<|sep|>", Text),
        ),
        ("<|close|>message<|sep|>", "<|end_of_msg|>"),
        Calls(K3, ('<|open|>call tool="',), ("<|open|>tools<|sep|>",), ("<|close|>tools<|sep|>",), known=True),
    ),
    Style(
        "kimi_k2",
        ("<|tool_call_argument_begin|>",),
        (THINK,),
        calls=_named(
            r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.-]+):\d+)\s*<\|tool_call_argument_begin\|>\s*",
            "<|tool_call_begin|>",
            "<|tool_call_end|>",
            "<|tool_calls_section_end|>",
            sections=("<|tool_calls_section_begin|>",),
            inner=("<|tool_call_argument_begin|>",),
            form=_KIMI,
        ),
    ),
    Style(
        "minimax_m3",
        (M3,),
        (AnswerPart("<mm:think>", "</mm:think>"),),
        calls=Calls(
            NestedCalls(M3), (f'{M3}<invoke name="',), (f"{M3}<tool_call>",), (f"{M3}</tool_call>",), known=True
        ),
    ),
    Style("minimax_m2", ("minimax:tool_call",), (THINK,), calls=_invoked("", "minimax:tool_call")),
    Style("dsml_v32", ("DSML", "function_calls"), (THINK,), calls=_invoked("｜DSML｜", "｜DSML｜function_calls")),
    Style("dsml_v4", ("DSML",), (THINK,), calls=_invoked("｜DSML｜", "｜DSML｜tool_calls")),
    Style(
        "deepseek_v3",
        ("<｜tool▁calls▁begin｜>", "```json"),
        (THINK,),
        calls=_deepseek(
            r"function<｜tool▁sep｜>(?P<name>[\w.-]+)\s*```json\s*",
            "function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```",
            "\n",
            "```",
        ),
    ),
    Style(
        "deepseek_v31",
        ("<｜tool▁calls▁begin｜>",),
        (THINK,),
        calls=_deepseek(r"(?P<name>[\w.-]+)<｜tool▁sep｜>\s*", "NAME<｜tool▁sep｜>ARGUMENTS", ""),
    ),
    Style(
        "gemma4",
        ("<|tool_call>call:",),
        (AnswerPart("<|channel>thought", "<channel|>"), AnswerPart("<|channel><|channel>thought", "<channel|>")),
        ("<channel|>",),
        Calls(GemmaCalls(), ("<|tool_call>",), closings=("<tool_call|>",), inner=('<|"|>',)),
    ),
    Style(
        "functiongemma",
        ("<start_function_call>",),
        calls=Calls(
            GemmaCalls(typed=True), ("<start_function_call>",), closings=("<end_function_call>",), inner=("<escape>",)
        ),
    ),
    Style(
        "cohere",
        ("<|START_ACTION|>",),
        (
            AnswerPart("<|START_THINKING|>", "<|END_THINKING|>"),
            AnswerPart("<|START_RESPONSE|>", "<|END_RESPONSE|>", Text),
            AnswerPart("<|START_TEXT|>", "<|END_TEXT|>", Text),
        ),
        calls=_list(
            "<|START_ACTION|>", "<|END_ACTION|>", '{"tool_call_id": "0", "tool_name": "NAME", "parameters": ARGUMENTS}'
        ),
    ),
    Style(
        "command_r",
        ("Action:", "<|CHATBOT_TOKEN|>"),
        calls=_json("Action: ```json", "Action:\n```json", closings=("```",), form=_COMMAND_R),
    ),
    Style(
        "hy3",
        ("tool_sep", "arg_key"),
        (AnswerPart("<think:opensource>", "</think:opensource>"),),
        calls=_keys(":opensource", ("<tool_sep:opensource>",), "tool_calls:opensource"),
    ),
    Style(
        "solar",
        ("<|tool_call:begin|>",),
        (AnswerPart("<|think|>", "<|end|>"), AnswerPart("<|content|>", "<|end|>", Text)),
        ("<|begin|>assistant",),
        _named(
            r"(?P<id>[\w.-]*)<\|tool_call:name\|>(?P<name>[\w.-]+)<\|tool_call:args\|>\s*",
            "<|tool_call:begin|>",
            "<|tool_call:end|>",
            "<|calls|>",
            sections=("<|tool_calls|>",),
            inner=("<|tool_call:name|>", "<|tool_call:args|>"),
            form=_SOLAR,
        ),
    ),
    Style("lfm2", ("<|tool_call_start|>",), (THINK,), calls=_LFM2),
    Style("lfm2", ("<|tool_list_start|>",), (THINK,), calls=_LFM2),
    Style("lfm2", ("List of tools: [",), (THINK,), calls=_LFM2),
    Style(
        "apertus",
        ("<|tools_prefix|>",),
        (AnswerPart("<|inner_prefix|>", "<|inner_suffix|>"),),
        calls=_list("<|tools_prefix|>", "<|tools_suffix|>", '{"NAME": ARGUMENTS}', keyed=True),
    ),
    Style("nemotron_v2", ("<TOOLCALL>",), (THINK,), calls=_list("<TOOLCALL>", "</TOOLCALL>")),
    Style(
        "seed_oss",
        ("seed:tool_call",),
        (AnswerPart("<seed:think>", "</seed:think>"),),
        calls=_parameters("seed:tool_call"),
    ),
    Style(
        "minicpm5",
        ('<param name="',),
        (THINK,),
        calls=Calls(TagCalls(('">',), '<param name="', (">",), "</param>", "</function>"), ('<function name="',)),
    ),
    Style("qwen3_xml", ("<function=", "<parameter="), (THINK,), calls=_parameters("tool_call")),
    Style("glm4", ("<arg_key>",), (THINK,), calls=_keys("", ("\n",))),
    Style(
        "functionary32",
        (">>>all",),
        (),
        calls=Calls(MessageCalls(), form=Form("NAME\nARGUMENTS", between=">>>")),
        heads=Heads((">>>",), functionary, plain=True),
    ),
    Style(
        "functionary31",
        ("<function=",),
        calls=_named(
            r"(?P<name>[\w.-]+)>\s*",
            "<function=",
            "</function>",
            form=Form("<function=NAME>ARGUMENTS</function>", between=""),
        ),
    ),
    Style(
        "mistral_args",
        ("[TOOL_CALLS]", "[ARGS]"),
        calls=_named(
            r"\s*(?P<name>[\w.-]+)(?:\[CALL_ID\](?P<id>\w+))?(?:\[ARGS\])?\s*",
            "[TOOL_CALLS]",
            inner=("[CALL_ID]", "[ARGS]"),
            form=Form("[TOOL_CALLS]NAME[ARGS]ARGUMENTS", between=""),
        ),
    ),
    Style("mistral_json", ("[TOOL_CALLS]",), calls=_list("[TOOL_CALLS]")),
    Style("functools", ("functools",), calls=_list("functools")),
    Style(
        "internlm2",
        ("<|action_start|>",),
        calls=_json("<|action_start|><|plugin|>", closings=("<|action_end|>",), form=_INTERNLM),
    ),
    Style(
        "gigachat3",
        ("<|role_sep|>",),
        calls=_json(
            "<|message_sep|>\n\nfunction call<|role_sep|>\n",
            "<|function_call|>",
            form=Form(f"<|function_call|>{CALL}", between=None),
        ),
    ),
    Style("tool_calls", ("</tool_calls>",), _ANSWER, calls=_TOOL_CALLS),
    Style("hermes", ("<tool_call>",), (THINK,), calls=HERMES),
    Style("tool_calls", ("<tool_calls>",), _ANSWER, calls=_TOOL_CALLS),
    Style("granite3", ("<|tool_call|>",), _GRANITE, calls=_GRANITE_CALLS),
    Style("granite3", ("<|start_of_role|>", "available_tools"), _GRANITE, calls=_GRANITE_CALLS),
    Style(
        "olmo3",
        ("<function_calls>",),
        (THINK,),
        calls=Calls(PythonCalls(("</function_calls>",)), ("<function_calls>",)),
    ),
    Style(
        "llama3_json",
        ('{"name": function name',),
        calls=_json("<|python_tag|>", first=("{",), form=Form(_PARAMETERS, between="; ")),
    ),
    Style("pythonic", ("(params_name1=params_value1",), calls=_PYTHONIC),
    Style("pythonic", ("func_name1(",), calls=_PYTHONIC),
    Style("json_list", ('[{"name"',), calls=_LIST),
    Style("json_list", ('{"tool_calls"',), calls=_LIST),
    Style(
        "tool_code",
        ("tool_code",),
        calls=Calls(PythonCalls(("```", "</code>"), known_only=True), ("```tool_code", "<code>")),
    ),
    Style("plain", (), calls=HERMES),
)


def with_form(style: Style) -> Style:
    """The style itself if its calls have a form, else with calls in the form of most models."""
    return style if style.calls and style.calls.form else replace(style, calls=HERMES, heads=None)


def find_style(template: str) -> Style:
    """The style of a file, by the text of its chat template; `ChatTemplate` refuses one that is too long."""
    template = template[: LIMITS.template]
    return next(row for row in STYLES if all(text in template for text in row.found_by))
