"""What the README and docs tell people to type works: each `curl` command and each program, against a live server or
with the library, the README's commands, and what they are shown to print."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly, command
from tests.cli.test_every import parser_of
from tests.tiny import tiny
from woolly.config import BY_KEY
from woolly.store import CATALOGUE

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
URL = "http://127.0.0.1:8080"
KEY = "a-key-for-the-examples-of-the-pages"
STATUS = "\nstatus %{http_code}"

Serve = Callable[[str], str]


def blocks(language: str, beginning: str) -> list[tuple[str, str]]:
    """The fenced blocks of all pages that are in this language and begin so, each with the page it is from."""
    out = []
    for page in PAGES:
        for block in re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            if block.startswith(beginning):
                out.append((page.name, block))
    return out


CURLS = blocks("sh", "curl ")
ACTIVATE = ". .venv/bin/activate\n"
COMMANDS = blocks("sh", ACTIVATE)
OURS = blocks("python", "from woolly import ")
SETTINGS = blocks("toml", "[server]")
LIBRARIES = {"from openai ": "openai", "from anthropic ": "anthropic", "import ollama\n": "ollama"}
PROGRAMS = [(page, block, name) for first, name in LIBRARIES.items() for page, block in blocks("python", first)]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """The address of a server with this key, or with none; started once."""
    home = tmp_path_factory.mktemp("home")
    model = home / "models" / CATALOGUE[0].file  # the pages speak of the default model; one of its name stands in
    model.parent.mkdir()
    tiny(model, vocab=4096)  # among so many words the end comes late
    with ExitStack() as stack:
        running: dict[str, str] = {}

        def address(key: str) -> str:
            if key not in running:
                running[key] = stack.enter_context(server(home, model, key))
            return running[key]

        yield address


@contextmanager
def server(home: Path, model: Path, key: str) -> Iterator[str]:
    process = subprocess.Popen(
        command("serve", str(model), "--port", "0"), env=environ(home, key), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert match
        yield match[0]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def environ(home: Path, key: str = "") -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("WOOLLY_", "OPENAI_"))}
    variables = {name: value for name, value in variables.items() if not name.lower().endswith("_proxy")}
    ours = {"HOME": str(home), "WOOLLY_MODELS_DIR": str(home / "models"), "WOOLLY_OFFLINE": "1"}
    return variables | ours | ({"WOOLLY_API_KEY": key} if key else {})


def run(words: list[str], env: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command to its end, with nothing at its standard input."""
    return subprocess.run(
        words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )


def with_model(path: Path) -> dict[str, str]:
    """The environment of somebody who has the default model already."""
    return os.environ | {"WOOLLY_MODELS_DIR": str(path.parent), "WOOLLY_OFFLINE": "1"}


@pytest.mark.parametrize(("page", "block"), CURLS, ids=[f"{page}-{n}" for n, (page, _) in enumerate(CURLS)])
def test_a_curl_command_of_a_page_is_answered(serve: Serve, tmp_path: Path, page: str, block: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    assert URL in block, "an example names the server where it listens"
    key = KEY if "$WOOLLY_API_KEY" in block else ""
    (tmp_path / ".curlrc").write_text(f"silent\nmax-time = 60\nwrite-out = {json.dumps(STATUS)}\n")
    done = run(["sh", "-euc", block.replace(URL, serve(key))], environ(tmp_path, key) | {"CURL_HOME": str(tmp_path)})
    body, _, status = done.stdout.rpartition("\nstatus ")
    assert (done.returncode, status) == (0, "200"), done.stdout + done.stderr
    if '"stream": true' in block:
        rows = body.strip().split("\n\n")
        assert rows[0].startswith("data: {") and rows[-1] == "data: [DONE]"  # a short answer may be a single event
    else:
        assert "error" not in json.loads(body)


@pytest.mark.parametrize(
    ("page", "block", "library"), PROGRAMS, ids=[f"{page}-{n}" for n, (page, *_) in enumerate(PROGRAMS)]
)
def test_a_program_of_a_page_prints_an_answer(
    serve: Serve, tmp_path: Path, page: str, block: str, library: str
) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    named = {"OPENAI_BASE_URL": serve("") + "/v1", "OPENAI_API_KEY": "none"}
    done = run([sys.executable, "-c", block.replace(URL, serve(""))], environ(tmp_path) | named)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(("page", "block"), OURS, ids=[f"{page}-{n}" for n, (page, _) in enumerate(OURS)])
def test_a_program_of_the_library_prints_an_answer(smollm2: Path, page: str, block: str) -> None:
    done = run([sys.executable, "-c", block], with_model(smollm2), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_each_command_of_the_readme_works(smollm2: Path, tmp_path: Path) -> None:
    ((page, block),) = COMMANDS
    assert page == "README.md"
    (tmp_path / "woolly").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m woolly "$@"\n')
    (tmp_path / "woolly").chmod(0o755)
    done = run(
        ["sh", "-euc", block.removeprefix(ACTIVATE)],
        with_model(smollm2) | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


def test_the_transcripts_of_the_pages_are_what_the_commands_print(smollm2: Path) -> None:
    done = run([sys.executable, "tools/transcripts.py", "--check"], with_model(smollm2), cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "block"), SETTINGS, ids=[page for page, _ in SETTINGS])
def test_a_settings_file_of_a_page_is_right(tmp_path: Path, woolly: Woolly, page: str, block: str) -> None:
    (tmp_path / "settings.toml").write_text(block)
    done = woolly("config", "check", "--config", str(tmp_path / "settings.toml"))
    assert done.returncode == 0, done.stderr


def test_every_curl_command_of_the_pages_is_among_those_that_are_run() -> None:
    lines = [
        line for page in PAGES for line in page.read_text("utf-8").splitlines() if line.startswith(("curl ", "$ curl "))
    ]
    assert len(lines) == len(CURLS) == sum(block.count("curl ") for _, block in CURLS)
    assert {"README.md", "curl.md", "ole.md"} <= {page for page, _ in CURLS}
    assert {name for *_, name in PROGRAMS} == {*LIBRARIES.values()}


def test_the_readme_is_a_short_page() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 130


def test_every_page_is_in_the_index_and_every_link_leads_to_a_file() -> None:
    index = ROOT / "docs/README.md"
    linked = set(re.findall(r"\]\(([^)#/]+)\)", index.read_text("utf-8")))
    assert linked == {page.name for page in PAGES[1:] if page != index}
    for page in PAGES:
        for link in re.findall(r"\]\(((?!https?:)[^)#]+)\)", page.read_text("utf-8")):
            assert (page.parent / link).is_file(), f"{page.name}: {link}"


def test_the_settings_that_the_pages_name_are_settings() -> None:
    for page in PAGES[1:]:
        for name in re.findall(r"\bWOOLLY_([A-Z]+__[A-Z_]+)", page.read_text("utf-8")):
            assert name.lower().replace("__", ".") in BY_KEY, f"{page.name}: {name}"
        for name in re.findall(r"\blimits\.(\w+)", page.read_text("utf-8")):
            assert f"limits.{name}" in BY_KEY, f"{page.name}: {name}"


def test_the_options_that_the_pages_name_are_options() -> None:
    known = {name for action in parser_of("serve")._actions for name in action.option_strings}
    for path in (*PAGES[1:], *(ROOT / "docs").glob("*.service")):
        for line in re.findall(r"woolly serve [^\n`|]*", path.read_text("utf-8")):
            assert set(re.findall(r"--[a-z][a-z-]+", line)) <= known, f"{path.name}: {line}"
