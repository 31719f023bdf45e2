"""The way out: whole characters, exact stops, nothing lost and nothing held for long."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.small import bpe, spm
from woolly.errors import RequestError
from woolly.text import TextStream, Tokenizer

BPE = Tokenizer(bpe())
SPM = Tokenizer(spm())
END = BPE.id_of("<|im_end|>") or 0
THINK = BPE.id_of("<think>") or 0


def pieces(ids: list[int], stop: tuple[str, ...] = (), tokenizer: Tokenizer = BPE, **more: Any) -> list[str]:
    """What is sent, token by token, and at the end."""
    stream = TextStream(tokenizer, stop, **more)
    return [*(stream.feed(i) for i in ids), stream.flush()]


def letters(text: str) -> list[int]:
    """One token a byte, so that every border between tokens there can be is there."""
    return list(text.encode())


def cut(text: str, stop: tuple[str, ...]) -> str:
    """What stops mean: the text before the one that begins first."""
    return text[: min((at for s in stop if (at := text.find(s)) >= 0), default=len(text))]


def test_t14_a_stop_over_several_tokens_is_cut_exactly_and_nothing_of_it_is_sent() -> None:
    assert pieces(letters("abcSTOPxyz"), ("STOP",)) == [*"abc", "", "", "", "", "", "", "", ""]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("a\n    b\nc", "a\n    b\n"),
        ("a\n    b\n  c", "a\n    b\n  "),
        ("a\n\tb", "a\n\t"),
        ("a\n    b\n    c\n", "a\n    b\n    c\n"),
        ("a\n    b\n\n    c", "a\n    b\n"),  # an empty line has too few blanks
        ("a\n    \n    c", "a\n    \n    c"),
        ("a", "a"),
    ],
)
def test_a_text_ends_at_a_line_with_fewer_blanks_than_it_is_to_have(text: str, sent: str) -> None:
    for ids in (letters(text), BPE.encode(text)):
        stream = TextStream(BPE, indent=4)
        assert "".join([*map(stream.feed, ids), stream.flush()]) == sent
        assert (stream.stopped, stream.stopped_by) == (sent != text, "")
        assert "".join(pieces(ids, ("b",), indent=4)) == cut(sent, ("b",))


@pytest.mark.parametrize(
    ("ids", "stop", "sent"),
    [
        (BPE.encode("hello the"), (" t",), "hello"),  # it ends inside a token: the rest of the token is dropped
        (BPE.encode("hello the"), ("ell",), "h"),  # it lies inside a token
        (BPE.encode("hello"), ("hello",), ""),  # at the very start
        (letters("aab"), ("ab", "aab"), ""),  # both end together: the one that begins first
        (letters("abcde"), ("cd", "abcde"), ""),  # the one that begins first ends last
        (letters("abcdx"), ("cd", "abcde"), "ab"),  # and then does not come
        (letters("abcd"), ("cd", "abcde"), "ab"),  # or the answer ends before it could
        (letters("aaab"), ("aab",), "a"),  # it begins inside its own false start
        (letters("ababac"), ("abac",), "ab"),
        (letters("x🙂y"), ("🙂",), "x"),
        (letters("x🙂y")[:3], ("\ufffd",), "x"),  # a stop that the unfinished end completes
        (letters("xé"), ("é", "x"), ""),
    ],
)
def test_t14_the_stop_that_begins_first_cuts(ids: list[int], stop: tuple[str, ...], sent: str) -> None:
    assert "".join(pieces(ids, stop)) == sent


ALPHABET = st.text("ab🙂", max_size=30)
STOPS = st.lists(st.text("ab🙂", min_size=1, max_size=5), min_size=1, max_size=4).map(tuple)


@given(ALPHABET, STOPS, st.randoms())
def test_t14_where_tokens_end_does_not_matter(text: str, stop: tuple[str, ...], random: Any) -> None:
    ids: list[int] = []
    data = text
    while data:
        size = random.randint(1, len(data))
        ids += BPE.encode(data[:size]) if random.random() < 0.5 else letters(data[:size])
        data = data[size:]
    assert "".join(pieces(ids, stop)) == cut(text, stop)


@given(ALPHABET, STOPS)
def test_t15_text_is_held_back_only_while_it_may_become_a_stop(text: str, stop: tuple[str, ...]) -> None:
    stream = TextStream(BPE, stop)
    sent = ""
    for i, byte in enumerate(text.encode(), 1):
        sent += stream.feed(byte)
        if stream.stopped:
            break
        came = text.encode()[:i].decode("utf-8", "ignore")
        unsent = came[len(sent) :]
        assert came.startswith(sent)
        assert len(unsent) <= max(map(len, stop))
        assert not unsent or any(s.startswith(unsent[: len(s)]) for s in stop)
    assert sent + stream.flush() == cut(text, stop)


def test_t15_what_looked_like_a_stop_is_sent_when_it_is_none() -> None:
    assert pieces(letters("STAR"), ("STOP",)) == ["", "", "STA", "R", ""]
    assert pieces(letters("ST"), ("STOP",)) == ["", "", "ST"]


@pytest.mark.parametrize(
    ("ids", "stop", "by"),
    [
        (letters("abcSTOPxyz"), ("x", "STOP"), "STOP"),
        (letters("abcabd"), ("bd", "cab"), "cab"),  # the one that begins first
        ([*letters("a"), END], ("<|im_end|>",), "<|im_end|>"),
        (letters("abc"), ("STOP",), ""),
    ],
)
def test_the_stop_that_ended_a_text_is_told(ids: list[int], stop: tuple[str, ...], by: str) -> None:
    stream = TextStream(BPE, stop)
    for token in ids:
        stream.feed(token)
    assert stream.stopped_by == by


def test_after_a_stop_nothing_follows() -> None:
    stream = TextStream(BPE, ["b"])
    assert [stream.feed(i) for i in letters("abab")] == ["a", "", "", ""]
    assert stream.stopped
    assert stream.flush() == ""


def test_a_stop_that_is_a_special_token_also_stops_at_that_token() -> None:
    stream = TextStream(BPE, ["<|im_end|>", "zz"])
    assert stream.feed(97) == "a"
    assert stream.feed(122) == ""
    assert stream.feed(END) == "z"
    assert stream.stopped
    assert "".join(pieces(letters("a<|im_end|>b"), ("<|im_end|>",))) == "a"


def test_t16_pieces_are_whole_characters() -> None:
    assert pieces(letters("é🙂中")) == ["", "é", "", "", "", "🙂", "", "", "中", ""]


def test_t16_an_unfinished_character_at_the_end_becomes_one_replacement() -> None:
    assert pieces(letters("a🙂")[:4]) == ["a", "", "", "", "\ufffd"]
    assert pieces([0xC3]) == ["", "\ufffd"]


@given(st.lists(st.integers(0, BPE.vocab - 1) | st.sampled_from(letters("é🙂中\ufffd"))))
def test_t16_the_pieces_together_are_the_decoded_whole(ids: list[int]) -> None:
    assert "".join(pieces(ids)) == BPE.decode(ids)


@given(st.lists(st.integers(0, SPM.vocab - 1) | st.sampled_from([*SPM.encode("he hello"), 1, SPM.vocab - 1])))
def test_t16_the_pieces_of_scored_words_together_are_the_decoded_whole(ids: list[int]) -> None:
    assert "".join(pieces(ids, tokenizer=SPM)) == SPM.decode(ids)


def test_control_tokens_give_no_text_and_user_defined_ones_are_text() -> None:
    assert pieces([97, END, THINK, 98]) == ["a", "", "<think>", "b", ""]


def test_a_space_in_the_middle_of_a_text_is_kept_and_one_that_encoding_adds_is_not() -> None:
    hello, begin = SPM.encode("hello")[0], SPM.bos
    assert "".join(pieces([hello], tokenizer=SPM)) == "hello"
    assert "".join(pieces([hello], tokenizer=SPM, after=begin)) == "hello"
    assert "".join(pieces([hello], tokenizer=SPM, after=hello)) == " hello"
    assert "".join(pieces([hello, begin or 0, hello], tokenizer=SPM, after=hello)) == " hellohello"


@pytest.mark.parametrize("stop", [[""], [3], ["a", "\ud800"]])
def test_a_stop_that_can_never_be_found_is_refused(stop: Any) -> None:
    with pytest.raises(RequestError):
        TextStream(BPE, stop)
