"""woolly pull, list, show and rm: the models of this machine, for people and for programs."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly, command
from tests.store.server import serving
from tests.tiny import tiny
from woolly import system

DATA = b"GGUF" + random.Random(5).randbytes(400_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def environ(tmp_path: Path, environ: dict[str, str]) -> dict[str, str]:
    """A home with models of every kind of owner, none of them the machine's own."""
    models = tmp_path / "models"
    models.mkdir()
    tiny(models / "mine.gguf")
    studio = tmp_path / ".lmstudio/models/org/Studio-GGUF"
    studio.mkdir(parents=True)
    tiny(studio / "studio-q8_0.gguf")
    more = {"WOOLLY_MODELS_DIR": str(models), "NO_PROXY": "*"}
    variables = {name: value for name, value in environ.items() if not name.startswith("HF_")}
    return variables | more | {"WOOLLY_OFFLINE": "0"}


def one_line(stderr: str) -> bool:
    return stderr.startswith("woolly: error: ") and stderr.count("\n") == 1


def test_list_shows_every_model_and_whose_it_is(woolly: Woolly) -> None:
    done = woolly("list", NO_COLOR="1", TERM="dumb")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["NAME", "SIZE", "CHANGED", "FROM"]
    assert [(row[0], row[-1]) for row in rows[1:]] == [("mine", "Woolly"), ("studio-q8_0", "org/Studio-GGUF")]
    assert "\x1b" not in done.stdout


def test_list_can_be_narrowed_and_gives_names_alone(woolly: Woolly) -> None:
    assert woolly("ls", "-q").stdout == "mine\nstudio-q8_0\n"
    assert woolly("list", "STUDIO", "--quiet").stdout == "studio-q8_0\n"
    done = woolly("list", "nothing")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no model here has 'nothing'" in done.stderr


def test_list_is_json_for_programs(woolly: Woolly, tmp_path: Path) -> None:
    done = woolly("list", "--json")
    assert done.stdout.count("\n") == 1
    mine, studio = json.loads(done.stdout)["models"]
    path = tmp_path / "models/mine.gguf"
    assert (mine["path"], mine["size"], mine["from"]) == (str(path), path.stat().st_size, "woolly")
    assert (studio["from"], studio["repo"]) == ("lm_studio", "org/Studio-GGUF")
    assert json.loads(woolly("list", "none", "--json").stdout) == {"models": []}


def test_list_imports_nothing_heavy(environ: dict[str, str]) -> None:
    code = (
        "import sys; from woolly.cli.main import main; main(); "
        "print(sorted(set(sys.modules) & {'numpy', 'tokenizers', 'huggingface_hub', 'ssl', 'woolly._core'}))"
    )
    done = subprocess.run([sys.executable, "-c", code, "list"], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_hostile_file_name_cannot_act_on_the_terminal(woolly: Woolly, tmp_path: Path) -> None:
    tiny(tmp_path / "models/bad\x1b[2Jname\n.gguf")
    assert "bad\\x1b[2Jname\\n" in woolly("list").stdout
    assert json.loads(woolly("list", "bad", "--json").stdout)["models"][0]["name"] == "bad\x1b[2Jname\n"


def test_pull_brings_a_file_once(woolly: Woolly, tmp_path: Path) -> None:
    with serving(DATA) as shop:
        done = woolly("pull", shop.url, "--sha256", SHA256)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "downloading model.gguf, 0 MB\n"
        path = tmp_path / "models/model.gguf"
        assert path.read_bytes() == DATA
        assert done.stdout == f"model.gguf is here now, 0.4 MB: {path}\n"
        assert "was here already" in woolly("pull", shop.url).stdout
        done = woolly("pull", "model", "--quiet")
        assert (done.stdout, done.stderr) == (f"{path}\n", "")
        assert len(shop.asked) == 1
    report = json.loads(woolly("pull", "model", "--json").stdout)
    assert report == {"name": "model", "path": str(path), "size": len(DATA), "downloaded": False}


@pytest.mark.parametrize(
    ("how", "options", "code", "expected"),
    [
        ("well", ["--sha256", "0" * 64], 6, "SHA-256"),
        ("well", ["--sha256", "short"], 2, "64 hexadecimal digits"),
        ("status 404", [], 3, "404"),
        ("status 403", [], 6, "403"),
        ("packed", [], 6, "packed"),
    ],
)
def test_a_pull_that_fails_is_one_line_and_leaves_nothing(
    woolly: Woolly, tmp_path: Path, how: str, options: list[str], code: int, expected: str
) -> None:
    with serving(DATA, how) as shop:
        done = woolly("pull", shop.url, *options, "-q")
    assert done.returncode == code
    assert one_line(done.stderr), done.stderr
    assert expected in done.stderr
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["mine.gguf"]


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("https://host/model.bin", 2, "no address of a .gguf file"),
        ("https://user:pass@host/model.gguf", 2, "no address"),
        ("https://[::1/model.gguf", 2, "no address"),
        ("http://example.com/model.gguf", 2, "--sha256"),
        ("hf:nonsense", 2, "no name of the hub"),
        ("mone", 3, "did you mean 'mine'?"),
        ("qwen3", 3, "pull takes smollm2, hf:owner/repo, "),
        ("org/qwen3-GGUF", 3, "did you mean 'hf:org/qwen3-GGUF', of the hub?"),
        ("./none.gguf", 3, "there is no file"),
    ],
)
def test_a_name_that_cannot_be_pulled_is_refused(woolly: Woolly, name: str, code: int, expected: str) -> None:
    done = woolly("pull", name)
    assert done.returncode == code
    assert one_line(done.stderr) and expected in done.stderr


