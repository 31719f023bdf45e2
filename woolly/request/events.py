"""What comes back of a request: `Event`s one by one, or a `Completion`.

Events of one answer: `Start`, then `Prompt` where it was asked for, then any number of `Thought`, `Text` and
`CallStart`, each of the last followed by its `Arguments`, then exactly one `End` or `Failed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from woolly.errors import WoollyError

Reason: TypeAlias = Literal["stop", "calls", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of tokens: of the prompt, of those the ones whose state was still held, and of the answer; and how many of
    the held ones came from the disk."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    disk_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the seconds of an answer went, and the two rates they give.

    waited_s: until its first step began; prompt_s: from there to the first token; answer_s: from there to the end.
    prompt_rate: computed prompt tokens a second; answer_rate: tokens a second after the first. 0 where there were none.
    drafted: tokens that were guessed ahead; accepted: those of them that were right.
    """

    waited_s: float
    prompt_s: float
    answer_s: float
    prompt_rate: float
    answer_rate: float
    drafted: int = 0
    accepted: int = 0

    @property
    def first_token_s(self) -> float:
        return self.waited_s + self.prompt_s

    @property
    def total_s(self) -> float:
        return self.waited_s + self.prompt_s + self.answer_s


@dataclass(frozen=True, slots=True)
class Start:
    """The first event: work on the prompt begins; `cached_tokens` of it need no computing, `disk_tokens` of these
    because they were read from the disk."""

    prompt_tokens: int
    cached_tokens: int
    disk_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Logprob:
    """How likely a token was by the model's own logits, before any sampling; `top` are the likeliest, best first."""

    token: int
    spelling: bytes
    value: float
    top: tuple[tuple[int, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt as the model read it, whole: how likely each token was after those before it.

    Nothing comes before the first token, so it has no value: `first` is its id and spelling.
    """

    first: tuple[int, bytes]
    logprobs: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer, always whole characters, and the tokens that brought it. Without text: tokens of marks.

    logprobs: one for each token that was wanted with it; an end token has none.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of what a model thinks before it answers; in all else as `Text`."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class CallStart:
    """The model asks for a tool. The pieces of its arguments follow, before any other piece."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of the arguments of the call that began last: of the JSON text of an object; in all else as `Text`."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """The last event of an answer.

    reason: "stop" (an end token or a stop text), "calls" (the same, and it asks for tools), "length" (max_tokens or the
    context), or "cancelled". stopped_by: the stop text that ended it, if one did. logprob: of the end
    token, where it was asked for.
    """

    reason: Reason
    usage: Usage
    timings: Timings
    seed: int
    stopped_by: str = ""
    logprob: Logprob | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of an answer that could not be finished."""

    error: WoollyError


PartText: TypeAlias = Text | Thought  # what the text of a part of an answer becomes
Piece: TypeAlias = PartText | Arguments
Event: TypeAlias = Start | Prompt | Text | Thought | CallStart | Arguments | End | Failed


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model asks for; `arguments` is the JSON text of an object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer. `tokens` are all that were generated, an end token included; `text` has no special tokens.

    thought: what the model thought first, in a chat. The text of a prompt that was continued has thoughts and marks.
    finish_reason: as `End.reason`. calls: the tools that the model asks for; where the limit cut the last one short,
    its arguments are no whole JSON.
    seed: gives this answer again. logprobs, prompt: where they were asked for. stopped_by: the stop text that ended it.
    end_logprob: of the end token, which `logprobs` does not have. pieces: what all this was made of, in order; answers
    are equal however they were cut.
    """

    text: str
    thought: str
    tokens: list[int]
    finish_reason: Reason
    usage: Usage
    timings: Timings
    seed: int
    logprobs: tuple[Logprob, ...] = ()
    calls: tuple[Call, ...] = ()
    prompt: Prompt | None = None
    stopped_by: str = ""
    end_logprob: Logprob | None = None
    pieces: tuple[Piece, ...] = field(default=(), repr=False, compare=False)


def complete(events: Iterable[Event]) -> Completion:
    """All events of one answer as a whole; an answer that failed raises its error."""
    pieces: list[Piece] = []
    calls: list[tuple[CallStart, list[str]]] = []
    prompt: Prompt | None = None
    for event in events:
        match event:
            case Text() | Thought():
                pieces.append(event)
            case CallStart():
                calls.append((event, []))
            case Arguments():
                pieces.append(event)
                calls[-1][1].append(event.text)
            case Prompt():
                prompt = event
            case Failed(error):
                raise error
            case End(reason, usage, timings, seed, stopped_by, end_logprob):
                return Completion(
                    text="".join(piece.text for piece in pieces if isinstance(piece, Text)),
                    thought="".join(piece.text for piece in pieces if isinstance(piece, Thought)),
                    tokens=[token for piece in pieces for token in piece.tokens],
                    finish_reason=reason,
                    usage=usage,
                    timings=timings,
                    seed=seed,
                    logprobs=tuple(row for piece in pieces for row in piece.logprobs),
                    calls=tuple(Call(call.id, call.name, "".join(parts)) for call, parts in calls),
                    prompt=prompt,
                    stopped_by=stopped_by,
                    end_logprob=end_logprob,
                    pieces=tuple(pieces),
                )
    raise AssertionError("an answer ends with End or Failed")
