"""The prompt cache on disk outlives a server: after a kill the same prompts of the same keys are not computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.process import Process, environ
from tests.server.stand_in import until
from tests.tiny import tiny

WORDS = " ".join(str(number) for number in range(150))
ASKED: list[dict[str, Any]] = [
    {"prompt": WORDS, "temperature": 0},
    {"prompt": WORDS + " and then", "temperature": 1.2, "seed": 3, "n": 2},
    {"prompt": WORDS[:300], "temperature": 0.8, "seed": 9, "logprobs": 2, "stop": ["e"]},
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    tiny(folder / "small.gguf", context=1024)
    return folder


def complete(process: Process, body: dict[str, Any], key: str = "") -> tuple[list[Any], dict[str, int], int]:
    """The choices, the tokens of the prompt by where they came from, and how many the usage says were cached."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    status, reply_headers, answer = process.ask(
        "POST", "/v1/completions", {"model": "small", "max_tokens": 12} | body, headers
    )
    assert status == 200, answer
    parts = dict(part.split("=") for part in reply_headers["x-woolly-cache"].split(", "))
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return answer["choices"], {name: int(count) for name, count in parts.items()}, cached


def metric(process: Process, name: str, key: str = "") -> float:
    lines = process.ask("GET", "/metrics", headers={"X-API-Key": key})[2].decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"woolly:{name}{{"))


def written(process: Process, tokens: int, key: str = "") -> bool:
    """Whether the disk comes to have the full pages of the first prompts, which have so many tokens."""
    return until(lambda: metric(process, "prefix_cache_disk_written_total", key) >= tokens // 64)


def test_d05_after_a_kill_the_texts_are_the_same_and_the_prompts_are_not_computed_again(
    models: Path, tmp_path: Path
) -> None:
    env = environ(tmp_path, models)
    with Process(env) as process:
        before = [complete(process, body) for body in ASKED]
        assert before[0][1] == {"memory": 0, "disk": 0, "none": before[0][1]["none"]} and before[0][2] == 0
        again = complete(process, ASKED[0])
        assert again[1]["memory"] == again[2] > 0 and again[1]["disk"] == 0
        assert written(process, before[0][1]["none"])
        process.process.kill()
        process.process.wait()
    with Process(env) as process:
        after = [complete(process, body) for body in ASKED]
        assert [choices for choices, *_ in after] == [choices for choices, *_ in before]
        counts = after[0][1]
        assert counts["disk"] == after[0][2] == sum(counts.values()) // 64 * 64 and counts["memory"] == 0
        assert metric(process, "prefix_cache_disk_hits_total") > 5
        assert metric(process, "prefix_cache_disk_rejected_total") == 0
        assert metric(process, "prefix_cache_disk_bytes") > 0
        code, errors = process.end()
    assert (code, errors) == (0, "")
    assert (tmp_path / ".cache" / "woolly" / "prefix").is_dir()


def test_s18_another_key_never_has_what_one_key_computed_before_or_after_a_restart(
    models: Path, tmp_path: Path
) -> None:
    one, other, third = (f"key-{name}-of-three-keys" for name in ("one", "two", "new"))

    def started(*keys: str) -> Process:
        return Process(environ(tmp_path, models) | {"WOOLLY_API_KEY": ",".join(keys)})

    with started(one, other) as process:
        prompts = complete(process, ASKED[0], one), complete(process, ASKED[0] | {"prompt": WORDS[:400]}, other)
        assert [cached for *_, cached in prompts] == [0, 0]
        assert written(process, sum(counts["none"] // 64 * 64 for _, counts, _ in prompts), one)
    with started(third, other, one) as process:  # the key itself counts, not its place in the list
        assert complete(process, ASKED[0], third)[2] == 0
        theirs, ours = complete(process, ASKED[0], other), complete(process, ASKED[0], one)
        assert 0 < theirs[1]["disk"] < ours[1]["disk"] and theirs[0] == ours[0]


def test_a_stream_tells_where_its_prompt_came_from(models: Path, tmp_path: Path) -> None:
    with Process(environ(tmp_path, models)) as process:
        none, memory = (
            process.ask("POST", "/v1/completions", ASKED[0] | {"model": "small", "stream": True, "max_tokens": 2})[1]
            for _ in range(2)
        )
    assert none["x-woolly-cache"].startswith("memory=0, disk=0, none=")
    assert not memory["x-woolly-cache"].startswith("memory=0,") and "disk=0" in memory["x-woolly-cache"]


@pytest.mark.parametrize("way", ["--cache-dir", "--disk-bytes"])
def test_the_folder_can_be_another_one_or_none(models: Path, tmp_path: Path, way: str) -> None:
    words = {"--cache-dir": str(tmp_path / "elsewhere"), "--disk-bytes": "0"}
    with Process(environ(tmp_path, models), way, words[way]) as process:
        complete(process, ASKED[0])
    assert not (tmp_path / ".cache").exists()
    assert (tmp_path / "elsewhere").exists() == (way == "--cache-dir")


def test_a_folder_that_cannot_be_written_costs_one_line_of_the_log(models: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = tmp_path / "log.txt"
    settings = environ(tmp_path, models) | {"WOOLLY_LOGGING__FILE": str(log)}
    with Process(settings, "--cache-dir", str(tmp_path / "file" / "prefix")) as process:
        first, second = complete(process, ASKED[0]), complete(process, ASKED[0])
        assert first[0] == second[0] and second[1]["memory"] > 0
        assert process.end() == (0, "")
    assert log.read_text().count("answers go on without it") == 1
