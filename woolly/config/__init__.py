"""config: every setting of Woolly, and where its value comes from.

A setting is a row (rows.py). `EngineOptions`, `Config`, `Settings` (settings.py) and `Serving` (serving.py) are tables
of them; their values come from options of a command, the environment, a file and the defaults (sources.py).
"""

from __future__ import annotations

from woolly.config.settings import (
    BY_KEY,
    HOST,
    LOG_LEVELS,
    PORT,
    SETTINGS,
    WITHOUT_EFFECT,
    Adapted,
    Config,
    EngineArguments,
    EngineOptions,
    PathText,
    Settings,
)
from woolly.config.sources import (
    engine_options,
    file_text,
    file_values,
    find_values,
    near,
    parse,
    read_config,
    read_setting,
    settings_file,
    unknown_keys,
    unknown_variables,
)

__all__ = [
    "BY_KEY",
    "HOST",
    "LOG_LEVELS",
    "PORT",
    "SETTINGS",
    "WITHOUT_EFFECT",
    "Adapted",
    "Config",
    "EngineArguments",
    "EngineOptions",
    "PathText",
    "Settings",
    "engine_options",
    "file_text",
    "file_values",
    "find_values",
    "near",
    "parse",
    "read_config",
    "read_setting",
    "settings_file",
    "unknown_keys",
    "unknown_variables",
]
