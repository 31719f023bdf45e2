"""store.hub: the hub tells what a repo has, our downloader brings it; the hub here is a local server."""

from __future__ import annotations

import hashlib
import json
import random
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from tests.store.server import Shop, serving
from woolly.config import Config, read_config
from woolly.errors import DownloadError, NotFoundError, RequestError
from woolly.store import hub, pull, resolve

DATA = b"GGUF" + random.Random(3).randbytes(200_000)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("woolly.store.transfer.BACKOFF_S", 0.001)
    home = str(tmp_path / "home")
    return read_config({"HOME": home, "OLLAMA_MODELS": home, "WOOLLY_MODELS_DIR": str(tmp_path / "models")})


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    with serving(DATA) as shop:
        endpoint = shop.url.rsplit("/", 1)[0]
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield shop


def repo(shop: Shop, files: dict[str, bytes], **facts: Any) -> None:
    rows = [
        {"rfilename": name, "size": len(data), "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}}
        for name, data in files.items()
    ]
    page = {"id": "org/Tiny-GGUF", "sha": "c" * 40, "siblings": [row | facts for row in rows]}
    shop.pages["/api/models/org/Tiny-GGUF"] = json.dumps(page).encode()


def downloads(shop: Shop) -> list[dict[str, str]]:
    """The requests for files."""
    return [headers for headers in shop.asked if not headers["path"].startswith("/api/")]


def test_a_repo_with_several_types_gives_the_common_one_and_any_by_name(config: Config, shop: Shop) -> None:
    repo(shop, {f"Tiny-{kind}.gguf": DATA for kind in ("Q2_K", "Q4_K_M", "Q8_0")} | {"README.md": b"x"})
    path = resolve("hf:org/Tiny-GGUF", config=config)
    assert path == config.models / "hf/org/Tiny-GGUF/Tiny-Q4_K_M.gguf"
    assert path.read_bytes() == DATA
    (headers,) = downloads(shop)
    assert headers["path"] == f"/org/Tiny-GGUF/resolve/{'c' * 40}/Tiny-Q4_K_M.gguf"
    assert headers["Authorization"] == "Bearer hf_secret"
    assert pull("hf:org/Tiny-GGUF:q8_0", config).path.name == "Tiny-Q8_0.gguf"
    assert pull("hf:org/Tiny-GGUF:Tiny-Q2_K.gguf", config).new
    assert not config.hub.exists(), "the cache of other programs is never written"


def test_what_came_once_is_used_without_the_network(config: Config, shop: Shop) -> None:
    repo(shop, {"Tiny-Q8_0.gguf": DATA})
    assert pull("hf:org/Tiny-GGUF", config).new
    shop.pages.clear()
    asked = len(shop.asked)
    assert not pull("hf:org/Tiny-GGUF", config).new
    assert resolve("tiny-q8_0", config=config) == resolve("hf:org/tiny-gguf:Q8_0", config=config)
    assert len(shop.asked) == asked


def test_a_set_comes_as_a_whole_its_first_part_last(config: Config, shop: Shop) -> None:
    repo(shop, {f"Q4_K_M/Tiny-Q4_K_M-0000{i}-of-00003.gguf": DATA for i in (1, 2, 3)})
    seen: list[tuple[int, int]] = []
    path = resolve("hf:org/Tiny-GGUF:Q4_K_M", config=config, progress=lambda *bytes_: seen.append(bytes_))
    assert path.name == "Tiny-Q4_K_M-00001-of-00003.gguf"
    assert [headers["path"][-19:-14] for headers in downloads(shop)] == ["00003", "00002", "00001"]
    assert seen[-1] == (3 * len(DATA), 3 * len(DATA)) and seen == sorted(seen)


def test_a_set_with_a_missing_part_is_refused_before_anything_is_downloaded(config: Config, shop: Shop) -> None:
    repo(shop, {f"Tiny-Q4_K_M-0000{i}-of-00003.gguf": DATA for i in (1, 3)})
    with pytest.raises(NotFoundError, match="00002-of-00003"):
        resolve("hf:org/Tiny-GGUF", config=config)
    assert downloads(shop) == []


def test_s11_bytes_of_another_digest_are_refused(config: Config, shop: Shop) -> None:
    repo(shop, {"Tiny-Q8_0.gguf": b"GGUF" + bytes(len(DATA) - 4)})
    with pytest.raises(DownloadError, match="SHA-256"):
        resolve("hf:org/Tiny-GGUF", config=config)
    assert list(config.models.rglob("*.gguf")) == []


@pytest.mark.parametrize("name", ["../../evil.gguf", "/etc/evil.gguf", "a/../b.gguf", ".hidden.gguf", "a\x1b[2J.gguf"])
def test_s10_a_file_with_a_hostile_name_is_not_offered(config: Config, shop: Shop, name: str) -> None:
    repo(shop, {name: DATA})
    with pytest.raises(NotFoundError, match="no GGUF file"):
        resolve("hf:org/Tiny-GGUF", config=config)


def test_a_type_that_is_not_there_is_answered_with_what_is(config: Config, shop: Shop) -> None:
    repo(shop, {"Tiny-Q8_0.gguf": DATA, "Tiny-Q2_K.gguf": DATA})
    with pytest.raises(NotFoundError, match=r"it has Tiny-Q8_0\.gguf, Tiny-Q2_K\.gguf"):
        resolve("hf:org/Tiny-GGUF:Q5_0", config=config)
    with pytest.raises(RequestError, match="fits 2 files"):
        resolve("hf:org/Tiny-GGUF", config=config)


@pytest.mark.parametrize(
    ("how", "kind", "expected"),
    [
        ("status 404", NotFoundError, "no model 'org/other' on the hub"),
        ("status 401", NotFoundError, "no model 'org/other' on the hub"),
        ("status 403", DownloadError, "agree to its licence"),
        ("status 500", DownloadError, "the hub says 500"),
        ("html", DownloadError, "cannot be understood"),
        ("endless", DownloadError, "more than 4,194,304 bytes"),
    ],
)
def test_f24_an_answer_of_the_hub_that_is_no_list_is_said_in_one_line(
    config: Config, shop: Shop, how: str, kind: type[Exception], expected: str
) -> None:
    shop.how = [how]
    with pytest.raises(kind, match=expected) as caught:
        resolve("hf:org/other", config=config)
    assert "org/other" in str(caught.value)


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"[" * 100_000,
        b"[]",
        b'{"siblings": {}, "sha": "cccccccccccccccccccccccccccccccccccccccc"}',
        b'{"siblings": [], "sha": "../main"}',
        b'{"siblings": [], "sha": 7}',
    ],
)
def test_a_list_that_cannot_be_right_is_refused(config: Config, shop: Shop, page: bytes) -> None:
    shop.pages["/api/models/org/Tiny-GGUF"] = page
    with pytest.raises(DownloadError, match="cannot be understood"):
        resolve("hf:org/Tiny-GGUF", config=config)


