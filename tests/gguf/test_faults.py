"""F07: reads that are interrupted, short, or fail. A shim before the C library counts calls and spoils the n-th."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import tiny
from woolly import gguf
from woolly.errors import BusyError, FileError, WoollyError

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>
static int left = -1, kind = 0, error = 0;       // calls until the spoiled one; which; 0 shortens a read to 3 bytes
void spoil(int k, int n, int e) { kind = k; left = n; error = e; }
int untouched(void) { return left >= 0; }
static int now(int k) { return k == kind && left >= 0 && left-- == 0; }
ssize_t read(int fd, void* p, size_t n) {
    static ssize_t (*real)(int, void*, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "read");
    if (now(1)) {
        if (error) return errno = error, -1;
        n = n < 3 ? n : 3;
    }
    return real(fd, p, n);
}
#define MAP(name)                                                                   \
void* name(void* a, size_t n, int p, int f, int fd, off_t o) {                      \
    static void* (*real)(void*, size_t, int, int, int, off_t);                      \
    if (!real) real = dlsym(RTLD_NEXT, #name);                                      \
    if (fd >= 0 && now(2)) return errno = error, MAP_FAILED;                        \
    return real(a, n, p, f, fd, o);                                                 \
}
MAP(mmap) MAP(mmap64)
int open64(const char* path, int flags, int mode) {
    static int (*real)(const char*, int, int);
    if (!real) real = dlsym(RTLD_NEXT, "open64");
    if (now(3)) return errno = error, -1;
    return real(path, flags, mode);
}
int open(const char* path, int flags, int mode) { return open64(path, flags, mode); }
"""
CHILD = """
import ctypes, errno, sys
from pathlib import Path
from woolly import gguf
from woolly.errors import BusyError, FileError
path, shim = Path(sys.argv[1]), ctypes.CDLL(sys.argv[2])
with gguf.open(path) as file:
    right = {name: bytes(file.data(name)) for name in file.tensors}
for kind, error in (
    (1, errno.EIO), (1, errno.EINTR), (1, 0), (2, errno.ENOMEM), (2, errno.EIO), (3, errno.EINTR), (3, errno.EMFILE)
):
    for n in range(20):
        shim.spoil(kind, n, error)
        try:
            with gguf.open(path) as file:
                became = "right" if {name: bytes(file.data(name)) for name in file.tensors} == right else "WRONG"
        except (FileError, BusyError) as refused:
            became = f"refused: {refused}"
        touched = not shim.untouched()
        shim.spoil(0, -1, 0)
        if not touched:
            break
        print(kind, errno.errorcode.get(error, "short"), n, became)
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
def test_f07_the_nth_call_that_fails_is_retried_or_refused_and_never_wrong(tmp_path: Path) -> None:
    source, shim = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    path = tiny(tmp_path / "model.gguf", parts=2)
    preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD", ""), str(shim)]))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(shim)],
        env={**os.environ, "LD_PRELOAD": preload}, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    rows = {tuple(line.split(" ", 3)[:3]): line.split(" ", 3)[3] for line in done.stdout.splitlines()}
    assert {kind for kind, _, _ in rows} == {"1", "2", "3"}
    for (_, error, _), became in rows.items():
        if error in ("EINTR", "short"):
            assert became == "right", rows
        else:
            assert became.startswith("refused: model-0000"), rows
            words = ("not enough memory",) if error == "ENOMEM" else ("cannot be read", "cannot be opened")
            assert any(word in became for word in words), rows


def test_f07_signals_while_a_file_is_read_change_nothing(tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", width=256, vocab=2048)
    with gguf.open(path) as file:
        right = bytes(file.parts[0].view)
    signals = []
    before = signal.signal(signal.SIGALRM, lambda *_: signals.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for _ in range(50):
            with gguf.open(path) as file:
                assert bytes(file.parts[0].view) == right
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert signals


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_f07_a_read_that_fails_is_refused_with_its_offset(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny(tmp_path / "model.gguf")

    def fail(*_: object) -> bytes:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "read", fail)
    with pytest.raises(FileError, match="cannot be read") as caught:
        gguf.open(path)
    monkeypatch.undo()
    assert caught.value.offset == 0 and isinstance(caught.value, WoollyError)
    gguf.open(path).close()


def test_f08_a_file_larger_than_the_address_space_is_a_matter_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny(tmp_path / "model.gguf")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "no")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(BusyError, match=r"not enough memory: the file alone takes .* GiB are free") as caught:
        gguf.open(path)
    assert caught.value.code == "not_enough_memory" and caught.value.facts["needed"] == path.stat().st_size
