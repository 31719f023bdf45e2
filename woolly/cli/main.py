"""The command `woolly`: finds the command, builds its parser, and turns every error into one line and an exit code.

`woolly --version` and `woolly --help` are answered before anything else is imported.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

# The exit code of every kind of error, by its stable code, and of finer codes with another exit code than their kind.
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
        _silence(sys.stdout)
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if (full := _full_output(error)) is not None:
            _silence(sys.stdout)
        return _report(full or error)
    except Exception as error:
        return _report(error)


def server() -> int:
    """The command `woolly-server`, which is `woolly serve`."""
    return main(["serve", *sys.argv[1:]])


def _command(words: list[str]) -> int:
    name = words[0] if words else ""
    if name in ("--version", "-V") or words == ["-v"]:
        from woolly.version import __version__

        print(f"woolly {__version__}")
        return 0
    if name in ("", "--help", "-h", "help"):
        print(_help(), end="", file=sys.stdout if name else sys.stderr)
        return 0 if name else USAGE
    from woolly.cli.commands import COMMANDS, load
    from woolly.cli.compat_argv import translate

    words = translate(words, COMMANDS)
    name = words[0]
    if name not in COMMANDS:
        raise _unknown(name)

    from woolly.cli.interrupt import ctrl_c_kills

    # NumPy's BLAS starts a thread for each core, which spins for 0.1 s; `perplexity --kl` alone multiplies with it.
    if name != "perplexity":
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ctrl_c_kills():
        from woolly.cli.parser import Parser
        from woolly.config import unknown_variables

        command = load(name)

    for sentence in unknown_variables():
        print(f"woolly: warning: {sentence}", file=sys.stderr)
    parser = Parser(name, command.__doc__)
    command.arguments(parser)
    try:
        args = parser.parse(words[1:])
    except SystemExit as done:  # --help
        return int(done.code or 0)
    code: int = command.call(args)
    return code


def _help() -> str:
    from woolly.cli.commands import COMMANDS

    width = max(map(len, COMMANDS))
    rows = "".join(f"  {name:{width}}  {command.what}\n" for name, command in COMMANDS.items())
    return (
        "usage: woolly COMMAND ...\n\nRuns language models from GGUF files on ordinary CPUs.\n\n"
        f"{rows}\n`woolly COMMAND --help` tells more; `woolly --version` the version.\n"
    )


def _unknown(name: str) -> Exception:
    from difflib import get_close_matches

    from woolly.cli.commands import COMMANDS
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
    try:
        print(f"woolly: error: {line}", file=sys.stderr)
    except OSError:  # the exit code alone can tell
        _silence(sys.stderr)
    return code


def _place(error: Exception) -> str:
    """The class of an error and its module and line, without its message, which could quote a prompt."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}" if trace is not None else ""
    return f"{type(error).__name__}{where}"


def _full_output(error: OSError) -> Exception | None:
    """The error of a full disk behind the output; one of another file names that file."""
    from woolly.io.disk import disk_fault

    hint = "make room where it goes, or send it elsewhere"
    fault = disk_fault("the output cannot be written", error, suggestion=hint)
    return fault if error.filename is None and fault.code == "disk_full" else None


def _silence(stream: TextIO) -> None:
    """Send a standard stream to /dev/null: it cannot be written, and flushing the buffer at exit would raise again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
