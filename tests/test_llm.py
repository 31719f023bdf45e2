"""The library, on small random models: what the README promises, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tiny import tiny
from woolly import LLM, Format, Tokenizer, gguf, system, text
from woolly.errors import BusyError, ContextError, FileError, NativeError, RequestError, UnsupportedError
from woolly.request import End, Request, Sampling, Start, Text, complete

IDS = [116, 257, 268, 100, 32, 97, 98, 99]
HELLO = [{"role": "user", "content": "the sheep"}]
NEVER_END = dict.fromkeys((270, 271, 272), -100.0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("llm") / "tiny.gguf", context=512)


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1) as llm:
        yield llm


def test_a_prompt_is_continued(llm: LLM) -> None:
    c = llm.generate("the sheep and", max_tokens=12, seed=4)
    assert len(c.tokens) == c.usage.completion_tokens <= 12
    assert c.usage.prompt_tokens == len(llm.tokenize("the sheep and"))
    assert c.finish_reason in ("stop", "length")
    assert c.seed == 4
    assert llm.generate("the sheep and", max_tokens=12, seed=4).tokens == c.tokens


def test_ids_are_taken_as_they_are(llm: LLM) -> None:
    ids = llm.tokenize("the sheep and")
    text, tokens = llm.generate("the sheep and", max_tokens=9, seed=4), llm.generate(ids, max_tokens=9, seed=4)
    assert tokens.tokens == text.tokens
    assert llm.generate(np.array(ids, np.int32), max_tokens=9, seed=4).tokens == text.tokens


def test_pieces_of_a_stream_are_the_whole_text(llm: LLM) -> None:
    events = list(llm.stream("the", max_tokens=40, seed=2))
    c = llm.generate("the", max_tokens=40, seed=2)
    assert isinstance(events[0], Start) and isinstance(events[-1], End)
    assert "".join(event.text for event in events if isinstance(event, Text)) == c.text
    assert [token for event in events if isinstance(event, Text) for token in event.tokens] == c.tokens
    assert events[-1].seed == c.seed


def test_d10_the_seed_that_was_drawn_gives_the_answer_again(llm: LLM) -> None:
    c = llm.generate(IDS, max_tokens=20, temperature=1.5, top_k=0, top_p=1.0)
    again = llm.generate(IDS, max_tokens=20, temperature=1.5, top_k=0, top_p=1.0, seed=c.seed)
    assert again.tokens == c.tokens
    other = llm.generate(IDS, max_tokens=20, temperature=1.5, top_k=0, top_p=1.0)
    assert other.seed != c.seed and other.tokens != c.tokens


def test_a_greedy_answer_is_the_argmax_of_the_logits(llm: LLM) -> None:
    c = llm.generate(IDS, max_tokens=10, temperature=0)
    rows = llm.logits(IDS + c.tokens)
    assert rows[len(IDS) - 1 : -1].argmax(-1).tolist() == c.tokens


def test_a_chat_is_rendered_by_the_template(llm: LLM) -> None:
    c = llm.chat(HELLO, max_tokens=5, seed=1)
    prompt = "<|im_start|>user\nthe sheep<|im_end|>\n<|im_start|>assistant\n"
    assert c.usage.prompt_tokens == len(llm.tokenize(prompt))
    assert c.tokens == llm.generate(prompt, max_tokens=5, seed=1).tokens


def test_a_conversation_is_shown_as_the_template_writes_it(llm: LLM) -> None:
    assert llm.render(HELLO) == "<|im_start|>user\nthe sheep<|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(RequestError, match="no switch for thinking"):
        llm.render(HELLO, think=True)


def test_think_is_told_to_a_template_that_knows_it(tmp_path: Path) -> None:
    template = "{{ messages[0].content }}{% if enable_thinking is false %}<no thoughts>{% endif %}"
    path = tiny(tmp_path / "thinker.gguf", meta={"tokenizer.chat_template": template})
    with LLM(path, threads=1) as llm:
        assert [llm.render(HELLO, think=think) for think in (None, True, False)] == [
            "the sheep",
            "the sheep",
            "the sheep<no thoughts>",
        ]
        counts = [llm.chat(HELLO, think=think, max_tokens=1).usage.prompt_tokens for think in (True, False)]
        assert counts[0] < counts[1]
        answer = llm.chat(HELLO, chat_template_kwargs={"enable_thinking": False}, max_tokens=1)
        assert answer.usage.prompt_tokens == counts[1]
        with pytest.raises(RequestError, match="think is true or false"):
            llm.chat(HELLO, think="no")  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="only a chat"):
            llm.generate("the", chat_template_kwargs={"enable_thinking": False})


SWITCHED = "{% if enable_thinking is not defined %}-{% elif enable_thinking %}thinks{% else %}answers{% endif %}"


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, ["thinks", "thinks", "answers", "answers", "-"]),
        ({"thinking": "off"}, ["answers", "thinks", "answers", "answers", "-"]),
        ({"thinking": "template"}, ["-", "thinks", "answers", "answers", "-"]),
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            ["answers", "thinks", "answers", "answers", "answers"],
        ),
    ],
)
def test_a_chat_that_says_nothing_of_thinking_thinks_as_the_model_was_loaded(
    tmp_path: Path, settings: dict[str, Any], shown: list[str]
) -> None:
    path = tiny(tmp_path / "thinker.gguf", meta={"tokenizer.chat_template": SWITCHED})
    with LLM(path, threads=1, **settings) as llm:
        chats: list[dict[str, Any]] = [
            {},
            {"think": True},
            {"think": False},
            {"chat_template_kwargs": {"enable_thinking": False}},
            {"chat_template_kwargs": {"reasoning_effort": "minimal"}},  # how much is said, so whether is not added
        ]
        assert [llm.render(HELLO, **chat) for chat in chats] == shown


def test_a_template_without_a_switch_is_not_told_to_think(llm: LLM) -> None:
    assert llm.prepare(Request(messages=HELLO)).notes == ()  # type: ignore[arg-type]


def test_variables_of_a_template_can_be_those_of_the_model(tmp_path: Path) -> None:
    path = tiny(tmp_path / "a.gguf", meta={"tokenizer.chat_template": "{{ mood }}{{ date_string }}"})
    with LLM(path, threads=1, chat_template_kwargs={"mood": "calm", "date_string": " today"}) as llm:
        assert llm.render(HELLO) == "calm today"
        assert llm.render(HELLO, chat_template_kwargs={"mood": "wild"}) == "wild today"
    for wrong in ({"messages": 1}, {"x": [1]}, {"no name": 1}):
        with pytest.raises(RequestError, match="chat_template_kwargs"):
            LLM(path, chat_template_kwargs=wrong)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="thinking is 'maybe'; expected one of on, off, template"):
        LLM(path, thinking="maybe")


def test_a_prompt_can_be_shown_without_the_beginning_of_an_answer(llm: LLM) -> None:
    assert llm.render(HELLO, add_generation_prompt=False) == "<|im_start|>user\nthe sheep<|im_end|>\n"


def test_an_answer_that_is_begun_goes_on_from_there_and_holds_no_control_token(llm: LLM) -> None:
    plain = llm.prepare(Request(messages=HELLO)).ids  # type: ignore[arg-type]
    begun = "the sheep <|im_end|>"
    ids = llm.prepare(Request(messages=HELLO, begun=begun)).ids  # type: ignore[arg-type]
    assert ids[: len(plain)] == plain
    assert list(ids[len(plain) :]) == llm.tokenize(begun, special=False, bos=False)
    with pytest.raises(RequestError, match="begun"):
        Request(prompt="x", begun="y")


def test_an_answer_may_be_shorter_where_the_request_says_so(llm: LLM) -> None:
    with pytest.raises(ContextError):
        llm.prepare(Request(tokens=(1,) * 500, max_tokens=13))
    assert llm.prepare(Request(tokens=(1,) * 500, max_tokens=13, shorten=True)).max_tokens == 12
    with pytest.raises(ContextError):
        llm.prepare(Request(tokens=(1,) * 512, max_tokens=13, shorten=True))


def test_the_next_turn_of_a_chat_does_not_compute_the_first_again(path: Path) -> None:
    with LLM(path, threads=1) as llm:
        messages = [{"role": "user", "content": "the sheep " * 12}]
        first = llm.chat(messages, max_tokens=30, seed=1)
        assert first.usage.cached_tokens == 0
        messages += [{"role": "assistant", "content": "and the goat"}, {"role": "user", "content": "and then?"}]
        second = llm.chat(messages, max_tokens=5, seed=1)
        assert second.usage.cached_tokens == first.usage.prompt_tokens // 64 * 64 > 0
    with LLM(path, threads=1) as fresh:
        assert fresh.chat(messages, max_tokens=5, seed=1).tokens == second.tokens


def test_a_chat_without_a_number_goes_to_the_end_of_the_context(path: Path) -> None:
    with LLM(path, context=64, threads=1) as llm:
        c = llm.chat(HELLO, temperature=0, logit_bias=NEVER_END)
        assert (c.finish_reason, c.usage.total_tokens) == ("length", 64)


def test_a_prompt_without_a_number_gets_a_hundred_tokens_or_what_is_left(path: Path) -> None:
    with LLM(path, context=128, threads=1) as llm:
        assert len(llm.generate(IDS, logit_bias=NEVER_END).tokens) == 100
        assert len(llm.generate(IDS * 8, logit_bias=NEVER_END).tokens) == 64


def test_an_answer_whose_ends_are_ignored_never_ends_by_itself(llm: LLM) -> None:
    ends = dict.fromkeys(llm.prompter.ends, 100.0)
    for temperature in (0.0, 1.0):
        options = {"temperature": temperature, "logit_bias": ends, "max_tokens": 8}
        assert llm.generate(IDS, **options).usage.completion_tokens == 1
        completion = llm.generate(IDS, **options, ignore_eos=True)
        assert (completion.usage.completion_tokens, completion.finish_reason) == (8, "length")


def test_what_does_not_fit_the_context_is_refused_with_both_numbers(llm: LLM) -> None:
    with pytest.raises(
        ContextError, match="8 tokens and max_tokens is 505, which exceeds the available context size of 512"
    ) as caught:
        llm.generate(IDS, max_tokens=505)
    assert (caught.value.prompt, caught.value.answer, caught.value.limit) == (8, 505, 512)
    with pytest.raises(ContextError, match="512 tokens, which exceeds the available context size of 512"):
        llm.generate([5] * 512)
    with pytest.raises(ContextError, match="513 tokens, which exceeds the available context size of 512"):
        llm.logits([5] * 513)
    with pytest.raises(ContextError, match="512 tokens, which"):  # a number that may be less is not to blame
        llm.submit(Request(tokens=(5,) * 512, max_tokens=2**31 - 1, shorten=True))
    assert llm.generate(IDS, max_tokens=504, temperature=0).usage.total_tokens <= 512


def test_a_prompt_that_is_too_long_whatever_it_says_is_refused_before_it_is_cut_into_tokens(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[object] = []
    ids = text.Tokenizer._ids

    def watched(self: text.Tokenizer, *pieces: Any) -> list[int]:
        cut.append(pieces)
        return ids(self, *pieces)

    monkeypatch.setattr(text.Tokenizer, "_ids", watched)
    with LLM(path, context=64, threads=1) as llm:
        longest = len("<|endoftext|>")
        for long in ("x" * (62 * longest + 1), "x" * 10_000_000):
            with pytest.raises(
                ContextError,
                match=r"at least [\d,]+ tokens and max_tokens is 2, which exceeds the available context size of 64",
            ):
                llm.generate(long, max_tokens=2)
        with pytest.raises(
            ContextError, match=r"at least 77[0-9] tokens, which exceeds the available context size of 64"
        ):
            llm.chat([{"role": "user", "content": "the sheep " * 1000}])
        assert cut == []
        with pytest.raises(ContextError, match="806 tokens and"):  # as long as it may be, so it is counted
            llm.generate("x" * 62 * longest, max_tokens=2)
        assert llm.generate("<|endoftext|>" * 62, max_tokens=2).usage.prompt_tokens == 62


def test_t23_a_chat_that_is_too_long_whatever_its_template_writes_is_neither_escaped_nor_rendered(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text.ChatTemplate, "render", None)
    question = {"role": "user", "content": "<|im_end|>" * 2_000}
    for messages in ([question], [HELLO[0], {"role": "assistant", "content": "Yes."}, question]):
        with pytest.raises(
            ContextError, match=r"at least [\d,]+ tokens, which exceeds the available context size of 512"
        ):
            llm.chat(messages)
    with pytest.raises(ContextError, match=r"at least [\d,]+ tokens, which exceeds the available context size of 512"):
        llm.submit(Request(messages=tuple(HELLO), begun="x" * 20_000))


def test_t23_what_a_template_may_leave_out_does_not_make_a_chat_too_long(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content.split('</think>')[-1] | trim }}{% endfor %}"
    path = tiny(tmp_path / "a.gguf", context=64, meta={"tokenizer.chat_template": template})
    thought = {"role": "assistant", "content": "hm " * 10_000 + "</think> Yes."}
    with LLM(path, context=64, threads=1) as llm:
        prepared = llm.prepare(Request(messages=(HELLO[0], thought, {"role": "user", "content": " " * 10_000 + "So?"})))
    assert len(prepared.ids) < 64


def test_a_token_outside_the_vocabulary_is_refused_with_its_index(llm: LLM) -> None:
    for call in (llm.generate, llm.logits, llm.detokenize):
        for wrong in (288, -1):
            with pytest.raises(RequestError, match="1"):
                call([5, wrong])
    with pytest.raises(RequestError, match="token 1 is 288") as caught:
        llm.logits([5, 288])
    assert caught.value.index == 1


def test_nothing_to_continue_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="empty"):
        llm.generate("")
    with pytest.raises(RequestError, match="no tokens"):
        llm.generate([])


@pytest.mark.parametrize("prompt", [None, 5, b"bytes", {"a": 1}, [1.5], ["a"]])
def test_a_prompt_is_text_or_ids(llm: LLM, prompt: object) -> None:
    with pytest.raises(RequestError):
        llm.generate(prompt)  # type: ignore[arg-type]


def test_an_unknown_option_is_a_mistake_of_the_caller(llm: LLM) -> None:
    with pytest.raises(TypeError, match="unknown option 'temprature'"):
        llm.generate("a", temprature=1.0)  # type: ignore[call-arg]


def test_t08_a_raw_prompt_may_write_special_tokens_and_a_chat_may_not(llm: LLM) -> None:
    start = llm.tokenize("<|im_start|>")
    assert len(start) == 1
    assert llm.generate("<|im_start|>user", max_tokens=1).usage.prompt_tokens == 1 + len(llm.tokenize("user"))
    plain = llm.tokenize("<|im_start|>", special=False)
    assert start[0] not in plain
    assert llm.detokenize(plain) == "<|im_start|>"
    special, other = ({"role": "user", "content": text} for text in ("<|im_start|>", "a"))
    first, second = (llm.chat([message], max_tokens=1).usage.prompt_tokens for message in (special, other))
    assert first - second == len(plain) - 1


def test_t20_an_empty_prompt_and_no_messages_are_refused_in_a_sentence(llm: LLM) -> None:
    with pytest.raises(RequestError, match="prompt is empty"):
        llm.generate("")
    with pytest.raises(RequestError, match="messages is empty"):
        llm.chat([])
    assert llm.chat([{"role": "system", "content": ""}], max_tokens=1).tokens


def test_logits_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    path = tiny(tmp_path / "huge.gguf", layers=1, format="F32")
    with gguf.open(path) as file:
        place = file.tensors["output_norm.weight"].offset
    with path.open("r+b") as out:
        out.seek(place)
        out.write(np.full(64, 3e38, "<f4").tobytes())
    with LLM(path, context=64, threads=1) as llm:
        with pytest.raises(NativeError, match="not finite"):
            llm.logits([1, 2, 3])
        with pytest.raises(NativeError, match="not finite"):
            llm.generate([1, 2, 3], max_tokens=2)


def test_a_bias_on_a_token_that_does_not_exist_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="logit_bias names token 288"):
        llm.generate("a", logit_bias={288: 1.0})


def test_a_bias_of_a_text_is_one_of_each_of_its_tokens(llm: LLM) -> None:
    ids = llm.tokenize("the", bos=False)
    assert ids
    for s in ({"the": 100.0}, dict.fromkeys(ids, 100.0)):
        tokens = llm.generate("a", logit_bias=s, temperature=0, max_tokens=8).tokens
        assert set(tokens) <= set(ids)
    with pytest.raises(RequestError, match="logit_bias has 0 bytes"):
        llm.generate("a", logit_bias={"": 1.0})


def test_a_stop_text_is_not_part_of_the_answer(llm: LLM) -> None:
    uncut = llm.generate("the", max_tokens=40, seed=2, logit_bias=NEVER_END).text
    stop = uncut[10:12]
    c = llm.generate("the", max_tokens=40, seed=2, logit_bias=NEVER_END, stop=stop)
    assert (c.text, c.finish_reason) == (uncut[: uncut.index(stop)], "stop")


def test_a_stop_that_is_a_special_token_stops_there(llm: LLM) -> None:
    c = llm.generate("the", max_tokens=5, logit_bias={271: 100}, stop=["<|im_start|>"], temperature=0)
    assert (c.tokens, c.text, c.finish_reason) == ([271], "", "stop")


def test_logits_of_nothing_have_no_rows(llm: LLM) -> None:
    rows = llm.logits([])
    assert rows.shape == (0, 288) and rows.dtype == np.float32


@pytest.mark.parametrize("options", [{"batch": 1}, {"batch": 7}, {"batch": 32}, {"threads": 2}, {"threads": 3}])
def test_neither_batch_nor_threads_change_a_bit(llm: LLM, path: Path, options: dict[str, int]) -> None:
    ids = [int(i) for i in np.random.default_rng(1).integers(0, 288, 150)]
    with LLM(path, batch=options.get("batch", 512), threads=options.get("threads", 1)) as other:
        assert (other.logits(ids) == llm.logits(ids)).all()
        assert other.generate(ids, max_tokens=8, seed=3).tokens == llm.generate(ids, max_tokens=8, seed=3).tokens


@pytest.mark.parametrize("kv", ["f32", "f16", "q8"])
def test_every_type_of_cache_answers(path: Path, kv: str) -> None:
    with LLM(path, threads=1, kv=kv) as llm:
        assert llm.info.kv == kv
        assert len(llm.generate(IDS, max_tokens=3, logit_bias={1: 100}, temperature=0).tokens) == 3


def test_an_answer_is_the_same_among_neighbours(llm: LLM) -> None:
    alone = {seed: llm.generate([seed, *IDS], max_tokens=30, seed=seed).tokens for seed in range(6)}
    among: dict[int, list[int]] = {}

    def ask(seed: int) -> None:
        among[seed] = llm.generate([seed, *IDS], max_tokens=30, seed=seed).tokens

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    rows = llm.logits(IDS)
    for thread in threads:
        thread.join()
    assert among == alone
    assert (rows == llm.logits(IDS)).all()


def test_leaving_the_loop_stops_the_work(llm: LLM) -> None:
    for event in llm.stream(IDS, max_tokens=500, logit_bias={1: 100}):
        if isinstance(event, Text):
            break
    llm.logits([1])
    assert not llm._engine.running


def test_f13_ctrl_c_stops_the_work_and_the_model_stays_usable(path: Path) -> None:
    with LLM(path, threads=1, context=100_000) as llm:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            llm.generate(IDS, max_tokens=99_000, logit_bias={1: 100})
        timer.join()
        assert len(llm.generate(IDS, max_tokens=2, logit_bias={1: 100}).tokens) == 2
        assert not llm._engine.running


def test_an_event_loop_can_read_a_stream(llm: LLM) -> None:
    async def read() -> str:
        pieces = [e.text async for e in llm.stream("the", max_tokens=9, seed=1) if isinstance(e, Text)]
        return "".join(pieces)

    assert asyncio.run(read()) == llm.generate("the", max_tokens=9, seed=1).text


def test_a_closed_model_says_so_and_can_be_closed_again(path: Path) -> None:
    llm = LLM(path, threads=1)
    stream = llm.stream(IDS, max_tokens=500, logit_bias={1: 100})
    next(stream)
    llm.close()
    llm.close()
    last = list(stream)[-1]
    assert isinstance(last, End) and last.reason == "cancelled"
    for call in (llm.generate, llm.logits):
        with pytest.raises(BusyError, match="closed"):
            call(IDS)
    assert llm.tokenize("the") == [116, 257]


def test_a_forgotten_model_ends_its_thread(path: Path) -> None:
    llm = LLM(path, threads=1)
    thread = llm._engine._thread
    assert thread is not None and thread.is_alive()
    del llm
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_a_stream_keeps_its_model(path: Path) -> None:
    stream = LLM(path, threads=1).stream(IDS, max_tokens=20, logit_bias={1: 100})
    gc.collect()
    last = list(stream)[-1]
    assert isinstance(last, End) and last.reason == "length"


@pytest.mark.parametrize(
    "options",
    [
        {"context": 0},
        {"context": 1.5},
        {"threads": 0},
        {"threads": True},
        {"batch": -1},
        {"kv": "f8"},
        {"kv": ""},
        {"exact": 2},
    ],
)
def test_a_wrong_setting_is_refused_by_name(path: Path, options: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=next(iter(options))):
        LLM(path, **options)  # type: ignore[arg-type]


def test_a_context_that_does_not_fit_the_memory_is_refused_with_both_numbers(path: Path) -> None:
    with pytest.raises(BusyError) as caught:
        LLM(path, context=2**31 - 1)
    assert caught.value.code == "not_enough_memory"
    assert caught.value.needed > caught.value.available > 0  # type: ignore[operator]


def test_what_was_loaded_is_told(llm: LLM, path: Path) -> None:
    card, i = llm.card, llm.info
    assert (card.path, card.architecture, card.context, card.vocab, card.chat) == (path, "llama", 512, 288, True)
    assert (i.context, i.threads, i.kv, i.exact, i.batch) == (512, 1, "f16", False, 512)
    assert 0 < i.weights < path.stat().st_size
    assert (card.name, card.title) == ("tiny", "tiny llama")
    assert repr(llm).startswith("<LLM tiny: llama, ") and "exact" not in repr(llm)


def test_more_threads_than_can_run_are_not_started(path: Path) -> None:
    with LLM(path, threads=1000) as llm:
        assert llm.info.threads == system.count_cores().most


def test_a_context_above_the_one_of_the_training_is_warned_of(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LLM(path, threads=1, context=512):
        assert caplog.messages == []
    with LLM(path, threads=1, context=600) as llm:
        assert llm.info.context == 600
    assert caplog.messages == [
        "woolly: tiny was trained for a context of 512 tokens, and 600 are asked for: it will not make much of what "
        "lies beyond; ask for at most 512, or take a model that was trained for more"
    ]


def test_an_exact_model_says_so_and_computes_otherwise(llm: LLM, path: Path) -> None:
    with LLM(path, threads=1, exact=True) as exact:
        assert (exact.info.kv, exact.info.exact) == ("f32", True)
        assert "exact" in repr(exact)
        one, other = exact.logits(IDS), llm.logits(IDS)
    assert np.allclose(one, other, atol=0.05 * np.abs(one).max()) and not np.array_equal(one, other)
    with LLM(path, threads=1, exact=True, kv="q8") as asked:
        assert asked.info.kv == "q8"
    with pytest.raises(RequestError, match="exact is 'maybe'; expected true or false"):
        LLM(path, exact="maybe")  # type: ignore[arg-type]


def test_a_model_of_an_unknown_tokenizer_runs_on_ids_alone(tmp_path: Path) -> None:
    path = tiny(tmp_path / "odd.gguf", meta={"tokenizer.ggml.model": "rwkv"})
    with pytest.raises(UnsupportedError, match="rwkv"):
        LLM(path, threads=1)
    with LLM(path, threads=1, tokenizer=False) as llm:
        c = llm.generate(IDS, max_tokens=4, seed=1)
        assert len(c.tokens) == 4 and c.text == ""
        for call in (llm.generate, llm.tokenize):
            with pytest.raises(RequestError, match="without its tokenizer"):
                call("text")
        with pytest.raises(RequestError, match="stop"):
            llm.generate(IDS, stop="x")
        with pytest.raises(RequestError, match="without its tokenizer"):
            llm.chat(HELLO)


def test_a_model_without_a_template_cannot_chat(tmp_path: Path) -> None:
    with LLM(tiny(tmp_path / "plain.gguf", meta={"tokenizer.chat_template": None}), threads=1) as llm:
        assert not llm.card.chat
        with pytest.raises(UnsupportedError, match="no chat template"):
            llm.chat(HELLO)


def test_a_vocabulary_of_another_size_than_the_embedding_is_refused(tmp_path: Path) -> None:
    tokens = Tokenizer(tiny(tmp_path / "good.gguf"))._tokenizer._tokens[:-1]
    types = np.array([1] * len(tokens), np.int32)
    meta = {"tokenizer.ggml.tokens": list(tokens), "tokenizer.ggml.token_type": types}
    with pytest.raises(FileError, match="287 tokens, but 288 rows"):
        LLM(tiny(tmp_path / "bad.gguf", meta=meta), threads=1)


def test_a_tokenizer_alone_encodes_and_decodes(llm: LLM, path: Path) -> None:
    tokenizer = Tokenizer(path)
    ids = tokenizer.encode("the sheep and <|im_end|>")
    assert tokenizer.decode(ids) == "the sheep and <|im_end|>"
    assert tokenizer.encode("the", special=True, bos=None) == llm.tokenize("the")
    assert llm.detokenize(ids) == "the sheep and <|im_end|>"
    assert llm.tokenize("<|im_end|>") == [272]


def test_what_a_model_was_made_of_is_gone_with_it_and_does_not_wait_for_the_collector(path: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        llm = LLM(path, threads=1)
        llm.generate("Once", max_tokens=3)
        stream = llm.stream("Once")
        next(stream)
        stream.cancel()
        for _ in stream:
            pass
        gone = weakref.ref(llm), weakref.ref(llm.prompter.tokenizer)
        llm.close()
        del llm, stream
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


def test_sixteen_answers_are_computed_together_each_as_if_alone(tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", context=512)
    prompts = [tuple(range(first, first + 20 + 3 * first)) for first in range(1, 17)]

    def request(prompt: tuple[int, ...]) -> Request:
        return Request(tokens=prompt, sampling=Sampling(temperature=1.0, seed=5), max_tokens=40)

    with LLM(path, threads=2) as llm:
        all_asked = threading.Event()
        llm.engine.between(lambda: all_asked.wait(60))
        streams = [llm.submit(request(prompt)) for prompt in prompts]
        all_asked.set()
        together = [[token for event in s if isinstance(event, Text) for token in event.tokens] for s in streams]
        assert llm.figures().tally.most_sequences == 16
    with LLM(path, threads=2, sequences=1) as llm:
        alone = [
            [token for event in llm.submit(request(p)) if isinstance(event, Text) for token in event.tokens]
            for p in prompts
        ]
    assert together == alone


PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bob"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_an_answer_has_the_format_that_was_asked_for(llm: LLM) -> None:
    for seed in range(5):
        c = llm.chat(HELLO, format=PERSON, seed=seed, temperature=1.5, max_tokens=80)
        assert c.finish_reason == "stop"
        assert json.loads(c.text).keys() == {"name", "age"}
        assert c.usage.completion_tokens == len(c.tokens)
        assert llm.detokenize(c.tokens) == c.text
    assert llm.generate("the", format=Format("choice", ("sheep", "goats"))).text in ("sheep", "goats")
    assert llm.generate(IDS, format=Format("regex", "[0-9]{3}")).text.isdigit()
    assert llm.generate("the", format="json", max_tokens=2).text[0] == "{"


def test_the_pieces_of_a_stream_are_the_text_of_its_format(llm: LLM) -> None:
    complete = llm.chat(HELLO, format=PERSON, seed=3, max_tokens=80)
    pieces = [
        event for event in llm.chat_stream(HELLO, format=PERSON, seed=3, max_tokens=80) if isinstance(event, Text)
    ]
    assert "".join(piece.text for piece in pieces) == complete.text
    assert [token for piece in pieces for token in piece.tokens] == complete.tokens


def test_likelihoods_change_nothing_of_an_answer_with_a_format(llm: LLM) -> None:
    plain = llm.chat(HELLO, format=PERSON, seed=3, max_tokens=80)
    request = Request(
        messages=HELLO, format=Format("schema", PERSON), logprobs=2, max_tokens=80, sampling=Sampling(seed=3)
    )
    likely = complete(llm.submit(request))
    assert (likely.text, likely.tokens, likely.usage) == (
        plain.text,
        plain.tokens,
        replace(plain.usage, cached_tokens=likely.usage.cached_tokens),
    )
    assert [row.token for row in likely.logprobs] == plain.tokens


def test_a_format_that_cannot_be_kept_to_is_refused_before_any_work(llm: LLM) -> None:
    steps = llm.figures().tally.steps
    with pytest.raises(RequestError, match="'uniqueItems'"):
        llm.chat(HELLO, format={"type": "array", "uniqueItems": True})
    with pytest.raises(RequestError, match="line 1"):
        llm.chat(HELLO, format=Format("gbnf", "root := 1"))
    assert llm.figures().tally.steps == steps


def test_a_format_needs_a_tokenizer(path: Path) -> None:
    with LLM(path, threads=1, tokenizer=False) as llm, pytest.raises(RequestError, match="tokenizer"):
        llm.generate(IDS, format="json")
