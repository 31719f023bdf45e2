"""Fetches the vocabularies that the golden tests compare with: python tools/get_vocabs.py [FOLDER]

They are files without weights, with test lines beside them, in the source distribution of llama-cpp-python; nothing of
it is built. FOLDER is build/vocabs unless given; tests find another one through WOOLLY_VOCABS. 77 MB are fetched, 75 MB
stay.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
INSIDE = "vendor/llama.cpp/models"
DEFAULT = Path(__file__).resolve().parents[1] / "build" / "vocabs"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    with tempfile.TemporaryDirectory() as scratch:
        count = extract(fetch(Path(scratch)), folder)
    print(f"{count} files in {folder}")


def fetch(folder: Path) -> Path:
    """The source distribution, as the configured package index gives it, checked by its hash."""
    options = ["--quiet", "--no-deps", "--no-binary", PACKAGE, "--dest", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, f"{PACKAGE}=={VERSION}"], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        sys.exit(f"{archive.name} has the SHA-256 {digest}, expected {SHA256}")
    return archive


def extract(archive: Path, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            path = Path(member.name)
            if member.isfile() and path.name.startswith("ggml-vocab-") and str(path.parent).endswith(INSIDE):
                source = tar.extractfile(member)
                assert source is not None
                (folder / path.name).write_bytes(source.read())
                count += 1
    return count


if __name__ == "__main__":
    main()
