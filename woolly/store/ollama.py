"""The models that Ollama has on this machine: its manifests are read, its blobs are used in place.

    manifests/HOST/NAMESPACE/MODEL/TAG    JSON; the layer of the media type below names the blob with the weights
    blobs/sha256-DIGEST                   the GGUF file

A manifest is a stranger's file: its size is bounded, its JSON checked, its digest must be one, and a blob must be a
regular file inside the folder of blobs with the size that the manifest tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from woolly.limits import LIMITS
from woolly.store.folders import is_file, is_inside, read_small, walk
from woolly.store.model import Model

WEIGHTS = "application/vnd.ollama.image.model"
HOST, NAMESPACE, TAG = "registry.ollama.ai", "library", "latest"  # parts that a name may omit
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")


def models(root: Path) -> Iterator[Model]:
    """Every model of one of Ollama's folders whose weights are one whole GGUF file."""
    manifests, blobs = root / "manifests", root / "blobs"
    for manifest in walk(manifests):
        words = manifest.relative_to(manifests).parts
        if len(words) != 4 or not all(WORD.fullmatch(word) for word in words):
            continue
        weights = _weights(read_small(manifest, LIMITS.manifest))
        if weights is None:
            continue
        digest, nbytes = weights
        blob = blobs / f"sha256-{digest}"
        if not is_file(blob) or not is_inside(blob, blobs.resolve()):
            continue
        facts = blob.stat()
        if facts.st_size != nbytes:
            continue  # a download that is not finished
        names = _names(*words)
        yield Model(
            name=names[0],
            path=blob,
            owner="ollama",
            nbytes=nbytes,
            modified=facts.st_mtime,
            also=tuple(name.lower() for name in names[1:]),
        )


def _names(host: str, namespace: str, model: str, tag: str) -> list[str]:
    """The names of a model, the one that Ollama shows first."""
    prefixes = [f"{host}/{namespace}/"]
    if host == HOST:
        prefixes.insert(0, f"{namespace}/")
        if namespace == NAMESPACE:
            prefixes.insert(0, "")
    names = [f"{prefix}{model}:{tag}" for prefix in prefixes]
    return names + [f"{prefix}{model}" for prefix in prefixes if tag == TAG]


def _weights(data: bytes | None) -> tuple[str, int] | None:
    """Digest and size of the one layer with the weights; None where a manifest has no such layer, or several."""
    if data is None:
        return None
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError):
        return None
    layers = manifest.get("layers") if isinstance(manifest, dict) else None
    weights = [
        layer
        for layer in (layers if isinstance(layers, list) else [])
        if isinstance(layer, dict) and layer.get("mediaType") == WEIGHTS
    ]
    if len(weights) != 1:
        return None
    digest, nbytes = weights[0].get("digest"), weights[0].get("size")
    match = DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None or type(nbytes) is not int or nbytes < 0:
        return None
    return match[1], nbytes
