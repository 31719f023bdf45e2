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
import http.client
import json
import os
import re
import shutil
import time
import urllib.error
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from woolly.errors import DownloadError, NotFoundError, printable
from woolly.limits import LIMITS
from woolly.store.disk import disk_errors, make_private, own, sync
from woolly.store.folders import is_file, read_small
from woolly.store.lock import claimed, sweep
from woolly.store.model import Progress
from woolly.store.web import ask

CHUNK = 1 << 20
MAGIC = b"GGUF"
RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
BACKOFF_S = 1.0  # before the second try; doubled before each further one
BACKOFF_MOST_S = 30.0
WORTHWHILE = 1 << 20  # bytes of a try that make it worth five more
PROGRESS_S = 0.1  # between two reports
FACTS = 4096  # bytes of the file of facts
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a file is. nbytes, sha256: what is known of it beforehand. headers: may hold a token, and are not kept."""

    url: str
    nbytes: int | None = None
    sha256: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """Of what the unfinished bytes are the beginning."""

    url: str
    sha256: str
    nbytes: int
    validator: str  # what the server calls this version: an ETag or a date; empty where it tells none
    boot: str  # after a power cut a file can have the right length and the wrong bytes


class _RetryError(Exception):
    """This try failed and another may not. fresh: the bytes so far are of no use. wrong: nor is what the server has,
    unless they were put together from several answers."""

    def __init__(self, reason: str, *, fresh: bool = False, wrong: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.fresh = fresh or wrong
        self.wrong = wrong
        self.wait_s = wait_s


def download(source: Source, target: Path, *, models: Path, progress: Progress | None = None) -> Path:
    """Bring the file to `target`, which lies below `models`; nothing is asked if it is there already."""
    key = hashlib.sha256(str(target.relative_to(models)).encode()).hexdigest()[:16]
    place = models / f".pull-{key}"
    with disk_errors(models):
        make_private(target.parent)
        sweep(models)
        with claimed(place, lambda: _size(place / "data")) as folder:
            data = folder / "data"
            try:
                if is_file(target) and source.nbytes in (None, target.stat().st_size):
                    data.unlink(missing_ok=True)  # another process was quicker
                else:
                    _with_retries(source, folder, progress)
                    data.replace(target)
                    sync(target.parent)
            finally:
                if not data.exists():
                    shutil.rmtree(folder, ignore_errors=True)
    return target


def _with_retries(source: Source, folder: Path, progress: Progress | None) -> None:
    """Fill `data` until it is the whole file, and see that it is the right one."""
    failed, pieces, second = 0, 0, False
    while True:
        before = _size(folder / "data")
        pieces = pieces + 1 if before else 0
        try:
            nbytes = _try(source, folder, progress)
            _check(source, folder / "data", nbytes)
            return
        except _RetryError as error:
            if error.fresh:
                (folder / "data").unlink(missing_ok=True)
            if error.wrong and pieces and not second:
                second = True  # once more, in one piece
                continue
            failed = 1 if _size(folder / "data") - before >= WORTHWHILE else failed + 1
            if error.wrong or failed >= LIMITS.tries:
                kept = _size(folder / "data")
                raise DownloadError(
                    f"{_shown(source.url)} could not be downloaded: {error}",
                    suggestion="what came is kept, and the next try goes on from there"
                    if kept
                    else "nothing was kept; look at the address and at what is between you and the server",
                ) from error
            time.sleep(min(max(BACKOFF_S * 2 ** (failed - 1), error.wait_s), BACKOFF_MOST_S))


def _try(source: Source, folder: Path, progress: Progress | None) -> int:
    """One request: append what is missing to `data`. Returns the size of the whole file."""
    data = folder / "data"
    facts = _usable(source, folder)
    start = _size(data) if facts is not None else 0
    if facts is not None and start == facts.nbytes:
        return start  # all came before; only the check is missing
    headers = dict(source.headers)
    if facts is not None and start:
        headers["Range"] = f"bytes={start}-"
        if facts.validator:
            headers["If-Range"] = facts.validator
    with _asked(source, headers) as answer:
        start, nbytes, validator = _meaning(answer, source, facts, start)
        free = shutil.disk_usage(folder).free
        if free < nbytes - start:
            raise OSError(errno.ENOSPC, f"{nbytes - start:,} bytes are needed and {free:,} free")
        boot = (read_small(BOOT, 100) or b"").decode("ascii", "replace").strip()
        with open(data, "r+b" if start else "wb", opener=own, buffering=0) as out:
            out.truncate(start)  # before the facts of another version are written
            _write_facts(folder, Facts(source.url, source.sha256, nbytes, validator, boot))
            out.seek(start)
            _copy(answer, out.write, start, nbytes, progress)
            os.fsync(out.fileno())
    return nbytes


def _asked(source: Source, headers: dict[str, str]) -> http.client.HTTPResponse:
    """The answer, if it is one with bytes; errors are sorted into those that another try may mend and the others."""
    try:
        return ask(source.url, headers)
    except urllib.error.HTTPError as error:
        with error:
            message = f"{_shown(source.url)}: the server says {error.code} {printable(error.reason)}"
            if error.code == 416:
                raise _RetryError("the server does not have the rest that was asked for", fresh=True) from None
            if error.code == 429 or error.code >= 500:
                wait = error.headers.get("Retry-After", "")
                raise _RetryError(
                    f"the server says {error.code}", wait_s=float(wait) if re.fullmatch(r"\d{1,4}", wait) else 0.0
                ) from None
        if error.code in (404, 410):
            raise NotFoundError(message, suggestion="look at the address") from None
        if error.code in (401, 403):
            raise DownloadError(message, suggestion="a token of yours may be needed (HF_TOKEN for the hub)") from None
        raise DownloadError(message, suggestion="look at the address") from None
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        raise _RetryError(in_few_words(error)) from error


def _meaning(answer: http.client.HTTPResponse, source: Source, facts: Facts | None, start: int) -> tuple[int, int, str]:
    """Where the answer's bytes begin in the file, how long the file is, and what the server calls this version."""
    head = answer.headers
    if head.get("Content-Encoding", "identity").lower() != "identity":
        raise DownloadError(f"{_shown(source.url)}: the server sends packed bytes, which nobody asked for")
    etag, date = head.get("ETag", ""), head.get("Last-Modified", "")
    validator = etag if etag and not etag.startswith("W/") else date
    if len(validator) > 200 or not validator.isprintable():
        validator = ""
    if answer.status == 206:
        match = RANGE.fullmatch(head.get("Content-Range", ""))
        if match is None or facts is None or (int(match[1]), int(match[2])) != (start, int(match[3]) - 1):
            raise _RetryError("the server sent another piece than the one asked for", fresh=True)
        if int(match[3]) != facts.nbytes or (facts.validator and validator and validator != facts.validator):
            raise _RetryError("the file has changed on the server", fresh=True)
        return start, facts.nbytes, validator or facts.validator
    length = head.get("Content-Length", "")
    if answer.status != 200:
        raise DownloadError(f"{_shown(source.url)}: the server says {answer.status}, which has no bytes")
    if head.get_content_type() == "text/html":
        raise _RetryError("a web page came instead of the file")
    nbytes = int(length) if re.fullmatch(r"\d{1,18}", length) else source.nbytes
    if nbytes is None:
        raise DownloadError(f"{_shown(source.url)}: the server does not tell how long the file is")
    if source.nbytes not in (None, nbytes):
        raise _RetryError(f"the server's file has {nbytes:,} bytes and not {source.nbytes:,}")
    return 0, nbytes, validator


