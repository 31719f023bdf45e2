"""Print a script that completes commands, options and their values in your shell.

    source <(woolly completion bash)                                           bash, this session
    woolly completion bash > ~/.local/share/bash-completion/completions/woolly   bash, for good
    woolly completion zsh > ~/.zfunc/_woolly                                   zsh: a folder of your fpath
    woolly completion fish > ~/.config/fish/completions/woolly.fish            fish

The script is made from the commands' own parsers, so it knows every option there is.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from woolly.cli.main import COMMANDS
from woolly.store import CATALOGUE

LIST = "woolly list --quiet 2>/dev/null"  # asked when a name is completed: models come and go
FILES = ("FILE", "DIR", "MODEL")  # metavars of options whose value is a path


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its names, whether a value follows, what the values are if they are few, or whether it is a file."""

    names: tuple[str, ...]
    value: bool
    choices: tuple[str, ...]
    file: bool
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its options, and the words that may come first."""

    name: str
    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]  # names of the catalogue, or the choices of the first word
    files: bool  # whether a word may be a file
    models: bool  # whether it may be the name of a model that is here


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SHELLS), help="for which shell")


def call(args: argparse.Namespace) -> int:
    print(SHELLS[args.shell](table()), end="")
    return 0


def table() -> list[Command]:
    """Every command as its parser describes it."""
    return [_command(name, what) for name, what in COMMANDS.items()]


def _command(name: str, what: str) -> Command:
    parser = argparse.ArgumentParser(prog=f"woolly {name}", allow_abbrev=False)
    importlib.import_module(f"woolly.cli.{name}").arguments(parser)
    options: list[Option] = []
    words: list[str] = []
    files = models = False
    for action in parser._actions:  # argparse has no public list of what it was told
        choices = tuple(map(str, action.choices or ()))
        if action.option_strings:
            help_text = re.sub(r"\s+", " ", (action.help or "").replace("%%", "%"))
            names, file = tuple(action.option_strings), action.metavar in FILES
            options.append(Option(names, action.nargs != 0, choices, file, help_text))
        elif choices:
            words += choices
        else:
            files = True
            if "MODEL" in str(action.metavar):
                models = True
                words += [row.name for row in CATALOGUE]
    return Command(name, what, tuple(options), tuple(dict.fromkeys(words)), files, models)


def bash(commands: list[Command]) -> str:
    """One function; after an option with few values comes one of them, after one that names a file a file."""
    cases, values = [], []
    first = " ".join([*(one.name for one in commands), "--help", "--version"])
    for one in commands:
        names = " ".join(name for option in one.options for name in option.names)
        here = f"' '$({LIST})" if one.models else ""
        cases.append(f"    {one.name}) options={_quoted(names)}; words={_quoted(' '.join(one.words))}{here};;")
        for option in one.options:
            if option.value:
                names = "|".join(f"{one.name}:{name}" for name in option.names)
                offer = f"-W {_quoted(' '.join(option.choices))}" if option.choices else "-f" if option.file else ""
                reply = f'mapfile -t COMPREPLY < <(compgen {offer} -- "$word"); ' if offer else ""
                values.append(f"    {names}) {reply}return;;")
    return f"""# bash completion of woolly; made by `woolly completion bash`
_woolly() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}} options words
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W {_quoted(first)} -- "$word")
    return
  fi
  case "$command:$before" in
{chr(10).join(values)}
  esac
  case "$command" in
{chr(10).join(cases)}
    *) return;;
  esac
  case "$word" in
    -*) mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word");;
    *) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word"; compgen -f -- "$word");;
  esac
}}
complete -o filenames -F _woolly woolly
"""


def zsh(commands: list[Command]) -> str:
    """The commands with what they are for; for each the list that _arguments reads."""
    names = "\n".join(f"    {_quoted(f'{one.name}:{one.help}')}" for one in commands)
    cases = []
    for one in commands:
        rows = [row for option in one.options for row in _zsh_option(option)]
        word = "_woolly_models" if one.models else f"({' '.join(one.words)})" if one.words else "_files"
        first = f"*:word:{{_alternative {_quoted('words:word:' + word)} {_quoted('files:file:_files')}}}"
        rows.append(first if one.words and one.files else f"*:word:{word}")
        lines = " \\\n        ".join(map(_quoted, rows))
        cases.append(f"    {one.name})\n      _arguments \\\n        {lines};;")
    return f"""#compdef woolly
# zsh completion of woolly; made by `woolly completion zsh`
_woolly_models() {{
  compadd -- {" ".join(row.name for row in CATALOGUE)} ${{(f)"$({LIST})"}}
}}
_woolly() {{
  local -a commands
  commands=(
{names}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{chr(10).join(cases)}
  esac
}}
if [ "$funcstack[1]" = "_woolly" ]; then
  _woolly "$@"
else
  compdef _woolly woolly
fi
"""


def _zsh_option(option: Option) -> list[str]:
    help_text = re.sub(r"([\[\]:\\])", r"\\\1", option.help)
    value = ""
    if option.value:
        offer = f"({' '.join(option.choices)})" if option.choices else "_files" if option.file else " "
        value = f":value:{offer}"
    return [f"{name}[{help_text}]{value}" for name in option.names]


def fish(commands: list[Command]) -> str:
    """One line for each command, option and first word."""
    lines = ["# fish completion of woolly; made by `woolly completion fish`"]
    for one in commands:
        lines.append(f"complete -c woolly -f -n __fish_use_subcommand -a {one.name} -d {_quoted(one.help, fish=True)}")
    for one in commands:
        start = f"complete -c woolly -n {_quoted(f'__fish_seen_subcommand_from {one.name}')}"
        for option in one.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            offer = f" -x -a {_quoted(' '.join(option.choices), fish=True)}" if option.choices else " -x"
            value = " -r" if option.file else offer
            lines.append(f"{start} {names}{value if option.value else ''} -d {_quoted(option.help, fish=True)}")
        if one.words:
            only = "" if one.files else " -f"
            here = f" (command -q woolly; and {LIST})" if one.models else ""
            lines.append(f"{start}{only} -a {_quoted(' '.join(one.words) + here, fish=True)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str, *, fish: bool = False) -> str:
    """A word between single quotes, in which fish alone knows a backslash."""
    if fish:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS: dict[str, Callable[[list[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
