"""The default model, end to end: the recorded words, and no more memory than it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from woolly import LLM
from woolly.request import Completion

QUESTION = [{"role": "user", "content": "What is wool?"}]
# Greedy, and exact arithmetic: these words are the same on every machine, for every number of threads and every set.
ANSWER = (
    "Wool is a luxurious and versatile fabric made from the by-product of the wool industry. "
    "It is a by-product of the wool industry, where the"
)


def test_it_answers_in_the_recorded_words(smollm2: Path) -> None:
    with LLM(smollm2, context=1024, threads=2) as llm:
        answer = llm.chat(QUESTION, temperature=0, max_tokens=32)
        again = llm.chat(QUESTION, temperature=0, max_tokens=32)
    assert answer.text == again.text == ANSWER
    with LLM(smollm2, context=1024, threads=1, batch=5) as llm:
        assert llm.chat(QUESTION, temperature=0, max_tokens=32).text == ANSWER


def test_the_next_turn_of_a_chat_computes_only_what_is_new(smollm2: Path) -> None:
    long = [{"role": "user", "content": "Tell me about sheep and their wool. " * 20}]
    with LLM(smollm2, context=1024) as llm:
        first = llm.chat(long, temperature=0, max_tokens=16)
        more = [*long, {"role": "assistant", "content": first.text}, {"role": "user", "content": "And goats?"}]
        second = llm.chat(more, temperature=0, max_tokens=16)
        assert second.usage.cached_tokens >= (first.usage.prompt_tokens - 64) // 64 * 64 > 0
    with LLM(smollm2, context=1024) as llm:
        assert llm.chat(more, temperature=0, max_tokens=16).text == second.text


def test_d05_after_a_restart_a_long_prompt_is_read_back_from_the_disk(smollm2: Path, tmp_path: Path) -> None:
    prompt = [index * 7919 % 40_000 + 100 for index in range(1000)]
    cold, warm = (_first(LLM(smollm2, context=2304, threads=2, cache_dir=tmp_path / "cache"), prompt) for _ in range(2))
    assert warm.tokens == cold.tokens and cold.usage.cached_tokens == 0
    assert warm.usage.disk_tokens >= 0.95 * len(prompt)


def _first(llm: LLM, prompt: list[int]) -> Completion:
    with llm:
        return llm.generate(prompt, max_tokens=8, temperature=0)


PEAK = """
import sys
from woolly import LLM, system
with LLM(sys.argv[1], context=2048) as llm:
    done = llm.generate("Once upon a time", max_tokens=40, temperature=0)
    tokens = done.usage.prompt_tokens + done.usage.completion_tokens
    cache = llm.info.cache * -(-tokens // 64) * 64 // llm.info.context
    print(system.usage().peak, llm.card.path.stat().st_size, cache, llm.info.work)
"""


def test_peak_memory_is_the_file_the_cache_in_use_and_little_more(smollm2: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PEAK, smollm2], capture_output=True, text=True, check=True)
    peak, file, cache, work = map(int, done.stdout.split())
    assert work <= 64 << 20
    assert peak <= 1.05 * file + cache + work + 100e6


FILM = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 30},
        "genre": {"enum": ["comedy", "tragedy"]},
        "rating": {"type": "integer", "minimum": 1, "maximum": 5},
        "seen": {"type": "boolean"},
    },
    "required": ["title", "genre", "rating", "seen"],
    "additionalProperties": False,
}


def test_its_answers_follow_a_schema_whatever_is_drawn(smollm2: Path) -> None:
    question = [{"role": "user", "content": "Describe a film."}]
    with LLM(smollm2, context=1024, threads=2) as llm:
        answers = [llm.chat(question, format=FILM, temperature=1.5, seed=seed, max_tokens=120) for seed in range(4)]
        steps = llm.figures().tally.steps
    for answer in answers:
        film = json.loads(answer.text)
        assert list(film) == FILM["required"]
        assert film["genre"] in ("comedy", "tragedy") and 1 <= film["rating"] <= 5
        assert answer.finish_reason == "stop"
    assert steps < sum(len(answer.tokens) for answer in answers), "forced tokens have no step of their own"
