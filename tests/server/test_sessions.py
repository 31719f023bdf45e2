"""Sessions: conversations that the server keeps, visible only to the key that began them."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import Live, Start
from tests.server.process import Process, environ
from tests.server.raw import Raw, ask
from woolly.server.sessions.sessions import KIND, StoredSession

SESSIONS = "/api/v1/sessions"
KEYS = ("the-first-key-of-thirty-two-signs", "another-key-of-thirty-two-signs-x")


def make_session(live: Live, headers: dict[str, str] | None = None, **body: Any) -> str:
    code, _, answer = live.ask("POST", SESSIONS, body, headers)
    assert code == 200, answer
    return str(answer["session_id"])


def turn(live: Live, session: str, text: str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    body = {"messages": [{"role": "user", "content": text}], "session_id": session, "max_tokens": 5} | fields
    return live.ask("POST", "/api/v1/inference/chat", body, headers)


def history(live: Live, session: str) -> list[tuple[str, str]]:
    rows = live.ask("GET", f"{SESSIONS}/{session}/history")[2]["messages"]
    return [(row["role"], row["content"]) for row in rows]


def files(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.rglob("sess_*.json"))


def test_a_turn_goes_on_where_the_last_one_ended_with_the_settings_of_the_session(live: Live) -> None:
    session = make_session(live, config={"temperature": 0.25, "top_k": 7}, metadata={"who": "ada"})
    first = turn(live, session, "one")[2]["choices"][0]["message"]["content"]
    turn(live, session, "two", temperature=0.5)
    request = live.loader.talkers[0].seen[-1]
    messages = [(message["role"], message["content"]) for message in request.messages or ()]
    assert messages == [("user", "one"), ("assistant", first), ("user", "two")]
    assert (request.sampling.temperature, request.sampling.top_k) == (0.5, 7)
    assert history(live, session)[:3] == messages
    record = live.ask("GET", f"{SESSIONS}/{session}")[2]
    assert (record["message_count"], record["model_name"], record["metadata"]) == (4, "beta", {"who": "ada"})
    assert record["active"] is True


def test_what_a_session_computed_is_kept_longer_than_what_others_leave(live: Live) -> None:
    turn(live, make_session(live), "one")
    live.ask("POST", "/api/v1/inference/complete", {"prompt": "two", "max_tokens": 2})
    assert live.loader.talkers[0].protected == [1800.0, 0.0]


def test_s20_a_restart_keeps_what_was_confirmed_in_a_private_file(start: Start, tmp_path: Path) -> None:
    live = start()
    session = make_session(live)
    turn(live, session, "one")
    before = history(live, session)
    (path,) = files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    live.background.__exit__()
    again = start()
    assert history(again, session) == before
    turn(again, session, "two")
    assert history(again, session)[:2] == before


def test_s20_a_file_that_is_not_what_was_written_is_set_aside_and_never_used(start: Start, tmp_path: Path) -> None:
    live = start()
    intact, broken = make_session(live), make_session(live)
    turn(live, intact, "one")
    turn(live, broken, "two")
    live.background.__exit__()
    path = next(path for path in files(tmp_path) if path.stem == broken)
    path.write_bytes(path.read_bytes().replace(b"two", b"owt"))
    again = start()
    assert [row["id"] for row in again.ask("GET", SESSIONS)[2]] == [intact]
    assert again.ask("GET", f"{SESSIONS}/{broken}")[0] == 404
    assert [path.stem for path in files(tmp_path)] == [intact]
    (aside,) = path.parent.glob(f"{path.name}.damaged-*")
    assert b"owt" in aside.read_bytes()


def test_another_key_can_neither_see_nor_use_nor_end_a_session(start: Start) -> None:
    live = start(keys=tuple(hashlib.sha256(key.encode()).digest() for key in KEYS), anonymous=False)
    mine, other = ({"X-API-Key": key} for key in KEYS)
    session = make_session(live, mine)
    turn(live, session, "a secret", mine)
    assert live.ask("GET", SESSIONS, headers=other)[2] == []
    for method, path in (("GET", ""), ("GET", "/history"), ("POST", "/clear"), ("DELETE", ""), ("PATCH", "")):
        body = None if method == "GET" else {}
        code, _, answer = live.ask(method, f"{SESSIONS}/{session}{path}", body, other)
        assert (code, answer["error"]["type"]) == (404, "session_not_found"), (method, path)
    assert turn(live, session, "tell me", other)[0] == 404
    assert live.ask("GET", f"{SESSIONS}/{session}", headers=mine)[2]["message_count"] == 2


def test_one_session_too_many_takes_the_place_of_the_longest_idle(start: Start, tmp_path: Path) -> None:
    live = start(max_sessions=2)
    first, second = make_session(live), make_session(live)
    turn(live, first, "still here")
    third = make_session(live)
    assert {row["id"] for row in live.ask("GET", SESSIONS)[2]} == {first, third}
    assert second not in [path.stem for path in files(tmp_path)]


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"n": 2}, {"messages": []}, {"max_tokens": 0}])
def test_a_refused_turn_changes_nothing(live: Live, wrong: dict[str, Any]) -> None:
    session = make_session(live)
    turn(live, session, "one")
    before = history(live, session)
    assert turn(live, session, "two", **wrong)[0] == 400
    assert history(live, session) == before


def test_metadata_is_bounded_and_an_unknown_model_is_named(live: Live) -> None:
    assert live.ask("POST", SESSIONS, {"metadata": {"x": "y" * 20_000}})[0] == 400
    assert live.ask("POST", SESSIONS, {"model": "nobody"})[2]["error"]["type"] == "model_not_found"


def test_a_file_holds_one_session_and_its_digest() -> None:
    session = StoredSession(
        "sess_" + "0" * 24, "me", "m", 10, 1.0, 2.0, {}, {}, [{"role": "user", "content": "ä", "timestamp": 1.0}]
    )
    data = KIND.seal(session)
    assert KIND.unseal(data) == session
    for at in range(len(data)):
        flipped = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
        with pytest.raises(ValueError, match=r".*"):
            KIND.unseal(flipped)


def test_a_kill_in_the_middle_of_an_answer_loses_no_turn_that_was_confirmed(
    talkers: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    with Process(environ(home, talkers)) as served:
        session = ask(served.port, "POST", SESSIONS, {})[2]["session_id"]
        body = {"messages": [{"role": "user", "content": "one"}], "session_id": session, "max_tokens": 8}
        confirmed = ask(served.port, "POST", "/api/v1/inference/chat", body)[2]["choices"][0]["message"]["content"]
        long = body | {"max_tokens": 4000, "stream": True}
        reader = Raw(served.port).post("/api/v1/inference/chat", long)
        assert b"data: " in reader.read(800)
        served.process.kill()
        reader.rest()
    with Process(environ(home, talkers)) as again:
        rows = ask(again.port, "GET", f"{SESSIONS}/{session}/history")[2]["messages"]
        assert [(row["role"], row["content"]) for row in rows] == [("user", "one"), ("assistant", confirmed)]
        assert ask(again.port, "POST", "/api/v1/inference/chat", body)[0] == 200
