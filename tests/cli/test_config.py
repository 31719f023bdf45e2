"""woolly config: each setting and where it comes from; a change that is whole; every wrong line."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly
from woolly.config import SETTINGS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".config" / "woolly" / "config.toml"


@pytest.fixture(autouse=True)
def plain(environ: dict[str, str]) -> None:
    environ.pop("XDG_CONFIG_HOME", None)


def settings(woolly: Woolly, *words: str, **env: str) -> dict[str, dict[str, object]]:
    shown: dict[str, dict[str, object]] = json.loads(woolly("config", "show", "--json", *words, **env).stdout)[
        "settings"
    ]
    return shown


def test_every_setting_is_shown_with_its_source(woolly: Woolly, model: Path) -> None:
    shown = settings(woolly)
    assert set(shown) == {one.key for one in SETTINGS} - {"bind"}
    assert shown["engine.kv"] == {"value": "f16", "source": "default"}
    assert shown["models.models_dir"] == {"value": str(model.parent), "source": "environment, WOOLLY_MODELS_DIR"}
    done = woolly("config", "show")
    assert done.stdout.startswith("settings file: ") and "engine.kv " in done.stdout


def test_the_environment_wins_over_the_file_and_that_over_the_default(woolly: Woolly) -> None:
    assert woolly("config", "set", "engine.kv", "q8").returncode == 0
    assert settings(woolly, "engine.kv") == {"engine.kv": {"value": "q8", "source": "file"}}
    assert settings(woolly, "engine.kv", WOOLLY_KV="f32")["engine.kv"] == {
        "value": "f32",
        "source": "environment, WOOLLY_KV",
    }
    assert woolly("config", "set", "bind", "127.0.0.1:9001").returncode == 0
    assert settings(woolly, "server.port")["server.port"] == {"value": 9001, "source": "file"}


def test_what_is_set_counts_for_the_next_command(woolly: Woolly) -> None:
    assert woolly("config", "set", "engine.num_threads", "1").returncode == 0
    assert json.loads(woolly("doctor", "--json").stdout)["threads"] == 1
    assert json.loads(woolly("doctor", "--json", WOOLLY_CPU_THREADS="2").stdout)["threads"] == 2


def test_the_file_is_replaced_whole_and_only_the_user_reads_it(woolly: Woolly, file: Path) -> None:
    done = woolly("config", "set", "auth.api_keys", "-", stdin="k" * 32 + "\n")
    assert done.returncode == 0 and "k" * 32 not in done.stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["config.toml"]
    shown = woolly("config", "show")
    assert "k" * 32 not in shown.stdout and "1 (not shown)" in shown.stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_f06_a_folder_that_cannot_be_written_is_exit_8(woolly: Woolly, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.parent.chmod(0o500)
    done = woolly("config", "set", "engine.kv", "q8")
    assert done.returncode == 8 and done.stderr.count("\n") == 1


def test_f06_a_folder_that_cannot_be_made_is_exit_8(woolly: Woolly, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = woolly("config", "set", "engine.kv", "q8", WOOLLY_CONFIG=str(tmp_path / "file" / "config.toml"))
    assert done.returncode == 8 and done.stderr.count("\n") == 1


def test_check_names_every_wrong_line(woolly: Woolly, tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text('[engine]\nkv = "q7"\n\n[servr]\nport = 1\n')
    done = woolly("config", "check", str(path))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{path}:2: the setting engine.kv is 'q7'") and lines[1].startswith(f"{path}:5: ")
    assert "did you mean server.port?" in lines[1]
    faults = json.loads(woolly("config", "check", str(path), "--json").stdout)["problems"]
    assert [row["line"] for row in faults] == [2, 5]


def test_check_looks_at_the_environment_too(woolly: Woolly) -> None:
    assert woolly("config", "check").returncode == 0
    assert woolly("config", "check", "--quiet").stdout == ""
    done = woolly("config", "check", WOOLLY_THREADS="2", WOOLLY_KV="q4")
    assert done.returncode == 1
    assert "WOOLLY_CPU_THREADS" in done.stdout and "WOOLLY_KV is 'q4'" in done.stdout


def test_a_wrong_file_ends_a_command_in_one_line(woolly: Woolly, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("[engine]\nnum_threads = -1\n")
    done = woolly("tokenize", "tiny-talker", "hello")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "engine.num_threads in " in done.stderr
    assert woolly("tokenize", "tiny-talker", "hello", WOOLLY_CONFIG="/dev/null").returncode == 0


@pytest.mark.parametrize(
    ("words", "expected", "code"),
    [
        (["show", "a", "b"], "at most a prefix", 2),
        (["show", "engin.x"], "no setting begins with", 2),
        (["set", "engine.kv"], "a key and a value", 2),
        (["set", "engine.kw", "q8"], "did you mean engine.kv?", 2),
        (["set", "engine.kv", "q9"], "expected one of f32, f16, q8", 2),
        (["set", "engine.num_threads", "many"], "expected a whole number", 2),
        (["check", "/nothing.toml"], "there is no settings file", 3),
        (["forget"], "invalid choice", 2),
    ],
)
def test_wrong_words_are_one_line(woolly: Woolly, words: list[str], expected: str, code: int) -> None:
    done = woolly("config", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert expected in done.stderr and done.stderr.count("\n") == 1


def test_mcp_servers_are_shown_by_name_and_a_wrong_one_is_found_with_its_line(woolly: Woolly, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[mcp.servers.time]\ncommand = "mcp-server-time --local-timezone=UTC"\nenv = { KEY = "k3y" }\n')
    shown = settings(woolly, "mcp.servers")["mcp.servers"]
    assert shown == {"value": {"time": "mcp-server-time --local-timezone=UTC"}, "source": "file"}
    assert "k3y" not in woolly("config", "show").stdout
    file.write_text("[mcp.servers.time]\nurl = 5\n")
    done = woolly("config", "check")
    assert done.returncode != 0
    assert "mcp.servers.time.url cannot be '5'" in done.stdout
