"""The server of tests.measure.http: the real one with a real model, and a clock around the native step.

Answers lines on standard input: `cpu` gives the CPU seconds of the process and those inside the native step, and the
tokens that were answered; `library N` the seconds between the first token and the last when the library itself is asked
for N.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.server.background import Background
from woolly.config import Config, read_config
from woolly.llm.llm import LLM
from woolly.request import Request, Sampling, Text
from woolly.server import App, Settings
from woolly.server.models.loaded import load_llm

TICK = os.sysconf("SC_CLK_TCK")


class Clock:
    """CPU seconds inside the native step: of the engine's thread while it runs one, and of the core's own threads."""

    def __init__(self) -> None:
        self.run_s = 0.0
        self.workers: set[int] = set()

    def load(self, path: Path, config: Config) -> LLM:
        before = _threads()
        llm = load_llm(path, config)
        assert isinstance(llm, LLM)
        run = llm._engine.runner.run

        def timed(batch: Any) -> Any:
            begun = time.thread_time()
            try:
                return run(batch)
            finally:
                self.run_s += time.thread_time() - begun

        llm._engine.runner.run = timed  # type: ignore[method-assign]
        llm.generate([1], max_tokens=2)  # the core's threads are there now
        ours = {thread.native_id for thread in threading.enumerate()}
        self.workers = _threads() - before - ours
        return llm

    def native_s(self) -> float:
        self.workers &= _threads()  # a thread that was just ending when these were told apart is none of the core's
        return self.run_s + sum(_cpu_s(thread) for thread in self.workers)


def _threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def _cpu_s(thread: int) -> float:
    fields = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def library(llm: LLM, prompt: list[int], count: int, ends: dict[int, float]) -> float:
    request = Request(tokens=tuple(prompt), sampling=Sampling(temperature=0.0, logit_bias=ends), max_tokens=count)
    times = [time.perf_counter() for event in llm.submit(request) if isinstance(event, Text)]
    return times[-1] - times[0]


def main(model: str, threads: str) -> None:
    config = read_config(threads=int(threads) or None)
    clock = Clock()
    app = App(Settings(ports=(0,), models=(Path(model),), log_level="error"), config, load=clock.load)
    with Background(app) as background:
        while not app.models.loaded:
            time.sleep(0.02)
        llm = app.models.loaded[0].model
        assert isinstance(llm, LLM)
        assert llm.prompter.tokenizer is not None
        ends = dict.fromkeys(llm.prompter.tokenizer.ends, -100.0)
        about = {"port": background.port, "vocab": llm.card.vocab, "ends": list(ends), "threads": llm.info.threads}
        print(json.dumps(about), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            if asked["what"] == "cpu":
                tokens = sum(one.completion_tokens for one in app.counts.models.values())
                reply: Any = {"all_s": time.process_time(), "native_s": clock.native_s(), "tokens": tokens}
            else:
                reply = {"seconds": library(llm, asked["prompt"], asked["tokens"], ends)}
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
