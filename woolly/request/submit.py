"""SubmitOptions: what a request is submitted with that is no part of what it asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """For whom an answer is made, and what it may take.

    salt: only requests with an equal one share what was computed for an equal beginning. key: who asks; prompts are
    computed in fair shares between keys. unread: pieces that may wait for the reader before the answer pauses; None:
    any number. protect_s: seconds for which what was computed is kept longer than what others leave.
    """

    salt: bytes = b""
    key: str = ""
    unread: int | None = None
    protect_s: float = 0.0


NOBODY = SubmitOptions()  # shares with all others of no salt, and has no reader that is waited for
