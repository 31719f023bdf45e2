"""config: flag over environment over default, and no setting that is silently wrong."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from woolly import plan
from woolly.config import (
    BY_KEY,
    SETTINGS,
    EngineArguments,
    EngineOptions,
    engine_options,
    parse,
    read_config,
    read_setting,
    unknown_variables,
)
from woolly.config.rows import KINDS, Setting
from woolly.errors import RequestError

HOME = {"HOME": "/home/ann"}


def test_the_defaults_are_those_of_the_library() -> None:
    config = read_config(HOME)
    assert config.engine == engine_options({}) == EngineOptions()
    assert EngineArguments.__annotations__.keys() == {one.name for one in fields(EngineOptions)}
    assert (config.engine.batch, config.engine.sequences) == (plan.ROWS, plan.SEQUENCES)
    assert not config.offline


def test_an_argument_of_the_library_counts_before_the_options_it_stands_beside() -> None:
    options = read_config(HOME, context=512, exact=True, lora=["a.gguf"]).engine
    assert (options.kv, options.lora) == ("f32", ("a.gguf",))
    assert engine_options({"sequences": 1}, options) == replace(options, sequences=1)
    assert engine_options({"exact": True}).kv == engine_options({"exact": True, "kv": None}).kv == "f32"
    assert engine_options({"exact": True, "kv": "q8"}).kv == engine_options({"kv": "q8"}).kv == "q8"
    with pytest.raises(TypeError, match="unknown argument 'contxt'"):
        engine_options({"contxt": 1})
    with pytest.raises(RequestError, match="batch is '0'; expected a number from 1 to 65,536"):
        engine_options({"batch": 0})


def test_exact_keeps_floats_of_32_bits_unless_another_type_is_asked_for() -> None:
    assert (read_config(HOME, exact=True).engine.exact, read_config(HOME, exact=True).engine.kv) == (True, "f32")
    assert read_config(HOME | {"WOOLLY_EXACT": "1", "WOOLLY_KV": "q8"}).engine.kv == "q8"
    assert read_config(HOME | {"WOOLLY_EXACT": "1"}, exact=False).engine.kv == "f16"


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    env = HOME | {"WOOLLY_CPU_THREADS": "3", "WOOLLY_CONTEXT": "4096", "WOOLLY_KV": "Q8", "WOOLLY_OFFLINE": "yes"}
    config = read_config(env)
    assert (config.engine.threads, config.engine.context, config.engine.kv, config.offline) == (3, 4096, "q8", True)
    config = read_config(env, threads=2, context=512, kv="f32")
    assert (config.engine.threads, config.engine.context, config.engine.kv) == (2, 512, "f32")


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
        ("WOOLLY_SEQUENCES", "0"),
        ("WOOLLY_ENGINE__KV", "q4"),
    ],
)
def test_an_impossible_value_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        read_config(HOME | {name: value})
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (["80000"], "80000"),
        (["8080", "80000"], "80000"),
        (["80", "x"], "x"),
        ("1,2,80000", "1,2,80000"),
        (True, "True"),
    ],
)
def test_of_several_values_the_wrong_one_is_shown_as_it_was_typed(value: object, shown: str) -> None:
    with pytest.raises(RequestError) as caught:
        BY_KEY["server.port"].read(value, "--port")
    assert str(caught.value) == f"--port is '{shown}'; expected a whole number from 0 to 65,535"


def test_variables_of_templates_are_a_table_or_json() -> None:
    row = BY_KEY["models.chat_template_kwargs"]
    for value in ('{"enable_thinking": false, "n": 1}', {"enable_thinking": False, "n": 1}):
        assert row.read(value, "x") == {"enable_thinking": False, "n": 1}
    assert read_config(HOME).engine.chat_template_kwargs == {}
    for wrong in ("{", "[1]", '{"a": [1]}', {"a": {}}, "[" * 100_000, 1):
        with pytest.raises(RequestError) as caught:
            row.read(wrong, "--chat-template-kwargs")
        assert str(caught.value).endswith(
            "expected a table of numbers, texts, true or false, or such an object in JSON"
        )


def test_an_empty_variable_is_no_setting() -> None:
    assert read_config(HOME | {"WOOLLY_CPU_THREADS": "", "WOOLLY_KV": " "}) == read_config(HOME)


def test_an_unknown_variable_is_named_with_the_nearest_known_one() -> None:
    sentences = unknown_variables({"WOOLLY_THREADS": "2", "WOOLLY_KV": "f16", "WOOLLY_ISA": "avx2", "PATH": "/bin"})
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


@pytest.mark.parametrize("text", ["a = " + "[" * 20_000, "a" + ".b" * 4_000 + " = 1"], ids=["lists", "tables"])
def test_a_settings_file_without_a_bottom_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="too deep"):
        parse(text, "the file")


def test_every_row_has_names_of_its_own_a_kind_and_a_line_of_help() -> None:
    assert len({one.name for one in SETTINGS}) == len({one.key for one in SETTINGS}) == len(SETTINGS)
    assert all(one.kind in KINDS and one.help and "\n" not in one.help for one in SETTINGS)
    flags = [flag for one in SETTINGS if one.name != "anonymous_rpm" for flag in one.flags]  # --rate-limit is two rows'
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(
    "one", [one for one in SETTINGS if one.kind in ("str", "int", "float", "bool")], ids=lambda one: one.key
)
def test_a_default_is_a_value_that_the_row_allows(one: Setting) -> None:
    if one.default not in (None, ""):
        one.check(one.default, one.key)


def test_one_setting_can_be_read_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[logging]\nlevel = "DEBUG"\n')
    assert read_setting("logging.level", HOME) == "info"
    assert read_setting("logging.level", HOME | {"WOOLLY_CONFIG": str(file)}) == "debug"
    assert read_setting("logging.level", {"WOOLLY_CONFIG": str(file), "WOOLLY_LOG_LEVEL": "error"}) == "error"


@pytest.mark.parametrize(
    ("name", "value"), [("threads", "3"), ("threads", True), ("context", 0), ("kv", "Q8"), ("sequences", 1.0)]
)
def test_the_library_takes_values_of_the_right_type_alone(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=f"{name} is '{value}'; expected"):
        engine_options({name: value})
    engine_options({"threads": None, "context": 8, "kv": "q8", "sequences": 32})