@pytest.mark.parametrize(
    "facts", [{"size": "7"}, {"size": 0}, {"size": None}, {"rfilename": 7}, {"rfilename": None}, {"size": True}]
)
def test_a_row_of_the_list_that_cannot_be_right_is_passed_over(
    config: Config, shop: Shop, facts: dict[str, object]
) -> None:
    repo(shop, {"Tiny-Q8_0.gguf": DATA}, **facts)
    with pytest.raises(NotFoundError, match="no GGUF file"):
        resolve("hf:org/Tiny-GGUF", config=config)


def test_without_a_network_it_is_said_within_seconds(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    with pytest.raises(DownloadError, match="cannot be reached") as caught:
        resolve("hf:org/Tiny-GGUF", config=config)
    assert "org/Tiny-GGUF" in caught.value.suggestion


def test_a_python_without_huggingface_hub_is_told_what_to_install(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DownloadError, match="pip install huggingface_hub"):
        resolve("hf:org/Tiny-GGUF", config=config)


@pytest.mark.parametrize("setting", ["WOOLLY_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_nothing_is_asked(config: Config, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    if setting == "WOOLLY_OFFLINE":
        config = read_config({"HOME": "/nowhere", "WOOLLY_OFFLINE": "1"})
    else:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match=setting):
        resolve("hf:org/Tiny-GGUF", config=config)


@pytest.mark.parametrize(
    ("want", "file"),
    [("q4_k", None), ("Q4_K_M", "m-Q4_K_M.gguf"), ("q4_0", "m-Q4_0.gguf"), ("iq4_xs", "m.IQ4_XS.gguf"), ("K_M", "?")],
)
def test_a_type_is_a_whole_word_of_a_name(want: str, file: str | None) -> None:
    files = [
        hub.RepoFile(name, 1, "", "") for name in ("m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q4_0.gguf", "m.IQ4_XS.gguf")
    ]
    choice = hub.choose(files, hub.HubName("o/r", want))
    assert (choice.file if choice else None) == (file if file != "?" else "m-Q4_K_M.gguf")
