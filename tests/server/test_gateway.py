"""A gateway and its replicas: the same answers as from one process, and nothing is lost when a replica dies."""

from __future__ import annotations

import dataclasses
import json
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.fleets import CHAT, ENDLESS, KEY, KINDS, WORDS, Fleets, fleet, frames, talker
from tests.server.raw import Raw, ask
from tests.server.relay import Relay
from tests.server.stand_in import until
from tests.tiny import CHATML
from woolly.fleet.remote_answer import REPLAYS
from woolly.fleet.remote_model import load

LONG = 900  # tokens, so that there is time to act in the middle of an answer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    template = CHATML + "{{ mood }}"  # a variable that only a setting could set
    return talker(tmp_path_factory.mktemp("models"), meta={"tokenizer.chat_template": template})


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Fleets]:
    with fleet(tmp_path_factory.mktemp("home"), model) as deployment:
        yield deployment


@pytest.fixture
def alone(tmp_path: Path, model: Path) -> Iterator[Fleets]:
    """A gateway without replicas."""
    with fleet(tmp_path, model, 0) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def undisturbed(two: Fleets) -> dict[str, list[Any]]:
    """The answer of a replica itself, for each kind of request."""
    return {kind: frames(two.replicas[0].port, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def long(two: Fleets) -> list[Any]:
    """A long answer of a replica itself."""
    return frames(two.replicas[0].port, "sampled", tokens=LONG)


def test_variables_of_templates_are_those_of_the_gateways_settings(two: Fleets, model: Path) -> None:
    config = two.app.config
    config = dataclasses.replace(
        config, engine=dataclasses.replace(config.engine, chat_template_kwargs={"mood": "calm"})
    )
    gated = load(two.fleet, model, config)
    assert gated.render(WORDS).endswith("<|im_start|>assistant\ncalm")
    assert gated.render(WORDS, chat_template_kwargs={"mood": "wild"}, add_generation_prompt=False).endswith("\nwild")
    gated.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_gateway_answers_as_a_replica_does_frame_by_frame(
    two: Fleets, undisturbed: dict[str, list[Any]], kind: str
) -> None:
    assert frames(two.port, kind) == undisturbed[kind]
    assert len(undisturbed[kind]) > 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_is_killed_in_the_middle_changes_no_frame(
    two: Fleets, undisturbed: dict[str, list[Any]], kind: str
) -> None:
    before = two.fleet.replays

    def seen(count: int) -> None:
        if count == 12:
            for replica in two.busy()[:1]:
                two.kill(replica)

    for _ in range(5):  # on a busy machine the answer may be over before its reader has twelve frames
        two.join(2 - len(two.replicas))
        two.ready(2)
        assert frames(two.port, kind, seen) == undisturbed[kind]
        if two.fleet.replays > before:
            return
    raise AssertionError("nobody was killed in the middle of an answer")


def test_while_an_answer_waits_for_another_replica_its_reader_is_told_each_second(alone: Fleets) -> None:
    alone.join()
    alone.ready(1)
    undisturbed = frames(alone.port, "sampled")
    comments: list[bytes] = []

    def seen(count: int) -> None:
        if count == 12:
            alone.kill(alone.replicas[0])
            threading.Timer(1.5, alone.join).start()

    assert frames(alone.port, "sampled", seen, comments=comments) == undisturbed
    assert comments and set(comments) == {b": resuming"}
    assert not alone.fleet.moving


def test_a_replica_that_stands_still_is_given_up_after_its_lease_and_the_answer_goes_on(
    two: Fleets, long: list[Any]
) -> None:
    two.join(2 - len(two.replicas))
    two.ready(2)
    stopped = []

    def seen(count: int) -> None:
        if count == 12:
            stopped.extend(two.busy())
            two.kill(stopped[0], signal.SIGSTOP)

    try:
        assert frames(two.port, "sampled", seen, LONG) == long
        assert two.here == 1
    finally:
        two.kill(stopped[0], signal.SIGCONT)
    two.ready(2)  # the replica joins again


def test_a_replica_that_is_told_to_end_finishes_what_it_answers_and_gets_nothing_new(
    two: Fleets, undisturbed: dict[str, list[Any]], long: list[Any]
) -> None:
    two.join(2 - len(two.replicas))
    two.ready(2)
    replays, left = two.fleet.replays, []

    def seen(count: int) -> None:
        if count == 12:
            left.extend(two.busy())
            two.kill(left[0], signal.SIGTERM)
            assert until(lambda: two.here == 1)
            assert frames(two.port, "greedy") == undisturbed["greedy"]

    assert frames(two.port, "sampled", seen, LONG) == long
    assert two.fleet.replays == replays
    assert left[0].process.wait(60) == 0
    two.replicas.remove(left[0])


def test_a_replica_that_takes_long_to_end_hands_its_answers_over(
    two: Fleets, long: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("woolly.fleet.members.HAND_OVER_S", 0.1)
    two.join(2 - len(two.replicas))
    two.ready(2)
    replays, left = two.fleet.replays, []

    def seen(count: int) -> None:
        if count == 12:
            left.extend(two.busy())
            two.kill(left[0], signal.SIGTERM)

    assert frames(two.port, "sampled", seen, LONG) == long
    assert two.fleet.replays == replays + 1
    assert left[0].process.wait(60) == 0
    two.replicas.remove(left[0])


def test_a_slow_way_that_is_cut_changes_no_frame(
    tmp_path: Path, alone: Fleets, undisturbed: dict[str, list[Any]]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    relay = Relay(port, 1 << 30, 2500, 1500, delay_s=0.005)  # the first is asked for the header
    alone.join(1, port=port, WOOLLY_ADVERTISE=f"http://127.0.0.1:{relay.port}")
    assert until(lambda: alone.app.models.loaded)
    assert frames(alone.port, "sampled") == undisturbed["sampled"]
    assert (alone.fleet.replays, relay.asked) == (2, 4)
    relay.close()


def test_a_client_that_goes_away_takes_its_answer_off_the_replica(two: Fleets) -> None:
    raw = Raw(two.port).post(CHAT, {"messages": WORDS, "stream": True, "max_tokens": 3000})
    raw.read(2000)
    assert two.busy()
    raw.sock.close()
    assert until(lambda: not two.busy())
    assert until(lambda: sum(_running(replica.port) for replica in two.replicas) == 0)


def _running(port: int) -> int:
    return int(ask(port, "GET", "/api/v1/metrics")[2]["requests"]["active"])


def test_what_cannot_be_answered_is_refused_by_the_gateway_itself(two: Fleets) -> None:
    done = [ask(replica.port, "GET", "/api/v1/metrics")[2]["requests"]["done"] for replica in two.replicas]
    status, _, body = ask(two.port, "POST", CHAT, {"messages": [{"role": "user", "content": "in " * 9000}]})
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "nothing"}}}
    assert ask(two.port, "POST", CHAT, {"messages": WORDS, "response_format": schema})[0] == 400
    assert done == [ask(replica.port, "GET", "/api/v1/metrics")[2]["requests"]["done"] for replica in two.replicas]


def test_a_gateway_that_is_started_again_finds_its_replicas_and_gives_the_same_answers(
    tmp_path: Path, model: Path, undisturbed: dict[str, list[Any]]
) -> None:
    with fleet(tmp_path, model, 1) as deployment:
        port = deployment.port
        deployment.background.__exit__()
        deployment.begin(port)
        deployment.ready(1)
        assert frames(deployment.port, "sampled") == undisturbed["sampled"]


def test_a_client_of_a_gateway_that_was_started_again_reads_the_rest_of_its_answer(tmp_path: Path, model: Path) -> None:
    body = {"messages": WORDS, "stream": True, "max_tokens": 150, "temperature": 1.0}
    with fleet(tmp_path, model, 1) as deployment:
        _, headers, complete = ask(deployment.port, "POST", CHAT, body, {"last-event-id": "0"})
        again = {name: headers[name] for name in ("x-woolly-seed", "x-request-id")}
        port = deployment.port
        deployment.background.__exit__()
        deployment.begin(port)
        deployment.ready(1)
        _, _, rest = ask(deployment.port, "POST", CHAT, body, {"last-event-id": "40", **again})

        def texts(data: bytes) -> list[str]:
            rows = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
            return [row["choices"][0]["delta"].get("content") or "" for row in rows]

        assert rest.startswith(b"id: 41\n")
        assert texts(rest) == texts(complete)[40:]


def test_who_does_not_know_the_secret_neither_joins_nor_is_answered(two: Fleets) -> None:
    report = {"id": "0" * 16, "url": "http://127.0.0.1:9", "version": "1", "number": 1}
    for headers in ({}, {"x-woolly-fleet": "another secret"}):
        assert ask(two.port, "POST", "/woolly/v1/join", report, headers)[0] == 401
        order = {
            "model": "talker",
            "digest": "sha256:" + "0" * 64,
            "kind": "k",
            "ids": "",
            "max_tokens": 1,
            "sampling": {},
        }
        assert ask(two.replicas[0].port, "POST", "/woolly/v1/submit", order, headers)[0] == 401
        assert ask(two.replicas[0].port, "GET", "/woolly/v1/header?model=talker", None, headers)[0] == 401
    assert "0" * 16 not in two.fleet.replicas


def test_a_server_that_is_no_replica_has_no_such_routes(tmp_path: Path, two: Fleets) -> None:
    assert ask(two.port, "POST", "/woolly/v1/submit", {})[0] == 404


def test_a_replica_with_another_secret_logs_why_its_reports_fail(tmp_path: Path, alone: Fleets) -> None:
    log = tmp_path / "log"
    alone.join(1, WOOLLY_FLEET_KEY="another secret", WOOLLY_LOGGING__FILE=str(log))
    assert until(lambda: log.exists() and "report failed" in log.read_text())
    assert "which know its secret" in log.read_text()
    assert not alone.state()["replicas"]


def test_a_request_has_one_id_at_the_gateway_and_at_the_replica(tmp_path: Path, alone: Fleets) -> None:
    log = tmp_path / "log"
    alone.join(1, WOOLLY_LOG_LEVEL="info", WOOLLY_LOGGING__FILE=str(log))
    alone.ready(1)
    status, headers, _ = ask(
        alone.port, "POST", CHAT, {"messages": WORDS, "max_tokens": 3}, {"x-request-id": "one-of-ours"}
    )
    assert (status, headers["x-request-id"]) == (200, "one-of-ours")
    assert until(lambda: any("id=one-of-ours" in line and "/submit" in line for line in log.read_text().splitlines()))


def test_a_model_has_the_names_at_the_gateway_that_it_has_at_its_replica(tmp_path: Path, alone: Fleets) -> None:
    settings = tmp_path / "replica.toml"
    settings.write_text('[aliases]\n"chatty:1b" = "talker"\n')
    alone.join(1, WOOLLY_CONFIG=str(settings))
    alone.ready(1)
    for name in ("talker", "Talker.gguf", "chatty:1b"):
        body = {"model": name, "messages": WORDS, "max_tokens": 2}
        assert ask(alone.port, "POST", CHAT, body)[0] == 200, name
    assert ask(alone.port, "POST", CHAT, {"model": "chatty:2b", "messages": WORDS})[0] == 404


def test_a_replica_that_listens_everywhere_is_found_by_where_its_reports_come_from(alone: Fleets) -> None:
    alone.join(1, WOOLLY_HOST="0.0.0.0", WOOLLY_API_KEY="a key of its own clients")
    alone.ready(1)
    [replica] = alone.state()["replicas"]
    assert replica["url"] == f"http://127.0.0.1:{alone.replicas[0].port}"
    assert ask(alone.port, "POST", CHAT, {"messages": WORDS, "max_tokens": 2})[0] == 200


def test_the_routes_of_gateways_and_replicas_are_described(two: Fleets) -> None:
    described = (
        ask(two.port, "GET", "/openapi.json")[2]["paths"],
        ask(two.replicas[0].port, "GET", "/openapi.json")[2]["paths"],
    )
    assert {"/woolly/v1/join", "/woolly/v1/fleet"} <= described[0].keys()
    assert {"/woolly/v1/submit", "/woolly/v1/pool", "/woolly/v1/header"} <= described[1].keys()


def test_metrics_of_a_gateway_count_its_replicas_and_replays(two: Fleets) -> None:
    two.ready(len(two.replicas))
    text = ask(two.port, "GET", "/metrics")[2].decode()
    assert f'woolly:fleet_replicas{{state="here"}} {len(two.replicas):.1f}' in text
    assert f"woolly:fleet_replays_total {two.fleet.replays:.1f}" in text
    assert 'woolly:queued_seconds{model_name="talker"}' in text


class Stranger:
    """A replica that reports what the test wants, and closes the connection of every request."""

    def __init__(self, deployment: Fleets, **facts: Any) -> None:
        self.made, self.id, self.number = deployment, secrets.token_hex(8), 0
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.asked = 0
        self.reply = b""
        self.facts = facts
        threading.Thread(target=self._break_off, daemon=True).start()

    def _break_off(self) -> None:
        while True:
            try:
                connection, _ = self.sock.accept()
            except OSError:
                return
            connection.recv(65536)
            self.asked += 1
            connection.sendall(self.reply)
            connection.close()

    def leave(self) -> None:
        self.report(info_of(self.made), leaving=True)
        self.sock.close()

    def report(self, like: dict[str, Any], *, leaving: bool = False) -> dict[str, Any]:
        """Report a model with the facts of another one; returns the gateway's reply."""
        self.number += 1
        offer = {"facts": like | self.facts, "load": {"prompt_rate": 1e9, "answer_rate": 1e9}, "whole": True}
        url = f"http://127.0.0.1:{self.sock.getsockname()[1]}"
        body = {"id": self.id, "url": url, "version": "1", "number": self.number, "offers": [offer], "leaving": leaving}
        status, _, answer = ask(self.made.port, "POST", "/woolly/v1/join", body, {"x-woolly-fleet": KEY})
        assert status == 200, answer
        return dict(answer)


def info_of(deployment: Fleets) -> dict[str, Any]:
    import msgspec

    replica = next(iter(deployment.fleet.replicas.values()))
    return dict(json.loads(msgspec.json.encode(replica.models["talker"].info)))


@pytest.mark.parametrize("facts", [{"digest": "sha256:" + "1" * 64}, {"kind": "another way to compute"}])
def test_a_replica_of_another_file_or_another_arithmetic_is_told_so_and_never_chosen(
    two: Fleets, facts: dict[str, str]
) -> None:
    stranger = Stranger(two, **facts)
    reply = stranger.report(info_of(two))
    assert "another" in reply["refused"]["talker"]
    for _ in range(4):
        stranger.report(info_of(two))
        assert ask(two.port, "POST", CHAT, {"messages": WORDS, "max_tokens": 3})[0] == 200
    assert stranger.asked == 0
    stranger.leave()


def test_an_answer_that_is_lost_too_often_ends_with_an_honest_error(two: Fleets) -> None:
    strangers = [Stranger(two) for _ in range(REPLAYS + 2)]
    like = info_of(two)
    for stranger in strangers:
        assert stranger.report(like)["refused"] == {}
    status, _, body = ask(two.port, "POST", CHAT, {"messages": WORDS, "max_tokens": 3})
    assert (status, body["error"]["message"][:32]) == (500, "the answer was lost with its rep")
    assert sum(stranger.asked for stranger in strangers) == REPLAYS + 1
    for stranger in strangers:
        stranger.leave()
    assert ask(two.port, "POST", CHAT, {"messages": WORDS, "max_tokens": 3})[0] == 200


def test_an_answer_that_every_lost_replica_brings_further_goes_on_to_its_end(two: Fleets) -> None:
    strangers = [Stranger(two) for _ in range(REPLAYS + 2)]
    like = info_of(two)
    for number, stranger in enumerate(strangers):
        lines = b'["start",5,0,0]\n' + b'["text","<%d>",[7]]\n' % number
        stranger.reply = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + lines
        assert stranger.report(like)["refused"] == {}
    asked = {"messages": WORDS, "max_tokens": 9, "logit_bias": ENDLESS}
    status, _, body = ask(two.port, "POST", CHAT, asked)
    assert status == 200, body
    assert [stranger.asked for stranger in strangers] == [1] * len(strangers)
    text = body["choices"][0]["message"]["content"]
    assert sorted(text[: 3 * len(strangers)]) == sorted("".join(f"<{number}>" for number in range(len(strangers))))
    assert body["usage"]["completion_tokens"] == 9
    for stranger in strangers:
        stranger.leave()


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b'["text", 7, []]\n', b'["text","\xff",[1]]\n', b'["unknown"]\n', b'["text","a",[99999]]\n']
)
def test_a_replica_that_writes_what_is_no_event_is_left_for_another(
    two: Fleets, undisturbed: dict[str, list[Any]], line: bytes
) -> None:
    stranger = Stranger(two)
    stranger.reply = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\n\r\n" + line
    stranger.report(info_of(two))
    assert frames(two.port, "greedy") == undisturbed["greedy"]
    assert stranger.asked == 1
    stranger.leave()


def test_without_replicas_a_gateway_knows_no_model_and_says_so(alone: Fleets) -> None:
    assert ask(alone.port, "GET", "/v1/models")[2]["data"] == []
    status, _, body = ask(alone.port, "POST", CHAT, {"model": "talker", "messages": WORDS})
    assert status == 404
    assert "talker" in body["error"]["message"]
