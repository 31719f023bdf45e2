"""A chat with the model of a server: answers, options, keys, going away, and servers that are none."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.chat.test_session import typist
from tests.cli.conftest import Woolly
from tests.server.conftest import Live, Start, starting
from tests.server.stand_in import until
from tests.server.test_guard import KEY, KEYS
from tests.tiny import tiny
from woolly.cli.chat.loop import run_chat
from woolly.cli.chat.remote import Server
from woolly.cli.chat.screen import Appearance, Screen
from woolly.cli.chat.session import Session
from woolly.errors import DownloadError, NotFoundError, RequestError, WoollyError
from woolly.request import End, Text, complete

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("alpha", "beta"):
        tiny(folder / f"{name}.gguf")  # for its name; what answers is a stand-in
    with starting(folder, tmp_path) as begin:
        yield begin


def url(live: Live) -> str:
    return f"http://127.0.0.1:{live.port}"


def test_a_session_talks_with_the_model_of_a_server_and_goes_on_with_what_was_said(
    start: Start, tmp_path: Path
) -> None:
    live = start()
    server, out = Server(url(live) + "/v1/"), io.StringIO()
    options = {"max_tokens": 5, "temperature": 0.5, "seed": 3, "think": False, "logit_bias": {7: 1.0, 9: -2.0}}
    session = Session(Screen(out, Appearance(), {}), str, server.model, "beta", options=options, folder=tmp_path)
    run_chat(session, typist("Hello", "/model alpha", "And now?", "/stats", "/set max_tokens 2", "More."))
    (beta, alpha) = live.loader.talkers
    assert [len(request.messages or ()) for request in (*beta.seen, *alpha.seen)] == [1, 3, 5]
    first = beta.seen[0]
    assert (first.sampling.temperature, first.sampling.seed, first.max_tokens) == (0.5, 3, 5)
    assert first.sampling.logit_bias == {7: 1.0, 9: -2.0}
    assert first.chat_template_kwargs["enable_thinking"] is False
    turns = session.conversation.turns
    assert [len(turn.content) for turn in turns[1::2]] == [5, 5, 2]  # a letter is a token here
    assert all(turn.content in out.getvalue() for turn in turns[1::2])
    assert "answers             2, 10 tokens" in out.getvalue()


def test_a_stream_has_the_events_of_an_answer_with_its_counts(start: Start) -> None:
    live = start()
    events = list(Server(url(live)).model("beta").chat_stream(HELLO, max_tokens=4, temperature=0))
    assert [type(event) for event in events] == [Text] * 4 + [End]
    completion = complete(events)
    unstreamed = live.chat(max_tokens=4, temperature=0)[2]
    assert completion.text == unstreamed["choices"][0]["message"]["content"]
    assert (completion.finish_reason, completion.usage.total_tokens) == ("length", unstreamed["usage"]["total_tokens"])
    assert completion.timings.first_token_s > 0


def test_a_cancelled_answer_ends_with_what_there_is_and_the_server_stops(start: Start) -> None:
    live = start(step_s=0.01)
    stream = Server(url(live)).model("beta").chat_stream(HELLO, max_tokens=2000)
    events = []
    for event in stream:
        events.append(event)
        stream.cancel()
    completion = complete(events)
    assert completion.finish_reason == "cancelled"
    assert 1 <= len(completion.text) < 2000
    assert until(lambda: live.loader.talkers[0].idle)


def test_what_a_server_refuses_is_told_in_its_words_and_a_session_goes_on(start: Start, tmp_path: Path) -> None:
    live, out = start(), io.StringIO()
    session = Session(Screen(out, Appearance(), {}), str, Server(url(live)).model, "beta", options={}, folder=tmp_path)
    run_chat(session, typist("x" * 5000, "/model nobody", "Hello", "/model beta", "/set max_tokens 3", "Hello"))
    assert "the prompt has 5,0" in out.getvalue() and "nobody" in out.getvalue()
    assert [turn.role for turn in session.conversation.turns] == ["user", "assistant"]


def test_a_key_is_sent_and_one_that_is_missing_is_asked_for(start: Start) -> None:
    live = start(keys=KEYS, anonymous=False)
    assert "beta" in Server(url(live), KEY).models()
    with pytest.raises(RequestError, match="wants a key"):
        Server(url(live)).models()


@pytest.mark.parametrize(
    "address", ["", "localhost:8080", "ftp://localhost", "http://", "http://x:99999", "http://x:y"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(RequestError, match="no address"):
        Server(address)


REPLIES: dict[str, tuple[int, bytes, type[WoollyError]]] = {
    "a page": (200, b"<html>", DownloadError),
    "another shape": (200, b'{"data": [5]}', DownloadError),
    "no model": (200, b'{"data": []}', NotFoundError),
    "an error without words": (500, b"oops", RequestError),
    "an error of another shape": (500, b'{"error": "oops\\u001b[2J"}', RequestError),
}
STREAMS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"data: {\n\n",
    "no object": b"data: 5\n\n",
    "strange choices": b'data: {"choices": [5]}\n\n',
    "strange counts": b'data: {"usage": {"prompt_tokens": "x", "completion_tokens": 1}}\n\n',
    "a cut": b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n',
    "a line without end": b"data: " + b"x" * (2 << 20),
    "an error": b'data: {"error": {"message": "broken"}}\n\n',
}


@pytest.fixture
def stranger() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A server that says what it is told to, and its address."""
    reply: dict[str, bytes] = {"status": b"200", "body": b""}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(int(reply["status"]))
            self.end_headers()
            self.wfile.write(reply["body"])

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", reply
        server.shutdown()


