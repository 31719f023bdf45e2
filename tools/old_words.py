"""Words of a private language that the code once spoke, looked for in its names; exit 1 where one is left.

    python tools/old_words.py             # woolly, tests and tools
    python tools/old_words.py woolly/llm  # some of it

Read are the names of modules, classes, functions, attributes, parameters and local variables. A word counts where it is
a whole word of a name: `whole` in `is_whole`, `Shelf` in `ModelShelf`. What is read or written elsewhere (keys of JSON,
metrics, options, saved files) keeps its spelling and is no name of ours.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

# No name for a local variable or a parameter: it has to say what it is.
PARTICIPLES = frozenset(("found", "made", "told", "kept", "said", "given", "held", "heard"))


class Word(NamedTuple):
    """A word that is gone. where: the beginnings of the paths in which it is looked for. alone: only where it is the
    whole name."""

    meant: str
    now: str
    where: str | tuple[str, ...] = ""
    alone: bool = False


FLEET = ("woolly/fleet", "tools/http_transcripts")
# Where a gate is no part of a network and no threshold of `woolly validate`.
GATEWAYS = (*FLEET, "woolly/config", "woolly/server", "woolly/cli", "tests/cli", "tests/server", "tests/measure")
MODELS = "woolly/server/models"


WORDS = {
    "sort": Word("digest of a file and way of computing", "ModelVersion", FLEET),
    "kind": Word(
        "the id of a way of computing", "numerics_id", ("woolly/fleet", "woolly/llm/loading.py", MODELS), alone=True
    ),
    "order": Word("what a gateway asks of a replica", "RemoteRequest, EmbedRequest", FLEET),
    "gate": Word("a server whose models are in replicas", "gateway", GATEWAYS),
    "gates": Word("servers whose models are in replicas", "gateways", GATEWAYS),
    "Kept": Word("a session, file, batch or response", "StoredSession, StoredFile, StoredBatch, StoredResponse"),
    "Said": Word("the result of a row; the progress of a stream", "RowResult, StreamProgress", alone=True),
    "letter": Word("a command in the inbox of an engine", "EngineCommand", "woolly/engine/engine.py"),
    "whole": Word("ten things", "single_step, render, full, complete, merged, ignore_merges"),
    "every": Word("each token has a row; a list of all", "per_token; listed", alone=True),
    "few": Word("steps of few rows", "small_step", ("woolly/plan", "woolly/device")),
    "own": Word("memory and work of each thread", "per_thread, REPLICATED_OPS", ("woolly/plan", "woolly/device")),
    "door": Word("a route", "Route"),
    "doors": Word("routes", "routes"),
    "line": Word("who waits for a place at an engine", "AdmissionQueue", MODELS),
    "place": Word("what lets a request reach an engine", "permit()", MODELS, alone=True),
    "told": Word(
        "codes of errors that a stream tells in its own way", "streamed_error_codes", "woolly/server", alone=True
    ),
    "rest": Word("to have a model unloaded after a time", "_arm_idle_timer", MODELS, alone=True),
    "left": Word("to take a model out of those that are loaded", "_detach", MODELS, alone=True),
    "made_way": Word("to unload a model for another one", "_evict_one", MODELS, alone=True),
    "take": Word("to load a model", "_load", MODELS, alone=True),
    "mendable": Word("whether loading a broken model again may help", "_can_reload", MODELS, alone=True),
    "book": Word("the values of codes; the pages of a group", "Codebook; _pool()"),
    "beside": Word("four things", "concat, compute_during, with_decodes, executor"),
    "Turns": Word("the queue of a device", "DeviceQueue", "woolly/device"),
    "mine": Word("the turn of an engine", "DeviceQueue.turn()", "woolly/device/queue.py"),
    "MACHINE": Word("the queue of the processor", "Device.queue", "woolly/engine"),
    "Facts": Word("what a replica tells of a model", "ModelInfo", "woolly/fleet"),
    "Standing": Word("the load of a replica", "ReplicaLoad", "woolly/fleet"),
    "Offered": Word("a model that a replica offers", "OfferedModel", "woolly/fleet", alone=True),
    "Heard": Word("the answer to a report", "JoinReply", "woolly/fleet"),
    "Member": Word("a replica of a fleet", "FleetReplica", "woolly/fleet"),
    "Asked": Word("an MCP server that a request names", "McpServerRef", "woolly"),
    "Wish": Word("a call that the caller has allowed", "ApprovedCall"),
    "Called": Word("a call of a tool that is done", "ToolCallDone", "woolly", alone=True),
    "Calling": Word(
        "the grammar of calls; a call that has begun", "CallGrammar, ToolCallStarted", "woolly", alone=True
    ),
    "turns": Word("whether a model rotates queries and keys", "use_rope", "woolly/model"),
    "far": Word("the rotary table of layers that see all", "global_rope", "woolly/model", alone=True),
    "near": Word("the rotary table of layers with a window", "local_rope", "woolly/model/families", alone=True),
    "halves": Word("whether a pair of rotated columns lies half a rotation apart", "neox", "woolly/model"),
    "temper": Word("to scale rows by their position", "scale_by_position"),
    "heat": Word("a table of temperatures by position", "temperature_table"),
    "habits": Word("what a template takes; arguments of other programs", "TemplateCapabilities; compat_argv"),
    "ours": Word("arguments of other programs in our own", "translate()", "woolly/cli", alone=True),
    "Marks": Word("texts that begin or end a part of an answer", "Delimiters", "woolly"),
    "shelf": Word("values on disk that outlive the process", "DiskStore"),
    "shelving": Word("writing and reading them", "DiskCacheIO"),
    "Found": Word(
        "a value, a call, a result of a category", "SettingValue, ParsedCall, CategoryResult", "woolly", alone=True
    ),
    "Elsewhere": Word("what the disk has; other variables", "OnDisk; OTHER_VARIABLES"),
    "Way": Word("how frames are written", "FrameStyle", "woolly", alone=True),
    "Patience": Word("waiting longer after each failure", "Backoff", alone=True),
    "Later": Word("a request that is sent again", "Retry", "woolly", alone=True),
    "Stretch": Word("some rows of a batch", "RowRange", alone=True),
    "Row": Word("six things", "each its own", "woolly", alone=True),
    "File": Word("three things", "each its own", "woolly", alone=True),
    "Words": Word("two things", "each its own", "woolly", alone=True),
    "Part": Word("four things", "each its own", "woolly", alone=True),
    "Block": Word("two things", "each its own", "woolly", alone=True),
    "Load": Word("two things", "each its own", "woolly", alone=True),
    "Report": Word("four things", "each its own", "woolly", alone=True),
}

# Plain words in the sentence that is the name of a test.
PLAIN = frozenset(("whole", "every", "beside", "few", "own", "line", "order", "turns"))

# Names that stay, and why.
ALLOWED = {
    "woolly/cli/gate.py: gate": "the command is `woolly gate`",
    "woolly/fleet/wire.py: kind": "of a format, and of an error",
    "woolly/server/dialects/woolly/sessions.py: KeptMessage": "a schema of /openapi.json",
    "woolly/gguf/read.py: Part": "a file of a set of files",
    "woolly/model/meta.py: Block": "a layer of a transformer",
    "woolly/server/dialects/anthropic/shapes.py: Block": "a part of a message, in the words of that API",
    "woolly/cli/chat/markdown.py: _Block": "a block of Markdown",
}


class Name(NamedTuple):
    path: str
    line: int
    name: str
    what: str  # a module, class, function, attribute, parameter, field (of a class) or local (variable)


def names(path: Path, tree: ast.Module) -> Iterator[Name]:
    """The names that a file gives to something."""
    place = path.relative_to(ROOT).as_posix()
    yield Name(place, 1, path.stem, "module")
    fields = {id(line.target) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for line in node.body
              if isinstance(line, ast.AnnAssign)}  # fmt: skip
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                yield Name(place, node.lineno, node.name, "class")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield Name(place, node.lineno, node.name, "function")
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield Name(place, node.lineno, name, "attribute")
            case ast.arg(arg=name):
                yield Name(place, node.lineno, name, "parameter")
            case (
                ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                yield Name(place, node.lineno, name, "local")
            case ast.alias(asname=str(name)):
                yield Name(place, node.lineno, name, "local")
            case ast.Name(id=name, ctx=ast.Store()):
                yield Name(place, node.lineno, name, "field" if id(node) in fields else "local")


def words_of(name: str) -> set[str]:
    """The words of a name, in capitals as the name has them: `ModelShelf` is Model and Shelf."""
    return set(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+", name))


def old_word(name: Name) -> str | None:
    """The old word in a name, if there is one: a lower-case word in any spelling, another one only as it is written."""
    if f"{name.path}: {name.name}" in ALLOWED:
        return None
    if name.what in ("local", "parameter") and name.name in PARTICIPLES:
        return name.name
    parts = words_of(name.name)
    for word, row in WORDS.items():
        if not name.path.startswith(row.where) or (word in PLAIN and name.name.startswith("test_")):
            continue
        spelled = parts | ({part.lower() for part in parts} if word.islower() else set())
        if name.name.strip("_") == word if row.alone else word in spelled:
            return word
    return None


def left(roots: Iterable[Path]) -> list[tuple[Name, str]]:
    """The names with an old word in all Python files below these."""
    paths = sorted(path for root in roots for path in (root.rglob("*.py") if root.is_dir() else [root]))
    parsed = ((path, ast.parse(path.read_text("utf-8"))) for path in paths if path != Path(__file__).resolve())
    listed = (name for path, tree in parsed for name in names(path, tree))
    return [(name, word) for name in listed if (word := old_word(name)) is not None]


def main(arguments: list[str]) -> int:
    remaining = left(
        [Path(argument).resolve() for argument in arguments] or [ROOT / top for top in ("woolly", "tests", "tools")]
    )
    for name, word in remaining:
        row = WORDS.get(word)
        hint = f"{row.meant}: {row.now}" if row is not None else "say what it is"
        print(f"{name.path}:{name.line}: {name.what} {name.name}  ({word}: {hint})")
    for word, count in Counter(word for _, word in remaining).most_common():
        print(f"{count:6} {word}")
    return 1 if remaining else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
