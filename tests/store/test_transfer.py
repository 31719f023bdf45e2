"""store.transfer: whatever the network, the server and the disk do, a file has its name when it is whole and right."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.store.server import Shop, serving
from woolly.errors import BusyError, DownloadError, FileError, NotFoundError
from woolly.io import http
from woolly.io.cancellation import AbandonedError, Cancellation
from woolly.limits import LIMITS, Limits
from woolly.store import transfer
from woolly.store.transfer import Source, download

DATA = b"GGUF" + random.Random(7).randbytes(3_000_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, and no time lost between tries."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(transfer, "BACKOFF_S", 0.001)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def bring(shop: Shop, models: Path, *, sha256: str = SHA256, nbytes: int | None = len(DATA)) -> Path:
    return download(Source(shop.url, nbytes, sha256), models / "model.gguf", models=models)


def begun(models: Path) -> list[Path]:
    """The unfinished downloads."""
    return list(models.glob(".pull-*/data"))


def test_a_file_arrives_whole_private_and_alone(models: Path) -> None:
    seen: list[tuple[int, int]] = []
    with serving(DATA) as shop:
        path = download(
            Source(shop.url, len(DATA), SHA256),
            models / "a/model.gguf",
            models=models,
            progress=lambda done, total: seen.append((done, total)),
        )
    assert path.read_bytes() == DATA
    assert [p.name for p in models.rglob("*")] == ["a", "model.gguf"]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert seen[-1] == (len(DATA), len(DATA)) and seen == sorted(seen)


def test_what_is_there_already_is_not_asked_for(models: Path) -> None:
    with serving(DATA) as shop:
        bring(shop, models)
        bring(shop, models)
        assert len(shop.asked) == 1


@pytest.mark.parametrize("sha256", [SHA256, ""])
def test_f23_a_connection_that_is_cut_is_resumed_where_it_broke(models: Path, sha256: str) -> None:
    with serving(DATA, "cut", "cut", "well") as shop:
        path = bring(shop, models, sha256=sha256, nbytes=None)
        assert [headers.get("Range", "") for headers in shop.asked] == [
            "",
            f"bytes={len(DATA) // 2}-",
            f"bytes={(len(DATA) // 2 + len(DATA)) // 2}-",
        ]
        assert shop.asked[1]["If-Range"] == shop.etag
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256


@pytest.mark.parametrize("how", ["stall 10000", "status 503"])
def test_l20_a_download_that_nobody_waits_for_ends_and_the_next_goes_on(
    models: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("woolly.store.web.LIMITS", Limits(stall_s=10_000.0))
    monkeypatch.setattr(transfer, "BACKOFF_S", 10_000.0)
    monkeypatch.setattr(transfer, "BACKOFF_MOST_S", 10_000.0)
    cancellation = Cancellation()
    with serving(DATA, how) as shop:
        timer = threading.Timer(0.2, cancellation.cancel)
        timer.start()
        with pytest.raises(AbandonedError):
            cancellation.run(lambda: bring(shop, models))
        shop.how = ["well"]
        assert bring(shop, models).read_bytes() == DATA
    assert len(shop.asked) == 2


def test_f23_a_server_that_stalls_is_left_and_asked_again(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.store.web.LIMITS", Limits(stall_s=1.0))
    with serving(DATA, "stall 5", "well") as shop:
        assert bring(shop, models).read_bytes() == DATA
        assert "Range" in shop.asked[-1]


@pytest.mark.parametrize(
    "how",
    [
        ("status 500", "status 503", "status 429", "well"),
        ("cut", "status 416", "well"),
        ("cut", "wrong-range", "well"),
        ("cut", "ignore-range"),
        ("html", "well"),
        ("redirect SELF/elsewhere.gguf", "well"),
        ("cut", "redirect SELF/elsewhere.gguf", "well"),
    ],
)
def test_f23_a_bad_moment_of_the_server_is_survived(models: Path, how: tuple[str, ...]) -> None:
    with serving(DATA, *how) as shop:
        assert bring(shop, models).read_bytes() == DATA


@pytest.mark.parametrize("sha256", [SHA256, ""])
def test_f23_a_file_that_changed_on_the_server_is_begun_anew(models: Path, sha256: str) -> None:
    with serving(DATA[:4] + DATA[:3:-1], "cut", "status 404", "well") as shop:  # another content of the same length
        with pytest.raises(NotFoundError):
            bring(shop, models, sha256=sha256, nbytes=None)
        assert begun(models)
        shop.data, shop.etag = DATA, '"two"'
        assert bring(shop, models, sha256=sha256, nbytes=None).read_bytes() == DATA


def test_what_came_without_a_mark_or_a_digest_is_not_resumed(models: Path) -> None:
    with serving(DATA, "no-etag", "well") as shop:
        shop.how = ["cut", "status 404", "well"]
        shop.etag = ""
        with pytest.raises(NotFoundError):
            bring(shop, models, sha256="")
        assert bring(shop, models, sha256="").read_bytes() == DATA
        assert [("Range" in headers) for headers in shop.asked] == [False, False, False]


def test_a_beginning_that_is_wrong_is_thrown_away_once(models: Path) -> None:
    with serving(DATA, "cut", "status 404", "well") as shop:
        with pytest.raises(NotFoundError):
            bring(shop, models)
        (part,) = begun(models)
        with part.open("r+b") as file:
            file.seek(1000)
            file.write(b"damage")
        assert bring(shop, models).read_bytes() == DATA
        assert "Range" not in shop.asked[-1]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("status 500", "the server says 500"),
        ("status 429", "the server says 429"),
        ("html", "a web page came instead of the file"),
        ("other GGUFwrongbyte", "SHA-256"),
        ("other not a model!!", "no GGUF file"),
        ("longer", "bytes and not"),
        ("endless", "more than the"),
        ("packed", "packed bytes"),
        ("status 403", "HF_TOKEN"),
        ("redirect SELF/again.gguf", "could not be downloaded|the server says 302"),
        ("redirect ftp://127.0.0.1/x.gguf", "not https"),
        ("redirect http://10.0.0.1/x.gguf", "a private address"),
        ("redirect http://[::1]/x.gguf", "a private address"),
        ("redirect http://[::1/x.gguf", "sends on to, is none"),
        (f"redirect https://{'a' * 70}.example/x.gguf", "sends on to, is none"),
    ],
)
def test_f24_a_server_that_does_not_mend_its_ways_is_exit_6_and_leaves_nothing(
    models: Path, how: str, expected: str
) -> None:
    data = b"GGUF" * 65536
    with serving(data, how) as shop:
        with pytest.raises(DownloadError, match=expected) as caught:
            download(Source(shop.url, len(data), SHA256), models / "model.gguf", models=models)
        assert shop.sent < 100 * len(data)
    assert str(caught.value).isprintable()
    assert list(models.iterdir()) == []


def test_f24_a_redirect_that_does_not_end_is_followed_unread(models: Path) -> None:
    with serving(DATA, "flood-redirect SELF/elsewhere.gguf", "well") as shop:
        assert bring(shop, models).read_bytes() == DATA
        assert shop.sent < 10 * len(DATA)


def test_f24_redirects_are_followed_five_times(models: Path) -> None:
    ways = [f"redirect SELF/{number}.gguf" for number in range(LIMITS.redirects + 1)]
    with serving(DATA, *ways[1:], "well") as shop:
        assert bring(shop, models).read_bytes() == DATA
    with serving(DATA, *ways, "well") as shop, pytest.raises(DownloadError, match="says 302"):
        bring(shop, models / "other")


def test_f24_a_file_without_a_length_is_taken_only_where_one_was_told(models: Path) -> None:
    with serving(DATA, "no-length") as shop:
        with pytest.raises(DownloadError, match="how long"):
            bring(shop, models, nbytes=None)
        assert bring(shop, models).read_bytes() == DATA


def test_a_server_that_always_cuts_is_given_up_and_what_came_is_kept(models: Path) -> None:
    data = b"GGUF" * 1000
    with serving(data, "cut") as shop:
        source = Source(shop.url, len(data), hashlib.sha256(data).hexdigest())
        with pytest.raises(DownloadError, match="what came is kept"):
            download(source, models / "m.gguf", models=models)
        assert len(shop.asked) == LIMITS.tries
        shop.how = ["well"]
        assert download(source, models / "m.gguf", models=models).read_bytes() == data
        assert "Range" in shop.asked[-1]


def test_f23_a_host_that_is_not_there_is_said_in_one_line(models: Path) -> None:
    with serving(b"") as shop:
        url = shop.url
    with pytest.raises(DownloadError, match=r"[Rr]efused"):
        download(Source(url), models / "m.gguf", models=models)


def test_s09_a_token_does_not_go_to_another_host(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.io.http._is_public", lambda host: True)
    with serving(DATA) as other, serving(DATA, f"redirect {other.url}") as shop:
        source = Source(shop.url, len(DATA), SHA256, {"Authorization": "Bearer secret"})
        download(source, models / "model.gguf", models=models)
        assert shop.asked[0]["Authorization"] == "Bearer secret"
        assert "Authorization" not in other.asked[0]


class Names:
    """What names mean, to whoever looks them up for the first, the second ... time; and which addresses were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **meanings: list[str]) -> None:
        self.meanings = {name.replace("_", "."): iter(addresses) for name, addresses in meanings.items()}
        self.connected: list[str] = []
        self._look_up, self._connect = socket.getaddrinfo, http.connected
        monkeypatch.setattr(socket, "getaddrinfo", self.look_up)
        monkeypatch.setattr(http, "connected", self.connect)

    def look_up(self, host: Any, port: Any, *args: Any, **named: Any) -> Any:
        return self._look_up(next(self.meanings[host]) if host in self.meanings else host, port, *args, **named)

    def connect(self, family: int, address: tuple[Any, ...], timeout: float) -> socket.socket:
        self.connected.append(address[0])
        if not address[0].startswith("127."):
            raise OSError("nobody is there")
        return self._connect(family, address, timeout)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_s33_a_redirect_leads_to_the_address_that_was_checked_and_not_to_what_its_name_means_a_moment_later(
    models: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    with serving(DATA) as inside:
        names = Names(monkeypatch, rebinding_example=["93.184.216.34", *["127.0.0.1"] * 20])
        how = f"redirect {scheme}://rebinding.example:{inside.server_port}/model.gguf"
        with serving(DATA, how) as shop, pytest.raises(DownloadError):
            bring(shop, models)
        assert inside.asked == []
    assert names.connected[1] == "93.184.216.34"
    assert set(names.connected[2:]) <= {"127.0.0.1"}  # to the first server again, which sends on anew


@pytest.mark.parametrize(
    "place",
    [
        "%6c%6f%63%61lhost:PORT",  # opened by urllib, but by nobody who looks at the name before
        "localhost%2f:PORT",
        "public.example@localhost:PORT",
        "localhost\\@public.example:PORT",
        "2130706433:PORT",
        "0x7f.1:PORT",
        "0:PORT",
        "[::ffff:127.0.0.1]:PORT",
        "localhost:PORT",
        "inner.example:PORT",
    ],
)
def test_s33_no_way_to_write_a_host_leads_into_this_machine(
    models: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with serving(DATA) as inside:
        Names(monkeypatch, public_example=["93.184.216.34"] * 20, inner_example=["127.0.0.1"] * 20)
        how = f"redirect http://{place.replace('PORT', str(inside.server_port))}/model.gguf"
        with serving(DATA, how) as shop, pytest.raises(DownloadError):
            bring(shop, models)
        assert inside.asked == []


def test_s33_behind_a_proxy_a_redirect_goes_through_it_and_not_into_this_network(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    Names(monkeypatch, public_example=["93.184.216.34"] * 9, inner_example=["10.0.0.1"] * 9)
    for place, arrives in (("public.example", True), ("inner.example", False), ("127.0.0.1:9", False)):
        with serving(DATA, f"redirect http://{place}/model.gguf", "well") as proxy:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
            source, target = Source("http://origin.example/model.gguf", len(DATA), SHA256), models / f"{arrives}.gguf"
            if arrives:
                download(source, target, models=models)
                assert target.read_bytes() == DATA
            else:
                with pytest.raises(DownloadError, match="a private address"):
                    download(source, target, models=models)
            paths = ["http://origin.example/model.gguf", f"http://{place}/model.gguf"]
            assert [asked["path"] for asked in proxy.asked] == paths[: 1 + arrives]


def test_a_token_is_neither_shown_nor_kept(models: Path) -> None:
    with serving(DATA, "cut", "status 403") as shop:
        source = Source(shop.url + "?sig=hidden", len(DATA), SHA256, {"Authorization": "Bearer secret"})
        with pytest.raises(DownloadError) as caught:
            download(source, models / "model.gguf", models=models)
    assert "hidden" not in str(caught.value) and "secret" not in repr(source)
    assert b"secret" not in b"".join(p.read_bytes() for p in models.rglob("*") if p.is_file() and p.name != "data")


def test_f05_a_disk_that_is_full_at_any_write_is_exit_8_and_the_next_try_goes_on(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = io.FileIO.write
    room = 0

    class Full(io.FileIO):
        def write(self, data: object) -> int:  # type: ignore[override]
            nonlocal room
            if room <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            count = real(self, bytes(memoryview(data)[:room]))  # type: ignore[call-overload]
            room -= count
            return count

    def open_full(path: Path, mode: str, opener: object = None, buffering: int = -1) -> object:
        return Full(path, mode.replace("b", ""), opener=opener) if buffering == 0 else open(path, mode, opener=opener)  # type: ignore[arg-type]

    monkeypatch.setattr(transfer, "open", open_full, raising=False)
    with serving(DATA) as shop:
        for _ in range(4):
            room = 700_000
            with pytest.raises(FileError, match="No space left") as caught:
                bring(shop, models)
            assert caught.value.code == "disk_full"
            assert not (models / "model.gguf").exists()
        room = len(DATA)
        assert bring(shop, models).read_bytes() == DATA
        assert [headers.get("Range") for headers in shop.asked] == [
            None,
            *(f"bytes={700_000 * i}-" for i in (1, 2, 3, 4)),
        ]


@pytest.mark.parametrize("name", ["facts", "boot_id"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_f27_what_was_downloaded_is_kept_where_its_description_cannot_be_read_now(
    models: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    if not transfer.BOOT.exists():
        pytest.skip("a download is resumed by its digest alone here")
    real = io.open

    def refuse(path: Path, mode: str = "r", *args: object, **options: object) -> object:
        if Path(path).name == name and "r" in mode:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, mode, *args, **options)  # type: ignore[call-overload]

    sha256 = "" if name == "boot_id" else SHA256
    with serving(DATA, "cut", "status 404", "well") as shop:
        with pytest.raises(NotFoundError):
            bring(shop, models, sha256=sha256)
        (part,) = begun(models)
        before = part.read_bytes()
        with monkeypatch.context() as broken:
            broken.setattr(io, "open", refuse)
            with pytest.raises((FileError, BusyError), match="the models folder"):
                bring(shop, models, sha256=sha256)
        assert part.read_bytes() == before and len(before) > 1_000_000
        assert bring(shop, models, sha256=sha256).read_bytes() == DATA
        assert shop.asked[-1]["Range"] == f"bytes={len(before)}-"


def test_f27_a_lock_that_fails_removes_nothing(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with serving(DATA, "cut", "status 404", "well") as shop:
        with pytest.raises(NotFoundError):
            bring(shop, models)
        before = begun(models)[0].read_bytes()
        with monkeypatch.context() as broken:
            broken.setattr("fcntl.flock", refuse)
            with pytest.raises(FileError, match="Input/output error"):
                bring(shop, models)
        assert begun(models)[0].read_bytes() == before
        assert bring(shop, models).read_bytes() == DATA


def test_f05_a_disk_without_room_is_said_before_the_first_byte(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = transfer.shutil.disk_usage("/")
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda path: usage._replace(free=1234))
    with serving(DATA) as shop, pytest.raises(FileError, match="1,234") as caught:
        bring(shop, models)
    assert caught.value.code == "disk_full"


def test_f04_the_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_end(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        events.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        fsync(handle)

    def note_replace(source: Path, target: Path) -> None:
        events.append(f"name {Path(target).name}")
        replace(source, target)

    if not Path("/proc/self/fd").exists():
        pytest.skip("open files cannot be listed here")
    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    with serving(DATA) as shop:
        bring(shop, models)
    assert events[-3:] == ["sync data", "name model.gguf", "sync models"]


def test_f06_a_folder_that_cannot_be_written_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with serving(DATA) as shop, pytest.raises(FileError) as caught:
        bring(shop, tmp_path / "file/models")
    assert caught.value.code == "disk_error"


def test_f17_two_at_once_download_once(models: Path) -> None:
    with serving(DATA, pause_s=0.005) as shop:
        threads = [threading.Thread(target=bring, args=(shop, models)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(shop.asked) == 1
    assert (models / "model.gguf").read_bytes() == DATA
    assert [path.name for path in models.iterdir()] == ["model.gguf"]


def test_f17_a_folder_that_another_process_removes_while_we_make_it_is_made_again(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders, mkdir = list[str](), os.mkdir

    def removed_by_another(path: Path, *mode: int) -> None:
        folders.append(Path(path).name)
        if len(folders) == 1:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))  # it was there, and is gone now
        mkdir(path, *mode)

    models.mkdir(parents=True, exist_ok=True)
    with serving(DATA) as shop:
        monkeypatch.setattr(os, "mkdir", removed_by_another)
        assert bring(shop, models).read_bytes() == DATA
    assert len(folders) == 2 and folders[0] == folders[1]


def test_f17_where_there_are_no_locks_each_takes_a_folder_of_its_own(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with serving(DATA) as shop:
        assert bring(shop, models).read_bytes() == DATA
    assert [path.name for path in models.iterdir()] == ["model.gguf"]


def test_f18_a_process_that_holds_the_lock_and_does_nothing_is_named(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr("woolly.store.lock.STALLED_S", 0.3)
    with serving(DATA, "cut", "status 404", "well") as shop:
        with pytest.raises(NotFoundError):
            bring(shop, models)
        (part,) = begun(models)
        with (part.parent / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(FileError, match="another process holds"):
                bring(shop, models)
        assert bring(shop, models).read_bytes() == DATA


def test_an_unfinished_download_is_kept_for_a_month(models: Path) -> None:
    with serving(DATA, "cut", "status 404", "well") as shop:
        with pytest.raises(NotFoundError):
            bring(shop, models)
        (part,) = begun(models)
        download(Source(shop.url, len(DATA), SHA256), models / "other.gguf", models=models)
        assert part.exists()
        os.utime(part, (0, 0))
        download(Source(shop.url, len(DATA), SHA256), models / "third.gguf", models=models)
        assert not part.parent.exists()


CHILD = (
    "import sys; from pathlib import Path; from woolly.store.transfer import Source, download\n"
    "url, nbytes, sha256, models = sys.argv[1:]\n"
    "download(Source(url, int(nbytes), sha256), Path(models) / 'model.gguf', models=Path(models))\n"
)


def kill_downloads(models: Path, kills: int, seed: int) -> Shop:
    """Start the download in a process and kill it at a random moment, so many times; then let it finish."""
    chance = random.Random(seed)
    target = models / "model.gguf"
    with serving(DATA, pause_s=0.004) as shop:
        words = [sys.executable, "-c", CHILD, shop.url, str(len(DATA)), SHA256, str(models)]
        while kills:
            asked = len(shop.asked)
            child = subprocess.Popen(words, stderr=subprocess.DEVNULL)
            if chance.random() < 0.9:  # most of them once the download has begun
                while len(shop.asked) == asked and child.poll() is None:
                    time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.08))
            child.send_signal(signal.SIGKILL)
            child.wait()
            kills -= 1
            if target.exists():  # it was quicker than the kill: right, and begun anew
                assert hashlib.sha256(target.read_bytes()).hexdigest() == SHA256
                target.unlink()
        assert subprocess.run(words, check=False).returncode == 0
    assert hashlib.sha256(target.read_bytes()).hexdigest() == SHA256
    assert [path.name for path in models.iterdir()] == ["model.gguf"]
    return shop


def test_f01_a_download_that_is_killed_twenty_times_resumes_and_is_right(models: Path) -> None:
    shop = kill_downloads(models, 20, seed=1)
    resumed = [headers for headers in shop.asked if "Range" in headers]
    assert len(resumed) >= 3, "most of these downloads go on where one was killed"


@pytest.mark.soak
def test_f01_a_download_that_is_killed_two_hundred_times_resumes_and_is_right(models: Path) -> None:
    shop = kill_downloads(models, 200, seed=2)
    assert sum("Range" in headers for headers in shop.asked) >= 30
