"""The page's files: their size, how they are sent, and what they may not contain."""

from __future__ import annotations

import re

from tests.server.conftest import Live, Start
from tests.server.test_guard import KEYS, get
from woolly.server.dialects.page import FOLDER, TYPES

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
PATHS = {"index.html": "/"} | {name: f"/page/{name}" for name in TYPES if name != "index.html"}


def text(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def test_a_browser_gets_the_page_and_a_program_one_line(live: Live) -> None:
    code, headers, body = live.ask("GET", "/", headers=BROWSER)
    assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert body == (FOLDER / "index.html").read_bytes()
    code, headers, body = live.ask("GET", "/", headers={"Accept": "*/*"})
    assert (code, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert b"/health" in body
    assert body.count(b"\n") == 1
    assert "Accept" in headers["vary"]


def test_s16_each_file_has_its_type_and_the_policy(live: Live) -> None:
    for name in TYPES:
        check_headers(live, name)


def check_headers(live: Live, name: str) -> None:
    code, headers, body = live.ask("GET", PATHS[name], headers=BROWSER)
    assert (code, headers["content-type"]) == (200, TYPES[name])
    assert body == (FOLDER / name).read_bytes()
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    rules = dict(rule.strip().partition(" ")[::2] for rule in headers["content-security-policy"].split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]


def test_a_file_that_the_browser_has_is_not_sent_again(live: Live) -> None:
    for name in TYPES:
        check_tag(live, name)


def check_tag(live: Live, name: str) -> None:
    tag = live.ask("GET", PATHS[name], headers=BROWSER)[1]["etag"]
    for etag in (tag, f'"old", W/{tag}', "*"):
        code, headers, body = live.ask("GET", PATHS[name], headers=BROWSER | {"If-None-Match": etag})
        assert (code, body, headers["etag"]) == (304, b"", tag)
        assert "content-length" not in headers
    assert live.ask("GET", PATHS[name], headers=BROWSER | {"If-None-Match": '"old"'})[0] == 200
    code, headers, body = live.ask("HEAD", PATHS[name], headers=BROWSER)
    assert (code, body, headers["etag"]) == (200, b"", tag)
    assert int(headers["content-length"]) == (FOLDER / name).stat().st_size


def test_the_page_is_open_but_guarded(start: Start) -> None:
    live = start(keys=KEYS, anonymous=False)
    for path in PATHS.values():
        assert get(live, "Host: localhost", path=path) == 200
        assert get(live, "Host: evil.example", path=path) == 403
        assert get(live, "Host: localhost", "Origin: https://evil.example", path=path) == 403
        assert get(live, "Host: localhost", method="POST", path=path) == 405
    for path in ("/page/", "/page/..%2fapp.py", "/page/../app.py", "/page/nothing.js", "/page/index.html"):
        assert get(live, "Host: localhost", path=path) == 404


def test_the_whole_page_weighs_less_than_72_kb_and_nothing_lies_beside_it() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(TYPES)
    assert sum((FOLDER / name).stat().st_size for name in TYPES) < 72_000


def test_s16_nothing_inline_and_no_other_host() -> None:
    page = text("index.html")
    assert all(re.search(r"\bsrc=", tag) for tag in re.findall(r"<script[^>]*>", page))
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    for name in TYPES:
        assert not re.search(r"(?:https?:)?//[a-z0-9]", text(name).replace("http://www.w3.org/2000/svg", "")), name


def test_s16_no_text_can_become_html() -> None:
    words = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|\beval\b|Function\("
    )
    for name in TYPES:
        assert not re.search(words, text(name)), name


def test_every_file_that_the_page_asks_for_is_there() -> None:
    asked, new = set[str](), set(re.findall(r'(?:src|href)="page/([^"]+)"', text("index.html")))
    while new:
        asked |= new
        new = {name for known in new for name in re.findall(r'from "\./([^"]+)"', text(known))} - asked
    assert asked == set(TYPES) - {"index.html"}


def test_every_element_that_the_scripts_look_for_is_there() -> None:
    names = set(re.findall(r'(?:\bat|getElementById)\("([\w-]+)"\)', "".join(map(text, TYPES))))
    assert names > {"ask", "send", "stop", "theme"}
    assert names <= set(re.findall(r'\bid="([\w-]+)"', text("index.html")))
