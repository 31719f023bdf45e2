"""Where the value of a setting comes from: an option of a command, the environment, the file, the default.

Nothing else in Woolly reads the environment for settings, except `device.cpu` for its instruction set. The library
takes keyword arguments and asks here for one thing only: where models lie.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from woolly.config.rows import Setting, rows
from woolly.config.settings import (
    BY_KEY,
    OTHER_VARIABLES,
    SETTINGS,
    WIDER,
    WITHOUT_EFFECT,
    Config,
    EngineArguments,
    EngineOptions,
)
from woolly.errors import FileError, NotFoundError, RequestError, printable
from woolly.limits import LIMITS
from woolly.system import user_path


@dataclass(frozen=True, slots=True)
class SettingValue:
    """The value of a setting that is not the default, and where it comes from."""

    value: Any
    source: str


def find_values(
    wanted: Iterable[Setting], flags: Mapping[str, Any], env: Mapping[str, str], file: Mapping[str, Any], path: Path
) -> dict[str, SettingValue]:
    """The settings that are given, by name; `flags` are by name too. Empty text counts as not given."""
    values = {}
    for one in wanted:
        variable = next((name for name in one.variables if env.get(name, "").strip()), None)
        key = next((key for key in one.keys if file.get(key, "") != ""), None)
        if flags.get(one.name) is not None:
            what = one.flags[0] if one.flags else one.name
            values[one.name] = SettingValue(one.read(flags[one.name], what), "option")
        elif variable is not None:
            values[one.name] = SettingValue(one.read(env[variable], variable), f"environment, {variable}")
        elif key is not None:
            values[one.name] = SettingValue(one.read(file[key], f"{key} in '{printable(path)}'"), "file")
    return values


def read_config(environ: Mapping[str, str] | None = None, **flags: Any) -> Config:
    """The settings of a command; `flags` are its options by the names of Config's fields, None where not given."""
    env = os.environ if environ is None else environ
    settings = find_values(rows(Config), flags, env, file_values(env), settings_file(env))
    values = {"models": _models(env)} | {name: one.value for name, one in settings.items()}
    values.setdefault("kv", default_kv(values.get("exact", False)))
    engine = EngineOptions(**{one.name: values.pop(one.name) for one in rows(EngineOptions) if one.name in values})
    user = _user(env)
    return Config(
        engine=engine,
        folders=(values["models"], user / ".woolly" / "models", Path("models")),
        hub=_hub(env, user),
        ollama=_ollama(env, user),
        lm_studio=(user / ".lmstudio" / "models", user / ".cache" / "lm-studio" / "models"),
        state=_state(env, user),
        caches=_caches(env, user),
        **values,
    )


def default_kv(exact: bool) -> str:
    """The type of the keys and values in the cache, where no setting names one."""
    return "f32" if exact else "f16"


def engine_options(arguments: Mapping[str, Any], options: EngineOptions | None = None) -> EngineOptions:
    """The options of keyword arguments of the library; what is not given is as in `options`, or has its default."""
    values = dict(arguments)
    if unknown := values.keys() - EngineArguments.__annotations__.keys():
        known = ", ".join(EngineArguments.__annotations__)
        raise TypeError(f"unknown argument '{min(unknown)}'; known are {known}")
    if values.get("kv") is None and (options is None or "kv" in values):
        values["kv"] = default_kv(values.get("exact", options.exact if options is not None else False))
    for one in rows(EngineOptions):
        if one.name in values and one.name not in WIDER and (values[one.name] is not None or one.default is not None):
            one.check(values[one.name], one.name)
    options = replace(options or EngineOptions(), **values)
    if type(options.batch) is not int or not 1 <= options.batch <= 65536:
        shown = printable(options.batch)
        raise RequestError(f"batch is '{shown}'; expected a number from 1 to 65,536", param="batch")
    return options


def read_setting(key: str, environ: Mapping[str, str] | None = None) -> Any:
    """The value of one setting alone, from the environment or the file."""
    env, one = os.environ if environ is None else environ, BY_KEY[key]
    values = find_values([one], {}, env, file_values(env), settings_file(env))
    return values[one.name].value if values else one.default


