"""Settings: a flag over the environment over the file over the default; keys leave the environment."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from woolly.config import Settings, read_config
from woolly.config.rows import ModelConfig
from woolly.config.serving import SERVING
from woolly.errors import NotFoundError, RequestError
from woolly.server.settings import read_settings


def test_the_defaults_listen_to_this_machine_only() -> None:
    settings = read_settings({}, {})
    assert (settings.addresses, settings.anonymous) == ((("127.0.0.1", 8080),), True)
    assert settings == Settings()


def test_each_source_wins_over_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[server]\nhost = "127.0.0.2"\nport = 1\n[logging]\nlevel = "error"\n')
    settings = read_settings({"ports": 3}, {"WOOLLY_PORT": "2", "WOOLLY_HOST": "127.0.0.3"}, file=file)
    assert (settings.addresses, settings.log_level) == ((("127.0.0.3", 3),), "error")


def test_bind_is_host_and_port_in_one() -> None:
    settings = read_settings({"bind": "[::1]:9"}, {})
    assert settings.addresses == (("::1", 9),)


def test_a_key_is_kept_as_its_digest_and_leaves_the_environment() -> None:
    environ = {"WOOLLY_API_KEY": "one-key-of-twenty-characters,two"}
    settings = read_settings({}, environ)
    assert environ == {}
    assert len(settings.keys) == 2
    assert not settings.anonymous
    assert "one-key" not in repr(settings)
    assert settings.warnings == ("an API key has fewer than 20 characters",)


def test_a_section_of_the_environment_is_a_key_of_the_file() -> None:
    settings = read_settings({}, {"WOOLLY_LIMITS__WAITING": "7", "WOOLLY_AUTH__ALLOW_ANONYMOUS": "false"})
    assert settings.limits.waiting == 7
    assert not settings.anonymous


@pytest.mark.parametrize(
    "environ",
    [
        {"WOOLLY_PORT": "x"},
        {"WOOLLY_PORT": "70000"},
        {"WOOLLY_PORT": "²"},
        {"WOOLLY_BIND": "127.0.0.1:" + "9" * 5000},
        {"WOOLLY_BIND": "here"},
        {"WOOLLY_LIMITS__WAITING": "-1"},
        {"WOOLLY_LOG_LEVEL": "loud"},
        {"WOOLLY_AUTH__ALLOW_ANONYMOUS": "perhaps"},
    ],
)
def test_a_value_that_makes_no_sense_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(RequestError):
        read_settings({}, environ)


def test_defaults_of_requests_are_a_table_and_options_are_added_to_it(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[defaults]\ntemperature = 0.2\ntop_k = 9\n")
    assert read_settings({}, {}, file=file).defaults == {"temperature": 0.2, "top_k": 9}
    options = {"defaults": {"temperature": 0.9, "seed": 1}}
    assert read_settings(options, {}, file=file).defaults == {"temperature": 0.9, "top_k": 9, "seed": 1}
    assert read_settings({}, {"WOOLLY_DEFAULTS": "min_p=0.1, seed = 4"}).defaults == {"min_p": 0.1, "seed": 4}


@pytest.mark.parametrize(
    ("defaults", "expected"),
    [
        ("tempreature=1", "defaults.tempreature has no meaning; did you mean temperature?"),
        ("temperature=500", "temperature is 500, but must be between 0 and 100"),
        ("temperature=nan", "temperature is nan"),
        ("seed=-1", "seed is -1"),
        ("top_k=1.5", "top_k is a whole number, not 1.5"),
        ("temperature=hot", "WOOLLY_DEFAULTS is 'temperature=hot'; expected a table of numbers, or as NAME=X,NAME=X"),
        ("temperature", "WOOLLY_DEFAULTS is 'temperature'"),
    ],
)
def test_defaults_that_no_request_could_have_are_refused_at_the_start(defaults: str, expected: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_settings({}, {"WOOLLY_DEFAULTS": defaults})
    assert expected in str(caught.value) and "at least" not in str(caught.value)


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[limits]\nwaitin = 3\n")
    assert "did you mean limits.waiting?" in read_settings({}, {}, file=file).warnings[0]


def test_a_file_that_is_not_there_or_is_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_settings({}, {}, file=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("= 1")
    with pytest.raises(RequestError, match="not TOML"):
        read_settings({}, {}, file=tmp_path / "bad.toml")


def test_addresses_may_be_several_and_each_must_be_safe(tmp_path: Path) -> None:
    settings = read_settings({"bind": ["127.0.0.1:1", "[::1]:2"]}, {})
    assert settings.addresses == (("127.0.0.1", 1), ("::1", 2))
    assert read_settings({"ports": [1, 2]}, {}).addresses == (("127.0.0.1", 1), ("127.0.0.1", 2))
    assert read_settings({}, {"WOOLLY_PORT": "1,2"}).addresses == (("127.0.0.1", 1), ("127.0.0.1", 2))
    file = tmp_path / "a.toml"
    file.write_text('bind = ["127.0.0.1:1", "0.0.0.0:2"]\n')
    with pytest.raises(RequestError, match=r"0\.0\.0\.0"):
        read_settings({}, {}, file=file)


def test_a_file_with_every_key_of_the_list_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        """
bind = "127.0.0.1:1"
strict = true
[auth]
jwt_secret = "a-secret-of-twenty-characters"
jwt_expiration = 60
[rate_limit]
authenticated_rpm = 60
anonymous_rpm = 10
burst_capacity = 3
[cors]
enabled = false
allowed_methods = ["GET"]
allowed_headers = ["Accept"]
max_age = 5
[aliases]
"Gpt-4o" = "beta"
[[models.configs]]
name = "mine"
path = "/models/x.gguf"
context_size = 512
batch_size = 2
[engine]
max_batch_size = 3
[performance]
max_context_length = 100
inference_threads = 1
[logging]
file = "log.txt"
"""
    )
    settings = read_settings({}, {}, file=file)
    assert settings.warnings == ()
    assert (settings.strict, settings.token_life_s) == (True, 60)
    assert (settings.known_rpm, settings.anonymous_rpm, settings.burst) == (60, 10, 3)
    assert (settings.cors, settings.cors_methods, settings.cors_max_age) == (False, ("GET",), 5)
    assert settings.aliases == {"gpt-4o": "beta"}
    assert settings.configs == (ModelConfig("mine", Path("/models/x.gguf"), 512, 2),)
    assert settings.log_file == Path("log.txt")
    config = read_config({"WOOLLY_CONFIG": str(file)})
    assert (config.engine.context, config.engine.threads, config.engine.sequences) == (100, 1, 3)
    assert "a-secret" not in repr(settings)


def test_a_key_of_an_older_file_is_a_warning_that_it_has_no_effect(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[engine.device]\nkind = 'cuda'\n[mcp]\nenabled = true\n[engine.optimizations]\nfast = true\n")
    assert [("no effect" in warning) for warning in read_settings({}, {}, file=file).warnings] == [True] * 3


@pytest.mark.parametrize(
    "text",
    [
        "[aliases]\na = 'b'\nb = 'c'\n",
        "[aliases]\na = 5\n",
        "[[models.configs]]\nname = 'x'\n",
        "[[models.configs]]\nname = 'x'\npath = 'y'\ncontext_size = 0\n",
        "[rate_limit]\nanonymous_rpm = -1\n",
        "bind = 'here'\n",
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(RequestError):
        read_settings({}, {}, file=file)


def test_every_limit_can_be_set_by_its_name() -> None:
    for row in dataclasses.fields(SERVING):
        settings = read_settings({}, {f"WOOLLY_LIMITS__{row.name.upper()}": "7"})
        assert getattr(settings.limits, row.name) == 7


def test_an_option_for_all_wins_over_the_file_for_some(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[rate_limit]\nauthenticated_rpm = 60\nrequests_per_minute = 5\n")
    settings = read_settings({}, {}, file=file)
    assert (settings.known_rpm, settings.anonymous_rpm) == (60, 5)
    settings = read_settings({}, {"WOOLLY_RATE_LIMIT": "7"}, file=file)
    assert (settings.known_rpm, settings.anonymous_rpm) == (7, 7)


def test_how_long_models_stay_and_which_adapters_are_theirs_stand_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    model = '[[models.configs]]\nname = "a"\npath = "/a.gguf"\n'
    file.write_text(f'[models]\nkeep_alive = "1h30m"\nmax_loaded = 2\n{model}lora = ["/pirate.gguf=0.5"]\n')
    settings = read_settings({}, {"HOME": str(tmp_path)}, file=file)
    assert (settings.keep_alive, settings.max_loaded, settings.configs[0].lora) == (5400, 2, ("/pirate.gguf=0.5",))
    assert read_settings({}, {"HOME": str(tmp_path), "WOOLLY_KEEP_ALIVE": "-5m"}).keep_alive == -1
    for wrong in ('[models]\nkeep_alive = "soon"\n', f'{model}lora = "/pirate.gguf"\n', f"{model}lora = [1]\n"):
        file.write_text(wrong)
        with pytest.raises(RequestError, match="expected"):
            read_settings({}, {"HOME": str(tmp_path)}, file=file)
