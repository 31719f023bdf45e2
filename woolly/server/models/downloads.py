"""Downloads that clients ask for: a few at a time, in threads of their own, because each takes as long as the other
side likes; and none for a caller that has gone. What came is kept, and the next one goes on from there.
"""

from __future__ import annotations

import functools

from woolly import store
from woolly.config import Config
from woolly.server.accounts import Accounts, Bound, Resource
from woolly.server.http.caller import Caller
from woolly.server.workers import Workers

DOWNLOADS = Bound(each=2, all=4)


class Downloads:
    """Owned by the event loop."""

    def __init__(self, config: Config, accounts: Accounts) -> None:
        self._config = config
        self._workers = Workers(accounts, Resource.DOWNLOADS, DOWNLOADS, name="pull")

    def begin(self) -> None:
        self._workers.begin()

    async def pull(self, caller: Caller, name: str, progress: store.Progress) -> None:
        await self._workers.run(caller.name, functools.partial(store.pull, name, self._config, progress=progress))

    def close(self) -> None:
        self._workers.close()
