"""The digests of the files of loaded models, each made once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from woolly import store
from woolly.errors import WoollyError
from woolly.server.models.loaded import LoadedModel
from woolly.server.models.registry import Fingerprint, fingerprint
from woolly.server.models.threads import FileThreads


class Digests:
    def __init__(self, threads: FileThreads) -> None:
        self._threads = threads
        self._digests: dict[tuple[Path, Fingerprint], asyncio.Task[str | None]] = {}

    async def of(self, loaded: LoadedModel) -> str | None:
        """The digest of a loaded model's file, made when it is first asked for; None if the file is another by now."""
        key = (loaded.path, loaded.fingerprint)
        if key not in self._digests:
            self._digests[key] = asyncio.create_task(self._digest(loaded))
        digest = await asyncio.shield(self._digests[key])  # whoever goes away does not take it from others
        if digest is None:
            self._digests.pop(key, None)
        return digest

    async def _digest(self, loaded: LoadedModel) -> str | None:
        try:
            parts = await self._threads.run(store.parts_of, loaded.path)
            digest = await asyncio.to_thread(store.file_digest, parts, lambda: not loaded.leaving)
            same = await self._threads.run(fingerprint, loaded.path) == loaded.fingerprint
            return "sha256:" + digest.hex() if digest is not None and same else None
        except (WoollyError, OSError):
            return None