def _copy(
    answer: http.client.HTTPResponse,
    write: Callable[[memoryview], int | None],
    start: int,
    nbytes: int,
    progress: Progress | None,
) -> None:
    """The bytes of an answer, as far as the file goes; a byte too many or too few is an error."""
    done, reported_s = start, 0.0
    while True:
        if progress is not None and (done == nbytes or time.monotonic() - reported_s > PROGRESS_S):
            reported_s = time.monotonic()
            progress(done, nbytes)
        try:
            piece = answer.read1(min(CHUNK, nbytes + 1 - done))
        except (OSError, http.client.HTTPException) as error:
            raise _RetryError(in_few_words(error)) from error
        if not piece:
            break
        if done + len(piece) > nbytes:
            raise _RetryError(f"the server sends more than the {nbytes:,} bytes that it announced", wrong=True)
        rest = memoryview(piece)
        while rest:
            rest = rest[write(rest) or 0 :]
        done += len(piece)
    if done < nbytes:
        raise _RetryError(f"the connection ended after {done:,} of {nbytes:,} bytes")


def _check(source: Source, data: Path, nbytes: int) -> None:
    """Read the whole file again, as it lies on the disk: only that is what will be used."""
    digest, count = hashlib.sha256(), 0
    with data.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise _RetryError("what came is no GGUF file", wrong=True)
        file.seek(0)
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            count += len(chunk)
        os.fsync(file.fileno())
    if count != nbytes:
        raise _RetryError(f"{count:,} of {nbytes:,} bytes are there", fresh=True)
    if source.sha256 and digest.hexdigest() != source.sha256.lower():
        raise _RetryError(f"what came has SHA-256 {digest.hexdigest()}, expected {source.sha256}", wrong=True)


def _usable(source: Source, folder: Path) -> Facts | None:
    """The facts of the bytes that lie there, if more can be appended to them."""
    try:
        facts = Facts(**json.loads(read_small(folder / "facts", FACTS) or b""))
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (facts.url, facts.sha256, facts.validator, facts.boot)
    if not all(isinstance(text, str) for text in texts) or type(facts.nbytes) is not int:
        return None
    if facts.sha256 != source.sha256 or source.nbytes not in (None, facts.nbytes):
        return None
    if not 0 < _size(folder / "data") <= facts.nbytes:
        return None
    if source.sha256:
        return facts  # the digest decides, whatever the server calls its versions
    boot = (read_small(BOOT, 100) or b"").decode("ascii", "replace").strip()
    sure = facts.url == source.url and facts.validator and boot and facts.boot == boot
    return facts if sure else None


def _write_facts(folder: Path, facts: Facts) -> None:
    """Old facts or new ones, never half of them."""
    part = folder / "facts.new"
    with open(part, "wb", opener=own) as out:
        out.write(json.dumps(asdict(replace(facts, url=facts.url[:2000]))).encode())
    part.replace(folder / "facts")


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _shown(url: str) -> str:
    """An address for a message, without what may be secret in it."""
    return printable(url.partition("?")[0].partition("#")[0], 200)


def in_few_words(error: BaseException) -> str:
    """A failure on the way, in a few words."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return f"nothing came for {LIMITS.stall_s:.0f} seconds"
    if isinstance(reason, OSError) and reason.strerror:
        return printable(reason.strerror)
    return printable(reason) or type(reason).__name__
