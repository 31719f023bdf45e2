"""The commands: a row for each, with its module and what it does in a line. None is imported before it is named."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import NamedTuple


class Command(NamedTuple):
    module: str  # below `woolly.cli`; it has `arguments(parser)` and `call(args)`, and its docstring is its help
    what: str


COMMANDS = {
    "run": Command("run", "answer a prompt, streamed as it is made; without one, talk"),
    "chat": Command("chat.command", "the same as run"),
    "pull": Command("pull", "bring a model to this machine"),
    "list": Command("list", "list the models that are here"),
    "show": Command("show", "tell what a model is, what it can, and what it needs"),
    "rm": Command("rm", "remove a model that Woolly has"),
    "tokenize": Command("tokenize", "show the tokens of a text"),
    "embed": Command("embed", "make embeddings of texts"),
    "inspect": Command("inspect", "say what a file is, after every check"),
    "serve": Command("serve", "answer over HTTP, as OpenAI's clients and a browser ask"),
    "gate": Command("gate", "answer over HTTP with the models of replicas on any machine"),
    "top": Command("top", "watch the replicas of a gate: load, rates, cache"),
    "scale": Command("scale", "keep as many replicas on a Ray cluster as the queue of a gate asks for"),
    "batch": Command("batch", "answer a file of requests into another, each once and in order"),
    "mcp": Command("mcp", "offer the models to hosts of the Model Context Protocol"),
    "perplexity": Command("perplexity", "tell how likely a model finds a text, as llama.cpp counts"),
    "bench": Command("bench", "measure the speed of a model, of this machine, or of each kernel"),
    "validate": Command("validate", "measure a server and judge it: speed, text, counts, memory, load"),
    "plan": Command("plan", "print what a model computes: graph, passes, program, memory"),
    "config": Command("config", "show, change and check the settings"),
    "doctor": Command("doctor", "explain this machine: what it allows, and what limits"),
    "completion": Command("completion", "print a script that completes commands in bash, zsh or fish"),
}


def load(name: str) -> ModuleType:
    """The module of a command."""
    return import_module(f"woolly.cli.{COMMANDS[name].module}")