def test_pull_offline_says_so(woolly: Woolly) -> None:
    for name in ("https://host/model.gguf", "hf:org/repo", "smollm2"):
        done = woolly("pull", name, WOOLLY_OFFLINE="1")
        assert done.returncode == 6
        assert one_line(done.stderr) and "WOOLLY_OFFLINE" in done.stderr


def test_f13_an_interrupted_pull_keeps_what_came(woolly: Woolly, environ: dict[str, str], tmp_path: Path) -> None:
    with serving(DATA, pause_s=0.2) as shop:
        words = ("pull", shop.url, "--sha256", SHA256)
        child = subprocess.Popen(command(*words), env=environ, stderr=subprocess.PIPE, text=True)
        until(lambda: any(path.stat().st_size for path in (tmp_path / "models").glob(".pull-*/data")))
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
        assert child.stderr is not None and "goes on where this one stopped" in child.stderr.read()
        shop.pause_s = 0.0
        assert woolly(*words).returncode == 0
        assert "Range" in shop.asked[-1]
    assert (tmp_path / "models/model.gguf").read_bytes() == DATA


def until(true: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_show_tells_people_what_a_model_is(woolly: Woolly, tmp_path: Path) -> None:
    meta = {
        "general.license": "apache-2.0",
        "general.license.link": "https://example.org/licence",
        "general.sampling.temp": 0.6,
        "general.sampling.top_k": 20,
    }
    tiny(tmp_path / "models/told.gguf", meta=meta)
    done = woolly("show", "told")
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line[:10].strip(): line[11:] for line in done.stdout.splitlines() if line[0] != " "}
    assert list(lines) == [
        *("model", "family", "licence", "file", "weights", "context", "template", "sampling"),
        *("memory", "reads", "cache", "fits here"),
    ]
    assert lines["licence"] == "apache-2.0 (https://example.org/licence)"
    assert lines["family"].startswith("llama, ")
    assert lines["sampling"] == "temperature 0.6, top k 20 (recommended for this model)"
    assert lines["fits here"].startswith("its whole context")
    assert lines["cache"].endswith("for several answers at once")
    assert "system messages: yes" in lines["template"]
    assert lines["model"] == "told (tiny llama)"  # its name, and what its file calls it
    exact = woolly("show", "told", WOOLLY_EXACT="1").stdout
    assert "\nexact      on: 16-bit activations, a cache of f32\n" in exact


def test_show_and_plan_warn_of_a_context_above_the_one_of_the_training(woolly: Woolly, tmp_path: Path) -> None:
    tiny(tmp_path / "models/told.gguf", context=512)
    assert "trained for a context" not in woolly("show", "told", WOOLLY_CONTEXT="512").stdout
    warned = woolly("show", "told", WOOLLY_CONTEXT="2048").stdout.splitlines()[-1]
    assert warned.startswith("warning    told was trained for a context of 512 tokens, and 2,048 are asked for")
    planned = woolly("plan", "told", "--context", "2048")
    assert planned.returncode == 0 and "told was trained for a context of 512 tokens" in planned.stderr


def test_show_is_json_for_programs_and_info_is_the_same(woolly: Woolly) -> None:
    report = json.loads(woolly("show", "studio-q8_0", "--json").stdout)
    assert (report["from"], report["architecture"], report["sampling"]) == ("lm_studio", "llama", {})
    assert report["largest"] == report["context"] and report["free"] > 0
    assert report["template"]["system"] is True
    again = json.loads(woolly("info", "-m", "studio-q8_0", "--json").stdout)
    assert again | {"free": 0, "pool": 0} == report | {"free": 0, "pool": 0}
    assert "read from LM Studio" in woolly("show", "studio-q8_0").stdout


