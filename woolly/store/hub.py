"""Models of the Hugging Face hub: `hf:owner/repo`, `hf:owner/repo:QUANT`, `hf:owner/repo:FILE`, `hf:owner/repo/FILE`.

Files on this machine are used without a request: our own downloads, and the hub cache that other programs fill.
Otherwise the hub is asked which files a repo has, with their sizes and digests; huggingface_hub knows the user's token,
the endpoint and the addresses of files. The bytes come through our one downloader, into our own models folder
(hf/OWNER/REPO/FILE). The hub cache is never written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from woolly.config import Config
from woolly.errors import DownloadError, NotFoundError, RequestError, WoollyError, printable
from woolly.limits import LIMITS
from woolly.store.folders import is_model_file
from woolly.store.model import PART, Model, Progress
from woolly.store.places import HF

PREFIX = "hf:"
WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
SPEC = re.compile(rf"hf:(?P<repo>{WORD}/{WORD})(?:[:/](?P<want>{WORD}(?:/{WORD}){{0,3}}))?")
QUANT = "Q4_K_M"  # the type that is chosen among several when the name says none
FILE = re.compile(rf"{WORD}(?:/{WORD}){{0,3}}\.gguf", re.IGNORECASE)
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")
RESOLVE_S = 3.0  # a resolver may take half a minute to say that there is no network


@dataclass(frozen=True, slots=True)
class HubName:
    """A name of the hub. `want`: a file or a type of weights; empty: the only file, or the one of type Q4_K_M."""

    repo: str
    want: str = ""

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}" + (f":{self.want}" if self.want else "")


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file as the hub lists it; `headers` hold the user's token."""

    file: str
    nbytes: int
    sha256: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class HasFile(Protocol):
    @property
    def file(self) -> str: ...


F = TypeVar("F", bound=HasFile)


def parse(text: str) -> HubName:
    match = SPEC.fullmatch(text)
    if match is None or ".." in text:
        raise RequestError(
            f"'{printable(text)}' is no name of the hub",
            suggestion="write hf:owner/repo, hf:owner/repo:Q4_K_M or hf:owner/repo:file.gguf",
            param="model",
        )
    return HubName(match["repo"], match["want"] or "")


def local_files(spec: HubName, models: Iterable[Model]) -> list[Model]:
    """The files of the repo that are on this machine; where two places have the same file, the first."""
    files: dict[str, Model] = {}
    for model in models:
        if model.repo.lower() == spec.repo.lower():
            files.setdefault(model.file.lower(), model)
    return list(files.values())


def choose(files: list[F], spec: HubName) -> F | None:
    """The one file that a name means; None if it is not among them. Two that fit equally are refused with the list."""
    fits = [file for file in files if is_model_file(Path(file.file))]
    want = spec.want.lower()
    if want.endswith(".gguf"):
        fits = [file for file in fits if want in (file.file.lower(), Path(file.file).name.lower())]
    elif want:
        fits = [file for file in fits if _has_type(file.file, want)]
    elif len(fits) > 1:
        fits = [file for file in fits if _has_type(file.file, QUANT.lower())] or fits
    if len(fits) > 1:
        raise RequestError(
            f"'{printable(spec)}' fits {len(fits)} files: {_names(fits)}",
            suggestion=f"name one, as {PREFIX}{spec.repo}:FILE",
            param="model",
        )
    return fits[0] if fits else None


def fetch(spec: HubName, config: Config, progress: Progress | None = None) -> Path:
    """Download the file of a name, or all files of its set, into our models folder."""
    from woolly.store.transfer import Source, download  # HTTP and TLS: only when something is downloaded

    files = _list_repo(spec, config)
    first = choose(files, spec)
    if first is None:
        raise NotFoundError(
            f"{printable(spec.repo)} on the hub has no {f'GGUF file {spec.want}' if spec.want else 'GGUF file'}",
            suggestion=f"it has {_names(weights)}"
            if (weights := [f for f in files if is_model_file(Path(f.file))])
            else "",
        )
    parts = _set_of(first, files)
    total, before = sum(part.nbytes for part in parts), 0
    for part in reversed(parts):  # the first part, which gives the set its name, comes last
        download(
            Source(part.url, part.nbytes, part.sha256, part.headers),
            config.models / HF / spec.repo / part.file,
            models=config.models,
            progress=_progress_of_set(progress, before, total),
        )
        before += part.nbytes
    return config.models / HF / spec.repo / first.file


def _progress_of_set(progress: Progress | None, before: int, total: int) -> Progress | None:
    """A callback that adds the files before to the progress of one file."""
    if progress is None:
        return None
    report = progress
    return lambda done, _: report(before + done, total)


def _list_repo(spec: HubName, config: Config) -> list[RepoFile]:
    """The GGUF files of the repo, with sizes and digests."""
    if config.offline:
        raise _offline_error(spec, "WOOLLY_OFFLINE")
    try:
        from huggingface_hub import constants, get_token, hf_hub_url  # this import takes an eighth of a second
    except ImportError:
        raise DownloadError(
            "the hub is reached with the help of the package huggingface_hub, and this Python has none",
            suggestion="run `pip install huggingface_hub`",
        ) from None
    except ValueError as error:
        raise DownloadError(
            f"huggingface_hub does not take its settings: {printable(error)}",
            suggestion="look at HF_ENDPOINT and the other variables that begin with HF_",
        ) from None
    if constants.HF_HUB_OFFLINE:
        raise _offline_error(spec, "HF_HUB_OFFLINE")
    endpoint = constants.ENDPOINT
    _check_name_resolution(endpoint, spec)
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    commit, rows = _parse_manifest(
        _fetch_manifest(spec, f"{endpoint}/api/models/{spec.repo}?blobs=true", headers), spec
    )
    files = []
    for name, size, digest in rows:
        url = hf_hub_url(spec.repo, name, revision=commit, endpoint=endpoint)
        files.append(RepoFile(name, size, digest, url, headers))
    return files


