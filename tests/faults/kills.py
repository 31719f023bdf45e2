"""A story in a process that is killed at its n-th call. The process is forked by one that has imported the stories."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.faults.calls import KILL, FailingCalls
from tests.faults.stories import Story


def _act(story: Story, folder: Path, at: int, connection: Connection) -> None:
    with FailingCalls(folder, at=at, failure=KILL) as calls:
        story.act(folder, lambda key, value: connection.send((key, value)), calls)


def kill_at(story: Story, folder: Path, at: int) -> tuple[dict[str, Any], bool]:
    """What the story had acknowledged when it was killed at that call, and whether it was."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.server_story"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_act, args=(story, folder, at, sender), daemon=True)
    process.start()
    sender.close()
    acknowledged: dict[str, Any] = {}
    with receiver:
        while True:
            try:
                key, value = receiver.recv()
            except EOFError:
                break
            acknowledged[key] = value
    process.join()
    assert process.exitcode in (0, -9), process.exitcode
    return acknowledged, process.exitcode == -9
