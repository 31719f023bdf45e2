"""Settings: a flag over the environment over the file over the default; keys leave the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from woolly.errors import NotFoundError, RequestError
from woolly.server.settings import Settings, read_settings


def test_the_defaults_listen_to_this_machine_only() -> None:
    settings = read_settings({}, {})
    assert (settings.host, settings.port, settings.anonymous, settings.loopback) == ("127.0.0.1", 8080, True, True)
    assert settings == Settings()


def test_each_source_wins_over_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('[server]\nhost = "127.0.0.2"\nport = 1\n[logging]\nlevel = "error"\n')
    settings = read_settings({"server.port": 3}, {"WOOLLY_PORT": "2", "WOOLLY_HOST": "127.0.0.3"}, file=file)
    assert (settings.host, settings.port, settings.log_level) == ("127.0.0.3", 3, "error")


def test_bind_is_host_and_port_in_one() -> None:
    settings = read_settings({"bind": "[::1]:9"}, {})
    assert (settings.host, settings.port) == ("::1", 9)


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
        {"WOOLLY_BIND": "here"},
        {"WOOLLY_LIMITS__WAITING": "-1"},
        {"WOOLLY_LOG_LEVEL": "loud"},
        {"WOOLLY_AUTH__ALLOW_ANONYMOUS": "perhaps"},
    ],
)
def test_a_value_that_makes_no_sense_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(RequestError):
        read_settings({}, environ)


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
