"""Rows answered in this process: by the same routes as over HTTP, without a socket."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from woolly.errors import WoollyError
from woolly.server.batch.rows import BatchRow
from woolly.server.batch.work import Retry, RowAnswerer, RowResult
from woolly.server.dialects.base.fields import REFUSED_EVERYWHERE, read_struct, refuse
from woolly.server.generate.answering import Answering
from woolly.server.generate.generate import answer
from woolly.server.generate.send import Answered
from woolly.server.http.caller import Caller
from woolly.server.http.errors import in_http, kind_of
from woolly.server.http.log import Log
from woolly.server.routes import Call, Dialect, Query, Route

BUSY = (429, 503)  # statuses of errors that pass by themselves


@dataclass(frozen=True, slots=True)
class RowRoutes:
    """The routes that rows of batches may name, by path, with their dialect."""

    dialect: Dialect
    routes: Mapping[str, Route]
    services: Answering
    log: Log

    def row_answerer(self, caller: Caller) -> RowAnswerer:
        """A function that answers rows for this caller. A row has no deadline."""

        async def ask(row: BatchRow) -> RowResult:
            now = asyncio.get_running_loop().time()
            unhurried = replace(caller, begun_s=now, deadline_s=math.inf)
            try:
                return RowResult(200, msgspec.to_builtins(await self._answer(unhurried, row)))
            except WoollyError as error:
                status = kind_of(error).status
                if status in BUSY:
                    raise Retry(str(error)) from None
                return RowResult(status, msgspec.to_builtins(self.dialect.error(in_http(error), row.request_id)))

        return ask

    async def _answer(self, caller: Caller, row: BatchRow) -> Any:
        route = self.routes[row.url]
        refuse(row.body, REFUSED_EVERYWHERE)
        services = self.services
        try:
            if isinstance(route, Query):
                assert route.body is not None
                return await route.call(Call(read_struct(route.body, row.body), {}, {}, caller))
            out = Answered(row.request_id)
            job = await services.workers.run(caller.name, lambda: route.read(row.body, {}, services.settings.limits))
            await answer(services, self.dialect, route, job, caller, out)
            return out.body
        except WoollyError:
            raise
        except Exception as error:  # one row must not end the whole batch
            raise self.log.fault(row.request_id, error) from None
