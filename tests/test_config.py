"""config: flag over environment over default, and no setting that is silently wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from woolly.config import parse, read_config, unknown_settings
from woolly.errors import RequestError

HOME = {"HOME": "/home/ann"}


def test_the_defaults_are_those_of_the_library() -> None:
    config = read_config(HOME)
    assert (config.threads, config.context, config.kv, config.offline, config.log_level) == (
        None,
        None,
        "f16",
        False,
        "warning",
    )


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    env = HOME | {"WOOLLY_CPU_THREADS": "3", "WOOLLY_CONTEXT": "4096", "WOOLLY_KV": "Q8", "WOOLLY_OFFLINE": "yes"}
    config = read_config(env)
    assert (config.threads, config.context, config.kv, config.offline) == (3, 4096, "q8", True)
    config = read_config(env, threads=2, context=512, kv="f32")
    assert (config.threads, config.context, config.kv) == (2, 512, "f32")


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS keeps data in another folder")
def test_models_lie_in_the_data_folder_of_the_user() -> None:
    config = read_config(HOME)
    assert config.models == Path("/home/ann/.local/share/woolly/models")
    assert config.folders == (config.models, Path("/home/ann/.woolly/models"), Path("models"))
    assert config.hub == Path("/home/ann/.cache/huggingface/hub")
    assert config.state == Path("/home/ann/.local/state/woolly")
    assert read_config(HOME | {"XDG_STATE_HOME": "/state"}).state == Path("/state/woolly")
    assert read_config(HOME | {"XDG_STATE_HOME": "/state", "WOOLLY_HOME": "/w"}).state == Path("/w/state")


@pytest.mark.parametrize(
    ("env", "models"),
    [
        ({"XDG_DATA_HOME": "/data"}, "/data/woolly/models"),
        ({"XDG_DATA_HOME": "/data", "WOOLLY_HOME": "/woolly"}, "/woolly/models"),
        ({"WOOLLY_HOME": "/woolly", "WOOLLY_MODELS_DIR": "/gguf"}, "/gguf"),
    ],
)
def test_the_nearest_setting_of_the_models_folder_wins(env: dict[str, str], models: str) -> None:
    config = read_config(HOME | env)
    assert config.models == config.folders[0] == Path(models)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WOOLLY_CPU_THREADS", "0"),
        ("WOOLLY_CPU_THREADS", "two"),
        ("WOOLLY_CPU_THREADS", "-1"),
        ("WOOLLY_CONTEXT", "1e3"),
        ("WOOLLY_CONTEXT", "٣"),
        ("WOOLLY_KV", "q4"),
        ("WOOLLY_OFFLINE", "maybe"),
        ("WOOLLY_LOG_LEVEL", "loud"),
    ],
)
def test_an_impossible_value_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        read_config(HOME | {name: value})
    assert caught.value.param == name


def test_an_empty_variable_is_no_setting() -> None:
    assert read_config(HOME | {"WOOLLY_CPU_THREADS": "", "WOOLLY_KV": " "}) == read_config(HOME)


def test_an_unknown_variable_is_named_with_the_nearest_known_one() -> None:
    sentences = unknown_settings({"WOOLLY_THREADS": "2", "WOOLLY_KV": "f16", "WOOLLY_ISA": "avx2", "PATH": "/bin"})
    assert len(sentences) == 1
    assert "WOOLLY_THREADS" in sentences[0]
    assert "WOOLLY_CPU_THREADS" in sentences[0]


@pytest.mark.parametrize(
    "name",
    [
        "WOOLLY_MODELS_DIR",
        "WOOLLY_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "HF_HOME",
        "HF_HUB_CACHE",
        "OLLAMA_MODELS",
    ],
)
def test_the_home_of_a_user_who_is_not_here_is_a_folder_that_is_not_there(name: str) -> None:
    config = read_config(HOME | {name: "~nobody-of-this-name/x"})
    assert not any(folder.exists() for folder in (config.models, config.state, config.hub, *config.ollama))


@pytest.mark.parametrize("text", ["a = " + "[" * 20_000, "a" + ".b" * 20_000 + " = 1"], ids=["lists", "tables"])
def test_a_settings_file_without_a_bottom_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="too deep"):
        parse(text, "the file")
