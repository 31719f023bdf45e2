"""What members of a fleet report: believed as far as it can be true, and kept as far as there is room."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.server.background import Background
from tests.server.raw import ask
from woolly.config import Settings, read_config
from woolly.fleet.gateway import build_gateway
from woolly.fleet.members import Fleet
from woolly.limits import LIMITS, Limits

FACTS: dict[str, Any] = {
    "name": "talker",
    "digest": "sha256:" + "0" * 64,
    "kind": "k",
    "parts": [{"header": 1, "size": 1}],
    "info": {},
    "context": 1,
    "width": 1,
    "every": False,
    "page": 64,
    "slots": 1,
}
NAMES = itertools.count()


def pages(count: int) -> bytes:
    """The names of so many pages that nobody has reported yet."""
    return b"".join(next(NAMES).to_bytes(8, "big") for _ in range(count))


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@dataclass
class Gateway:
    """A gateway in this process, and the reports that it is sent."""

    fleet: Fleet
    port: int
    numbers: dict[str, int] = field(default_factory=dict)

    def report(
        self, member: int = 0, *, added: bytes = b"", dropped: bytes = b"", all_pages: bool = False, **more: Any
    ) -> int:
        """The status of a report about one model; `more`: how many pages its replica has, and facts about it."""
        id_ = f"{member:016x}"
        self.numbers[id_] = number = self.numbers.get(id_, 0) + 1
        load = {"pages": more.pop("pages", 0)}
        offer = {
            "facts": FACTS | more,
            "load": load,
            "whole": all_pages,
            "added": text(added),
            "dropped": text(dropped),
        }
        body = {"id": id_, "url": "http://127.0.0.1:9", "version": "1", "number": number, "offers": [offer]}
        return ask(self.port, "POST", "/woolly/v1/join", body)[0]

    def report_names(self, names: list[str], member: int = 0) -> int:
        """The status of a report about a model of each of these names."""
        id_ = f"{member:016x}"
        self.numbers[id_] = number = self.numbers.get(id_, 0) + 1
        offers = [{"facts": FACTS | {"name": name}, "load": {}, "whole": True} for name in names]
        body = {"id": id_, "url": "http://127.0.0.1:9", "version": "1", "number": number, "offers": offers}
        return ask(self.port, "POST", "/woolly/v1/join", body)[0]

    def known(self, member: int = 0) -> int:
        return self.fleet.replicas[f"{member:016x}"].known_pages


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    monkeypatch.setattr("woolly.fleet.members.LEASE_S", 1e9)
    fleet = Fleet("")
    settings = Settings(ports=(0,), log_file=tmp_path / "log")  # of headers that nobody is there to be asked for
    with Background(build_gateway(settings, read_config({"HOME": str(tmp_path)}), fleet)) as background:
        yield Gateway(fleet, background.port)


def test_pages_come_and_go_with_the_reports(gateway: Gateway) -> None:
    first, second = pages(30), pages(20)
    assert gateway.report(added=first, pages=60, all_pages=True) == 200
    assert gateway.report(added=second, dropped=first[:80], pages=60) == 200
    assert gateway.known() == 40
    assert gateway.report(added=first, pages=60, all_pages=True) == 200
    assert gateway.known() == 30


def test_s31_a_replica_has_no_more_pages_than_it_has(gateway: Gateway) -> None:
    for _ in range(8):
        assert gateway.report(added=pages(60_000), pages=100) == 200
        assert gateway.known() == 100
    assert gateway.report(added=pages(60_000), pages=100, all_pages=True) == 200
    assert gateway.known() == 100


def test_s31_eight_reports_of_a_member_are_kept_as_far_as_a_replica_has_room(gateway: Gateway) -> None:
    for _ in range(8):
        assert gateway.report(added=pages(60_000), pages=2**53) == 200
    assert gateway.known() == LIMITS.replica_pages
    for model in range(8):
        assert gateway.report(name=f"m{model}", added=pages(60_000), pages=2**53, all_pages=True) == 200
    assert gateway.known() <= LIMITS.replica_pages


def test_s31_many_members_have_one_room(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.fleet.members.LIMITS", Limits(replica_pages=1000, fleet_pages=2500))
    for member in range(5):
        assert gateway.report(member, added=pages(2000), pages=2**53) == 200
    assert [gateway.known(member) for member in range(5)] == [1000, 1000, 500, 0, 0]
    assert gateway.report(0, pages=600, all_pages=True) == 200  # what one lets go, another may have
    assert gateway.report(3, added=pages(2000), pages=2**53) == 200
    assert [gateway.known(member) for member in range(5)] == [0, 1000, 500, 1000, 0]


def test_s31_names_that_nobody_has_any_more_are_forgotten(gateway: Gateway) -> None:
    for turn in range(20):
        assert gateway.report_names([f"m{turn}-{number}" for number in range(64)]) == 200
    assert len(gateway.fleet.versions) == len(gateway.fleet._loading) == 64
    assert gateway.report_names([]) == 200
    assert not gateway.fleet.versions and not gateway.fleet._loading


def test_s31_a_gateway_knows_a_limited_number_of_models(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.fleet.members.LIMITS", Limits(fleet_models=3))
    assert gateway.report_names(["a", "b"], member=0) == 200
    assert gateway.report_names(["b", "c"], member=1) == 200
    assert gateway.report_names(["d"], member=2) == 503
    assert len(gateway.fleet.replicas) == 2 and len(gateway.fleet.versions) == 3
    assert gateway.report_names(["a"], member=0) == 200
    assert gateway.report_names([], member=1) == 200
    assert gateway.report_names(["d"], member=2) == 200


@pytest.mark.parametrize(
    "facts",
    [
        {"info": {"x": [0] * 1000}},
        {"info": {"x": {"y": 1}}},
        {"info": {"x": "y" * 1000}},
        {"info": {str(number): 1 for number in range(100)}},
        {"adapters": [{"name": "a", "digest": text(bytes(1000)), "file": "f", "scale": 1.0}]},
        {"adapters": [{"name": "a", "digest": "", "file": "f", "scale": 1.0}] * 65},
        {"names": ["n"] * 65},
        {"parts": [{"header": 1, "size": 1}] * 1001},
        {"more": 1},
    ],
)
def test_s31_facts_that_are_no_facts_of_a_model_are_refused(gateway: Gateway, facts: dict[str, Any]) -> None:
    assert gateway.report(**facts) == 400
    assert not gateway.fleet.replicas
    assert gateway.report() == 200


def test_a_report_that_cannot_be_read_is_refused(gateway: Gateway) -> None:
    assert gateway.report(added=b"1234567") == 400
    assert gateway.report(dropped=b"1234567") == 400
