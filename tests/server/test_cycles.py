"""Models come and go in a `woolly serve` process with real models; nothing stays behind, neighbours change nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.process import Process, environ
from tests.server.raw import Raw
from tests.server.stand_in import until
from tests.tiny import tiny

MB = 1 << 20
MEMORY = 16 * MB  # what the allocator may keep for more threads; a model left behind in each round would be 50 MB
POOLS = 12  # threads that the pools start when they first need them; a thread left behind in each round would be 20


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    models = tmp_path / "models"
    models.mkdir()
    tiny(models / "one.gguf", vocab=4096)
    tiny(models / "two.gguf", vocab=4096, seed=2)
    for seed in (3, 4):
        tiny(tmp_path / f"spare{seed}.gguf", vocab=4096, seed=seed)
    with Process(environ(tmp_path, models), "--context", "1024") as process:
        yield process


def resident(process: Process) -> int:
    """Bytes that are the process's own: no file lies behind them."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "VmSwap")))


def descriptors(process: Process) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def threads(process: Process) -> int:
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))


def cycle(process: Process, folder: Path, number: int) -> None:
    """Load, answer, swap the file under a running answer, and unload."""
    body = {"prompt": "Once", "max_tokens": 4, "temperature": 0, "model": "one"}
    assert process.ask("POST", "/api/v1/models/one/load", {})[0] == 200
    assert process.ask("POST", "/api/v1/models/two/load", {})[0] == 200
    first = process.ask("POST", "/v1/completions", body)[2]["choices"][0]["text"]
    raw = Raw(process.port).post("/v1/completions", body | {"max_tokens": 40, "stream": True})
    data = raw.read(20)
    spare, file = folder / f"spare{3 + number % 2}.gguf", folder / "models" / "one.gguf"
    spare.rename(folder / "next.gguf")
    file.rename(spare)
    (folder / "next.gguf").rename(file)
    assert process.ask("POST", "/api/v1/models/one/load", {})[0] == 200
    assert process.ask("POST", "/v1/completions", body)[2]["choices"][0]["text"] != first
    while b"[DONE]" not in data:
        piece = raw.read()
        assert piece, "the answer of the old file was cut off"
        data += piece
    raw.close()
    for name in ("one", "two"):
        assert process.ask("POST", f"/api/v1/models/{name}/unload", {})[0] == 200


def cycles(process: Process, folder: Path, count: int) -> tuple[int, int]:
    for number in range(10):
        cycle(process, folder, number)
    memory, open_files, running = resident(process), descriptors(process), threads(process)
    for number in range(count):
        cycle(process, folder, number)
    assert until(lambda: descriptors(process) <= open_files, 30)
    assert until(lambda: threads(process) <= running + POOLS, 30)
    return memory, resident(process)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_l11_rounds_of_load_swap_and_unload_leave_nothing_behind(process: Process, tmp_path: Path) -> None:
    before, after = cycles(process, tmp_path, 20)
    assert after - before < MEMORY


@pytest.mark.soak
def test_l11_two_hundred_rounds_leave_no_more_than_ten(process: Process, tmp_path: Path) -> None:
    before, after = cycles(process, tmp_path, 190)
    assert after - before < MEMORY


def test_d01_requests_at_once_give_the_bits_of_each_alone(served: Process) -> None:
    prompts = ["Once upon a time there was a sheep, and it was woolly", "Hi", "a" * 300, "To be or not to be"]
    fields = {"max_tokens": 24, "logprobs": 20, "temperature": 1, "echo": True}

    def ask(index: int) -> Any:
        body = fields | {"prompt": prompts[index], "seed": index}
        return served.ask("POST", "/v1/completions", body)[2]["choices"]

    alone = [ask(index) for index in range(4)]
    together: dict[int, Any] = {}
    runs = [threading.Thread(target=lambda i=i: together.update({i: ask(i)})) for i in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert [together[index] for index in range(4)] == alone  # every likelihood, to the last bit
