"""Remove a model that Woolly has; a set of files goes as a whole.

    woolly rm tiny-q4              asks first
    woolly rm tiny-q4 other --yes  does not ask
    woolly rm hf:owner/repo:Q8_0   what was pulled by that name

What belongs to Ollama, LM Studio, the Hugging Face cache or an installed package is not removed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from woolly.cli.input_text import check_utf8
from woolly.cli.terminal import size
from woolly.config import Config, read_config
from woolly.errors import NotFoundError, RequestError, printable
from woolly.store import Model, check_owned, installed, is_path, local_model, remove
from woolly.system import user_path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="MODEL", help="a name as `woolly list` shows it, or a path")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="one line of JSON; does not ask, so it needs --yes")
    parser.add_argument("--quiet", "-q", action="store_true", help="say nothing")


def call(args: argparse.Namespace) -> int:
    config = read_config()
    models = list({m.path: m for m in (_model(check_utf8(name, "the name"), config) for name in args.names)}.values())
    for model in models:  # all or nothing: a wrong name removes none of the others
        check_owned(model)
    if not args.yes and not _agreed(models, asks=not args.json):
        print("nothing was removed", file=sys.stderr)
        return 1
    gone: list[Path] = []
    for model in models:
        gone += remove(model, config)
    freed = sum(model.nbytes for model in models if not model.outside)
    if args.json:
        print(json.dumps({"removed": [str(path) for path in gone], "freed": freed}))
    elif not args.quiet:
        print(f"removed {', '.join(printable(model.name) for model in models)}: {size(freed)} are free again")
    return 0


def _model(name: str, config: Config) -> Model:
    """The model of a name or a path; a file outside of the model folders is refused."""
    try:
        path = user_path(name)
        wanted = path.resolve() if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        wanted = None
    if wanted is None:
        if is_path(name):
            raise NotFoundError(f"there is no file '{printable(name)}'", path=name)
        return local_model(name, config)
    for model in installed(config):
        if model.path.resolve() == wanted:
            return model
    raise RequestError(
        f"'{printable(name)}' lies in no folder of models", suggestion="remove the file yourself", param="model"
    )


def _agreed(models: list[Model], *, asks: bool) -> bool:
    if not asks or not sys.stdin.isatty():
        raise RequestError("nobody can be asked here", suggestion="--yes removes without asking", param="--yes")
    what = ", ".join(f"{printable(model.name)} ({size(model.nbytes)})" for model in models)
    print(f"Remove {what}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
