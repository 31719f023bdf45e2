"""The command `woolly`: finds the command, builds its parser, and turns every error into one line and an exit code.

`woolly --version` and `woolly --help` are answered before anything else is imported.
"""

from __future__ import annotations

import os
import sys

COMMANDS = {
    "run": "answer a prompt, streamed as it is made; without one, talk",
    "chat": "the same as run",
    "pull": "bring a model to this machine",
    "list": "list the models that are here",
    "show": "tell what a model is, what it can, and what it needs",
    "rm": "remove a model that Woolly has",
    "tokenize": "show the tokens of a text",
    "embed": "make embeddings of texts",
    "inspect": "say what a file is, after every check",
    "serve": "answer over HTTP, as OpenAI's clients and a browser ask",
    "gate": "answer over HTTP with the models of replicas on any machine",
    "top": "watch the replicas of a gate: load, rates, cache",
    "scale": "keep as many replicas on a Ray cluster as the queue of a gate asks for",
    "batch": "answer a file of requests into another, each once and in order",
    "mcp": "offer the models to hosts of the Model Context Protocol",
    "perplexity": "tell how likely a model finds a text, as llama.cpp counts",
    "bench": "measure the speed of a model, of this machine, or of each kernel",
    "validate": "measure a server and judge it: speed, text, counts, memory, load",
    "plan": "print what a model computes: graph, passes, program, memory",
    "config": "show, change and check the settings",
    "doctor": "explain this machine: what it allows, and what limits",
    "completion": "print a script that completes commands in bash, zsh or fish",
}

# The exit code of each kind of error, by its stable code, and of the finer codes that end with another than their kind.
EXITS = {
    "invalid_request": 2,
    "context_error": 2,
    "not_found": 3,
    "file_error": 4,
    "unsupported": 4,
    "model_error": 4,
    "generation_error": 4,
    "busy": 5,
    "timeout": 5,
    "download_error": 6,
    "address_in_use": 7,
    "disk_full": 8,
    "disk_error": 8,
    "native_error": 70,
}
USAGE = 2
MEMORY = 5
FAULT = 70
INTERRUPTED = 130
PIPE_CLOSED = 141


def main(argv: list[str] | None = None) -> int:
    """Run one command; the entry point of the package. Returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _command(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence_stdout()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _report(error)


def _command(words: list[str]) -> int:
    name = words[0] if words else ""
    if name in ("--version", "-V") or words == ["-v"]:
        from woolly import __version__

        print(f"woolly {__version__}")
        return 0
    if name in ("", "--help", "-h", "help"):
        print(_help(), end="", file=sys.stdout if name else sys.stderr)
        return 0 if name else USAGE
    from woolly.cli.habits import ours

    words = ours(words, COMMANDS)
    name = words[0]
    if name not in COMMANDS:
        raise _unknown(name)

    from woolly.cli.interrupt import ends_at_once

    # NumPy's BLAS starts a thread for each core, which spins for 0.1 s; `perplexity --kl` alone multiplies with it.
    if name != "perplexity":
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ends_at_once():
        import argparse
        from importlib import import_module

        from woolly.config import unknown_variables
        from woolly.errors import RequestError, printable

        command = import_module(f"woolly.cli.{name}")

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:  # type: ignore[override]
            raise RequestError(printable(message, 300), suggestion=f"see `{self.prog} --help`")

    for sentence in unknown_variables():
        print(f"woolly: warning: {sentence}", file=sys.stderr)
    parser = Parser(prog=f"woolly {name}", description=command.__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    command.arguments(parser)
    try:
        args = parser.parse_intermixed_args(words[1:])  # options may stand between the words
    except SystemExit as done:  # --help
        return int(done.code or 0)
    code: int = command.call(args)
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = "".join(f"  {name:{width}}  {what}\n" for name, what in COMMANDS.items())
    return (
        "usage: woolly COMMAND ...\n\nRuns language models from GGUF files on ordinary CPUs.\n\n"
        f"{rows}\n`woolly COMMAND --help` tells more; `woolly --version` the version.\n"
    )


def _unknown(name: str) -> Exception:
    from difflib import get_close_matches

    from woolly.errors import RequestError, printable

    near = get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"the commands are {', '.join(COMMANDS)}"
    return RequestError(f"there is no command '{printable(name)}'", suggestion=hint)


def _report(error: Exception) -> int:
    """One line on standard error, the trace with WOOLLY_LOG_LEVEL=debug; never text of a prompt or an answer."""
    from woolly.config import read_setting
    from woolly.errors import WoollyError

    try:
        debug = read_setting("logging.level") == "debug"
    except WoollyError:
        debug = False
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, WoollyError):
        line, code = str(error), EXITS.get(error.code, EXITS[type(error).code])
    elif isinstance(error, MemoryError):
        line, code = "memory ran out; a smaller --context or --kv q8 needs less", MEMORY
    else:
        line, code = f"a fault of Woolly: {_place(error)}; please report it, with WOOLLY_LOG_LEVEL=debug", FAULT
    print(f"woolly: error: {line}", file=sys.stderr)
    return code


def _place(error: Exception) -> str:
    """The kind of an error and where it arose; its text could quote what the user wrote."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}" if trace is not None else ""
    return f"{type(error).__name__}{where}"


def _silence_stdout() -> None:
    """Whoever read our output is gone; what is still in the buffer must not raise again when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
