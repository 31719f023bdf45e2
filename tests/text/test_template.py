"""Chat templates: the golden renderings, and templates that mean harm."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.golden import DATA
from tests.text.small import bpe
from tests.tiny import CHATML
from woolly.errors import FileError, RequestError
from woolly.limits import LIMITS
from woolly.text import ChatTemplate, Tokenizer, chat_template

HI = [{"role": "user", "content": "hi"}]
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def render(source: str, messages: Any = HI, **options: Any) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>").render(messages, **options).plain


def golden() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / "chat" / "chat.json").read_text("utf-8"))
    return loaded


@pytest.mark.parametrize("name", golden()["tokens"])
def test_a_real_template_renders_the_golden_text(name: str) -> None:
    data = golden()
    tokens, now = data["tokens"][name], datetime.fromisoformat(data["now"])
    source = (DATA / "chat" / "templates" / f"{name}.jinja").read_bytes().decode()
    control = [tokens["bos_token"], tokens["eos_token"], "<|im_start|>", "<think>", "[INST]"]
    template = ChatTemplate(
        source, bos=tokens["bos_token"], eos=tokens["eos_token"], control={text for text in control if text}
    )
    cases = [case for case in data["cases"] if case["template"] == name]
    assert cases
    fixed = {"date_string": "26 Jul 2024"} if name == "llama-3.1" else {}  # the golden text was made without a date
    for case in cases:
        chat = data["conversations"][case["conversation"]]
        options = {"tools": chat["tools"], "now": now, **fixed, **chat["kwargs"]}
        options["add_generation_prompt"] = case["add_generation_prompt"]
        if "expect_error" in case:
            with pytest.raises(RequestError, match=case["expect_error"]):
                template.render(chat["messages"], **options)
        else:
            assert template.render(chat["messages"], **options).plain == case["expect"], case["conversation"]


def test_the_pieces_of_the_language_that_templates_use_are_there() -> None:
    assert render(CHATML) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert render("{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ documents is none }}") == "<s></s>TrueTrue"
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert render("a{% generation %}{{ messages[0].content }}{% endgeneration %}b") == "ahib"
    assert render("  {% set ns = namespace(x=1) %}\n{% set ns.x = 2 %}\n{{ ns.x }}") == "2"
    assert render("{{ strftime_now('%Y-%m-%d %H:%M') }}", now=datetime(2025, 7, 26, 9, 5)) == "2025-07-26 09:05"
    assert render("{{ thinking }}", thinking=False) == "False"
    assert render("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"


def test_json_is_written_as_it_is_without_escapes_for_web_pages() -> None:
    tools = [{"b": "<é> & 'x'", "a": [1, None, True]}]
    assert render("{{ tools[0] | tojson }}", tools=tools) == """{"b": "<é> & 'x'", "a": [1, null, true]}"""
    assert render("{{ tools[0] | tojson(indent=1, sort_keys=true) }}", tools=tools).startswith('{\n "a": [\n  1,')
    assert render("{{ [1, 2] | tojson(separators=(',', ':')) }}") == "[1,2]"
    assert render("{{ 'é' | tojson(ensure_ascii=true) }}") == '"\\u00e9"'


def call(arguments: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]


ARGUMENTS = "{{ messages[0].tool_calls[0].function.arguments"


@pytest.mark.parametrize("arguments", [{"x": "é"}, '{"x": "é"}'])
def test_arguments_of_tool_calls_are_objects(arguments: Any) -> None:
    assert render(ARGUMENTS + ".x }}", call(arguments)) == "é"
    assert render(ARGUMENTS + " | tojson }}", call(arguments)) == '{"x": "é"}'


@pytest.mark.parametrize("arguments", [{"x": "é"}, '{"x": "é"}'])
@pytest.mark.parametrize("shown", ["'call ' + call.function.arguments", "'call ' ~ call.function.arguments"])
def test_a_template_that_wants_arguments_as_text_gets_them_so(arguments: Any, shown: str) -> None:
    """One that fails with objects, and one that would write them as Python does."""
    loops = "{% for message in messages %}{% for call in message.tool_calls %}", "{% endfor %}{% endfor %}"
    template = ChatTemplate(loops[0] + "{{ " + shown + " }}" + loops[1])
    assert template.render(call(arguments)).plain == 'call {"x": "é"}'


def test_a_type_error_that_text_does_not_cure_is_told_as_it_was() -> None:
    with pytest.raises(RequestError, match="TypeError: can only concatenate list"):
        render("{{ [] + 1 }}", call({"x": 1}))
    with pytest.raises(RequestError, match="TypeError"):
        render("{{ [] + 1 }}")


@pytest.mark.parametrize(
    ("source", "switch"),
    [
        ("{% if enable_thinking is defined and not enable_thinking %}off{% endif %}", {"enable_thinking": True}),
        ("{% if thinking %}on{% endif %}", {"thinking": True}),
        ("{# enable_thinking #}thinking is a word", {}),
    ],
)
def test_the_switch_for_thinking_is_found_by_what_it_does(source: str, switch: dict[str, bool]) -> None:
    template = ChatTemplate(source)
    assert template.thinking(True) == switch
    assert template.thinking(False) == dict.fromkeys(switch, False)


def test_a_template_that_refuses_the_chat_it_is_tried_with_counts_as_one_without_a_switch() -> None:
    assert ChatTemplate("{% if not enable_thinking %}{{ raise_exception('no') }}{% endif %}").thinking(True) == {}
    assert ChatTemplate("{{ enable_thinking + 1 + 'a' }}").thinking(True) == {}
    with pytest.raises(RequestError, match="wrote more than"):
        ChatTemplate("{{ enable_thinking }}{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}").thinking(True)


def test_a_template_that_reads_the_date_is_told_it_by_our_clock_and_a_request_may_say_another() -> None:
    source = "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}"
    assert render(source, now=datetime(2025, 1, 6, 23, 59)) == "06 Jan 2025"
    assert render(source, now=datetime(2025, 1, 6), date_string="05 May 1955") == "05 May 1955"
    assert render("{{ strftime_now('%d %b %Y') == date_string }}") == "True"


@pytest.mark.parametrize(
    ("asked", "shown"),
    [("none", "no_think"), ("minimal", "low"), ("low", "low"), ("medium", "high"), ("high", "high"), ("odd", "odd")],
)
def test_an_effort_that_a_template_refuses_is_told_as_the_nearest_that_it_takes(asked: str, shown: str) -> None:
    known = "{% if reasoning_effort not in ['no_think', 'low', 'high'] %}{{ raise_exception('no') }}{% endif %}"
    assert ChatTemplate(known).effort(asked) == shown
    assert ChatTemplate("{{ reasoning_effort }}").effort(asked) == asked
    assert ChatTemplate("{{ raise_exception('no') }}").effort(asked) == asked


def test_t12_neither_the_input_nor_the_next_render_is_changed_by_a_template() -> None:
    messages = [{"role": "user", "content": "hi", "more": [1]}]
    template = ChatTemplate("{% set messages = messages + messages %}{% set x = 1 %}{{ messages | length }}{{ range }}")
    first = template.render(messages).text
    assert template.render(messages).text == first
    assert messages == [{"role": "user", "content": "hi", "more": [1]}]
    for harm in ("messages.append(1)", "messages[0].update(x=1)", "messages[0].more.clear()", "messages.pop()"):
        with pytest.raises(RequestError, match="SecurityError"):
            ChatTemplate("{{ " + harm + " }}").render(messages)
    assert messages == [{"role": "user", "content": "hi", "more": [1]}]


LIMIT = ("model_error", "TEMPLATE_LIMIT")
ERROR = ("model_error", "TEMPLATE_ERROR")
HOSTILE: dict[str, tuple[str, tuple[str, str], str]] = {
    "nested loops": ("{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3, LIMIT, "longer than 1 s"),
    "a power": ("{{ 9 ** (9 ** 9) }}", LIMIT, "longer than 1 s"),
    "a huge range": ("{% for i in range(1000000000) %}{% endfor %}", ERROR, "Range too big"),
    "a huge string": ("{{ 'A' * 10000000000 }}", LIMIT, "64 MiB"),
    "a wide string": ("{{ 'x'.center(9999999999) }}", LIMIT, "64 MiB"),
    "doubling": (
        "{% set ns = namespace(s='A') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        LIMIT,
        "64 MiB",
    ),
    "a long join": ("{{ range(100000) | join('A' * 100000) }}", LIMIT, "64 MiB"),
    "much output": ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", LIMIT, "8 MiB"),
    "recursion": ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", ERROR, "RecursionError"),
    "deep blocks": ("{% if 1 %}" * 5000 + "x" + "{% endif %}" * 5000, ERROR, "failed"),
    "deep parentheses": ("{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}", ERROR, "failed"),
    "a syntax error": ("{% for m in messages %}{{ m", ERROR, "TemplateSyntaxError"),
    "half a surrogate pair": ('{{ "\\ud800" }}', ERROR, "surrogate"),
    "a class": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", ERROR, "SecurityError"),
    "a class by filter": ("{{ '' | attr('__class__') }}", ERROR, "SecurityError"),
    "a class by format": ("{{ '{0.__class__.__mro__}'.format('') }}", ERROR, "SecurityError"),
    "a class by map": ("{{ [''] | map(attribute='__class__') | list }}", ERROR, "SecurityError"),
    "globals of a function": ("{{ raise_exception.__globals__ }}", ERROR, "SecurityError"),
    "globals of a clock": ("{{ strftime_now.__self__ }}", ERROR, "SecurityError"),
    "cycler": ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", ERROR, "failed"),
    "lipsum": ("{{ lipsum.__globals__['os'].system('id') }}", ERROR, "'lipsum' is undefined"),
    "include": ("{% include '/etc/passwd' %}", ERROR, "no loader"),
    "import": ("{% import 'os' as x %}", ERROR, "no loader"),
    "a missing name": ("{{ nothing.at.all }}", ERROR, "UndefinedError"),
}


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    assert render(PLAIN) == "user: hi\n"
    yield


@pytest.mark.parametrize("name", HOSTILE)
def test_t09_t10_a_hostile_template_is_stopped_in_time_and_the_next_render_works(name: str) -> None:
    assert seconds_of(name) < 60  # the soak below is strict
    assert render(PLAIN) == "user: hi\n"


def seconds_of(name: str) -> float:
    source, (code, error_code), reason = HOSTILE[name]
    begin = time.monotonic()
    with pytest.raises(RequestError) as caught:
        render(source)
    assert (caught.value.code, caught.value.error_code) == (code, error_code)
    assert reason in str(caught.value)
    return time.monotonic() - begin


@pytest.mark.soak
@pytest.mark.parametrize("name", HOSTILE)
def test_t09_a_hostile_template_takes_little_more_than_its_limit(name: str) -> None:
    assert any(seconds_of(name) < LIMITS.template_s + 0.5 for _ in range(5))


def test_raise_exception_is_the_templates_answer_cut_and_harmless() -> None:
    with pytest.raises(RequestError) as caught:
        render("{{ raise_exception('no \x1b[31mcolour\nfake log line' + 'x' * 1000) }}")
    assert caught.value.code == "invalid_request"
    assert r"no \x1b[31mcolour\nfake log line" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 360


def test_a_template_over_the_limit_is_refused_at_load() -> None:
    with pytest.raises(FileError, match="1,048,577 bytes, the limit is 1,048,576"):
        ChatTemplate("x" * ((1 << 20) + 1))
    assert len(render("x" * (1 << 20))) == 1 << 20


def test_a_message_of_a_megabyte_is_rendered() -> None:
    text = "Wolle é 🐑 " * 70_000
    assert render(PLAIN, [{"role": "user", "content": text}]) == f"user: {text}\n"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "empty"),
        ("hi", "list of mappings"),
        ([3], "list of mappings"),
        ([{"content": "hi"}], "message 0 has no role"),
        ([{"role": "user", "content": "\ud800"}], "lone surrogate"),
        ([{"role": "user", "content": {1, 2}}], "JSON"),
        ([{"role": "user", "content": float("nan")}], "JSON"),
    ],
)
def test_t06_t20_messages_that_cannot_be_taken_are_refused(messages: Any, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        render(PLAIN, messages)


def test_t06_a_message_nested_too_deep_is_refused() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RequestError, match="JSON"):
        render(PLAIN, [{"role": "user", "content": deep}])


def test_t20_only_a_system_message_and_an_empty_message_are_answered() -> None:
    assert render(PLAIN, [{"role": "system", "content": ""}]) == "system: \n"
    assert render("", HI) == ""


@pytest.mark.parametrize("name", ["tools_", "bos_token", "raise_exception", "range", "strftime_now", "documents"])
def test_a_request_sets_no_variable_of_ours(name: str) -> None:
    if name == "tools_":
        assert render("{{ tools_ }}", tools_=3) == "3"
    else:
        with pytest.raises(RequestError, match=name):
            render(PLAIN, **{name: 3})


def test_the_template_of_a_file_knows_its_tokens() -> None:
    meta = bpe() | {"tokenizer.chat_template": "{{ bos_token }}|{{ eos_token }}"}
    template = chat_template(meta, Tokenizer(meta))
    assert template is not None
    assert template.render(HI).plain == "<|im_start|>|<|im_end|>"
    del meta["tokenizer.chat_template"]
    assert chat_template(meta, Tokenizer(meta)) is None
    with pytest.raises(FileError, match="chat_template"):
        chat_template(meta | {"tokenizer.chat_template": 3}, Tokenizer(meta))


def test_threads_share_the_process_without_mixing_answers() -> None:
    template = ChatTemplate(PLAIN)
    wrong: list[str] = []

    def work(me: int) -> None:
        for i in range(50):
            text = f"{me}-{i}" * 50
            if template.render([{"role": "user", "content": text}]).plain != f"user: {text}\n":
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.soak
def test_a_render_costs_little() -> None:
    template = ChatTemplate(CHATML)
    times = []
    for _ in range(50):
        begin = time.perf_counter()
        template.render(HI)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.003
