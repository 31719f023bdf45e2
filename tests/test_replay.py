"""An answer that was begun elsewhere: from any of its pieces on, the rest is what it would have been."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.tiny import tiny
from woolly import LLM
from woolly.errors import ContextError, RequestError
from woolly.request import End, Event, Prompt, Request, Start, Text, request_of

PROMPT = "the sea and the an"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "old": {"type": "boolean"}}}
REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0, "seed": 1},
    "sampled": {"temperature": 1.0, "seed": 7},
    "likelihoods": {"temperature": 1.0, "seed": 7, "logprobs": 3},
    "likelihoods of the prompt": {"temperature": 1.0, "seed": 7, "logprobs": 1, "prompt_logprobs": True},
    "stop text": {"temperature": 1.0, "seed": 3, "stop": ("26 w49", "w5")},
    "penalties": {"temperature": 1.0, "seed": 5, "repetition_penalty": 1.3, "presence_penalty": 1.0},
    "dry": {"temperature": 0.0, "seed": 1, "dry_multiplier": 2.0},
    "mirostat": {"temperature": 1.0, "seed": 11, "mirostat": 2},
    "xtc": {"temperature": 1.0, "seed": 13, "xtc_probability": 0.5},
    "schema": {"temperature": 1.0, "seed": 17, "format": SCHEMA},
    "end token": {"temperature": 1.0, "seed": 19, "logit_bias": {272: 4.0}, "logprobs": 1},
}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(tiny(tmp_path_factory.mktemp("m") / "m.gguf", vocab=512, seed=3), threads=1) as loaded:
        yield loaded


def request(**options: Any) -> Request:
    own = {name: options.pop(name) for name in ("logprobs", "prompt_logprobs") if name in options}
    return replace(request_of({"max_tokens": 24, **options}, prompt=PROMPT), **own)


def timeless(events: list[Event]) -> list[Event]:
    """Without what the clock and the cache decide."""
    return [
        replace(event, timings=None, usage=replace(event.usage, cached_tokens=0))  # type: ignore[arg-type]
        if isinstance(event, End)
        else event
        for event in events
        if not isinstance(event, Start)
    ]


@pytest.mark.parametrize("options", REQUESTS.values(), ids=REQUESTS)
def test_from_any_piece_on_the_rest_of_an_answer_is_what_it_would_have_been(llm: LLM, options: dict[str, Any]) -> None:
    prepared = llm.prepare(request(**options))
    all_events = timeless(list(llm.submit(prepared)))
    assert isinstance(all_events[-1], End)
    for cut in range(1, len(all_events)):
        before = [event for event in all_events[:cut] if isinstance(event, Text)]
        tokens = tuple(token for event in before for token in event.tokens)
        has_prompt = any(isinstance(event, Prompt) for event in all_events[:cut])
        again = replace(
            prepared,
            request=replace(prepared.request, prompt_logprobs=prepared.request.prompt_logprobs and not has_prompt),
            resumed=tokens,
            pieces=len(before),
        )
        assert timeless(list(llm.submit(again))) == all_events[cut:], f"cut before event {cut} of {len(all_events)}"


def test_the_seeds_above_end_as_they_are_meant_to(llm: LLM) -> None:
    ends = {name: list(llm.submit(request(**options)))[-1] for name, options in REQUESTS.items()}
    assert all(isinstance(end, End) for end in ends.values())
    reasons = {name: end.reason for name, end in ends.items() if isinstance(end, End)}
    assert (reasons["greedy"], reasons["schema"], reasons["end token"]) == ("length", "stop", "stop")
    assert isinstance(ends["stop text"], End) and ends["stop text"].stopped_by


def test_tokens_behind_the_end_of_an_answer_are_refused(llm: LLM) -> None:
    prepared = llm.prepare(request(temperature=0.0, max_tokens=3))
    with pytest.raises(RequestError, match=r"ends before given\[3\]"):
        llm.submit(replace(prepared, resumed=(1, 2, 3, 4), pieces=4))


def test_tokens_whose_text_nobody_has_are_refused(llm: LLM) -> None:
    prepared = llm.prepare(request(temperature=0.0))
    with pytest.raises(RequestError, match="more pieces of text than the 1 "):
        llm.submit(replace(prepared, resumed=(300, 301, 302), pieces=1))


def test_tokens_that_the_format_forbids_are_refused(llm: LLM) -> None:
    prepared = llm.prepare(request(**REQUESTS["schema"]))
    with pytest.raises(Exception, match="cannot go on in its format"):
        llm.submit(replace(prepared, resumed=tuple(llm.tokenize("no object"))))


def test_what_does_not_fit_the_context_is_refused_as_ever(llm: LLM) -> None:
    with pytest.raises(ContextError):
        llm.prepare(request(max_tokens=5000))