def settings_file(environ: Mapping[str, str] | None = None) -> Path:
    """Where settings are kept: the file that WOOLLY_CONFIG names, else one in the user's folder for settings."""
    env = os.environ if environ is None else environ
    if env.get("WOOLLY_CONFIG"):
        return user_path(env["WOOLLY_CONFIG"])
    if env.get("WOOLLY_HOME"):
        return user_path(env["WOOLLY_HOME"]) / "config.toml"
    if env.get("XDG_CONFIG_HOME"):
        return user_path(env["XDG_CONFIG_HOME"]) / "woolly" / "config.toml"
    folder = ("Library", "Application Support") if sys.platform == "darwin" else (".config",)
    return _user(env).joinpath(*folder, "woolly", "config.toml")


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file by their whole keys, as `engine.kv`; what they mean is not looked at."""
    return parse(file_text(path), f"the settings file '{printable(path)}'")


def file_text(path: Path) -> str:
    """The text of a settings file."""
    try:
        with path.open("rb") as file:
            raw = file.read(LIMITS.settings + 1)
        if len(raw) > LIMITS.settings:
            raise FileError(f"the settings file '{printable(path)}' has more than {LIMITS.settings:,} bytes")
        return raw.decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no settings file '{printable(path)}'") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"the settings file '{printable(path)}' cannot be read: {printable(error)}") from error


def parse(text: str, what: str) -> dict[str, Any]:
    """The settings in the text of a TOML file, by their whole keys."""
    import tomllib  # only where there is a file: most commands start without it

    try:
        return dict(_flat(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{what} is not TOML: {printable(error)}") from None
    except RecursionError:
        raise RequestError(f"{what} has tables or lists within each other, too deep to be read") from None


def _flat(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in tree.items():
        one = BY_KEY.get(prefix + name)
        leaf = not isinstance(value, dict) or (one is not None and one.kind.startswith("Mapping"))
        pairs += [(prefix + name, value)] if leaf else _flat(value, f"{prefix}{name}.")
    return pairs


def file_values(env: Mapping[str, str]) -> dict[str, Any]:
    """The values of the settings file; none where there is no file and WOOLLY_CONFIG names none."""
    path = settings_file(env)
    return read_file(path) if env.get("WOOLLY_CONFIG") or path.is_file() else {}


def near(name: str, names: Iterable[str] = BY_KEY) -> str:
    """The nearest name that there is, as the end of a sentence."""
    import difflib  # only for a name that is wrong

    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_keys(keys: Iterable[str]) -> list[str]:
    """A sentence for each key of a settings file that changes nothing."""
    return [
        f"the setting '{printable(key)}' has no effect in this version"
        if key.startswith(WITHOUT_EFFECT)
        else f"the setting '{printable(key)}' has no meaning{near(key)}"
        for key in keys
        if key not in BY_KEY
    ]


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each WOOLLY_ variable that means nothing."""
    env = os.environ if environ is None else environ
    known = [*OTHER_VARIABLES, *(name for one in SETTINGS for name in one.variables)]
    return [
        f"the environment variable {printable(name)} has no meaning{near(name, known)}"
        for name in sorted(env)
        if name.startswith("WOOLLY_") and name not in known
    ]


def _user(env: Mapping[str, str]) -> Path:
    if env.get("HOME"):
        return Path(env["HOME"])
    try:
        return Path.home()
    except RuntimeError:  # no home, as in some containers: the current folder, as `./models` is read too
        return Path()


def _models(env: Mapping[str, str]) -> Path:
    if env.get("WOOLLY_HOME"):
        return user_path(env["WOOLLY_HOME"]) / "models"
    if env.get("XDG_DATA_HOME"):
        return user_path(env["XDG_DATA_HOME"]) / "woolly" / "models"
    data = ("Library", "Application Support") if sys.platform == "darwin" else (".local", "share")
    return _user(env).joinpath(*data, "woolly", "models")


def _state(env: Mapping[str, str], user: Path) -> Path:
    if env.get("WOOLLY_HOME"):
        return user_path(env["WOOLLY_HOME"]) / "state"
    if env.get("XDG_STATE_HOME"):
        return user_path(env["XDG_STATE_HOME"]) / "woolly"
    if sys.platform == "darwin":
        return user / "Library" / "Application Support" / "woolly" / "state"
    return user / ".local" / "state" / "woolly"


def _caches(env: Mapping[str, str], user: Path) -> Path:
    if env.get("WOOLLY_HOME"):
        return user_path(env["WOOLLY_HOME"]) / "cache"
    if env.get("XDG_CACHE_HOME"):
        return user_path(env["XDG_CACHE_HOME"]) / "woolly"
    return user.joinpath(*(("Library", "Caches") if sys.platform == "darwin" else (".cache",)), "woolly")


def _hub(env: Mapping[str, str], user: Path) -> Path:
    if env.get("HF_HUB_CACHE"):
        return user_path(env["HF_HUB_CACHE"])
    home = user_path(env["HF_HOME"]) if env.get("HF_HOME") else user / ".cache" / "huggingface"
    return home / "hub"


def _ollama(env: Mapping[str, str], user: Path) -> tuple[Path, ...]:
    if env.get("OLLAMA_MODELS"):
        return (user_path(env["OLLAMA_MODELS"]),)
    return user / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")  # the second is the service's own user
