"""A lower bound of the tokens of a text, from its bytes, without cutting it into words.

No token stands for more bytes than the longest one, so a text has at least as many tokens as its bytes divided by those
of the longest. Bytes that may become no token are not counted: those without a token, which byte pairs drop, and white
space where special tokens take it with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from woolly.text.tokenizer.bpe import LETTERS
from woolly.text.tokenizer.codec import SPACE
from woolly.text.tokenizer.vocab import BYTE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED, Vocab

_CHARACTER = 4  # bytes of the longest character, which may become one unknown token


@dataclass(frozen=True, slots=True)
class Bound:
    longest: int  # bytes of a text that one token can stand for; 0: any number
    lost: bytes  # bytes that become no token
    spaced: bool  # words write a space as U+2581, which counts as one byte
    greedy: bool  # special tokens may take white space with them

    def fewest(self, text: str) -> int:
        """A lower bound of the text's tokens; 0 where none is known. Some 20 ms for 10 MB."""
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
        longest = max(map(len, vocab.tokens))  # a character of a token stands for a byte
        return Bound(max([longest, *map(_size, special)]), lost, False, greedy)
    all_bytes = len(vocab.of_kind(BYTE)) == 256 or (vocab.model == "llama" and vocab.unknown is not None)
    if vocab.model == "bert" or not all_bytes:  # any number of words may become one token, or none
        return Bound(0, b"", False, greedy)
    return Bound(max(_CHARACTER, *map(_size, vocab.tokens)), b"", True, greedy)


def _size(token: str) -> int:
    return len(token.replace(SPACE, " ").encode())
