"""A zoo of broken files: each is refused with one line that names the reason, and with no other exception."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import socket
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gguf.forge import ARR, BOOL, GOOD, STR, U32, U32_7, U64, entry, forge, pair, text
from woolly import gguf
from woolly.errors import BusyError, FileError, NotFoundError, UnsupportedError, WoollyError
from woolly.limits import LIMITS

MAX = 2**64 - 1
DATA = bytes(4096)


def array(kind: int, count: int, rest: bytes = b"") -> bytes:
    return pair("k", ARR, struct.pack("<IQ", kind, count) + rest)


def number(key: str, value: int) -> bytes:
    return pair(key, U32, struct.pack("<I", value))


# What is wrong, the bytes, and words of the refusal.
ZOO = {
    "three bytes": (b"GGU", "too short"),
    "a web page": (b"<!DOCTYPE html><html>404</html>", "HTML page"),
    "an error text": (b'{"error":"no"}', "JSON"),
    "a zip": (b"PK\x03\x04" + DATA, "zip .* get a GGUF file"),
    "a pickle": (b"\x80\x02}q\x00.", "pickle.* get a GGUF file"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
    "safetensors": (
        struct.pack("<Q", 60) + b'{"w":{}}' + DATA,
        "safetensors file; get a GGUF file .* convert_hf_to_gguf",
    ),
    "a GGJT file": (b"tjgg" + DATA, "GGJT"),
    "zeros": (DATA, "zeros"),
    "other bytes": (b"\x7fELF" + DATA, "magic is missing"),
    "too many pairs": (forge(pair_count=2**60), "metadata entries is .* over the limit"),
    "pairs that do not fit": (forge(pair_count=9), "bytes left hold at most 0"),
    "too many tensors": (forge(tensor_count=MAX), "tensors is .* over the limit"),
    "tensors that do not fit": (forge(tensor_count=40), "bytes left hold at most 0"),
    "one tensor too few": (forge((), (entry("a"), entry("b", offset=32)), DATA, tensor_count=1), "not zero"),
    "a key past the end": (forge((text(b"", 50) + bytes(20),)), "key 0 needs 50 bytes"),
    "a key of 2^64 - 1 bytes": (forge((text(b"", MAX) + bytes(20),)), "the file ends after 20"),
    "an empty key": (forge((pair("", U32, U32_7),)), "key 0 is empty"),
    "a key with an escape": (forge((pair("a\x1b[2J\n", U32, U32_7),)), r"'a\\x1b\[2J\\n' is not printable"),
    "a key that is not ASCII": (forge((pair(b"a\xff", U32, U32_7),)), "not printable ASCII"),
    "a long key": (forge((pair("k" * 65536, U32, U32_7),)), "over the limit of 65,535"),
    "a duplicate key": (forge((pair("k", U32, U32_7), pair("k", U32, U32_7))), "duplicate key 'k'"),
    "an unknown value type": (forge((pair("k", 13, bytes(8)),)), "unknown value type 13"),
    "a boolean of 2": (forge((pair("k", BOOL, b"\2"),)), "boolean is 2"),
    "a text past the end": (forge((pair("k", STR, text("abc", 2**40)),)), "the text needs"),
    "a text that is not UTF-8": (forge((pair("k", STR, text(b"a\xff")),)), "not UTF-8: .* byte 1"),
    "a text over the limit": (forge((pair("k", STR, text(bytes(LIMITS.string + 1))),)), "over the limit of 16,777,216"),
    "an array of arrays": (forge((array(ARR, 1, struct.pack("<IQ", U32, 0)),)), "array of arrays"),
    "an unknown element type": (forge((array(99, 2**60),)), "unknown element type 99"),
    "numbers past the end": (forge((array(U32, 3, bytes(8)),)), "bytes left hold at most 2"),
    "numbers whose size wraps": (forge((array(U32, 2**62 + 1, bytes(8)),)), "over the limit"),
    "texts past the end": (forge((array(STR, 2, text("ab") + text("cd", 3)),)), "string 1 of 2 needs 3 bytes"),
    "texts whose lengths are cut": (
        forge((array(STR, 2, text("abcdefghij") + b"\1"),)),
        "length of string 1 of 2 needs 8",
    ),
    "texts of 2^63 bytes": (forge((array(STR, 1, text("ab", 2**63)),)), "string 0 of 1 needs"),
    "a long token": (forge((array(STR, 1, text(bytes(65536))),)), "string 0 of 1 has 65,536 bytes"),
    "alignment 0": (forge((number("general.alignment", 0),)), "alignment is 0"),
    "alignment 4": (forge((number("general.alignment", 4),)), "alignment is 4"),
    "alignment 24": (forge((number("general.alignment", 24),)), "alignment is 24"),
    "alignment 2^20": (forge((number("general.alignment", 1 << 20),)), "alignment is 1048576"),
    "alignment as text": (forge((pair("general.alignment", STR, text("32")),)), "wrong type"),
    "alignment as array": (forge((pair("general.alignment", ARR, struct.pack("<IQ", U32, 0)),)), "wrong type"),
    "a name of 64 bytes": (forge((), (entry("n" * 64),), DATA), "64 bytes, over the limit of 63"),
    "an empty name": (forge((), (entry(""),), DATA), "name of tensor 0 is empty"),
    "a name with NUL": (forge((), (entry("a\0"),), DATA), "not printable"),
    "no dimension": (forge((), (entry(dims=()),), DATA), "0 dimensions"),
    "five dimensions": (forge((), (entry(dims=(8, 1, 1, 1, 1)),), DATA), "5 dimensions"),
    "2^32 - 1 dimensions": (forge((), (entry(count=2**32 - 1),), DATA), "4,294,967,295 dimensions"),
    "a dimension of 0": (forge((), (entry(dims=(0, 8)),), DATA), "dimension is 0"),
    "dimensions whose product wraps": (forge((), (entry(dims=(2**32, 2**32)),), DATA), "the file has"),
    "bytes that wrap": (forge((), (entry(dims=(2**62 + 16,)),), DATA), "the file has"),
    "part of a block": (forge((), (entry(dims=(33, 2), kind=2),), DATA), "row of 33 .* block of 32"),
    "part of a super-block": (forge((), (entry(dims=(64, 2), kind=14),), DATA), "row of 64 .* block of 256"),
    "data past the end": (forge((), (entry(dims=(1025,)),), DATA), "ends at byte 4,164 but the file has 4,160"),
    "an offset past the end": (forge((), (entry(offset=4096),), DATA), "ends at byte"),
    "an offset that wraps": (forge((), (entry(offset=2**64 - 32),), DATA), "ends at byte"),
    "an offset of 16": (forge((), (entry(offset=16),), DATA), "not a multiple of the alignment 32"),
    "two tensors on one place": (forge((), (entry("a"), entry("b")), DATA), "'a' and 'b' overlap"),
    "tensors that overlap": (forge((), (entry("a", (9,)), entry("b", offset=32)), DATA), "'a' and 'b' overlap"),
    "a duplicate tensor": (forge((), (entry("a"), entry("a", offset=32)), DATA), "duplicate tensor 'a'"),
}
UNSUPPORTED = {
    "version 1": (forge(version=1), "version 1 "),
    "version 0": (forge(version=0), "version 0 "),
    "version 4": (forge(version=4), "version 4 "),
    "a big-endian file": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "another tensor type": (forge((), (entry("w", (256,), 15),), DATA), r"tensor 'w' has type 15 \(Q8_K\)"),
    "a removed tensor type": (forge((), (entry("w", (256,), 4),), DATA), "tensor 'w' has type 4"),
}


def refused(path: Path, kind: type[WoollyError], words: str) -> WoollyError:
    with pytest.raises(kind, match=words) as caught:
        gguf.open(path)
    assert "\n" not in str(caught.value) and str(caught.value).isprintable()
    assert str(caught.value).startswith(path.name)
    return caught.value


@pytest.mark.parametrize("wrong", ZOO)
def test_a_broken_file_is_refused_with_its_reason(wrong: str, tmp_path: Path):
    raw, words = ZOO[wrong]
    path = tmp_path / "broken.gguf"
    path.write_bytes(raw)
    refused(path, FileError, words)


@pytest.mark.parametrize("wrong", UNSUPPORTED)
def test_a_right_file_that_is_not_supported_is_refused_by_name(wrong: str, tmp_path: Path):
    raw, words = UNSUPPORTED[wrong]
    path = tmp_path / "other.gguf"
    path.write_bytes(raw)
    refused(path, UnsupportedError, words)


def test_a_file_cut_at_any_byte_is_refused_with_its_offset(tmp_path: Path):
    meta = {
        "general.architecture": "llama", "a.count": 7, "a.factor": 0.5, "a.flag": True, "a.wide": 2**40,
        "a.texts": ["one", "two", ""], "a.numbers": np.arange(5, dtype=np.int32), "a.flags": np.array([True, False]),
    }  # fmt: skip
    tensors = {"first.weight": ("Q8_0", (2, 3, 32), bytes(204)), "last.weight": ("F32", (5,), bytes(20))}
    path = gguf.write(tmp_path / "whole.gguf", meta, tensors)
    with gguf.open(path) as file:
        end = file.tensors["last.weight"].offset + 20
    for size in range(end - 1, 3, -1):
        os.truncate(path, size)
        error = refused(path, FileError, "file (ends|is cut|has)")
        assert 0 < error.facts["offset"] <= end


def test_only_the_padding_after_the_last_tensor_may_be_missing(tmp_path: Path):
    data = bytes(range(20))
    path = gguf.write(tmp_path / "a.gguf", {}, {"t": ("F32", (5,), data)})
    path.write_bytes(path.read_bytes()[:-12])
    with gguf.open(path) as file:
        assert bytes(file.data("t")) == data
    path.write_bytes(path.read_bytes()[:-1])
    assert refused(path, FileError, "ends at byte").facts["tensor"] == "t"


@pytest.mark.parametrize(
    ("dims", "shape"),
    [((8, 1, 1, 1), (1, 8)), ((4, 2, 1), (2, 4)), ((2, 2, 2), (2, 2, 2)), ((1, 8), (8, 1)), ((8,), (8,))],
)
def test_odd_but_right_shapes_are_read(dims: tuple[int, ...], shape: tuple[int, ...], tmp_path: Path):
    path = tmp_path / "right.gguf"
    path.write_bytes(forge((), (entry(dims=dims),), bytes(range(32)) + b"unused"))
    with gguf.open(path) as file:
        assert file.tensors["t"].shape == shape and bytes(file.data("t")) == bytes(range(32))


def test_gaps_and_another_order_of_the_tensors_are_read(tmp_path: Path):
    path = tmp_path / "right.gguf"
    path.write_bytes(forge((), (entry("b", offset=128), entry("a")), bytes(128) + b"\1" * 32))
    with gguf.open(path) as file:
        assert list(file.tensors) == ["b", "a"] and bytes(file.data("b")) == b"\1" * 32
        assert file.parts[0].unused == 96


@pytest.mark.parametrize("alignment", [8, 64, 65536])
def test_every_legal_alignment_is_read(alignment: int, tmp_path: Path):
    path = gguf.write(
        tmp_path / "a.gguf",
        {"general.alignment": alignment},
        {"a": ("F32", (1,), b"abcd"), "b": ("F32", (1,), b"efgh")},
    )
    with gguf.open(path) as file:
        assert bytes(file.data("a")) + bytes(file.data("b")) == b"abcdefgh"
        assert file.tensors["b"].offset - file.tensors["a"].offset == alignment


def test_an_array_is_checked_when_it_is_decoded(tmp_path: Path):
    path = tmp_path / "arrays.gguf"
    path.write_bytes(
        forge((array(STR, 2, text("ab") + text(b"\xc3(")), pair("b", ARR, struct.pack("<IQ", BOOL, 3) + b"\0\1\2")))
    )
    with gguf.open(path) as file:
        with pytest.raises(FileError, match=r"'k' is not UTF-8: '\\xc3\('"):
            _ = file.meta["k"]
        with pytest.raises(FileError, match="boolean of 'b'"):
            _ = file.meta["b"]


@given(place=st.integers(4, len(GOOD) - 1), value=st.integers(0, 255), size=st.sampled_from([1, 4, 8]))
def test_no_changed_byte_raises_anything_but_our_errors(tmp_path_factory, place: int, value: int, size: int):
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(GOOD[:place] + bytes([value] * size) + GOOD[place + size :])
    try:
        with gguf.open(path) as file:
            for key in file.meta:
                _ = file.meta[key]
            assert all(len(file.data(name)) == info.nbytes for name, info in file.tensors.items())
    except (FileError, UnsupportedError) as error:
        assert str(error).isprintable()


def faults() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt + used.ru_majflt


def test_a_header_over_the_limit_is_refused_before_it_is_read(tmp_path: Path):
    """Nine arrays of 32 MiB that are holes on the disk: the ninth passes the limit."""
    path = tmp_path / "long.gguf"
    array = struct.pack("<IIQ", ARR, U64, LIMITS.array)
    with path.open("wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 9))
        for i in range(9):
            out.write(text(f"k{i}") + array)
            out.seek(8 * LIMITS.array, os.SEEK_CUR)
        out.truncate()
    before = faults()
    refused(path, FileError, "passes the limit of 268,435,456 bytes|bytes left hold at most")
    assert faults() - before < 1000  # of pages of memory: an array alone has eight thousand
    with path.open("wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", STR))
        out.write(struct.pack("<Q", LIMITS.header + 8))
        out.truncate(LIMITS.header + 100)
    refused(path, FileError, "passes the limit of 268,435,456 bytes")


# What the path is.


def test_a_missing_file_is_not_found(tmp_path: Path):
    for path in (tmp_path / "no.gguf", tmp_path / "no" / "no.gguf", tmp_path / ("n" * 300), Path("a\0b")):
        with pytest.raises(NotFoundError):
            gguf.open(path)


def test_links_are_followed_and_broken_ones_not_found(tmp_path: Path):
    (tmp_path / "good.gguf").write_bytes(GOOD)
    for name, target in (("link", "good.gguf"), ("dangling", "none"), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
    gguf.open(tmp_path / "link").close()
    for name in ("dangling", "loop"):
        with pytest.raises(NotFoundError):
            gguf.open(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_a_device_and_a_directory_are_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", FileError, "not a regular file")
    refused(tmp_path, FileError, "is a directory; give the path of a .gguf file in it")
    refused(Path("/dev/zero"), FileError, "not a regular file")


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.gguf")
        refused(tmp_path / "socket.gguf", FileError, "not a regular file")


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (errno.EACCES, FileError, "cannot be opened: Permission denied"),  # as everybody but root is answered
        (errno.EMFILE, BusyError, "cannot be opened: Too many open files"),
    ],
)
def test_a_file_that_cannot_be_opened_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[WoollyError], message: str
):
    path = tmp_path / "locked.gguf"
    path.write_bytes(GOOD)

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    refused(path, kind, message)


def test_a_system_without_advice_on_pages_reads_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "good.gguf"
    path.write_bytes(GOOD)
    monkeypatch.delattr(mmap, "MADV_DONTNEED", raising=False)
    with gguf.open(path) as file:
        file.release("t")
        assert bytes(file.data("t")) == bytes(range(32))


def test_a_refused_file_is_closed(tmp_path: Path):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("open files cannot be listed here")
    path = tmp_path / "broken.gguf"
    path.write_bytes(ZOO["a duplicate key"][0])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        refused(path, FileError, "duplicate")
    assert len(os.listdir("/proc/self/fd")) == before
    assert str(path) not in Path("/proc/self/maps").read_text()
