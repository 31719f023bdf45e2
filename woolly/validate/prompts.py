"""Prompts for servers: fresh texts of an exact number of tokens, and questions with the words of a right answer."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from woolly.errors import RequestError
from woolly.text import Tokenizer

COMMON = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an they
which one you were all her she there would their we him been has when who will no more if out so up said
what its about than into them can only other time new some could these two may first then do any like my
now over such our man me even most made after also did many off before must well back through years where
much your way down should because long each just those people too mr how little state good very make world
still see own work men day get
"""  # words of English, each a token or two anywhere
TRIES = 50


def fresh_text(tokenizer: Tokenizer, count: int, rng: Random) -> str:
    """A text of plain words that is exactly so many tokens as a prompt, its beginning token included."""
    known = COMMON.split()
    for _ in range(TRIES):
        words = " ".join(rng.choice(known) for _ in range(count + 4))
        ids = tokenizer.encode(words, special=True, bos=None)[:count]
        text = tokenizer.decode(ids[1:] if tokenizer.bos is not None and ids[0] == tokenizer.bos else ids)
        if tokenizer.encode(text, special=True, bos=None) == ids:
            return text
    raise RequestError(f"no text of {count} tokens could be made with the tokenizer of this model")


@dataclass(frozen=True, slots=True)
class Question:
    """kind: the ability it tests; words: in lower case; an answer's score is the share of these words that it has."""

    kind: str
    text: str
    words: tuple[str, ...]


QUESTIONS = (
    Question("correctness", "What is the capital of France?", ("paris",)),
    Question("correctness", "What is 6 times 7? Answer with the number.", ("42",)),
    Question("correctness", "Write a Python function that computes a factorial.", ("def", "factorial", "return")),
    Question(
        "correctness",
        "All roses are flowers. Some flowers fade quickly. Do all roses fade quickly? Answer yes or no, and why.",
        ("no",),
    ),
    Question("correctness", "Repeat this number: 7823", ("7823",)),
    Question("numbers", "What is 123 + 456?", ("579",)),
    Question("numbers", "What is 1000 - 237?", ("763",)),
    Question("numbers", "What is 12 * 15?", ("180",)),
    Question("numbers", "What is 144 / 12?", ("12",)),
    Question("numbers", "What is 15 % of 200?", ("30",)),
    Question("context", "Remember the numbers 42, 17 and 93. Which numbers did I name?", ("42", "17", "93")),
    Question("context", "Say hello, and end your answer with DONE.", ("done",)),
    Question("context", "My car is a blue Tesla Model 3. Which car do I have?", ("blue", "tesla", "model 3")),
    Question("format", "Write the numbers one, two and three, each on a line of its own.", ("one\n", "two\n", "three")),
    Question("format", "Write a Markdown heading and two bullet points about tea.", ("#", "tea")),
)

# The questions that users of the load test ask, in turn.
CHATTER = (
    "Explain what a compiler does.",
    "Write a short story about a lighthouse.",
    "How do bees make honey?",
    "List three uses of copper.",
    "What makes the sky blue?",
    "Describe a walk through a forest.",
    "Give advice to somebody who learns to cook.",
    "Why do ships float?",
    "Compare tea and coffee.",
    "Tell me something about the moon.",
)
