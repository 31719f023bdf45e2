"""woolly inspect: what a file is, or one line that says why it is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly
from tests.lora import adapter
from tests.tiny import tiny


def test_a_right_file_is_told_in_lines(woolly: Woolly, model: Path) -> None:
    done = woolly("inspect", str(model))
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line[0] != " "}
    assert list(lines) == ["file", "model", "shape", "tensors", "tokenizer", "template", "memory"]
    assert "llama" in lines["model"] and "2 layers, width 64" in lines["shape"]
    assert "every tensor is understood, every value is a finite number" in lines["tensors"]
    assert "system messages: yes, several turns: yes, tools: no" in lines["template"]
    assert "with a context of 65,536" in done.stdout.splitlines()[-1]


def test_json_is_one_line_for_programs(woolly: Woolly, model: Path) -> None:
    done = woolly("inspect", "tiny-talker", "--json")
    assert done.stdout.count("\n") == 1
    report = json.loads(done.stdout)
    assert (report["architecture"], report["layers"], report["size"]) == ("llama", 2, model.stat().st_size)
    assert report["memory"][0]["context"] == 512


def test_an_adapter_is_told_as_what_it_is(woolly: Woolly, model: Path, tmp_path: Path) -> None:
    path = adapter(tmp_path / "pirate.gguf", model, rank=6, alpha=12.0)
    done = woolly("inspect", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "LoRA for llama, rank 6, alpha 12" in done.stdout and "14 of the model are changed" in done.stdout
    report = json.loads(woolly("inspect", str(path), "--json", "--quick").stdout)
    assert (report["type"], report["ranks"], report["quick"]) == ("adapter", [6], True)
    used = woolly("run", str(path), "hi")
    assert used.returncode == 4 and "--lora" in used.stderr


def test_quick_reads_the_header_alone_and_says_so(woolly: Woolly, model: Path) -> None:
    done = woolly("inspect", str(model), "--quick")
    assert done.returncode == 0
    assert "not looked at (--quick)" in done.stdout and "not tried (--quick)" in done.stdout


def test_a_file_without_a_template_a_set_and_an_odd_one_are_told(woolly: Woolly, tmp_path: Path) -> None:
    meta = {"tokenizer.chat_template": None, "tokenizer.ggml.padding_token_id": 999}
    path = tiny(tmp_path / "plain.gguf", meta=meta)
    with path.open("ab") as out:
        out.write(bytes(64))
    done = woolly("inspect", str(path))
    assert "none: the model continues texts" in done.stdout
    assert "64 bytes of it unused" in done.stdout
    assert "warning    tokenizer.ggml.padding_token_id is 999" in done.stdout
    assert "in 2 parts" in woolly("inspect", str(tiny(tmp_path / "set.gguf", parts=2))).stdout
    broken = tiny(tmp_path / "broken.gguf", meta={"tokenizer.chat_template": "{% bad"})
    done = woolly("inspect", str(broken))
    assert done.returncode == 0
    assert "cannot be used: the chat template failed" in done.stdout


@pytest.mark.parametrize("options", [[], ["--quick"], ["--json"]])
def test_a_bad_file_is_one_line_and_exit_4(woolly: Woolly, tmp_path: Path, options: list[str]) -> None:
    path = tiny(tmp_path / "bad\x1b[31m.gguf", meta={"general.architecture": "\x1b[2Jnone"})
    done = woolly("inspect", str(path), *options)
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr[:-1].isprintable()
    assert done.stderr.startswith("woolly: error: bad\\x1b[31m.gguf: architecture '\\x1b[2Jnone' is not supported")


def test_a_file_that_is_not_there_is_exit_3(woolly: Woolly, tmp_path: Path) -> None:
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    for name in ("none.gguf", "loop.gguf"):
        done = woolly("inspect", str(tmp_path / name))
        assert done.returncode == 3
        assert done.stderr.count("\n") == 1
