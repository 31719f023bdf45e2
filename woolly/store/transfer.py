"""The one downloader: a file over HTTP, resumed where it stopped, checked as a whole, then named.

Unfinished work lies in `.pull-KEY` inside the models folder: `data` (the bytes so far), `facts` (of what they are) and
`lock`. Three sentences hold at every moment, whatever is killed or runs out:
    a file under its final name is whole, and has the digest that was expected;
    a byte is appended only where it belongs: at the offset the server tells, of the version whose beginning is there;
    what was downloaded is kept until it is whole, or known to be of no use.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from woolly.errors import DownloadError, NotFoundError, printable
from woolly.io.cancellation import check, pause
from woolly.io.disk import make_private_folder, models_faults, move, private_opener, write_all, write_atomically
from woolly.io.http import Response
from woolly.limits import LIMITS
from woolly.store.folders import is_file
from woolly.store.lock import is_there, locked_folder, remove_stale
from woolly.store.model import Progress
from woolly.store.web import open_url, short_reason

CHUNK = 1 << 20
MAGIC = b"GGUF"
RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
BACKOFF_S = 1.0  # before the second try; doubled before each further one
BACKOFF_MOST_S = 30.0
WORTHWHILE = 1 << 20  # a try that brought so many bytes resets the count of failures
PROGRESS_S = 0.1  # between two reports of progress
RECORD_BYTES = 4096  # most bytes of the file `facts`
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Source:
    """The URL of a file. nbytes, sha256: empty where unknown. headers: may hold a token, and are never on disk."""

    url: str
    nbytes: int | None = None
    sha256: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class PartialFile:
    """Which file the unfinished bytes are the beginning of; the JSON of `facts`."""

    url: str
    sha256: str
    nbytes: int
    validator: str  # what the server calls this version: an ETag or a date; empty where it tells none
    boot: str  # after a power cut a file can have the right length and the wrong bytes


class _RetryError(Exception):
    """This try failed and another may not. discard: the bytes so far are useless. wrong: so is the server's file,
    unless the bytes came in several answers."""

    def __init__(self, reason: str, *, discard: bool = False, wrong: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.discard = discard or wrong
        self.wrong = wrong
        self.wait_s = wait_s


def download(source: Source, target: Path, *, models: Path, progress: Progress | None = None) -> Path:
    """Download the file to `target`, which lies below `models`, unless it is there already."""
    key = hashlib.sha256(str(target.relative_to(models)).encode()).hexdigest()[:16]
    place = models / f".pull-{key}"
    with models_faults(models):
        make_private_folder(target.parent)
        remove_stale(models)
        with locked_folder(place, lambda: _size(place / "data")) as folder:
            data = folder / "data"
            try:
                if is_file(target) and source.nbytes in (None, target.stat().st_size):
                    data.unlink(missing_ok=True)  # another process has downloaded it
                else:
                    _with_retries(source, folder, progress)
                    move(data, target)
            finally:
                if not is_there(data):
                    shutil.rmtree(folder, ignore_errors=True)
    return target


def _with_retries(source: Source, folder: Path, progress: Progress | None) -> None:
    """Download until `data` is the complete file, and check its digest."""
    failed, pieces, second = 0, 0, False
    while True:
        before = _size(folder / "data")
        pieces = pieces + 1 if before else 0
        try:
            nbytes = _attempt(source, folder, progress)
            _check(source, folder / "data", nbytes)
            return
        except _RetryError as error:
            check()
            if error.discard:
                (folder / "data").unlink(missing_ok=True)
            if error.wrong and pieces and not second:
                second = True  # download the whole file once more, in one answer
                continue
            failed = 1 if _size(folder / "data") - before >= WORTHWHILE else failed + 1
            if error.wrong or failed >= LIMITS.tries:
                nbytes_kept = _size(folder / "data")
                raise DownloadError(
                    f"{_without_query(source.url)} could not be downloaded: {error}",
                    suggestion="what came is kept, and the next try goes on from there"
                    if nbytes_kept
                    else "nothing was kept; look at the address and at what is between you and the server",
                ) from error
            pause(min(max(BACKOFF_S * 2 ** (failed - 1), error.wait_s), BACKOFF_MOST_S))


def _attempt(source: Source, folder: Path, progress: Progress | None) -> int:
    """One request: append what is missing to `data`. Returns the size of the whole file."""
    data = folder / "data"
    partial = _read_partial(source, folder)
    start = _size(data) if partial is not None else 0
    if partial is not None and start == partial.nbytes:
        return start  # all bytes are there; only the check is missing
    headers = dict(source.headers)
    if partial is not None and start:
        headers["Range"] = f"bytes={start}-"
        if partial.validator:
            headers["If-Range"] = partial.validator
    with _open(source, headers) as answer:
        start, nbytes, validator = _byte_range(answer, source, partial, start)
        free = shutil.disk_usage(folder).free
        if free < nbytes - start:
            raise OSError(errno.ENOSPC, f"{nbytes - start:,} bytes are needed and {free:,} free")
        boot = _boot()
        with open(data, "r+b" if start else "wb", opener=private_opener, buffering=0) as out:
            out.truncate(start)  # first, so that `facts` never describes bytes of another version
            _write_partial(folder, PartialFile(source.url, source.sha256, nbytes, validator, boot))
            out.seek(start)
            _copy(answer, out.write, start, nbytes, progress)
            os.fsync(out.fileno())
    return nbytes


def _open(source: Source, headers: dict[str, str]) -> Response:
    """The answer, if it has bytes. An error that another try may mend is a _RetryError, all others are final."""
    try:
        answer = open_url(source.url, headers)
    except OSError as error:
        raise _RetryError(short_reason(error)) from error
    status = answer.status
    if 200 <= status < 300:
        return answer
    answer.close()
    if status == 416:
        raise _RetryError("the server does not have the rest that was asked for", discard=True)
    if status == 429 or status >= 500:
        wait = answer.headers.get("Retry-After", "")
        raise _RetryError(f"the server says {status}", wait_s=float(wait) if re.fullmatch(r"\d{1,4}", wait) else 0.0)
    message = f"{_without_query(source.url)}: the server says {status} {printable(answer.reason)}"
    if status in (404, 410):
        raise NotFoundError(message, suggestion="look at the address")
    if status in (401, 403):
        raise DownloadError(message, suggestion="a token of yours may be needed (HF_TOKEN for the hub)")
    raise DownloadError(message, suggestion="look at the address")


def _byte_range(answer: Response, source: Source, partial: PartialFile | None, start: int) -> tuple[int, int, str]:
    """Where the answer's bytes begin in the file, the length of the file, and the server's name for this version."""
    head = answer.headers
    if head.get("Content-Encoding", "identity").lower() != "identity":
        raise DownloadError(f"{_without_query(source.url)}: the server sends packed bytes, which nobody asked for")
    etag, date = head.get("ETag", ""), head.get("Last-Modified", "")
    validator = etag if etag and not etag.startswith("W/") else date
    if len(validator) > 200 or not validator.isprintable():
        validator = ""
    if answer.status == 206:
        match = RANGE.fullmatch(head.get("Content-Range", ""))
        if match is None or partial is None or (int(match[1]), int(match[2])) != (start, int(match[3]) - 1):
            raise _RetryError("the server sent another piece than the one asked for", discard=True)
        if int(match[3]) != partial.nbytes or (partial.validator and validator and validator != partial.validator):
            raise _RetryError("the file has changed on the server", discard=True)
        return start, partial.nbytes, validator or partial.validator
    length = head.get("Content-Length", "")
    if answer.status != 200:
        raise DownloadError(f"{_without_query(source.url)}: the server says {answer.status}, which has no bytes")
    if head.get_content_type() == "text/html":
        raise _RetryError("a web page came instead of the file")
    nbytes = int(length) if re.fullmatch(r"\d{1,18}", length) else source.nbytes
    if nbytes is None:
        raise DownloadError(f"{_without_query(source.url)}: the server does not tell how long the file is")
    if source.nbytes not in (None, nbytes):
        raise _RetryError(f"the server's file has {nbytes:,} bytes and not {source.nbytes:,}")
    return 0, nbytes, validator


def _copy(
    answer: Response,
    write: Callable[[memoryview], int | None],
    start: int,
    nbytes: int,
    progress: Progress | None,
) -> None:
    """The bytes of an answer, as far as the file goes; a byte too many or too few is an error."""
    done, reported_s = start, 0.0
    while True:
        check()
        if progress is not None and (done == nbytes or time.monotonic() - reported_s > PROGRESS_S):
            reported_s = time.monotonic()
            progress(done, nbytes)
        try:
            chunk = answer.read1(min(CHUNK, nbytes + 1 - done))
        except OSError as error:
            raise _RetryError(short_reason(error)) from error
        if not chunk:
            break
        if done + len(chunk) > nbytes:
            raise _RetryError(f"the server sends more than the {nbytes:,} bytes that it announced", wrong=True)
        write_all(write, chunk)
        done += len(chunk)
    if done < nbytes:
        raise _RetryError(f"the connection ended after {done:,} of {nbytes:,} bytes")


def _check(source: Source, data: Path, nbytes: int) -> None:
    """Read the whole file again, as it lies on the disk: those are the bytes that will be used."""
    digest, count = hashlib.sha256(), 0
    with data.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise _RetryError("what came is no GGUF file", wrong=True)
        file.seek(0)
        while chunk := file.read(CHUNK):
            check()
            digest.update(chunk)
            count += len(chunk)
        os.fsync(file.fileno())
    if count != nbytes:
        raise _RetryError(f"{count:,} of {nbytes:,} bytes are there", discard=True)
    if source.sha256 and digest.hexdigest() != source.sha256.lower():
        raise _RetryError(f"what came has SHA-256 {digest.hexdigest()}, expected {source.sha256}", wrong=True)


def _read_partial(source: Source, folder: Path) -> PartialFile | None:
    """The record of the bytes in the folder; None where no more can be appended to them."""
    try:
        partial = PartialFile(**json.loads(_read(folder / "facts", RECORD_BYTES)))
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (partial.url, partial.sha256, partial.validator, partial.boot)
    if not all(isinstance(text, str) for text in texts) or type(partial.nbytes) is not int:
        return None
    if partial.sha256 != source.sha256 or source.nbytes not in (None, partial.nbytes):
        return None
    if not 0 < _size(folder / "data") <= partial.nbytes:
        return None
    if source.sha256:
        return partial  # the digest decides, whatever the server calls its versions
    boot = _boot()
    sure = partial.url == source.url and partial.validator and boot and partial.boot == boot
    return partial if sure else None


def _write_partial(folder: Path, partial: PartialFile) -> None:
    """Not made to last through a power cut, after which `boot` is another."""
    data = json.dumps(asdict(replace(partial, url=partial.url[:2000]))).encode()
    write_atomically(folder / "facts", [data], durable=False)


def _boot() -> str:
    """The id of this start of the machine; empty where it is not told."""
    with contextlib.suppress(PermissionError):
        return _read(BOOT, 100).decode("ascii", "replace").strip()
    return ""


def _read(path: Path, most: int) -> bytes:
    """The beginning of a file; nothing where there is none. One that cannot be read now is an OSError: what it
    describes is of use all the same."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(most)
    return b""


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _without_query(url: str) -> str:
    """A URL for a message, without its query, which may hold a secret."""
    return printable(url.partition("?")[0].partition("#")[0], 200)