def test_show_of_what_is_no_model_is_exit_4_and_of_nothing_exit_3(woolly: Woolly, tmp_path: Path) -> None:
    (tmp_path / "models/bad.gguf").write_bytes(b"GGUF and nothing else")
    for name, code in (("bad", 4), ("nothing-like-it", 3)):
        done = woolly("show", name)
        assert done.returncode == code
        assert one_line(done.stderr)


@pytest.mark.parametrize(("free", "expected"), [(60_000_000, "a context of up to "), (10_000, "no: it needs")])
def test_show_with_little_memory_tells_the_largest_context(
    woolly: Woolly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, expected: str
) -> None:
    tiny(tmp_path / "models/long.gguf", context=1_048_576)
    monkeypatch.setattr(system, "memory", lambda: free)
    assert expected in woolly("show", "long").stdout.splitlines()[-1]


def test_rm_removes_what_is_ours(woolly: Woolly, tmp_path: Path) -> None:
    done = woolly("rm", "mine", "--yes")
    assert done.returncode == 0 and done.stdout.startswith("removed mine: ")
    assert list((tmp_path / "models").iterdir()) == []
    assert woolly("rm", "mine", "--yes").returncode == 3


def test_rm_tells_programs_what_went(woolly: Woolly, tmp_path: Path) -> None:
    path = tmp_path / "models/mine.gguf"
    size = path.stat().st_size
    report = json.loads(woolly("rm", str(path), "--yes", "--json").stdout)
    assert report == {"removed": [str(path)], "freed": size}


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["mine"], 2, "--yes"),
        (["mine", "--json"], 2, "--yes"),
        (["studio-q8_0", "--yes"], 2, "belongs to LM Studio"),
        (["mine", "studio-q8_0", "--yes"], 2, "belongs to LM Studio"),
        (["mine", "no-such-model-at-all", "--yes"], 3, "there is no model"),
        (["./nothing.gguf", "--yes"], 3, "there is no file"),
        ([], 2, "required"),
    ],
)
def test_rm_refuses_with_one_line_and_removes_nothing(
    woolly: Woolly, tmp_path: Path, words: list[str], code: int, expected: str
) -> None:
    done = woolly("rm", *words)
    assert done.returncode == code
    assert one_line(done.stderr) and expected in done.stderr
    assert (tmp_path / "models/mine.gguf").exists()
    assert (tmp_path / ".lmstudio/models/org/Studio-GGUF/studio-q8_0.gguf").exists()


def test_rm_leaves_a_file_that_lies_in_no_folder_of_models(woolly: Woolly, tmp_path: Path) -> None:
    path = tiny(tmp_path / "private.gguf")
    done = woolly("rm", str(path), "--yes")
    assert done.returncode == 2 and "lies in no folder of models" in done.stderr
    assert path.exists()


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("\n", 1), ("y\n", 0)])
def test_rm_asks_on_a_terminal(environ: dict[str, str], tmp_path: Path, answer: str, code: int) -> None:
    outer, inner = pty.openpty()
    words = command("rm", "mine")
    child = subprocess.Popen(words, env=environ, stdin=inner, stdout=subprocess.PIPE, stderr=inner)
    os.close(inner)
    output = b""
    while b"[y/N]" not in output:
        assert select.select([outer], [], [], 30)[0]
        output += os.read(outer, 1000)
    assert b"Remove mine (" in output
    os.write(outer, answer.encode())
    assert child.wait(30) == code
    os.close(outer)
    assert (tmp_path / "models/mine.gguf").exists() == (code == 1)


@pytest.mark.parametrize(("term", "drawn"), [("xterm", True), ("dumb", False)])
def test_a_bar_is_drawn_on_a_terminal_that_can(environ: dict[str, str], term: str, drawn: bool) -> None:
    outer, inner = pty.openpty()
    with serving(DATA) as shop:
        child = subprocess.Popen(
            command("pull", shop.url), env=environ | {"TERM": term}, stdout=subprocess.DEVNULL, stderr=inner
        )
        os.close(inner)
        output = b""
        try:
            while piece := os.read(outer, 1000):
                output += piece
        except OSError:  # the other side is gone
            pass
        assert child.wait(30) == 0
    os.close(outer)
    assert (b"[######" in output) is drawn
    assert (b"\x1b" in output) is drawn


@pytest.mark.parametrize("endpoint", ["https://[::1", "nonsense"])
def test_an_address_of_the_hub_that_is_none_is_one_line(environ: dict[str, str], endpoint: str) -> None:
    env = environ | {"HF_ENDPOINT": endpoint, "WOOLLY_OFFLINE": "0"}  # read when huggingface_hub is imported
    line = command("pull", "hf:owner/repo")
    done = subprocess.run(line, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert "HF_ENDPOINT" in done.stderr and done.stderr.count("\n") == 1
