"""One frozen Config from the environment and the flags of a command, each over the one before.

Nothing else in Woolly reads the environment for settings, except `native` for its
instruction set and `server.settings` for what a server is told. The library takes
keyword arguments and asks here for one thing only: where models lie.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from woolly.errors import RequestError, printable

KV_TYPES = ("f32", "f16", "q8")
LOG_LEVELS = ("debug", "info", "warning", "error")
KNOWN = (
    "WOOLLY_API_KEY",  # those of the server are read by server.settings
    "WOOLLY_BIND",
    "WOOLLY_CONFIG",
    "WOOLLY_CONTEXT",
    "WOOLLY_CPU_THREADS",
    "WOOLLY_DISABLE_SIMD",  # these two choose the instruction set and are read by native
    "WOOLLY_HOME",
    "WOOLLY_HOST",
    "WOOLLY_ISA",
    "WOOLLY_KV",
    "WOOLLY_LOG_FORMAT",
    "WOOLLY_LOG_LEVEL",
    "WOOLLY_MODEL",
    "WOOLLY_MODELS_DIR",
    "WOOLLY_OFFLINE",
    "WOOLLY_PEER_PYTHON",
    "WOOLLY_PORT",
)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one process."""

    models: Path  # downloads go here
    folders: tuple[Path, ...]  # where models are looked for, in this order; the first is `models`
    hub: Path  # the hub cache of other programs; read, never written
    threads: int | None = None  # None: what system.cores() says
    context: int | None = None  # None: the model's own, as far as it fits
    kv: str = "f16"
    offline: bool = False
    log_level: str = "warning"
    peer_python: str = ""  # a Python that has llama_cpp, for `bench --against`; empty: our own


def read_config(
    environ: Mapping[str, str] | None = None,
    *,
    threads: int | None = None,
    context: int | None = None,
    kv: str | None = None,
) -> Config:
    """The settings: a flag (a keyword that is not None) wins over the environment, that over the default."""
    env = os.environ if environ is None else environ
    models = _models(env)
    user = _user(env)
    return Config(
        models=models,
        folders=(models, user / ".woolly" / "models", Path("models")),
        hub=_hub(env, user),
        threads=threads if threads is not None else _count(env, "WOOLLY_CPU_THREADS"),
        context=context if context is not None else _count(env, "WOOLLY_CONTEXT"),
        kv=kv if kv is not None else _word(env, "WOOLLY_KV", KV_TYPES, "f16"),
        offline=_flag(env, "WOOLLY_OFFLINE"),
        log_level=_word(env, "WOOLLY_LOG_LEVEL", LOG_LEVELS, "warning"),
        peer_python=env.get("WOOLLY_PEER_PYTHON", ""),
    )


def unknown_settings(environ: Mapping[str, str] | None = None) -> list[str]:
    """A sentence for each WOOLLY_ variable that means nothing, with the nearest name that does."""
    env = os.environ if environ is None else environ
    sentences = []
    for name in sorted(env):
        if name.startswith("WOOLLY_") and name not in KNOWN and "__" not in name:  # sections: server.settings
            near = difflib.get_close_matches(name, KNOWN, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the known ones are {', '.join(KNOWN)}"
            sentences.append(f"the environment variable {printable(name)} has no meaning; {hint}")
    return sentences


def _user(env: Mapping[str, str]) -> Path:
    if env.get("HOME"):
        return Path(env["HOME"])
    try:
        return Path.home()
    except (
        RuntimeError
    ):  # a user without a home, as some containers have: the current folder, as `./models` is read too
        return Path()


def _models(env: Mapping[str, str]) -> Path:
    if env.get("WOOLLY_MODELS_DIR"):
        return Path(env["WOOLLY_MODELS_DIR"]).expanduser()
    if env.get("WOOLLY_HOME"):
        return Path(env["WOOLLY_HOME"]).expanduser() / "models"
    if env.get("XDG_DATA_HOME"):
        return Path(env["XDG_DATA_HOME"]).expanduser() / "woolly" / "models"
    data = ("Library", "Application Support") if sys.platform == "darwin" else (".local", "share")
    return _user(env).joinpath(*data, "woolly", "models")


def _hub(env: Mapping[str, str], user: Path) -> Path:
    if env.get("HF_HUB_CACHE"):
        return Path(env["HF_HUB_CACHE"]).expanduser()
    home = Path(env["HF_HOME"]).expanduser() if env.get("HF_HOME") else user / ".cache" / "huggingface"
    return home / "hub"


def _count(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        raise RequestError(f"{name} is '{printable(text)}'; expected a whole number of at least 1", param=name)
    return int(text)


def _word(env: Mapping[str, str], name: str, words: tuple[str, ...], default: str) -> str:
    text = env.get(name, "").strip().lower() or default
    if text not in words:
        raise RequestError(f"{name} is '{printable(text)}'; expected one of {', '.join(words)}", param=name)
    return text


def _flag(env: Mapping[str, str], name: str) -> bool:
    return _word(env, name, ("1", "true", "yes", "on", "0", "false", "no", "off"), "0") in ("1", "true", "yes", "on")
