"""The eight ways Woolly can fail, each with a stable code.

    WoollyError
     ├─ FileError          file_error        a file that is broken, or cannot be read or written
     ├─ UnsupportedError   unsupported       a right file or request that asks for what Woolly does not do
     ├─ NotFoundError      not_found         no such model or file
     ├─ RequestError       invalid_request   a parameter, message or value that cannot be taken
     ├─ ContextError       context_error     prompt and answer do not fit the model's context
     ├─ BusyError          busy              memory, a slot or an address is not free now
     ├─ DownloadError      download_error    the network or the other side failed
     └─ NativeError        native_error      a fault of Woolly, found by the compiled core

The sentence says what, where and what was expected; the suggestion says what to do; the facts are fields.
Every value that came from a file or a request goes into a sentence through `printable`.
"""

from __future__ import annotations

import errno


class WoollyError(Exception):
    """An error that Woolly expects and explains; `code` is stable and meant for programs."""

    code: str = "error"

    def __init__(self, message: str, *, suggestion: str = "", code: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion
        self.facts = facts
        if code:
            self.code = code

    def __getattr__(self, name: str) -> object:
        """Each fact is an attribute too: `error.offset` is `error.facts["offset"]`."""
        facts: dict[str, object] = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no attribute or fact '{name}'")

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles keep every field, whatever the arguments of the kind are."""
        return _again, (type(self), self.args, dict(self.__dict__))

    def __str__(self) -> str:
        return f"{self.message}; {self.suggestion}" if self.suggestion else self.message


def _again(kind: type[WoollyError], args: tuple[object, ...], fields: dict[str, object]) -> WoollyError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class FileError(WoollyError):
    """A file is broken, or cannot be read or written."""

    code = "file_error"


class UnsupportedError(WoollyError):
    """A right file or request that asks for something Woolly does not do."""

    code = "unsupported"


class NotFoundError(WoollyError):
    """There is no such model or file."""

    code = "not_found"


class RequestError(WoollyError):
    """A parameter, message or value that cannot be taken."""

    code = "invalid_request"


class ContextError(WoollyError):
    """Prompt and answer do not fit the model's context."""

    code = "context_error"

    def __init__(self, prompt: int, limit: int, answer: int = 0, *, least: bool = False) -> None:
        """`answer`: the tokens that were asked for beside the prompt, if a number was. `least`: there may be more."""
        asked = f" and max_tokens is {answer:,}" if answer else ""
        count = f"at least {prompt:,}" if least else f"{prompt:,}"
        super().__init__(
            f"the prompt has {count} tokens{asked}, which exceeds the available context size of {limit:,}",
            suggestion="shorten the prompt, or load the model with a larger context",
            prompt=prompt,
            limit=limit,
            answer=answer,
        )


class BusyError(WoollyError):
    """Memory, a slot or an address is not free now."""

    code = "busy"


class DownloadError(WoollyError):
    """The network, or the other side of it, failed."""

    code = "download_error"


class NativeError(WoollyError):
    """The compiled core found something that must not happen: a fault of Woolly."""

    code = "native_error"


def shortage(error: BaseException | None, what: str, *, suggestion: str = "") -> BusyError | None:
    """The error to raise where another one says that memory or descriptors ran out; None where it says anything else.

    A thread cannot begin where there is no memory for its stack.
    """
    number = error.errno if isinstance(error, OSError) else 0
    if number in (errno.EMFILE, errno.ENFILE):
        how = "try again, or raise the limit of open files (`ulimit -n`)"
        return BusyError(f"too many files are open for {what}", suggestion=how)
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    if no_thread or number == errno.ENOMEM or isinstance(error, MemoryError):
        how = suggestion or "try again when others have been answered"
        return BusyError(f"there is not enough memory for {what}", suggestion=how, code="not_enough_memory")
    return None


def printable(value: object, limit: int = 100) -> str:
    """The value as one line of harmless text: control characters escaped, cut after `limit` characters.

    Bytes are read as UTF-8 with what is not UTF-8 escaped. Line separators, direction marks and lone surrogates are
    escaped like control characters: none of them may reach a terminal or a log as it is.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        text = bytes(value[: limit * 4 + 4]).decode("utf-8", "backslashreplace")
    else:
        text = str(value)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