@pytest.mark.parametrize("case", REPLIES)
def test_a_server_that_answers_otherwise_is_told_of_in_one_line(
    stranger: tuple[str, dict[str, bytes]], case: str
) -> None:
    address, reply = stranger
    status, reply["body"], kind = REPLIES[case]
    reply["status"] = b"%d" % status
    with pytest.raises(kind) as caught:
        Server(address).models()
    assert address in str(caught.value) and str(caught.value).isprintable()


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_of_something_else_is_an_error_and_no_answer(
    stranger: tuple[str, dict[str, bytes]], case: str
) -> None:
    address, reply = stranger
    reply["body"] = STREAMS[case]
    with pytest.raises(WoollyError, match="at http://127"):
        list(Server(address).model("x").chat_stream(HELLO))


def test_the_command_gives_one_answer_of_a_server(start: Start, woolly: Woolly) -> None:
    live = start(keys=KEYS, anonymous=False)
    done = woolly("chat", "--server", url(live), "beta", "Hello", "--max-tokens", "6", "--json", WOOLLY_API_KEY=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    (result,) = json.loads(done.stdout)["results"]
    assert (result["tokens_generated"], len(result["response"])) == (6, 6)
    done = woolly("chat", "--server", url(live), "--api-key", KEY, "Hello there", "--max-tokens", "6", "--quiet")
    assert (done.returncode, len(done.stdout.strip())) == (0, 6)


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--server", "http://127.0.0.1:9", "Hello"], 6, "does not answer"),
        (["--server", "nowhere", "Hello"], 2, "no address"),
        (["--server", "http://127.0.0.1:9", "--threads", "2", "Hello"], 2, "threads"),
        (["--server", "http://127.0.0.1:9", "--json-schema", "{}", "Hello"], 2, "--json-schema is not sent"),
        (["--api-key", "x", "Hello there"], 2, "--api-key is for --server"),
    ],
)
def test_wrong_words_are_one_line(woolly: Woolly, words: list[str], code: int, expected: str) -> None:
    done = woolly("chat", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert expected in done.stderr and done.stderr.count("\n") == 1
