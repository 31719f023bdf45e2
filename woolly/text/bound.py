"""The fewest tokens that a text can have, told from its bytes without cutting it into words.

A token stands for so many bytes and no more, so a text of more bytes than a context of the longest token has does not
fit, whatever it says. Bytes that may become no token are not counted: those without one, which byte pairs drop, and the
white space that some special tokens take with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from woolly.text.bpe import LETTERS
from woolly.text.codec import SPACE
from woolly.text.vocab import BYTE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED, Vocab

_CHARACTER = 4  # bytes of the longest, which may become one unknown token


@dataclass(frozen=True, slots=True)
class Bound:
    longest: int  # bytes of a text that one token can stand for; 0: any number
    lost: bytes  # those that become no token
    spaced: bool  # words write a space as U+2581, so that this character is no longer than one
    greedy: bool  # white space may vanish

    def fewest(self, text: str) -> int:
        """A number of tokens that the text has at least; 0 where that cannot be told. Some 20 ms for 10 MB."""
        if not self.longest:
            return 0
        if self.spaced:
            text = text.replace(SPACE, " ")
        if self.greedy:
            text = "".join(text.split())
        data = text.encode("utf-8", "surrogatepass").translate(None, self.lost)
        return -(-len(data) // self.longest)


def bound_of(vocab: Vocab) -> Bound:
    greedy = bool(vocab.greedy)
    if vocab.model == "gpt2":
        hidden = {vocab.tokens[i] for i in vocab.of_kind(CONTROL, UNKNOWN, UNUSED)}
        lost = bytes(byte for byte, letter in LETTERS.items() if letter not in vocab.ids or letter in hidden)
        special = (vocab.tokens[i] for i in vocab.of_kind(CONTROL, UNKNOWN, USER_DEFINED))
        longest = max(map(len, vocab.tokens))  # a letter is a byte
        return Bound(max([longest, *map(_size, special)]), lost, False, greedy)
    whole = len(vocab.of_kind(BYTE)) == 256 or (vocab.model == "llama" and vocab.unknown is not None)
    if vocab.model == "bert" or not whole:  # words and characters of any number may vanish, or become one token
        return Bound(0, b"", False, greedy)
    return Bound(max(_CHARACTER, *map(_size, vocab.tokens)), b"", True, greedy)


def _size(token: str) -> int:
    return len(token.replace(SPACE, " ").encode())
