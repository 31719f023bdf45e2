"""Rows answered by the app of this process: by the same doors as over HTTP, without a socket."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from woolly.errors import NativeError, WoollyError
from woolly.server.answer import answer
from woolly.server.batch.rows import ROUTES, Row
from woolly.server.batch.work import Ask, Later, Said
from woolly.server.dialects import openai
from woolly.server.dialects.fields import EVERYWHERE, read_struct, refuse
from woolly.server.door import Call, Caller, Query
from woolly.server.errors import row as row_of
from woolly.server.offers import Answered

if TYPE_CHECKING:
    from woolly.server.app import App

DOORS = {door.path: door for door in openai.DIALECT.doors if door.path in ROUTES and door.method == "POST"}
BUSY = (429, 503)  # what passes by itself


def asking(app: App, caller: Caller) -> Ask:
    """What answers rows for this caller. A row has as much time as it takes."""

    async def ask(row: Row) -> Said:
        now = asyncio.get_running_loop().time()
        patient = replace(caller, begun_s=now, deadline_s=math.inf)
        try:
            return Said(200, msgspec.to_builtins(await _answer(app, patient, row)))
        except WoollyError as error:
            status = row_of(error).status
            if status in BUSY:
                raise Later(str(error)) from None
            return Said(status, msgspec.to_builtins(openai.error(error, row.request_id)))

    return ask


async def _answer(app: App, caller: Caller, row: Row) -> Any:
    door = DOORS[row.url]
    refuse(row.body, EVERYWHERE)
    try:
        if isinstance(door, Query):
            assert door.body is not None
            return await door.call(app, Call(read_struct(door.body, row.body), {}, {}, caller))
        out = Answered()
        job = await app.in_thread(lambda: door.read(row.body, {}, app.settings.limits))
        await answer(app, openai.DIALECT, door, job, caller, out)
        return out.body
    except WoollyError:
        raise
    except Exception as error:  # one row must not hold up all behind it
        app.log.internal_error(row.request_id, error)
        raise NativeError("something went wrong in the server", suggestion="its log tells where") from None
