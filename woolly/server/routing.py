"""Routing: which replica answers a request. Plain functions over what a gate knows; no clock, no network.

Few replicas are candidates for a conversation: the first by rendezvous hashing of its beginning, so that its turns come
to where its pages are, and of its system prompt, which many conversations share; and one by chance. Of these the one
that would give the first token soonest, by what it has queued, what it remembers of the prompt, and how full it is. Who
comes or goes moves the conversations of its own share and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import nlargest
from typing import TypeVar

from woolly.request import Request

OWN = 3  # candidates by the conversation
PROMPT_RATE, ANSWER_RATE = 500.0, 100.0  # tokens a second of all answers together, until something was measured
ANSWER = 100  # tokens of an answer, about
CROWDED_S = 1.0  # that a replica with no slot left is worse than an idle one
SHORT = 256  # characters or ids that a prompt without messages is known by

T = TypeVar("T")


@dataclass(slots=True)
class Standing:
    """How a replica stands, as far as a gate knows: by its last report, and by what the gate has sent it since."""

    slots: int = 16  # answers that it computes at once
    prompt_rate: float = 0.0
    answer_rate: float = 0.0
    running: int = 0  # answers that it computes, or has queued
    queued: int = 0  # tokens of prompts that are still to be computed
    pages: set[bytes] = field(default_factory=set)  # that it remembers, the first bytes of their digests
    sent: set[bytes] = field(default_factory=set)  # that it will, of what was sent since

    def known(self, names: Sequence[bytes]) -> int:
        """How many of the first pages of a prompt it need not compute."""
        for index, name in enumerate(names):
            if name not in self.pages and name not in self.sent:
                return index
        return len(names)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What routing knows of a prompt. names: the first eight bytes of the digests of its pages."""

    conversation: bytes
    system: bytes
    tokens: int
    page: int
    names: Sequence[bytes]


def cost_s(one: Standing, prompt: Prompt) -> float:
    """Seconds to the first token of a prompt there, about; and up to CROWDED_S more, because answers that run side by
    side slow each other down."""
    todo = max(prompt.tokens - one.known(prompt.names) * prompt.page, 1)
    full = one.running / one.slots
    prompt_s = (one.queued + todo) * (1.0 + full) / (one.prompt_rate or PROMPT_RATE)
    slot_s = max(one.running + 1 - one.slots, 0) * ANSWER / (one.answer_rate or ANSWER_RATE)
    return prompt_s + slot_s + full * CROWDED_S


def candidates(ids: Collection[str], prompt: Prompt, chance: Callable[[Sequence[str]], str]) -> list[str]:
    """The replicas to choose among, in the order that decides between equals."""
    if len(ids) <= OWN + 2:
        return ranked(ids, prompt.conversation, len(ids))
    chosen = [*ranked(ids, prompt.conversation, OWN), *ranked(ids, prompt.system, 1), chance(sorted(ids))]
    return list(dict.fromkeys(chosen))


def ranked(ids: Collection[str], key: bytes, count: int) -> list[str]:
    """The first replicas of a key, by rendezvous hashing."""
    return nlargest(count, ids, key=lambda id_: blake2b(id_.encode(), key=key, digest_size=8).digest())


def keys_of(request: Request, salt: bytes) -> tuple[bytes, bytes]:
    """What a conversation is known by from turn to turn, and what its system prompt is known by."""
    if request.messages is None:
        what = repr((request.prompt or "")[:SHORT] or (request.tokens or ())[:SHORT])
        return _key(salt, what), _key(salt, what)
    first = next((i for i, message in enumerate(request.messages) if message["role"] == "user"), 0)
    system = repr((request.messages[:first], request.tools))
    return _key(salt, system + repr(request.messages[first])), _key(salt, system)


def _key(salt: bytes, text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), key=salt[:64], digest_size=16).digest()
