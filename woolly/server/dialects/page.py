"""The page at `/`: a chat for browsers. The files of woolly/server/page as they are; no build step, no other host.

A browser asks the server whether its copy is still good (the files change only with the version), and runs nothing
that did not come from here: no script in the document, none from elsewhere, and no text that becomes HTML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from woolly.server.dialects.woolly.dialect import error
from woolly.server.http.reply import Reply
from woolly.server.routes import Call, Dialect, Query
from woolly.version import __version__

FOLDER = Path(__file__).resolve().parents[1] / "page"
START = "index.html"
SCRIPT = "text/javascript; charset=utf-8"
TYPES = {
    START: "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "theme.js": SCRIPT,
    **dict.fromkeys(
        (
            "chat.js",
            "chats.js",
            "dom.js",
            "files.js",
            "markdown.js",
            "settings.js",
            "speak.js",
            "speed.js",
            "tools.js",
            "turn.js",
        ),
        SCRIPT,
    ),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
LINE = (
    f"Woolly {__version__}. GET /health tells how it is; OpenAI's routes are under /v1; a browser gets a chat here.\n"
)


@cache
def _file(name: str) -> tuple[bytes, str]:
    """A file and its tag, read once."""
    data = (FOLDER / name).read_bytes()
    return data, f'"{hashlib.sha256(data).hexdigest()[:20]}"'


def _send(name: str, asked: Mapping[str, str]) -> Reply[bytes]:
    data, tag = _file(name)
    headers = {
        "etag": tag,
        "cache-control": "no-cache",  # a browser keeps its copy, but asks first: a new version is seen at once
        "content-security-policy": POLICY,
        "cross-origin-resource-policy": "same-origin",
        "vary": "Accept, Origin",
    }
    etags = [mark.strip().removeprefix("W/") for mark in asked.get("if-none-match", "").split(",")]
    if tag in etags or "*" in etags:
        return Reply(b"", 304, TYPES[name], headers)
    return Reply(data, media_type=TYPES[name], headers=headers)


async def start(call: Call) -> Reply[bytes]:
    """The page for browsers; one line for programs that knock."""
    if "text/html" in call.headers.get("accept", ""):
        return _send(START, call.headers)
    return Reply(LINE.encode(), media_type="text/plain; charset=utf-8", headers={"vary": "Accept, Origin"})


def _route(name: str) -> Query:
    async def send(call: Call) -> Reply[bytes]:
        return _send(name, call.headers)

    return Query("GET", f"/page/{name}", send, access="open")


DIALECT = Dialect(
    name="page",
    routes=(Query("GET", "/", start, access="open"), *(_route(name) for name in TYPES if name != START)),
    error=error,
    prefixes=(),  # errors at unknown paths have another dialect's shape
)
