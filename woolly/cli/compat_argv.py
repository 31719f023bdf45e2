"""Command lines as users of llama.cpp, Ollama and others type them, translated into Woolly's.

Tables, and one function that walks them. A word that means the same is replaced in silence; a flag that changes no
answer here is dropped with a note on standard error; one that would change the answer, and that Woolly does not have,
is refused with what to use instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

from woolly.cli import llama_argv
from woolly.cli.llama_argv import rows
from woolly.errors import RequestError, printable

COMMANDS = rows(  # our command, and its names in other programs
    ("list", "ls models"),
    ("run", "r generate llama-cli llama-run llama-completion llama-simple"),
    ("serve", "server llama-server"),
    ("bench", "b benchmark llama-bench"),
    ("perplexity", "llama-perplexity"),
    ("tokenize", "llama-tokenize tokens"),
    ("pull", "download get"),
    ("rm", "remove delete uninstall"),
    ("info", "i"),
)

ANSWERS = {  # a command that Woolly does not have -> advice
    "ps": "no service runs beside the commands: a model is loaded as long as its `woolly run` or `woolly serve` runs, "
    "and GET /api/v1/models of a server tells what is loaded",
    "stop": "no service runs beside the commands: Ctrl-C ends `woolly run` and `woolly serve`",
    "create": "nothing has to be imported: `woolly run model.gguf --system TEXT` says what a Modelfile would",
    "import": "nothing has to be imported: give the path of the .gguf file, or put it into a model folder",
    "cp": "a model's name is that of its file: copy or link the file",
    "push": "Woolly publishes nothing; `hf upload` does, for the hub",
    "login": "no account is needed; HF_TOKEN opens what is private on the hub",
    "signin": "no account is needed; HF_TOKEN opens what is private on the hub",
    "signout": "there is no account",
    "quantize": "Woolly does not change models; `woolly pull hf:owner/repo:Q4_K_M` names the type to fetch",
    "convert": "Woolly reads GGUF files alone; `woolly pull hf:owner/repo` fetches one",
    "update": "`pip install .` in a newer checkout does",
    "load": "models are loaded when they are used: `woolly run MODEL`, `woolly serve MODEL`",
    "unload": "models are loaded as long as a command runs; a server has POST /api/v1/models/NAME/unload",
}

# Flags: how each is translated, and its value with it.
SAME: dict[str, dict[str, str]] = {  # our flag, and its names in other programs; the value stays
    "run": llama_argv.SAMPLING
    | rows(
        ("--max-tokens", "--num-predict"),
        ("--context", "-c --ctx-size --n-ctx --num-ctx"),
        ("--system", "-sys --system-prompt"),
        ("--stop", "-r --reverse-prompt"),
        ("--kv", "-ctk -ctv --cache-type-k --cache-type-v"),
        ("--json-schema", "-j -jf --json-schema-file"),
        ("--grammar", "--grammar-file"),
        ("--draft", "-md --model-draft"),
    ),
    "serve": llama_argv.SERVER
    | rows(
        ("--alias", "--served-model-name"),
        ("--context", "--max-model-len"),
        ("--sequences", "--max-num-seqs"),
    ),
    "bench": rows(
        ("--prompt", "--n-prompt"),
        ("--tokens", "--n-gen"),
        ("--depth", "-d --n-depth"),
        ("--kv", "-ctk"),
    ),
    "perplexity": rows(
        ("--context", "--ctx-size"),
        ("--kv", "-ctk -ctv"),
    ),
    "rm": rows(
        ("--yes", "-f --force"),
    ),
}

PLACED: dict[str, dict[str, int]] = {  # flag -> the index of the positional argument that its value becomes
    "run": {"-m": 0, "--model": 0, "-hf": 0, "--hf-repo": 0, "-p": 1, "--prompt": 1},
    "bench": {"-m": 0, "--model": 0, "-hf": 0},
    "tokenize": {"-m": 0, "--model": 0, "-hf": 0, "-p": 1, "--prompt": 1, "-t": 1, "--text": 1},
    "perplexity": {"-m": 0, "--model": 0, "-hf": 0, "-f": 1, "--file": 1},
    "show": {"-m": 0, "--model": 0},
    "inspect": {"-m": 0, "--model": 0},
    "plan": {"-m": 0, "--model": 0},
    "pull": {"-hf": 0, "--hf-repo": 0, "-m": 0},
}

ONCE = "a prompt is answered once, and without one `run` is a chat"
DROPPED: dict[str, dict[str, tuple[int, str]]] = {  # how many words follow the flag, and why it has no effect here
    "run": llama_argv.NOTED
    | rows(
        ((0, "there is no log; --quiet leaves the figures out"), "--log-disable"),
        ((0, "the prompt is not repeated"), "--no-display-prompt"),
        ((0, "the prompt is not repeated, so nothing has to be told apart"), "--color"),
        ((0, ONCE), "-cnv --conversation -no-cnv -st --single-turn -i --interactive"),
        ((0, "the figures are always shown; --quiet leaves them out"), "--verbose --timing"),
        ((0, "the answer is always streamed"), "--stream"),
        ((1, "a model is loaded as long as the command runs"), "--keepalive"),
        ((0, "lines are wrapped in a chat alone, and --plain leaves them as they are"), "--nowordwrap"),
    ),
    "serve": llama_argv.NOTED | llama_argv.NOTED_BY_SERVER,
    "show": rows(
        ((0, "`show` tells it all"), "-v --verbose --license --parameters --template --system"),
    ),
}
_OF_CHATS = ("--color", "-cnv", "--conversation", "-no-cnv", "--nowordwrap", "--keepalive")
DROPPED["serve"] |= {flag: DROPPED["run"][flag] for flag in _OF_CHATS}
del DROPPED["serve"]["-b"]  # ours is an address; `_disambiguated` tells by the value which is meant
DROPPED["bench"] = {
    flag: row
    for flag, row in llama_argv.NOTED.items()
    if row[1] in (llama_argv.GPU, llama_argv.MEMORY) or flag == "-fa"
}
DROPPED["perplexity"] = DROPPED["bench"] | {"-b": DROPPED["run"]["-b"], "-ub": DROPPED["run"]["-ub"]}

REFUSED: dict[str, dict[str, str]] = {  # a flag that would change the answer -> advice
    "run": llama_argv.REFUSED
    | rows(
        ("a prompt in a file goes through standard input: `woolly run MODEL < FILE`", "-f --file --input"),
        ("the answer goes to standard output: `woolly run MODEL PROMPT > FILE`", "-o --output"),
        ("`--json-schema FILE` and `--grammar FILE` say what an answer must be", "--format"),
        (llama_argv.PICTURES, "--image --audio"),
        ("a line end is written as one: bash and zsh have $'a\\nb'", "-e --escape"),
    ),
    "serve": llama_argv.REFUSED | llama_argv.REFUSED_BY_SERVER,
}

_KNOWN_TO_RUN = SAME["run"].keys() | PLACED["run"].keys() | DROPPED["run"].keys() | REFUSED["run"].keys()
_KNOWN_TO_SERVE = SAME["serve"].keys() | DROPPED["serve"].keys() | REFUSED["serve"].keys()
_ALSO_OF_LLAMA_CLI = {"-s", "-v"}
FOR_A_SERVER = {"--port", "--host", "--api-key", *(_KNOWN_TO_SERVE - _KNOWN_TO_RUN - _ALSO_OF_LLAMA_CLI)}
VALUES = {"--kv": {"q8_0": "q8"}, "--thinking": {"auto": "on"}, "--top-k": {"-1": "0"}}  # a value, and ours
DEFAULTS = {  # our options, and values of llama.cpp's that mean what counts without them
    "--max-tokens": ("-1", "-2"),
    "--context": ("0",),
    "--sequences": ("-1",),
    "--threads": ("-1",),
    "-t": ("-1",),
    "--seed": ("-1",),
}
THINK = {"--think=false": "--no-think", "--think=true": "--think"}
ALONE = {  # our flags without a value, of the commands whose second word may come by a flag
    "--exact",
    "--hide-thinking",
    "--hidethinking",
    "--json",
    "--kl",
    "--lossy",
    "--no-exact",
    "--no-think",
    "--plain",
    "--quiet",
    "--raw",
    "--special",
    "--think",
    "--yes",
    "-q",
    "-y",
}


def translate(words: list[str], commands: Collection[str]) -> list[str]:
    """The words of a command line in Woolly's own; a note about each dropped flag goes to standard error."""
    words = _with_command(words, commands)
    name = COMMANDS.get(words[0], words[0])
    if name == "info":  # `info` alone means `doctor`, with a model `show`
        name = "show" if set(words[1:]) - {"--json", "-q", "--quiet"} else "doctor"
    if name not in commands:
        if name in ANSWERS:
            raise RequestError(f"there is no `woolly {printable(name)}`", suggestion=ANSWERS[name])
        return [name, *words[1:]]
    notes: dict[str, list[str]] = {}  # why flags have no effect, and which
    arguments = _flags("run" if name == "chat" else name, words[1:], notes)
    if not {"-q", "--quiet", "--json"} & set(arguments):
        for reason, flags in notes.items():
            verb = "mean" if flags[1:] else "means"
            print(f"woolly: note: {', '.join(flags)} {verb} nothing here: {reason}", file=sys.stderr)
    return [name, *arguments]


