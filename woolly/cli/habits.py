"""What users of llama.cpp, Ollama and others type out of habit: turned into our words, or answered with them.

Tables, and one function that walks them. A word that means the same is replaced in silence; a flag that changes no
answer here is dropped with a note on standard error; one that would change the answer, and that we cannot follow, is
refused with our word for what was wanted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

from woolly.errors import RequestError, printable

COMMANDS = {  # another's word -> ours
    "ls": "list",
    "models": "list",
    "r": "run",
    "generate": "run",
    "llama-cli": "run",
    "llama-run": "run",
    "llama-completion": "run",
    "llama-simple": "run",
    "server": "serve",
    "llama-server": "serve",
    "b": "bench",
    "benchmark": "bench",
    "llama-bench": "bench",
    "llama-perplexity": "perplexity",
    "llama-tokenize": "tokenize",
    "tokens": "tokenize",
    "download": "pull",
    "get": "pull",
    "remove": "rm",
    "delete": "rm",
    "uninstall": "rm",
    "i": "info",
}

ANSWERS = {  # a command that we do not have -> what to do instead
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

# Flags: what becomes of one, and of the word behind it.
SAME: dict[str, dict[str, str]] = {  # -> our flag, the value stays
    "run": {
        "-n": "--max-tokens",
        "--predict": "--max-tokens",
        "--n-predict": "--max-tokens",
        "--num-predict": "--max-tokens",
        "-c": "--context",
        "--ctx-size": "--context",
        "--n-ctx": "--context",
        "--num-ctx": "--context",
        "--context-length": "--context",
        "-t": "--threads",
        "--temp": "--temperature",
        "--repeat-penalty": "--repetition-penalty",
        "-sys": "--system",
        "--system-prompt": "--system",
        "-r": "--stop",
        "--reverse-prompt": "--stop",
        "-ctk": "--kv",
        "-ctv": "--kv",
        "--cache-type-k": "--kv",
        "--cache-type-v": "--kv",
    },
    "serve": {
        "-m": "--model",
        "-hf": "--model",
        "--hf-repo": "--model",
        "--ctx-size": "--context",
        "--max-model-len": "--context",
        "-t": "--threads",
        "-ctk": "--kv",
        "-ctv": "--kv",
        "--cache-type-k": "--kv",
        "--cache-type-v": "--kv",
    },
    "bench": {"--n-prompt": "--prompt", "--n-gen": "--tokens", "-d": "--depth", "--n-depth": "--depth", "-ctk": "--kv"},
    "perplexity": {"--ctx-size": "--context", "-ctk": "--kv", "-ctv": "--kv"},
    "rm": {"-f": "--yes", "--force": "--yes"},
}

PLACED: dict[str, dict[str, int]] = {  # -> which of the command's words the value is
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
DROPPED: dict[str, dict[str, tuple[int, str]]] = {  # -> words behind it, and why it means nothing here
    "run": {
        "-ngl": (1, GPU),
        "--gpu-layers": (1, GPU),
        "--n-gpu-layers": (1, GPU),
        "-sm": (1, GPU),
        "-mg": (1, GPU),
        "-dev": (1, GPU),
        "--device": (1, GPU),
        "-fa": (1, "attention is always computed that way"),
        "--flash-attn": (1, "attention is always computed that way"),
        "--mmap": (0, MEMORY),
        "--no-mmap": (0, MEMORY),
        "--mlock": (0, MEMORY),
        "--numa": (1, "threads stay where the system puts them"),
        "-b": (1, "the size of a step is chosen by the engine"),
        "--batch-size": (1, "the size of a step is chosen by the engine"),
        "-ub": (1, "the size of a step is chosen by the engine"),
        "--ubatch-size": (1, "the size of a step is chosen by the engine"),
        "-tb": (1, "prompts use the same threads"),
        "--threads-batch": (1, "prompts use the same threads"),
        "--jinja": (0, "the file's own template is always used"),
        "--no-warmup": (0, "there is no warming up"),
        "--log-disable": (0, "there is no log; --quiet leaves the figures out"),
        "--no-display-prompt": (0, "the prompt is not repeated"),
        "--color": (0, "the prompt is not repeated, so nothing has to be told apart"),
        "-cnv": (0, ONCE),
        "--conversation": (0, ONCE),
        "-no-cnv": (0, ONCE),
        "-st": (0, ONCE),
        "--single-turn": (0, ONCE),
        "-i": (0, ONCE),
        "--interactive": (0, ONCE),
        "--verbose": (0, "the figures are always shown; --quiet leaves them out"),
        "--timing": (0, "the figures are always shown; --quiet leaves them out"),
        "--stream": (0, "the answer is always streamed"),
        "--keepalive": (1, "a model is loaded as long as the command runs"),
        "--nowordwrap": (0, "lines are wrapped in a chat alone, and --plain leaves them as they are"),
    },
    "serve": {
        "-np": (1, "requests are answered together as they come"),
        "--parallel": (1, "requests are answered together as they come"),
        "--max-num-seqs": (1, "requests are answered together as they come"),
        "-cb": (0, "requests are answered together as they come"),
        "--cont-batching": (0, "requests are answered together as they come"),
        "--no-webui": (0, "the page costs nothing while nobody opens it"),
        "--metrics": (0, "GET /metrics always answers"),
        "--slots": (0, "requests are answered together as they come"),
    },
    "show": dict.fromkeys(
        ("-v", "--verbose", "--license", "--parameters", "--template", "--system"), (0, "`show` tells it all")
    ),
}
DROPPED["serve"] |= {flag: row for flag, row in DROPPED["run"].items() if flag not in ("-b", "-i", "--stream")}
DROPPED["bench"] = {flag: row for flag, row in DROPPED["run"].items() if row[1] in (GPU, MEMORY) or flag == "-fa"}
DROPPED["perplexity"] = DROPPED["bench"] | {"-b": DROPPED["run"]["-b"], "-ub": DROPPED["run"]["-ub"]}

ALIAS = "a model's name is that of its file; `[aliases]` of the settings file gives it others"
REFUSED: dict[str, dict[str, str]] = {  # -> what to do instead
    "run": {
        "-f": "a prompt in a file goes through standard input: `woolly run MODEL < FILE`",
        "--file": "a prompt in a file goes through standard input: `woolly run MODEL < FILE`",
        "--input": "a prompt in a file goes through standard input: `woolly run MODEL < FILE`",
        "-o": "the answer goes to standard output: `woolly run MODEL PROMPT > FILE`",
        "--output": "the answer goes to standard output: `woolly run MODEL PROMPT > FILE`",
        "--format": "the form of an answer cannot be forced",
        "--grammar": "the form of an answer cannot be forced",
        "--grammar-file": "the form of an answer cannot be forced",
        "-j": "the form of an answer cannot be forced",
        "--json-schema": "the form of an answer cannot be forced",
        "--lora": "adapters are not supported; use a file into which it was merged",
        "--mmproj": "pictures and sounds are not supported",
        "--image": "pictures and sounds are not supported",
        "--audio": "pictures and sounds are not supported",
        "-md": "there are no drafts by a second model",
        "--model-draft": "there are no drafts by a second model",
        "--mirostat": "use --temperature, --top-k, --top-p and --min-p",
        "--typical": "use --temperature, --top-k, --top-p and --min-p",
        "--repeat-last-n": "--repetition-penalty always looks at the last 64 tokens",
        "--chat-template": "the file's own template is always used",
        "-mu": "`woolly pull URL` downloads a file and tells its name",
        "--model-url": "`woolly pull URL` downloads a file and tells its name",
    },
    "serve": {
        "-a": ALIAS,
        "--alias": ALIAS,
        "--served-model-name": ALIAS,
        "--embedding": "there are no embeddings yet",
        "--embeddings": "there are no embeddings yet",
        "--reranking": "there are no embeddings yet",
    },
}
REFUSED["serve"] |= {
    flag: REFUSED["run"][flag]
    for flag in ("--lora", "--mmproj", "-md", "--model-draft", "--chat-template", "-mu", "--model-url")
}

FOR_A_SERVER = ("--port", "--host", "--api-key", "-np", "--parallel")
KV = {"q8_0": "q8"}
THINK = {"--think=false": "--no-think", "--think=true": "--think"}
ALONE = {  # our flags without a value, of the commands whose second word may come by a flag
    "--hide-thinking",
    "--hidethinking",
    "--json",
    "--kl",
    "--lossy",
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


def ours(words: list[str], commands: Collection[str]) -> list[str]:
    """The words of a command line as Woolly says them; notes about what was dropped go to standard error."""
    words = _with_command(words, commands)
    name = COMMANDS.get(words[0], words[0])
    if name == "info":  # alone it is about the machine, with a model about that
        name = "show" if set(words[1:]) - {"--json", "-q", "--quiet"} else "doctor"
    if name not in commands:
        if name in ANSWERS:
            raise RequestError(f"there is no `woolly {printable(name)}`", suggestion=ANSWERS[name])
        return [name, *words[1:]]
    notes: dict[str, str] = {}
    found = _flags("run" if name == "chat" else name, words[1:], notes)
    if not {"-q", "--quiet", "--json"} & set(found):
        for flag, reason in notes.items():
            print(f"woolly: note: {flag} means nothing here: {reason}", file=sys.stderr)
    return [name, *found]


def _with_command(words: list[str], commands: Collection[str]) -> list[str]:
    """A line that begins with a flag gets the command that it is meant for."""
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
    kept: list[str] = []
    places: dict[int, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        word = THINK.get(word, word)
        if word == "--":
            kept += ["--", *rest]
            break
        flag, equals, inline = word.partition("=")
        number = rest[0] if rest and not equals else inline
        flag = _by_its_value(name, flag, number)

        def value(flag: str = flag, given: bool = bool(equals), inline: str = inline) -> str:
            if given:
                return inline
            if not rest:
                raise RequestError(f"{flag} needs a value", suggestion=f"see `woolly {name} --help`")
            return rest.pop(0)

        if not flag.startswith("-") or flag == "-":
            kept.append(word)
        elif flag in refused:
            raise RequestError(f"`woolly {name}` has no {flag}", suggestion=refused[flag], param=flag)
        elif flag in placed:
            places[placed[flag]] = _hub(flag, value())
        elif flag in same:
            _rename(flag, same[flag], value, kept)
        elif flag in dropped:
            _drop(flag, dropped[flag], rest, bool(equals))
            notes[flag] = dropped[flag][1]
        else:
            kept.append(f"{flag}{equals}{inline}")
    return _placed(name, places, kept)


def _by_its_value(name: str, flag: str, value: str) -> str:
    """A letter that means two things is known by what stands behind it."""
    number = value.lstrip("-").isdigit()
    if name == "serve" and flag in ("-c", "-b") and number:
        return {"-c": "--ctx-size", "-b": "--batch-size"}[flag]
    if name == "run" and flag == "-s":
        return "--seed" if number else "-sys"
    return flag


def _rename(flag: str, our: str, value: Callable[[], str], kept: list[str]) -> None:
    if our == "--yes":  # has no value
        kept.append(our)
        return
    text = value()
    if (our == "--max-tokens" and text in ("-1", "-2")) or (our == "--context" and text == "0"):
        return  # llama.cpp's words for our defaults
    if our == "--model":
        text = _hub(flag, text)
    kept += [our, KV.get(text, text) if our == "--kv" else text]


def _drop(flag: str, row: tuple[int, str], rest: list[str], inline: bool) -> None:
    """Take a flag away with its value; `-fa` may stand alone."""
    optional = flag in ("-fa", "--flash-attn") and (not rest or rest[0] not in ("on", "off", "auto", "0", "1"))
    if row[0] and rest and not inline and not optional:
        rest.pop(0)


def _hub(flag: str, text: str) -> str:
    return f"hf:{text}" if flag in ("-hf", "--hf-repo") and not text.startswith("hf:") else text


def _placed(name: str, places: dict[int, str], kept: list[str]) -> list[str]:
    """The words with those that came by flags in their places; a prompt alone is for the default model."""
    if not places:
        return kept
    if 1 in places and 0 not in places:
        first = next((i for i, word in enumerate(kept) if not word.startswith("-") and not _is_value(kept, i)), None)
        if first is None and name in ("run", "tokenize"):
            from woolly.store import DEFAULT

            places[0] = DEFAULT
        elif first is not None:
            places[0] = kept.pop(first)
    return [*(places[i] for i in sorted(places)), *kept]


def _is_value(kept: list[str], i: int) -> bool:
    """Whether a word is the value of the flag before it."""
    return i > 0 and kept[i - 1].startswith("-") and "=" not in kept[i - 1] and kept[i - 1] not in ALONE
