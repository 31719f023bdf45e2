"""Print a script that completes commands, options and their values in your shell.

    source <(woolly completion bash)                                           bash, this session
    woolly completion bash > ~/.local/share/bash-completion/completions/woolly   bash, for good
    woolly completion zsh > ~/.zfunc/_woolly                                   zsh: a folder of your fpath
    woolly completion fish > ~/.config/fish/completions/woolly.fish            fish

The script is made from the commands' own parsers, so it knows every option there is.
"""

from __future__ import annotations

import argparse

from woolly.cli.commands import COMMANDS, load
from woolly.store import CATALOGUE

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "DIR", "MODEL")  # metavars of options whose value is a path
NAMES = " ".join(row.name for row in CATALOGUE)
LIST = "woolly list --quiet 2>/dev/null"  # run at each completion, because the models may have changed
MODELS = {  # names of models, of the catalogue and of this machine, and files
    "bash": "_woolly_models",
    "zsh": "_woolly_models",
    "fish": f"(command -q woolly; and {LIST}; string split ' ' '{NAMES}'; __fish_complete_path (commandline -ct))",
    "preamble": {
        "bash": f'_woolly_models() {{ compgen -W "{NAMES} $({LIST})" -- "$1"; compgen -f -- "$1"; }}',
        "zsh": f'_woolly_models() {{ compadd -- {NAMES} ${{(f)"$({LIST})"}}; _files; }}',
    },
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="for which shell")


def call(args: argparse.Namespace) -> int:
    print(script(args.shell), end="")
    return 0


def script(shell: str) -> str:
    """The script of a shell; every command as its own parser describes it."""
    import shtab

    parser = argparse.ArgumentParser(prog="woolly")
    commands = parser.add_subparsers()
    for name, command in COMMANDS.items():
        one = commands.add_parser(name, help=command.what, allow_abbrev=False)
        load(name).arguments(one)
        for action in one._actions:  # argparse has no public list of its arguments
            if not action.option_strings and "MODEL" in str(action.metavar):
                action.complete = MODELS  # type: ignore[attr-defined]
            elif action.metavar in FILES or not (action.option_strings or action.choices):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell)).rstrip() + "\n"
