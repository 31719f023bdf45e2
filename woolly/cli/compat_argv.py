"""Command lines as users of llama.cpp, Ollama and others type them, translated into Woolly's.

Tables, and one function that walks them. A word that means the same is replaced in silence; a flag that changes no
answer here is dropped with a note on standard error; one that would change the answer, and that Woolly does not have,
is refused with what to use instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import TypeVar

from woolly.errors import RequestError, printable

T = TypeVar("T")


def _rows(*rows: tuple[T, str]) -> dict[str, T]:
    """A table from each word to its meaning, written as pairs of a meaning and its words, separated by spaces."""
    return {word: meant for meant, words in rows for word in words.split()}


COMMANDS = _rows(  # our command, and its names in other programs
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
    "run": _rows(
        ("--max-tokens", "-n --predict --n-predict --num-predict"),
        ("--context", "-c --ctx-size --n-ctx --num-ctx"),
        ("--temperature", "--temp"),
        ("--repetition-penalty", "--repeat-penalty"),
        ("--typical-p", "--typical"),
        ("--top-n-sigma", "--top-nsigma"),
        ("--mirostat-tau", "--mirostat-ent"),
        ("--mirostat-eta", "--mirostat-lr"),
        ("--dynatemp-exponent", "--dynatemp-exp"),
        ("--system", "-sys --system-prompt"),
        ("--stop", "-r --reverse-prompt"),
        ("--kv", "-ctk -ctv --cache-type-k --cache-type-v"),
        ("--json-schema", "-j -jf --json-schema-file"),
        ("--grammar", "--grammar-file"),
        ("--draft", "-md --model-draft"),
    ),
    "serve": _rows(
        ("--model", "-m -hf --hf-repo"),
        ("--alias", "--served-model-name"),
        ("--context", "--ctx-size --max-model-len"),
        ("--sequences", "-np --parallel --max-num-seqs"),
        ("--draft", "-md --model-draft"),
        ("--kv", "-ctk -ctv --cache-type-k --cache-type-v"),
    ),
    "bench": _rows(
        ("--prompt", "--n-prompt"),
        ("--tokens", "--n-gen"),
        ("--depth", "-d --n-depth"),
        ("--kv", "-ctk"),
    ),
    "perplexity": _rows(
        ("--context", "--ctx-size"),
        ("--kv", "-ctk -ctv"),
    ),
    "rm": _rows(
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

GPU = "Woolly computes on the processor"
MEMORY = "weights are packed once into memory of their own"
ONCE = "a prompt is answered once, and without one `run` is a chat"
DROPPED: dict[str, dict[str, tuple[int, str]]] = {  # how many words follow the flag, and why it has no effect here
    "run": _rows(
        ((1, GPU), "-ngl --gpu-layers --n-gpu-layers -sm -mg -dev --device"),
        ((1, "attention is always computed that way"), "-fa --flash-attn"),
        ((0, MEMORY), "--mmap --no-mmap --mlock"),
        ((1, "each thread keeps to a processor of its own"), "--numa"),
        ((1, "the size of a step is chosen by the engine"), "-b --batch-size -ub --ubatch-size"),
        ((1, "prompts use the same threads"), "-tb --threads-batch"),
        ((0, "the file's own template is always used"), "--jinja"),
        ((0, "there is no warming up"), "--no-warmup"),
        ((0, "there is no log; --quiet leaves the figures out"), "--log-disable"),
        ((0, "the prompt is not repeated"), "--no-display-prompt"),
        ((0, "the prompt is not repeated, so nothing has to be told apart"), "--color"),
        ((0, ONCE), "-cnv --conversation -no-cnv -st --single-turn -i --interactive"),
        ((0, "the figures are always shown; --quiet leaves them out"), "--verbose --timing"),
        ((0, "the answer is always streamed"), "--stream"),
        ((1, "a model is loaded as long as the command runs"), "--keepalive"),
        ((0, "lines are wrapped in a chat alone, and --plain leaves them as they are"), "--nowordwrap"),
    ),
    "serve": _rows(
        ((0, "requests are answered together as they come"), "-cb --cont-batching --slots"),
        ((0, "the page costs nothing while nobody opens it"), "--no-webui"),
        ((0, "GET /metrics always answers"), "--metrics"),
        ((0, "a model made for it is always served so"), "--embedding --embeddings --reranking"),
    ),
    "show": _rows(
        ((0, "`show` tells it all"), "-v --verbose --license --parameters --template --system"),
    ),
}
DROPPED["serve"] |= {flag: row for flag, row in DROPPED["run"].items() if flag not in ("-b", "-i", "--stream")}
DROPPED["bench"] = {flag: row for flag, row in DROPPED["run"].items() if row[1] in (GPU, MEMORY) or flag == "-fa"}
DROPPED["perplexity"] = DROPPED["bench"] | {"-b": DROPPED["run"]["-b"], "-ub": DROPPED["run"]["-ub"]}

REFUSED: dict[str, dict[str, str]] = {  # a flag that would change the answer -> advice
    "run": _rows(
        ("a prompt in a file goes through standard input: `woolly run MODEL < FILE`", "-f --file --input"),
        ("the answer goes to standard output: `woolly run MODEL PROMPT > FILE`", "-o --output"),
        ("`--json-schema FILE` and `--grammar FILE` say what an answer must be", "--format"),
        ("--lora FILE=SCALE says both", "--lora-scaled"),
        ("pictures and sounds are not supported", "--mmproj --image --audio"),
        ("the file's own template is always used", "--chat-template"),
        ("`woolly pull URL` downloads a file and tells its name", "-mu --model-url"),
    ),
}
REFUSED["serve"] = {
    flag: REFUSED["run"][flag] for flag in ("--lora-scaled", "--mmproj", "--chat-template", "-mu", "--model-url")
}

FOR_A_SERVER = ("--port", "--host", "--api-key", "-np", "--parallel")
KV = {"q8_0": "q8"}
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
    notes: dict[str, str] = {}
    arguments = _flags("run" if name == "chat" else name, words[1:], notes)
    if not {"-q", "--quiet", "--json"} & set(arguments):
        for flag, reason in notes.items():
            print(f"woolly: note: {flag} means nothing here: {reason}", file=sys.stderr)
    return [name, *arguments]


def _with_command(words: list[str], commands: Collection[str]) -> list[str]:
    """The words, with a command put before a line that begins with a flag of llama.cpp's."""
    first = words[0].partition("=")[0]
    if not first.startswith("-"):
        return words
    if first in ("-q", "--quiet", "--json") and len(words) > 1 and (words[1] in commands or words[1] in COMMANDS):
        return [words[1], *words[2:], first]
    tables: tuple[Collection[str], ...] = (SAME["run"], PLACED["run"], DROPPED["run"], REFUSED["run"], FOR_A_SERVER)
    if not any(first in table for table in tables):
        return words
    flags = {word.partition("=")[0] for word in words}
    return ["serve" if flags & set(FOR_A_SERVER) else "run", *words]


