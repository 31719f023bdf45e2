"""woolly completion: the shells themselves are asked what they would offer."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from woolly.cli import completion
from woolly.cli.commands import COMMANDS

BASH = """
source "$1"
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_shtab_woolly
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("completion")

    def write(shell: str) -> Path:
        path = folder / f"woolly.{shell}"
        path.write_text(completion.script(shell))
        return path

    return write


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(shell), reason=f"{shell} is not installed")


CASES = [
    (["woolly", ""], set(COMMANDS), set()),
    (["woolly", "per"], {"perplexity"}, {"run"}),
    (["woolly", "show", "--"], {"--help", "--json"}, {"--kv"}),
    (["woolly", "serve", "--log-level", "e"], {"error"}, {"info"}),
    (["woolly", "run", "--kv", ""], {"f32", "f16", "q8"}, {"--kv"}),
    (["woolly", "bench", "--dep"], {"--depth"}, {"--kv"}),
    (["woolly", "config", ""], {"show", "set", "check"}, {"--json"}),
    (["woolly", "completion", "f"], {"fish"}, {"bash"}),
    (["woolly", "tokenize", "smol"], {"smollm2"}, set()),
]


def in_order(case: list[str] | set[str]) -> str:
    return " ".join(case if isinstance(case, list) else sorted(case))


@needs("bash")
@pytest.mark.parametrize(("words", "offered", "others"), CASES, ids=in_order)
def test_bash_offers_what_fits(
    script: Callable[[str], Path], words: list[str], offered: set[str], others: set[str]
) -> None:
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", str(script("bash")), *words], capture_output=True, text=True, check=True
    )
    candidates = set(done.stdout.split())
    assert done.stderr == "" and offered <= candidates and not others & candidates


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_models_that_are_here_are_offered_by_name(script: Callable[[str], Path], tmp_path: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    stand_in = tmp_path / "woolly"
    stand_in.write_text("#!/bin/sh\n[ \"$*\" = 'list --quiet' ] && printf 'one-model\\nother\\n'\n")
    stand_in.chmod(0o755)
    line = {
        "bash": ["bash", "-c", BASH, "bash", str(script("bash")), "woolly", "run", "one"],
        "fish": ["fish", "-N", "-c", 'source $argv[1]; complete -C "woolly run one"', str(script("fish"))],
    }[shell]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(line, capture_output=True, text=True, env=os.environ | {"PATH": path}, check=True)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["one-model"]


@needs("bash")
def test_bash_offers_files_with_spaces_as_one(script: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "my model.gguf").write_text("")
    for words in (["woolly", "inspect", "my"], ["woolly", "serve", "--config", "my"]):
        done = subprocess.run(
            ["bash", "-c", BASH, "bash", str(script("bash")), *words],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
        assert done.stdout == "my model.gguf\n"


@needs("fish")
@pytest.mark.parametrize(("words", "offered", "others"), CASES, ids=in_order)
def test_fish_offers_what_fits(
    script: Callable[[str], Path], words: list[str], offered: set[str], others: set[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        ["fish", "-N", "-c", 'source $argv[1]; complete -C "$argv[2]"', str(script("fish")), " ".join(words)],
        capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ | {"HOME": str(tmp_path)},
    )  # fmt: skip
    candidates = {line.split("\t")[0] for line in done.stdout.splitlines()}
    assert done.stderr == "" and offered <= candidates and not others & candidates


@needs("zsh")
def test_zsh_reads_the_script_and_completes_in_a_terminal(script: Callable[[str], Path], tmp_path: Path) -> None:
    assert subprocess.run(["zsh", "-n", script("zsh")], check=False).returncode == 0
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="dumb", HOME=str(tmp_path), PS1="> ")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        script("zsh").rename(tmp_path / "_woolly")
        begin = f"fpath=({tmp_path} $fpath) && autoload -Uz compinit && compinit -u -D && print rea''dy\n"
        os.write(terminal, begin.encode())
        assert "ready" in shown_until(terminal, "ready")
        for typed, expected in (
            ("woolly perp\t", "woolly perplexity"),
            ("woolly bench --dep\t", "woolly bench --depth"),
            ("woolly run --kv q\t", "woolly run --kv q8"),
            ("woolly config ch\t", "woolly config check"),
            ("woolly tokenize smo\t", "woolly tokenize smollm2"),
        ):
            os.write(terminal, typed.encode())
            assert expected in shown_until(terminal, expected), typed
            os.write(terminal, b"\x15")  # forget the line
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def shown_until(terminal: int, text: str, seconds: float = 30) -> str:
    """What the terminal shows until the text is there, or time is up."""
    shown, end = "", time.monotonic() + seconds
    while text not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace").replace("\x07", "")
    return shown


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_command_is_in_every_script(shell: str) -> None:
    text = completion.script(shell)
    assert all(name in text for name in COMMANDS)
    assert text.endswith("\n") and "\x00" not in text
