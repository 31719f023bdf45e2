"""Adapters of a model: which of the loaded ones a request has, by what scales, and the salt of its pages' names.

A model is loaded with any number of adapters. A request has some of them, each times a scale, or none; a request that
does not choose has those of the model, by the scales that it was loaded with or that were put since.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np

from woolly.errors import RequestError, printable
from woolly.model import Adapter
from woolly.model.ops.numerics import F32


class Adapters:
    """The loaded adapters, in the order of a step's scales. `scales` is for requests that do not choose."""

    __slots__ = ("digests", "files", "scales")

    def __init__(self, loaded: Sequence[Adapter] = (), scales: Sequence[float] = ()) -> None:
        self.digests = {adapter.name: adapter.digest for adapter in loaded}
        self.files = {adapter.name: adapter.file for adapter in loaded}
        self.scales: Mapping[str, float] = dict(zip(self.digests, scales, strict=True))

    def put(self, scales: Mapping[str | int, float]) -> None:
        """Scales for requests that do not choose, from now on; 0 for adapters that are not named."""
        self.scales = dict.fromkeys(self.digests, 0.0) | self._named(scales)

    def chosen(self, asked: Mapping[str | int, float] | None) -> F32 | None:
        """The scales of a request, one for each adapter; None where all are 0."""
        named = self.scales if asked is None else self._named(asked)
        scales = np.array([named.get(name, 0.0) for name in self.digests], np.float32)
        return scales if scales.any() else None

    def salt(self, salt: bytes, scales: F32 | None) -> bytes:
        """The salt of the names of a request's pages: only requests with the same adapters and scales share any."""
        if scales is None:
            return salt
        named = blake2b(struct.pack("<Q", len(salt)) + salt, digest_size=32)
        for digest, scale in zip(self.digests.values(), scales.tolist(), strict=True):
            if scale:
                named.update(digest + struct.pack("<f", scale))
        return named.digest()

    def _named(self, scales: Mapping[str | int, float]) -> dict[str, float]:
        """The scales by the names of adapters, where some are given by number."""
        names, named = list(self.digests), {}
        for key, scale in scales.items():
            name = names[key] if isinstance(key, int) and 0 <= key < len(names) else key
            if not isinstance(name, str) or name not in self.digests:
                known = f"there are {', '.join(map(printable, names))}" if names else "none is loaded"
                raise RequestError(f"there is no adapter '{printable(key)}': {known}", param="lora")
            named[name] = scale
        return named