def _flags(name: str, words: list[str], notes: dict[str, str]) -> list[str]:
    same, placed = SAME.get(name, {}), PLACED.get(name, {})
    dropped, refused = DROPPED.get(name, {}), REFUSED.get(name, {})
    out: list[str] = []
    places: dict[int, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        word = THINK.get(word, word)
        if word == "--":
            out += ["--", *rest]
            break
        flag, equals, inline = word.partition("=")
        number = rest[0] if rest and not equals else inline
        flag = _disambiguated(name, flag, number)

        def value(flag: str = flag, has_inline: bool = bool(equals), inline: str = inline) -> str:
            if has_inline:
                return inline
            if not rest:
                raise RequestError(f"{flag} needs a value", suggestion=f"see `woolly {name} --help`")
            return rest.pop(0)

        if not flag.startswith("-") or flag == "-":
            out.append(word)
        elif flag in refused:
            raise RequestError(f"`woolly {name}` has no {flag}", suggestion=refused[flag], param=flag)
        elif flag in placed:
            places[placed[flag]] = _with_hub_prefix(flag, value())
        elif flag in same:
            _append_renamed(flag, same[flag], value, out)
        elif flag in dropped:
            _skip_value(flag, dropped[flag], rest, bool(equals))
            notes[flag] = dropped[flag][1]
        else:
            out.append(f"{flag}{equals}{inline}")
    return _with_placed_words(name, places, out)


def _disambiguated(name: str, flag: str, value: str) -> str:
    """The long form of a short flag that has two meanings, chosen by the value behind it."""
    number = value.lstrip("-").isdigit()
    if name == "serve" and flag in ("-c", "-b") and number:
        return {"-c": "--ctx-size", "-b": "--batch-size"}[flag]
    if name == "run" and flag == "-s":
        return "--seed" if number else "-sys"
    return flag


def _append_renamed(flag: str, our_flag: str, value: Callable[[], str], out: list[str]) -> None:
    if our_flag == "--yes":  # the only one of ours here that takes no value
        out.append(our_flag)
        return
    text = value()
    if (our_flag == "--max-tokens" and text in ("-1", "-2")) or (our_flag == "--context" and text == "0"):
        return  # llama.cpp's values that mean Woolly's defaults
    if our_flag == "--model":
        text = _with_hub_prefix(flag, text)
    out += [our_flag, KV.get(text, text) if our_flag == "--kv" else text]


def _skip_value(flag: str, row: tuple[int, str], rest: list[str], inline: bool) -> None:
    """Remove the value behind a dropped flag; `-fa` may have none."""
    optional = flag in ("-fa", "--flash-attn") and (not rest or rest[0] not in ("on", "off", "auto", "0", "1"))
    if row[0] and rest and not inline and not optional:
        rest.pop(0)


def _with_hub_prefix(flag: str, text: str) -> str:
    return f"hf:{text}" if flag in ("-hf", "--hf-repo") and not text.startswith("hf:") else text


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