def _fetch_manifest(spec: HubName, url: str, headers: Mapping[str, str]) -> bytes:
    """The hub's list of a repo's files. huggingface_hub would read an answer of any length, so it is not used here."""
    from woolly.store.web import open_url, short_reason

    try:
        with open_url(url, headers) as answer:
            status, gated = answer.status, answer.headers.get("X-Error-Code") == "GatedRepo"
            data = answer.read(LIMITS.manifest + 1) if 200 <= status < 300 else b""
    except OSError as error:
        raise DownloadError(
            f"the hub did not answer about {printable(spec.repo)}: {short_reason(error)}", suggestion=_manual_hint(spec)
        ) from error
    if not 200 <= status < 300:
        raise _refusal(spec, status, gated)
    if len(data) > LIMITS.manifest:
        raise DownloadError(f"the hub's answer about {printable(spec.repo)} has more than {LIMITS.manifest:,} bytes")
    return data


def _refusal(spec: HubName, status: int, gated: bool) -> WoollyError:
    if gated or status == 403:
        return DownloadError(
            f"{printable(spec.repo)} asks its readers to agree to its licence first",
            suggestion="agree on its page, then set HF_TOKEN to a token of yours",
        )
    if status in (401, 404):  # the hub answers 401 also for a repo that does not exist
        return NotFoundError(
            f"there is no model '{printable(spec.repo)}' on the hub",
            suggestion="look at the spelling; a private one needs HF_TOKEN",
        )
    return DownloadError(f"the hub says {status} about {printable(spec.repo)}", suggestion="try again later")


def _parse_manifest(data: bytes, spec: HubName) -> tuple[str, list[tuple[str, int, str]]]:
    """The commit, and name, size and digest of each GGUF file; the JSON is not trusted."""
    try:
        page = json.loads(data)
    except (ValueError, RecursionError):
        page = None
    siblings = page.get("siblings") if isinstance(page, dict) else None
    commit = page.get("sha") if isinstance(page, dict) else None
    if not isinstance(siblings, list) or not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise DownloadError(f"the hub's answer about {printable(spec.repo)} cannot be understood")
    rows = []
    for row in siblings:
        name, size = (row.get("rfilename"), row.get("size")) if isinstance(row, dict) else (None, None)
        if not isinstance(name, str) or not FILE.fullmatch(name) or ".." in name or type(size) is not int or size < 1:
            continue
        lfs = row.get("lfs")
        digest = lfs.get("sha256") if isinstance(lfs, dict) else ""
        rows.append((name, size, digest if isinstance(digest, str) and SHA256.fullmatch(digest) else ""))
    return commit, rows


def _offline_error(spec: HubName, setting: str) -> DownloadError:
    return DownloadError(
        f"'{printable(spec)}' is not on this machine, and {setting} forbids to download it",
        suggestion=_manual_hint(spec),
    )


def _check_name_resolution(endpoint: str, spec: HubName) -> None:
    """Fail within seconds where the hub's name has no address. Behind a proxy, only the proxy can know."""
    import socket
    import threading
    from urllib.parse import urlsplit

    from woolly.io.http import proxy_of

    url = urlsplit(endpoint)
    if proxy_of(url) is not None:
        return
    answers: list[object] = []

    def resolve_host() -> None:
        try:
            answers.append(socket.getaddrinfo(url.hostname, url.port or 443))
        except (OSError, UnicodeError) as error:
            answers.append(error)

    thread = threading.Thread(target=resolve_host, daemon=True)
    thread.start()
    thread.join(RESOLVE_S)
    if not answers or isinstance(answers[0], Exception):
        raise DownloadError(f"the hub ({printable(url.hostname)}) cannot be reached", suggestion=_manual_hint(spec))


def _set_of(first: RepoFile, files: list[RepoFile]) -> list[RepoFile]:
    """All parts of the set that a first part begins, in order."""
    match = PART.search(first.file.removesuffix(".gguf"))
    if match is None:
        return [first]
    by_name = {file.file: file for file in files}
    names = [
        f"{first.file[: match.start()]}-{number:05}-of-{match[2]}.gguf"
        for number in range(1, min(int(match[2]), LIMITS.parts) + 1)
    ]
    missing = [name for name in names if name not in by_name]
    if missing or int(match[2]) > LIMITS.parts:
        raise NotFoundError(f"the set of {printable(first.file)} on the hub has no {printable(missing[:1] or 'end')}")
    return [by_name[name] for name in names]


def _has_type(file: str, want: str) -> bool:
    """Whether a type of weights is a whole word of the file's name."""
    stem = PART.sub("", file.lower().removesuffix(".gguf"))
    return re.search(rf"(?:^|[-._/]){re.escape(want)}(?:$|[-./])", stem) is not None


def _names(files: Iterable[HasFile]) -> str:
    names = [printable(file.file) for file in files]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _manual_hint(spec: HubName) -> str:
    return f"check the network, or download a .gguf file of {printable(spec.repo)} elsewhere and give its path"
