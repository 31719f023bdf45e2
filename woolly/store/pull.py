"""Bringing a model to this machine by whatever name it has, in one of the two ways of downloading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from woolly.config import Config
from woolly.errors import DownloadError, RequestError, printable
from woolly.store.catalogue import DEFAULT
from woolly.store.folders import is_file
from woolly.store.model import Progress
from woolly.store.names import URL, local_path, resolve

WAYS = f"pull takes {DEFAULT}, hf:owner/repo, hf:owner/repo:FILE or TYPE, and https://host/model.gguf"
FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.gguf", re.IGNORECASE)
SHA256 = re.compile(r"[0-9a-fA-F]{64}")
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class PullResult:
    path: Path
    new: bool  # False: it was here already


def pull(name: str, config: Config, *, sha256: str = "", progress: Progress | None = None) -> PullResult:
    """Download the model of a name, a URL or the hub unless it is here already; `sha256`: of the right file."""
    if sha256 and not SHA256.fullmatch(sha256):
        raise RequestError("--sha256 must be 64 hexadecimal digits", param="--sha256")
    if name.startswith(URL):
        return _from_address(name, config, sha256, progress)
    if sha256:
        raise RequestError("--sha256 goes with an address; other names have their digest", param="--sha256")
    path = local_path(name, config, otherwise=WAYS)
    if path is not None:
        return PullResult(path, new=False)
    return PullResult(resolve(name, config=config, progress=progress), new=True)


def _from_address(url: str, config: Config, sha256: str, progress: Progress | None) -> PullResult:
    import urllib.parse

    try:
        parts = urllib.parse.urlsplit(url)
        file = urllib.parse.unquote(parts.path.rsplit("/", 1)[-1])
        right = url.isascii() and url.isprintable() and " " not in url and "@" not in parts.netloc
    except ValueError:  # brackets without an IPv6 address
        right = False
    if not right or not FILE.fullmatch(file):
        raise RequestError(
            f"'{printable(url)}' is no address of a .gguf file",
            suggestion="give one as https://host/path/model.gguf",
            param="name",
        )
    if parts.scheme == "http" and not sha256 and parts.hostname not in THIS_MACHINE:
        raise RequestError(
            "http:// lets anybody on the way change the file",
            suggestion="use https://, or give the digest with --sha256",
            param="name",
        )
    target = config.models / file
    if is_file(target):
        return PullResult(target, new=False)
    if config.offline:
        raise DownloadError(
            f"{printable(file)} is not on this machine, and WOOLLY_OFFLINE forbids to download it",
            suggestion="take WOOLLY_OFFLINE away, or put the file into a model folder",
        )
    from woolly.store.transfer import Source, download  # HTTP and TLS: only when something is downloaded

    return PullResult(download(Source(url, sha256=sha256), target, models=config.models, progress=progress), new=True)