def _with_command(words: list[str], commands: Collection[str]) -> list[str]:
    """The words, with a command put before a line that begins with a flag of llama.cpp's."""
    first = words[0].partition("=")[0]
    if not first.startswith("-"):
        return words
    if first in ("-q", "--quiet", "--json") and len(words) > 1 and (words[1] in commands or words[1] in COMMANDS):
        return [words[1], *words[2:], first]
    if first not in _KNOWN_TO_RUN and first not in FOR_A_SERVER:
        return words
    flags = {word.partition("=")[0] for word in words}
    return ["serve" if flags & FOR_A_SERVER else "run", *words]


def _flags(name: str, words: list[str], notes: dict[str, list[str]]) -> list[str]:
    same, placed = SAME.get(name, {}), PLACED.get(name, {})
    dropped, refused = DROPPED.get(name, {}), REFUSED.get(name, {})
    out: list[str] = []
    places: dict[int, str] = {}
    hub_file = ""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        word = THINK.get(word, word)
        if word == "--":
            out += ["--", *rest]
            break
        flag, equals, inline = word.partition("=")
        behind = rest[0] if rest and not equals else inline
        typed, flag = flag, _disambiguated(name, flag, behind)
        with_value = f"{flag}={behind}"
        wrong = with_value if with_value in refused else flag

        def value(flag: str = flag, has_inline: bool = bool(equals), inline: str = inline) -> str:
            if has_inline:
                return inline
            if not rest:
                raise RequestError(f"{flag} needs a value", suggestion=f"see `woolly {name} --help`")
            return rest.pop(0)

        if not flag.startswith("-") or flag == "-":
            out.append(word)
        elif name == "serve" and with_value in llama_argv.BY_VALUE:
            value()
            out += llama_argv.BY_VALUE[with_value]
        elif wrong in refused:
            raise RequestError(f"`woolly {name}` has no {wrong}", suggestion=refused[wrong], param=flag)
        elif flag in llama_argv.HUB_FILE and name in ("run", "serve"):
            hub_file = value()
        elif name == "serve" and flag == "--api-key":
            out += [word for key in value().split(",") for word in (flag, key)]
        elif flag in placed:
            places[placed[flag]] = _with_hub_prefix(flag, value())
        elif flag in same or (name == "serve" and flag in DEFAULTS.keys() | VALUES.keys()):
            _append_renamed(flag, same.get(flag, flag), value, out)
        elif flag in dropped:
            count, reason = dropped[flag]
            _skip_values(flag, count, rest, bool(equals))
            if typed not in notes.setdefault(reason, []):
                notes[reason].append(typed)
        else:
            out.append(f"{flag}{equals}{inline}")
    complete = _with_placed_words(name, places, out)
    return _with_hub_file(complete, hub_file) if hub_file else complete


