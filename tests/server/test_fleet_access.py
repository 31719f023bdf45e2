"""Who may use the routes of a fleet: a member, by the secret; without one a process of this machine, but no page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.server.background import Background
from tests.server.raw import Raw, ask, status
from woolly.cli.gate import call as gateway
from woolly.config import Settings, read_config
from woolly.errors import RequestError
from woolly.fleet.gateway import build_gateway
from woolly.fleet.membership import check_join
from woolly.fleet.replica import build_replica

KEY, SECRET = "a-key-of-thirty-two-characters-x", "a secret of the fleet, long enough"
KEYS = (hashlib.sha256(KEY.encode()).digest(),)
REPORT = {"id": "0" * 16, "url": "http://127.0.0.1:9", "version": "1", "number": 1}
WORK = {"model": "m", "digest": "sha256:" + "0" * 64, "kind": "k", "ids": "", "max_tokens": 1, "sampling": {}}
TEXT = {"model": "m", "digest": "sha256:" + "0" * 64, "kind": "k", "ids": "", "lora": []}
ROUTES: dict[str, tuple[str, str, Any]] = {
    "join": ("POST", "/woolly/v1/join", REPORT),
    "submit": ("POST", "/woolly/v1/submit", WORK),
    "pool": ("POST", "/woolly/v1/pool", TEXT),
    "header": ("GET", "/woolly/v1/header?model=m", None),
}
REFUSED = (401, 403)
Answers = Callable[..., int]


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Answers]:
    """The status of a request to a route of a gateway, or of a replica, with these settings."""
    with ExitStack() as stack:
        ports: dict[Any, int] = {}

        def begin(route: str, headers: dict[str, str], **settings: Any) -> int:
            build = build_gateway if route == "join" else build_replica
            where = build, *settings.items()
            if where not in ports:
                config = read_config({"HOME": str(tmp_path), "WOOLLY_MODELS_DIR": str(tmp_path)})
                app = build(Settings(ports=(0,), log_level="error", **settings), config)
                ports[where] = stack.enter_context(Background(app)).port
            method, path, body = ROUTES[route]
            return ask(ports[where], method, path, body, headers)[0]

        yield begin


PAGES = ("http://localhost:3000", "http://127.0.0.1", "app://ole", "null", "https://evil.example")


@pytest.mark.parametrize("route", ROUTES)
def test_s30_a_fleet_whose_clients_need_a_key_has_no_member_without_the_secret(answers: Answers, route: str) -> None:
    for headers in ({}, {"X-API-Key": KEY}, {"Authorization": f"Bearer {KEY}"}, {"X-Woolly-Fleet": ""}):
        assert answers(route, headers, keys=KEYS, anonymous=False) == 401
        assert answers(route, headers, keys=KEYS, anonymous=True) == 401
        assert answers(route, headers, keys=KEYS, anonymous=False, fleet_key=SECRET) == 401
    for sent in (SECRET[:-1], SECRET + "x", SECRET.upper(), "ä", KEY):
        assert answers(route, {"X-Woolly-Fleet": sent}, keys=KEYS, anonymous=False, fleet_key=SECRET) == 401
        assert answers(route, {"X-Woolly-Fleet": sent}, fleet_key=SECRET) == 401
    assert answers(route, {"X-Woolly-Fleet": SECRET}, keys=KEYS, anonymous=False, fleet_key=SECRET) not in REFUSED


@pytest.mark.parametrize("route", ROUTES)
def test_s30_without_a_secret_processes_of_this_machine_are_members_and_pages_are_not(
    answers: Answers, route: str
) -> None:
    assert answers(route, {}) not in REFUSED
    for page in PAGES:
        assert answers(route, {"Origin": page}) in REFUSED
    for address in ("10.0.0.7", "10.0.0.7, 10.0.0.7"):
        assert answers(route, {"X-Forwarded-For": address}) not in REFUSED  # a name that anybody can write
        assert answers(route, {"X-Forwarded-For": address}, proxies=("127.0.0.1",)) == 401
        assert answers(route, {"X-Forwarded-For": f"127.0.0.1, {address}"}, proxies=("127.0.0.1",)) == 401


def test_s30_a_stranger_is_refused_before_its_body_has_come(tmp_path: Path) -> None:
    config = read_config({"HOME": str(tmp_path), "WOOLLY_MODELS_DIR": str(tmp_path)})
    settings = Settings(ports=(0,), log_level="error", fleet_key=SECRET)
    for build, path in ((build_gateway, "join"), (build_replica, "submit")):
        with Background(build(settings, config)) as background:
            lines = f"POST /woolly/v1/{path} HTTP/1.1", "Host: localhost", "Content-Length: 1000000", "", ""
            raw = Raw(background.port).send("\r\n".join(lines).encode())
            assert status(raw.read()) == 401
            raw.close()


def test_s30_neither_gateway_nor_replica_begins_with_a_key_and_without_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import argparse

    from woolly.cli.gate import arguments

    monkeypatch.setenv("WOOLLY_API_KEY", KEY)
    monkeypatch.setenv("HOME", str(tmp_path))
    parser = argparse.ArgumentParser()
    arguments(parser)
    with pytest.raises(RequestError, match="set WOOLLY_FLEET_KEY"):
        gateway(parser.parse_args(["--port", "0"]))
    joining = Settings(join=("http://127.0.0.1:1",), preload=("m",), keys=KEYS)
    with pytest.raises(RequestError, match="set WOOLLY_FLEET_KEY"):
        check_join(joining)
    check_join(Settings(join=joining.join, preload=joining.preload))
    check_join(Settings(join=joining.join, preload=joining.preload, keys=KEYS, fleet_key=SECRET))
