"""The page in a Chromium: it streams, stops, asks for a key, survives a restart, and runs no script from its texts.

Elements are found by role and name, as a screen reader finds them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.mcp.test_toolbox import Known
from tests.server.conftest import Live, Start, real_server
from tests.server.stand_in import until
from tests.server.test_guard import KEY, KEYS
from woolly.mcp import CallToolResult

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = api.expect

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 20_000
expect.set_options(timeout=WAIT_MS)
LONG = "Tell me a long story."  # the stand-in answers every question with 100 letters, unless it has a script

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium is installed (Debian, Ubuntu: apt install chromium)")
    with api.sync_playwright() as playwright:  # for this module only: while it is open no other event loop can run
        opened = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """Open the page of a server. It must not break its policy, fail, or send requests to another host."""
    complaints: list[str] = []
    asked: list[str] = []
    contexts = []
    ports: set[int] = set()

    def go(live: Live, *, width: int = 1000, **wishes: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 700}, **wishes)
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        ports.add(live.port)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.on(
            "console",
            lambda message: (
                complaints.append(message.text) if re.search("Security Policy|Trusted", message.text) else None
            ),
        )
        page.goto(live.background.url)
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not any(url.startswith(f"http://127.0.0.1:{port}/") for port in ports)] == []


def box(page: Any) -> Any:
    return page.get_by_role("textbox", name="Your message")


def ask(page: Any, text: str) -> None:
    box(page).fill(text)
    box(page).press("Enter")


def answers(page: Any) -> Any:
    return page.get_by_role("article", name="Model")


def ready(page: Any) -> None:
    expect(page.get_by_role("combobox", name="Model")).to_be_enabled()


def conversation(live: Live) -> list[tuple[Any, Any]]:
    """Role and text of each message that the model last got."""
    return [(message["role"], message["content"]) for message in live.loader.talkers[0].seen[-1].messages or ()]


def begun(page: Any, count: int = 1) -> None:
    expect(answers(page).nth(count - 1).locator(".text")).to_have_text(re.compile("....."))


def done(page: Any, count: int = 1) -> str:
    """Wait until the last of so many answers is complete, and give its text."""
    last = answers(page).nth(count - 1)
    expect(last.get_by_text(re.compile("tokens,.* the first after"))).to_be_visible()
    return str(last.locator(".text").inner_text())


def test_an_answer_is_seen_while_it_is_written_and_the_next_question_brings_the_chat_along(
    start: Start, visit: Open
) -> None:
    live = start(step_s=0.02)
    page = visit(live)
    ready(page)
    ask(page, "What is wool?")
    begun(page)
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    early = len(answers(page).locator(".text").inner_text())
    answer = done(page)
    assert 0 < early < len(answer) == 100
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.get_by_role("button", name="Answer again")).to_have_count(1)

    live.loader.talkers[0].runner.step_s = 0.0
    ask(page, "And felt?")
    done(page, 2)
    assert conversation(live) == [("user", "What is wool?"), ("assistant", answer), ("user", "And felt?")]
    expect(page.get_by_role("button", name="Answer again")).to_have_count(1)


def test_stopping_frees_the_engine_and_keeps_what_was_said(start: Start, visit: Open) -> None:
    live = start(step_s=0.05)
    page = visit(live)
    ready(page)
    for count, stop in enumerate(
        (lambda: page.keyboard.press("Escape"), lambda: page.get_by_role("button", name="Stop").click()), start=1
    ):
        ask(page, LONG)
        begun(page, count)
        stop()
        last = answers(page).nth(count - 1)
        expect(last.get_by_text("Stopped.")).to_be_visible()
        assert until(lambda: live.loader.talkers[0].idle)
        assert 0 < len(last.locator(".text").inner_text()) < 100
        expect(box(page)).to_be_focused()
    live.loader.talkers[0].runner.step_s = 0.0
    ask(page, "Go on")
    assert done(page, 3)


def test_a_server_that_goes_away_is_named_and_found_again_without_a_reload(start: Start, visit: Open) -> None:
    live = start(step_s=0.05)
    page = visit(live)
    page.evaluate("window.here = true")
    ready(page)
    ask(page, LONG)
    begun(page)
    live.background.__exit__()

    expect(answers(page).get_by_text(re.compile("cut off|unloaded|ends"))).to_be_visible()
    ask(page, "Are you there?")
    expect(answers(page).nth(1).get_by_text("could not be reached")).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="Cannot reach the server")).to_be_visible()

    start(port=live.port)
    expect(page.get_by_text("Cannot reach the server")).to_be_hidden()
    answers(page).nth(1).get_by_role("button", name="Try again").click()
    assert done(page, 2)
    assert page.evaluate("window.here") is True


HOSTILE = """<img src=x onerror="window.bad = 1"> <script>window.bad = 2</script>
[link](javascript:window.bad=3) ![image](http://other.example/x.png) <a href="http://other.example">x</a>

**bold** and `code <b>` and *soft*

3. three
   - inner **one**
4. four

```html
<iframe src="http://other.example"></iframe>
```
A table:
| a \\| b | **c** |
|---|:-:|
| <b>1</b> | `2` | 3
| 4 |

a | b is none

# <i>Title</i>"""


def test_s16_what_a_model_says_is_text_and_its_markdown_is_drawn(start: Start, visit: Open) -> None:
    live = start(script=HOSTILE)
    page = visit(live, permissions=["clipboard-read", "clipboard-write"])
    ready(page)
    ask(page, "<b>Who</b> are you?")
    answer = done(page)
    for word in (
        "<img src=x onerror=",
        "<script>",
        "](javascript:",
        "![image](http://other.example/x.png)",
        "<i>Title",
    ):
        assert word in answer
    text = answers(page).locator(".text")
    expect(text.locator("img, script, a, iframe, b, i")).to_have_count(0)
    expect(page.get_by_role("article", name="You").locator("b")).to_have_count(0)
    assert page.evaluate("window.bad") is None
    assert text.locator("p strong").inner_text() == "bold"
    assert text.locator("p em").inner_text() == "soft"
    assert text.locator("p code").inner_text() == "code <b>"
    assert text.locator("ol > li > ul > li strong").inner_text() == "one"
    assert text.locator("ol").evaluate("list => [list.start, list.children.length]") == [3, 2]
    assert text.locator("pre code").text_content() == '<iframe src="http://other.example"></iframe>'
    assert text.get_by_role("columnheader").all_inner_texts() == ["a | b", "c"]
    assert text.get_by_role("cell").all_inner_texts() == ["<b>1</b>", "2", "4", ""]
    assert text.locator("p").all_inner_texts()[-2:] == ["A table:", "a | b is none"]
    assert text.get_by_role("heading").inner_text() == "<i>Title</i>"
    answers(page).get_by_role("button", name="Copy").last.click()
    expect(answers(page).get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == HOSTILE


def test_a_key_is_asked_for_kept_for_the_tab_and_the_question_goes_on(start: Start, visit: Open) -> None:
    live = start(keys=KEYS, anonymous=False)
    page = visit(live)
    key = page.get_by_label("This server asks for a key.")
    expect(key).to_be_focused()
    key.fill("not the key")
    key.press("Enter")
    expect(page.get_by_text("without spaces")).to_be_visible()
    key.fill("wrong")
    key.press("Enter")
    expect(page.get_by_text("did not accept")).to_be_visible()
    ask(page, "Hello")
    expect(answers(page).get_by_text("A key is needed.")).to_be_visible()
    key.fill(KEY)
    key.press("Enter")
    done(page)
    expect(key).to_be_hidden()
    assert KEY not in str(page.evaluate("JSON.stringify(localStorage) + document.cookie"))
    page.reload()
    ready(page)
    ask(page, "Still here?")
    done(page)


def test_an_error_is_shown_in_its_own_words_and_the_next_question_works(start: Start, visit: Open) -> None:
    live = start()
    page = visit(live)
    ready(page)
    ask(page, "x" * 5000)
    expect(answers(page).get_by_text(re.compile(r"5,\d+ tokens|context"))).to_be_visible()
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    ask(page, "Short")
    done(page, 2)
    assert conversation(live) == [("user", "Short")]


def test_the_chosen_model_answers_and_is_remembered(start: Start, visit: Open) -> None:
    page = visit(start())
    ready(page)
    picker = page.get_by_role("combobox", name="Model")
    expect(picker).to_have_value("beta")
    picker.select_option("Alpha.Q4")
    with page.expect_request("**/v1/chat/completions") as sent:
        ask(page, "Hello")
    assert sent.value.post_data_json["model"] == "Alpha.Q4"
    done(page)
    page.reload()
    ready(page)
    expect(picker).to_have_value("Alpha.Q4")


def test_the_page_leaves_sampling_to_what_the_model_recommends(start: Start, visit: Open) -> None:
    live = start()
    page = visit(live)
    ready(page)
    with page.expect_request("**/v1/chat/completions") as sent:
        ask(page, "Hello")
    done(page)
    assert not {"temperature", "top_p", "top_k", "min_p"} & sent.value.post_data_json.keys()


def test_the_keyboard_is_enough(start: Start, visit: Open) -> None:
    live = start()
    page = visit(live)
    ready(page)
    expect(box(page)).to_be_focused()
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    assert box(page).input_value() == "one\ntwo"
    page.keyboard.press("Enter")
    done(page)
    assert conversation(live) == [("user", "one\ntwo")]
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.get_by_role("button", name="New chat").press("Enter")
    expect(answers(page)).to_have_count(0)
    expect(box(page)).to_be_focused()
    page.get_by_role("button", name="Write a haiku about wool.").press("Enter")
    done(page)
    assert conversation(live) == [("user", "Write a haiku about wool.")]
    expect(box(page)).to_be_focused()


def test_dark_follows_the_system_until_it_is_chosen(start: Start, visit: Open) -> None:
    live = start()

    def dark(page: Any) -> bool:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return max(map(int, re.findall(r"\d+", colour)[:3])) < 100

    page = visit(live, color_scheme="dark")
    toggle = page.get_by_role("button", name="Dark colours")

    def shows(wanted: bool) -> None:
        expect(toggle).to_have_attribute("aria-pressed", str(wanted).lower())
        assert dark(page) is wanted

    shows(True)
    toggle.click()
    shows(False)
    page.reload()
    shows(False)
    toggle.click()
    shows(True)
    page.emulate_media(color_scheme="light")  # the choice equalled the system's, so it follows the system again
    shows(False)


def test_thoughts_are_folded_and_are_text_and_are_not_sent_back(start: Start, visit: Open) -> None:
    live = start(script="<think>I <b>add</b> them.</think>It is 4.")
    page = visit(live)
    ready(page)
    ask(page, "2 + 2?")
    assert done(page) == "It is 4."
    thought = answers(page).locator("details .thought")
    expect(thought).to_be_hidden()
    answers(page).get_by_text("Thoughts").click()
    expect(thought).to_have_text("I <b>add</b> them.")
    expect(thought.locator("b")).to_have_count(0)
    ask(page, "And 3 + 3?")
    done(page, 2)
    assert conversation(live) == [("user", "2 + 2?"), ("assistant", "It is 4."), ("user", "And 3 + 3?")]


def test_nothing_is_wider_than_the_window(start: Start, visit: Open) -> None:
    live = start(script="w" * 300 + "\n\n```\n" + "c" * 300 + "\n```\n\n- " + "l" * 200)
    page = visit(live, width=360)
    ready(page)
    ask(page, "q" * 300)
    done(page)
    for width in (360, 700, 1200):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("(log => log.scrollWidth <= log.clientWidth)(document.querySelector('main'))")
        for name in ("New chat", "Dark colours", "Send"):
            bounds = page.get_by_role("button", name=name).bounding_box()
            assert bounds["x"] >= 0
            assert bounds["x"] + bounds["width"] <= width


def chats(page: Any) -> Any:
    return page.get_by_role("dialog", name="Chats")


def test_chats_are_kept_in_the_browser_over_a_reload_until_they_are_deleted(start: Start, visit: Open) -> None:
    live = start()
    page = visit(live)
    ready(page)
    ask(page, "About wool")
    first = done(page)
    page.get_by_role("button", name="New chat").click()
    ask(page, "About felt")
    done(page)
    page.reload()
    expect(page.get_by_role("article", name="You")).to_contain_text("About felt")

    page.get_by_role("button", name="Chats").click()
    expect(chats(page).get_by_role("listitem")).to_have_count(2)
    chats(page).get_by_role("button", name="About wool", exact=True).click()
    expect(page.get_by_role("article", name="You")).to_contain_text("About wool")
    ready(page)
    ask(page, "Go on")
    done(page, 2)
    assert conversation(live) == [("user", "About wool"), ("assistant", first), ("user", "Go on")]

    page.get_by_role("button", name="Chats").click()
    chats(page).get_by_role("button", name="Delete About wool").click()
    expect(chats(page).get_by_role("listitem")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(answers(page)).to_have_count(0)
    page.reload()
    expect(answers(page)).to_have_count(0)


def test_an_edited_question_is_a_branch_and_nothing_is_lost(start: Start, visit: Open) -> None:
    live = start()
    page = visit(live)
    ready(page)
    ask(page, "one")
    first = done(page)
    ask(page, "two")
    done(page, 2)
    questions = page.get_by_role("article", name="You")
    questions.nth(1).get_by_role("button", name="Edit").click()
    edit = page.get_by_role("textbox", name="Your message, edited")
    assert edit.input_value() == "two"
    edit.fill("three")
    page.get_by_role("button", name="Ask").click()
    done(page, 2)
    assert conversation(live) == [("user", "one"), ("assistant", first), ("user", "three")]

    expect(questions.nth(1)).to_contain_text("2 of 2")
    page.get_by_role("button", name="Branch before").click()
    expect(questions.nth(1)).to_contain_text("two")
    page.get_by_role("button", name="Answer again").click()
    done(page, 2)
    expect(questions.nth(1)).to_contain_text("3 of 3")
    questions.nth(0).get_by_role("button", name="Edit").click()
    page.keyboard.press("Escape")
    expect(questions.nth(0)).to_contain_text("one")
    page.reload()
    expect(questions.nth(1)).to_contain_text("3 of 3")


def test_settings_go_along_with_every_question_and_wrong_json_is_not_taken(start: Start, visit: Open) -> None:
    page = visit(start())
    ready(page)
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("What the model is told first").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.1")
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Most tokens").fill("12")
    schema = page.get_by_label("JSON schema that the answer follows")
    schema.fill("[1")
    page.get_by_role("button", name="Use them").click()
    expect(page.get_by_role("dialog", name="Settings")).to_be_visible()
    schema.fill("")
    page.get_by_role("button", name="Use them").click()
    expect(page.get_by_role("dialog", name="Settings")).to_be_hidden()
    page.reload()
    ready(page)
    with page.expect_request("**/v1/chat/completions") as sent:
        ask(page, "Hello")
    asked = sent.value.post_data_json
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (asked["temperature"], asked["seed"], asked["max_tokens"]) == (0.1, 7, 12)
    assert "response_format" not in asked and "tools" not in asked
    done(page)
    expect(answers(page).get_by_text("reached the limit")).to_be_visible()


def test_an_answer_of_a_model_follows_the_json_schema_of_the_settings(
    tmp_path_factory: pytest.TempPathFactory, visit: Open
) -> None:
    schema = {
        "type": "object",
        "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}, "day": {"enum": ["today", "never"]}},
        "required": ["hour", "day"],
        "additionalProperties": False,
    }
    with real_server(tmp_path_factory, "tiny", context=512, limits={}) as live:
        page = visit(live)
        ready(page)
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("JSON schema that the answer follows").fill(json.dumps(schema))
        page.get_by_role("button", name="Use them").click()
        for count in (1, 2):
            ask(page, "When?")
            answer = json.loads(done(page, count))
            assert answer.keys() == {"hour", "day"}
            assert 0 <= answer["hour"] <= 23 and answer["day"] in ("today", "never")


def test_a_text_file_goes_along_and_another_kind_is_refused(start: Start, visit: Open) -> None:
    live = start()
    page = visit(live)
    ready(page)
    page.locator("#file").set_input_files({"name": "x.bin", "mimeType": "", "buffer": b"a\0b"})
    expect(page.get_by_text("x.bin is not a text file")).to_be_visible()
    page.locator("#file").set_input_files({"name": "notes.md", "mimeType": "", "buffer": b"```py\nx\n```"})
    expect(page.get_by_role("list", name="Attached files")).to_contain_text("notes.md")
    ask(page, "What is this?")
    done(page)
    assert conversation(live) == [("user", "What is this?\n\nFile notes.md:\n````\n```py\nx\n```\n````")]
    expect(page.get_by_role("list", name="Attached files")).to_have_count(0)
    expect(page.get_by_role("article", name="You").get_by_text("notes.md")).to_be_visible()
    expect(page.get_by_text("tokens of the context")).to_be_visible()


CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Oslo"}}\n</tool_call>'


def test_a_call_is_shown_folded_and_its_result_is_typed_in(start: Start, visit: Open) -> None:
    live = start(script="A line.\n\n" * 30)  # more than the window shows
    page = visit(live)
    ready(page)
    ask(page, LONG)
    done(page)
    live.loader.talkers[0].script = CALL
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Tools that the model may ask for, as a JSON list").fill(
        '[{"name": "weather", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}]'
    )
    page.get_by_role("button", name="Use them").click()
    ask(page, "How is the weather in Oslo?")
    call = answers(page).get_by_text("Calls weather")
    expect(call).to_be_visible()
    expect(page.get_by_role("button", name="Go on with the result")).to_be_in_viewport()
    arguments = answers(page).locator(".calls code")
    expect(arguments).to_be_hidden()
    call.click()
    expect(arguments).to_contain_text('"place": "Oslo"')

    live.loader.talkers[0].script = "It rains."
    page.get_by_role("textbox", name="Result of weather").fill("rain, 4 degrees")
    page.get_by_role("button", name="Go on with the result").click()
    expect(answers(page).nth(2).locator(".text")).to_have_text("It rains.")
    roles = [message["role"] for message in live.loader.talkers[0].seen[-1].messages or ()]
    assert roles == ["user", "assistant", "user", "assistant", "tool"]
    page.reload()
    expect(answers(page).nth(1).get_by_text("Calls weather")).to_be_visible()
    expect(answers(page).nth(2).locator(".text")).to_have_text("It rains.")


def test_a_chat_on_the_server_goes_on_in_another_browser_until_it_is_branched(start: Start, visit: Open) -> None:
    live = start()
    page = visit(live)
    ready(page)
    page.get_by_role("button", name="Chats").click()
    chats(page).get_by_role("button", name="Begin one on the server").click()
    expect(chats(page)).to_be_hidden()
    ask(page, "About wool")
    first = done(page)
    (record,) = live.ask("GET", "/api/v1/sessions")[2]
    assert until(lambda: live.ask("GET", "/api/v1/sessions")[2][0]["metadata"] == {"title": "About wool"})

    other = visit(live)
    ready(other)
    other.get_by_role("button", name="Chats").click()
    chats(other).get_by_role("button", name="About wool", exact=True).click()
    expect(other.get_by_role("article", name="You")).to_contain_text("About wool")
    ready(other)
    ask(other, "Go on")
    done(other, 2)
    assert conversation(live) == [("user", "About wool"), ("assistant", first), ("user", "Go on")]
    assert live.ask("GET", f"/api/v1/sessions/{record['id']}")[2]["message_count"] == 4

    other.get_by_role("article", name="You").nth(1).get_by_role("button", name="Edit").click()
    other.get_by_role("textbox", name="Your message, edited").fill("Another way")
    other.get_by_role("button", name="Ask", exact=True).click()
    done(other, 2)
    assert conversation(live) == [("user", "About wool"), ("assistant", first), ("user", "Another way")]
    assert live.ask("GET", f"/api/v1/sessions/{record['id']}")[2]["message_count"] == 4


@pytest.mark.parametrize("word", ["the reader's", "the settings'", "no"])
def test_a_tool_of_an_mcp_server_runs_by_the_word_of_the_reader_or_of_the_settings(
    start: Start, visit: Open, word: str
) -> None:
    live, server = start(script=CALL), Weather(allow=("*",) if word == "the settings'" else ())
    live.app.remotes._known = {"sky": server}
    page = visit(live)
    ready(page)
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("checkbox", name="sky: weather").check()
    page.get_by_role("button", name="Use them").click()
    ask(page, "How is the weather in Oslo?")
    if word != "the settings'":
        may = page.get_by_role("checkbox", name="sky may run weather")
        expect(may).not_to_be_checked()
        assert server.asked == []
        may.set_checked(word != "no")
        live.loader.talkers[0].script = "It rains."
        page.get_by_role("button", name="Go on with the result").click()
        expect(answers(page).nth(1).locator(".text")).to_have_text("It rains.")
        assert len(server.asked) == (word != "no")
        result = (live.loader.talkers[0].seen[-1].messages or ())[-1]["content"]
        assert result == ("the user did not allow this call" if word == "no" else "rain in Oslo")
    else:  # the model calls again and again: after eight rounds the user is asked
        expect(page.get_by_role("checkbox", name="sky may run weather")).to_be_visible()
        assert len(server.asked) == 8


class Weather(Known):
    """An MCP server in memory."""

    def __init__(self, allow: tuple[str, ...]) -> None:
        super().__init__("sky", "weather", allow=allow)
        self.asked = list[Any]()

    def call(self, name: str, arguments: Any) -> CallToolResult:
        self.asked.append(name)
        return CallToolResult(f"rain in {arguments['place']}")
