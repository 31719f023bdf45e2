"""Memory and descriptors that cannot be had: the request that needed one is told so, and the server lives on."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.process import Process, environ
from tests.tiny import tiny

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are set as Linux has it")
CHAT = {"model": "first", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


@contextmanager
def address_space(process: Process, more: int) -> Iterator[None]:
    """Let a process have so many bytes more than it has now, and no more."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + more
    resource.prlimit(process.pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_f28_without_memory_for_a_body_a_load_or_a_format_one_request_is_refused(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    tiny(models / "first.gguf", context=512, vocab=4096)
    tiny(models / "second.gguf", context=512, vocab=200_000)  # has no room in the place of the first, either
    large = json.dumps(CHAT | {"messages": [{"role": "user", "content": "x" * 40_000_000}]}).encode()
    asked: list[tuple[str, Any]] = [
        ("/v1/chat/completions", large),
        ("/v1/messages", large),
        ("/v1/chat/completions", CHAT | {"model": "second"}),
        ("/v1/chat/completions", CHAT | {"response_format": {"type": "json_object"}}),
    ]
    with Process(environ(tmp_path, models) | {"WOOLLY_LIMITS__MAX_BODY_SIZE": str(1 << 26)}) as process:
        assert process.ask("POST", "/v1/chat/completions", CHAT)[0] == 200
        with address_space(process, 6 << 20):
            for path, body in asked:
                status, headers, answer = process.ask("POST", path, body)
                assert status == 503 and headers["retry-after"], answer
                assert "memory" in answer["error"]["message"]
                assert process.ask("GET", "/health")[0] == 200
        for path, body in (("/v1/chat/completions", CHAT), *asked[2:]):
            status, _, answer = process.ask("POST", path, body)
            assert status == 200, answer
        code, errors = process.end()
    assert (code, errors) == (0, ""), errors


def test_f28_a_load_finds_too_little_memory_at_whatever_place_and_the_server_lives_on(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    tiny(models / "first.gguf", context=512, vocab=4096)
    tiny(models / "second.gguf", context=512, vocab=150_000)  # of which the tokenizer has most
    statuses = []
    with Process(environ(tmp_path, models)) as process:
        for more in range(4 << 20, 256 << 20, 4 << 20):
            assert process.ask("POST", "/v1/chat/completions", CHAT)[0] == 200
            with address_space(process, more):
                statuses.append(process.ask("POST", "/v1/chat/completions", CHAT | {"model": "second"})[0])
                assert process.ask("GET", "/health")[0] == 200
            if statuses[-1] == 200:
                break
        assert statuses == [503] * (len(statuses) - 1) + [200] and len(statuses) > 5
        assert process.end()[0] == 0


def test_f28_without_memory_for_steps_answers_are_refused_or_whole_and_the_server_lives_on(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    tiny(models / "first.gguf", context=4096, vocab=65_536)  # the logits of a row are more than arenas keep
    prompt = {"model": "first", "prompt": "wool " * 600, "max_tokens": 200, "logprobs": 20, "temperature": 0}
    with Process(environ(tmp_path, models)) as process:
        right = process.ask("POST", "/v1/completions", prompt)[2]["choices"]
        refusals = []
        for more in (1 << 19, 1 << 20, 1 << 21, 1 << 22):
            with address_space(process, more):
                for _ in range(3):
                    status, headers, answer = process.ask("POST", "/v1/completions", prompt)
                    assert (status, answer.get("choices")) == (200, right) or status == 503, answer
                    if status == 503:
                        assert headers["retry-after"]
                        refusals.append(answer["error"]["message"])
                assert process.ask("GET", "/health")[0] == 200
        assert any("for a step of the model" in message for message in refusals)
        assert all("there is not enough memory" in message for message in refusals)
        assert process.ask("POST", "/v1/completions", prompt)[2]["choices"] == right
        assert process.end()[0] == 0


def test_f28_without_a_descriptor_for_a_child_process_one_request_is_refused(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    tiny(models / "first.gguf", context=512, vocab=4096)
    with Process(environ(tmp_path, models)) as process:
        formatted = CHAT | {"response_format": {"type": "json_object"}}
        assert process.ask("POST", "/v1/chat/completions", CHAT)[0] == 200
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        lowest = next(number for number in range(soft) if not Path(f"/proc/{process.pid}/fd/{number}").exists())
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (lowest + 2, hard))
        try:
            status, headers, answer = process.ask("POST", "/v1/chat/completions", formatted)
        finally:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert status == 503 and headers["retry-after"], answer
        assert "too many files are open" in answer["error"]["message"]
        assert process.ask("POST", "/v1/chat/completions", formatted)[0] == 200
        assert process.end() == (0, "")
