"""Pieces of text: whole characters, and no part of a stop text."""

from __future__ import annotations

from tests.engine.asking import BYTES, END_TOKEN, answer, end_of, said
from tests.engine.fake import Fake, Outputs
from woolly.device import StepSize
from woolly.engine import AnswerOptions, Engine, Sequence
from woolly.request import Event, Sampling, Text
from woolly.text import TextStream


def spelled(answer_bytes: bytes, *stops: str, special: int | None = None) -> list[Event]:
    """The events of an answer that consists of these bytes, one a token; the special token comes at an index."""
    tokens = [END_TOKEN if i == special else byte for i, byte in enumerate(answer_bytes)]

    class Script(Fake):
        def run(self, size: StepSize) -> Outputs | None:
            outputs = super().run(size)
            if outputs is not None and size.wants:
                outputs["logits"][0, tokens[int(self.batch.spans[0, 2])]] = 100.0
            return outputs

    greedy, text = Sampling(temperature=0.0), TextStream(BYTES, stops)
    sequence = Sequence([0], limit=1 + len(tokens), answer=AnswerOptions(greedy, text=text))
    return answer(Engine(Script(vocab=257)), sequence)


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def test_a_stop_text_ends_the_answer_before_it_and_its_tokens_are_counted() -> None:
    events = spelled(b"abcdef", "cde")
    assert text_of(events) == "ab"
    assert end_of(events).reason == "stop"
    assert end_of(events).usage.completion_tokens == 5
    assert said(events) == list(b"abcde")


def test_what_only_looked_like_a_stop_is_sent_after_all() -> None:
    events = spelled(b"abcabc", "cx", "bcab!")
    assert text_of(events) == "abcabc"
    assert end_of(events).reason == "length"
    assert said(events) == list(b"abcabc")


def test_a_stop_that_is_a_special_tokens_text_stops_at_the_token() -> None:
    events = spelled(b"ab?c", "<end>", special=2)
    assert (text_of(events), end_of(events).reason, said(events)) == ("ab", "stop", [*b"ab", END_TOKEN])


def test_half_a_character_at_the_end_becomes_one_mark() -> None:
    events = spelled("aß".encode()[:2])
    assert text_of(events) == "a\N{REPLACEMENT CHARACTER}"
    assert said(events) == list("aß".encode()[:2])


def test_every_piece_is_whole_characters() -> None:
    events = spelled("a🐑ß".encode())
    assert [event.text for event in events if isinstance(event, Text)] == ["a", "🐑", "ß"]
    assert [event.tokens for event in events if isinstance(event, Text)][1] == tuple("🐑".encode())
