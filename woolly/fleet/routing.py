"""Routing: which replica answers a request. Plain functions over what a gateway knows; no clock, no network.

Few replicas are candidates for a conversation: the first by rendezvous hashing of its beginning, so that its turns
reach the replicas that have its pages; the first of its system prompt, which many conversations share; and one by
chance. The candidate that would give the first token soonest is chosen, by its queue, the pages that it has of the
prompt, and how full it is. A replica that comes or goes moves the conversations of its own share and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import nlargest
from typing import TypeVar

from woolly.request import Request

BY_CONVERSATION = 3  # candidates by the beginning of the conversation
PROMPT_RATE, ANSWER_RATE = 500.0, 100.0  # tokens a second of all answers, assumed until measured
ANSWER = 100  # tokens that an answer is assumed to have
CROWDED_S = 1.0  # added to the cost of a replica whose slots are all taken
SHORT = 256  # first characters or ids of a prompt without messages that make its key

T = TypeVar("T")


@dataclass(slots=True)
class ReplicaLoad:
    """How busy a replica is, as far as a gateway knows: by its last report, and by what it was sent since."""

    slots: int = 16  # answers that it computes at once
    prompt_rate: float = 0.0
    answer_rate: float = 0.0
    running: int = 0  # answers that it computes, or has queued
    queued: int = 0  # tokens of prompts that are still to be computed
    pages: set[bytes] = field(default_factory=set)  # in its prefix cache, by the first bytes of their digests
    sent: set[bytes] = field(default_factory=set)  # pages of the prompts sent to it since the report

    def known(self, names: Sequence[bytes]) -> int:
        """How many of the first pages of a prompt the replica need not compute."""
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


def cost_s(load: ReplicaLoad, prompt: Prompt) -> float:
    """About how many seconds a replica takes to the first token of a prompt; and CROWDED_S times the share of its
    slots that are taken, because answers that run side by side slow each other down."""
    todo = max(prompt.tokens - load.known(prompt.names) * prompt.page, 1)
    full = load.running / load.slots
    prompt_s = (load.queued + todo) * (1.0 + full) / (load.prompt_rate or PROMPT_RATE)
    slot_s = max(load.running + 1 - load.slots, 0) * ANSWER / (load.answer_rate or ANSWER_RATE)
    return prompt_s + slot_s + full * CROWDED_S


def candidates(ids: Collection[str], prompt: Prompt, chance: Callable[[Sequence[str]], str]) -> list[str]:
    """The replicas to choose among, in the order that decides between equals."""
    if len(ids) <= BY_CONVERSATION + 2:
        return ranked(ids, prompt.conversation, len(ids))
    chosen = [*ranked(ids, prompt.conversation, BY_CONVERSATION), *ranked(ids, prompt.system, 1), chance(sorted(ids))]
    return list(dict.fromkeys(chosen))


def ranked(ids: Collection[str], key: bytes, count: int) -> list[str]:
    """The first replicas of a key, by rendezvous hashing."""
    return nlargest(count, ids, key=lambda id_: blake2b(id_.encode(), key=key, digest_size=8).digest())


def keys_of(request: Request, salt: bytes) -> tuple[bytes, bytes]:
    """The key of a conversation, the same at every turn, and the key of its system prompt."""
    if request.messages is None:
        what = repr((request.prompt or "")[:SHORT] or (request.tokens or request.mixed or ())[:SHORT])
        return _key(salt, what), _key(salt, what)
    first = next((i for i, message in enumerate(request.messages) if message["role"] == "user"), 0)
    system = repr((request.messages[:first], request.tools))
    return _key(salt, system + repr(request.messages[first])), _key(salt, system)


def _key(salt: bytes, text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), key=salt[:64], digest_size=16).digest()