def _disambiguated(name: str, flag: str, value: str) -> str:
    """The long form of a short flag that has two meanings, chosen by the value behind it."""
    number = value.lstrip("-").isdigit()
    if name == "serve" and number:
        return {"-c": "--ctx-size", "-b": "--batch-size", "--draft": "--draft-max"}.get(flag, flag)
    if name == "run" and flag == "-s":
        return "--seed" if number else "-sys"
    return flag


def _append_renamed(flag: str, our_flag: str, value: Callable[[], str], out: list[str]) -> None:
    if our_flag == "--yes":  # the only one of ours here that takes no value
        out.append(our_flag)
        return
    text = value()
    if text not in DEFAULTS.get(our_flag, ()):
        text = _with_hub_prefix(flag, text)
        out += [our_flag, VALUES.get(our_flag, {}).get(text, text)]


def _skip_values(flag: str, count: int, rest: list[str], inline: bool) -> None:
    """Remove the values behind a dropped flag; `-fa` and `--log-colors` may have none."""
    may_have_none = flag in ("-fa", "--flash-attn", "--log-colors")
    if may_have_none and (not rest or rest[0] not in ("on", "off", "auto", "0", "1")):
        return
    del rest[: count - inline]


def _with_hub_prefix(flag: str, text: str) -> str:
    return f"hf:{text}" if flag in llama_argv.HUB and not text.startswith("hf:") else text


def _with_hub_file(words: list[str], file: str) -> list[str]:
    """The words with the name of a file in that of its repo."""
    repo = next((word for word in words if word.startswith("hf:")), None)
    if repo is None:
        raise RequestError("-hff names a file in a repo of the hub", suggestion="name the repo with -hf", param="-hff")
    return [f"hf:{repo.split(':')[1]}:{file}" if word == repo else word for word in words]


def _with_placed_words(name: str, places: dict[int, str], words: list[str]) -> list[str]:
    """The words, with the values of positional flags in front; a prompt without a model is for the default model."""
    if not places:
        return words
    if 1 in places and 0 not in places:
        first = next((i for i, word in enumerate(words) if not word.startswith("-") and not _is_value(words, i)), None)
        if first is None and name in ("run", "tokenize"):
            from woolly.store import DEFAULT

            places[0] = DEFAULT
        elif first is not None:
            places[0] = words.pop(first)
    return [*(places[i] for i in sorted(places)), *words]


def _is_value(words: list[str], i: int) -> bool:
    """Whether a word is the value of the flag before it."""
    return i > 0 and words[i - 1].startswith("-") and "=" not in words[i - 1] and words[i - 1] not in ALONE
