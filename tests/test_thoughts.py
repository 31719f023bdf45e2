"""What a model thinks first, from its file to the library: a part of its own, however its tokens are cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiny import CHATML, scripted
from woolly.llm.llm import LLM
from woolly.request import Completion, End, Request, Sampling, Start, Text, Thought, complete

OPENS = CHATML.replace("assistant\n' }}", "assistant\n<think>\n' }}")
ASKED = [{"role": "user", "content": "2 + 2?"}]


def answer(path: Path, **how: int) -> tuple[Completion, str]:
    """What the model answers in a chat, and the text of the same tokens."""
    with LLM(path, threads=1, context=128) as llm:
        completion = llm.chat(ASKED, temperature=0, **how)
        return completion, llm.detokenize(completion.tokens)


@pytest.mark.parametrize(
    ("script", "template"),
    [
        (("<think>", "\nI ", "add", ".\n", "</think>", "\n\n", "It is ", "4."), CHATML),
        (("<thi", "nk>I add", ".</t", "hink>It ", "is 4."), CHATML),
        (("I add", ".\n</", "think", ">\n\nIt", " is 4."), OPENS),
    ],
)
def test_thoughts_are_a_part_of_their_own_however_the_tokens_are_cut(
    tmp_path: Path, script: tuple[str, ...], template: str
) -> None:
    completion, written = answer(scripted(tmp_path / "thinker.gguf", *script, template=template))
    assert (completion.thought, completion.text) == ("I add.", "It is 4.")
    assert written == "".join(script)  # no token is lost
    assert completion.usage.completion_tokens == len(completion.tokens) == len(script) + 1
    assert completion.finish_reason == "stop"


def test_marks_that_are_control_tokens_reach_the_reader(tmp_path: Path) -> None:
    marks = ("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>")
    script = (marks[0], "I add.", marks[1], marks[2], "It is 4.", marks[3])
    template = "{# <|START_ACTION|> #}" + CHATML
    completion, written = answer(scripted(tmp_path / "a.gguf", *script, control=marks, template=template))
    assert (completion.thought, completion.text) == ("I add.", "It is 4.")
    assert written == "I add.It is 4."  # without a reader they have no text


def test_a_thought_that_never_ends_loses_nothing(tmp_path: Path) -> None:
    completion, _ = answer(scripted(tmp_path / "a.gguf", "<think>", "I add", " and </t"))
    assert (completion.thought, completion.text) == ("I add and </t", "")
    completion, _ = answer(scripted(tmp_path / "b.gguf", "<think>", "I add", " and then", " add"), max_tokens=3)
    assert (completion.thought, completion.text, completion.finish_reason) == ("I add and then", "", "length")


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = scripted(tmp_path_factory.mktemp("models") / "thinker.gguf", "<think>", "I add.", "</think>", "It is ", "4.")
    with LLM(path, threads=1, context=128) as llm:
        yield llm


def test_a_stream_has_thoughts_before_words_and_likelihoods_of_both(thinker: LLM) -> None:
    request = Request(messages=tuple(ASKED), sampling=Sampling(temperature=0.0), logprobs=0)
    events = list(thinker.submit(request))
    assert [type(event) for event in events] == [Start, Thought, Thought, Thought, Text, Text, Text, End]
    likely = [row.spelling for event in events if isinstance(event, Text | Thought) for row in event.logprobs]
    assert likely == [b"<think>", b"I add.", b"</think>", b"It is ", b"4."]


def test_a_prompt_that_is_continued_has_the_marks_in_its_text(thinker: LLM) -> None:
    completion = thinker.generate(thinker.render(ASKED), temperature=0)
    assert (completion.thought, completion.text) == ("", "<think>I add.</think>It is 4.")


def test_a_prompt_is_prepared_once_for_several_answers(thinker: LLM) -> None:
    request = Request(messages=tuple(ASKED), sampling=Sampling(temperature=0.0, seed=1))
    prepared = thinker.prepare(request)
    other = replace(prepared, request=replace(request, sampling=Sampling(seed=2)))
    assert complete(thinker.submit(prepared)).text == "It is 4."
    completion = complete(thinker.submit(other))
    assert (completion.seed, completion.thought) == (2, "I add.")
    assert completion.usage.prompt_tokens == len(prepared.ids)
