"""A setting is one row: a typed field of `EngineOptions`, `Config`, `Settings` (settings.py) or `Serving` (serving.py).

The field has the name that the code uses, the type and the default. Its metadata has the rest of the row: the key of
the settings file, the variable of the environment, the option of the commands, the range, older names, one line of
help. The file, the environment, the options, the library's checks and `woolly config` are views of these rows.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from woolly.errors import RequestError, printable
from woolly.system import user_path

YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
MOST = 2**31 - 1  # of a number, where its row has no other limit
Scalar: TypeAlias = bool | int | float | str | None  # a value of JSON that holds no others
Duration: TypeAlias = float  # seconds; -1 is for ever
Processes: TypeAlias = int  # -1 is as many as the machine has memory nodes
Networks: TypeAlias = tuple[str, ...]  # each an address, or a network as 10.0.0.0/8
_UNITS = {"": 1.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model under a name of the settings, with its own sizes."""

    name: str
    path: Path
    context: int | None = None
    sequences: int | None = None
    lora: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of the Model Context Protocol whose tools may be used: a command that is started, or a URL.

    env: for the command. headers: for the URL. allow: tools that are called without asking the user, `*` for all.
    serve: clients of our own server may use it, too.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    allow: tuple[str, ...] = ()
    serve: bool = False

    def __str__(self) -> str:
        return self.url or shlex.join(self.command)


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of one setting; `row` makes it, `rows` adds the name, type and default of its field."""

    key: str  # in the settings file
    help: str
    least: float = 0
    most: float = MOST
    words: tuple[str, ...] = ()  # the values that there are, in lower case
    environ: str = ""  # a short name; WOOLLY_SECTION__KEY is always one
    aliases: tuple[str, ...] = ()  # older keys
    flags: tuple[str, ...] = ()  # options of the commands that have it, the whole word first
    metavar: str = "N"
    secret: bool = False  # never shown, and taken out of the environment
    name: str = ""
    kind: str = ""  # a key of KINDS
    default: Any = None

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key, *self.aliases)

    @property
    def variables(self) -> tuple[str, ...]:
        """Its names in the environment."""
        long = ["WOOLLY_" + key.upper().replace(".", "__") for key in self.keys if "." in key]
        return (*([self.environ] if self.environ else []), *long)

    @property
    def expected(self) -> str:
        if self.words:
            return f"one of {', '.join(self.words)}"
        what = KINDS[self.kind][0]
        if not what.endswith("number"):
            return what
        return f"{what} of at least {self.least}" if self.most == MOST else f"{what} from {self.least} to {self.most:,}"

    def read(self, value: object, what: str) -> Any:
        """A value from outside, as the type of its field; text is read as that of an environment variable.

        what: the name by which the user knows the setting; the error for a wrong value has it.
        """
        try:
            return self._read(value)
        except ValueError:
            raise self._refusal(value, what) from None

    def _read(self, value: object) -> Any:
        result = KINDS[self.kind][1](value)
        if self.words:
            result = result.strip().lower()
        for one in result if isinstance(result, tuple) else (result,):
            if self.words and one not in self.words:
                raise ValueError
            if isinstance(one, int | float) and not self.least <= one <= self.most:
                raise ValueError
        return result

    def check(self, value: object, what: str) -> None:
        """Refuse a wrong value in a program's call; the value must have the field's type already."""
        if self.read(value, what) != value:
            raise self._refusal(value, what)

    def _refusal(self, value: object, what: str) -> RequestError:
        if isinstance(value, list) and self.kind.startswith("tuple"):
            value = next((one for one in value if not self._takes(one)), ", ".join(map(str, value)))
        return RequestError(f"{what} is '{printable(value)}'; expected {self.expected}", param=what)

    def _takes(self, one: object) -> bool:
        """Whether one value of a list may stand in it."""
        try:
            self._read([one])
        except ValueError:
            return False
        return True

    def plain(self, text: str, what: str) -> Any:
        """Text as a settings file has the value: the word, number, switch or list of them that it means."""
        value = self.read(text, what)
        return list(value) if isinstance(value, tuple) else text if isinstance(value, Path) else value


def row(key: str, default: Any, help: str, *, aliases: str = "", flags: str = "", **more: Any) -> Any:
    """A field that is a setting; a key that ends in a dot is a section, and the name is added to it."""
    one = Setting(key, help, aliases=tuple(aliases.split()), flags=tuple(flags.split()), **more)
    initial: dict[str, Any] = {"default_factory": dict} if default == {} else {"default": default}
    return dataclasses.field(**initial, repr=not one.secret, metadata={"setting": one})


def rows(table: type) -> tuple[Setting, ...]:
    """The settings among the fields of a dataclass."""
    settings: list[Setting] = []
    for field in dataclasses.fields(table):
        if "rows" in field.metadata:  # a table within the table
            settings += rows(field.metadata["rows"])
        elif "setting" in field.metadata:
            one: Setting = field.metadata["setting"]
            key = one.key + field.name if one.key.endswith(".") else one.key
            kind = str(field.type).removesuffix(" | None")
            default = None if field.default is dataclasses.MISSING else field.default
            settings.append(dataclasses.replace(one, key=key, name=field.name, kind=kind, default=default))
    return tuple(settings)


# Each reads a value from outside as the type of a field; ValueError where that is not possible.


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _integer(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]{1,18}\s*", value, re.ASCII):
        return int(value)
    if type(value) is not int:
        raise ValueError
    return value


def _processes(value: object) -> int:
    return -1 if isinstance(value, str) and value.strip().lower() == "auto" else _integer(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    return float(value)


def duration(value: object) -> float:
    """Seconds: a number, or a text as 5m or 1h30m. A time below 0 means for ever, and becomes -1."""
    match = re.fullmatch(r"(-?)((?:\d+(?:\.\d+)?(?:h|ms|m|s|us|µs|ns))+|\d+(?:\.\d+)?)", str(value).strip(), re.ASCII)
    if isinstance(value, bool) or match is None:
        raise ValueError
    parts = re.findall(r"(\d+(?:\.\d+)?)([a-zµ]*)", match[2])
    return -1.0 if match[1] else min(sum(float(digits) * _UNITS[unit] for digits, unit in parts), float(MOST))


def _switch(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in (*YES, *NO):
        raise ValueError
    return word in YES


def _network(value: object) -> str:
    from ipaddress import ip_network  # late, because few settings files name one

    text = _text(value).strip()
    ip_network(text)  # one with an address of a machine in it, as 10.0.0.5/8, is none
    return text


def _several(value: object, one: Callable[[object], Any]) -> tuple[Any, ...]:
    """One or a list; text has commas between them."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    return tuple(map(one, parts if isinstance(parts, list | tuple) else [parts]))


def _aliases(value: object) -> dict[str, str]:
    """Other names of models, in lower case. One step: what an alias means is a model, not another alias."""
    if not isinstance(value, Mapping):
        raise ValueError
    names = {name.lower(): target for name, target in value.items()}
    for name, target in names.items():
        if not isinstance(target, str) or not target:
            raise RequestError(f"aliases.{printable(name)} must be the name of a model", param="aliases")
        if target.lower() in names:
            raise RequestError(
                f"the alias '{printable(name)}' means '{printable(target)}', which is an alias too",
                suggestion="name the model itself",
                param="aliases",
            )
    return names


def _model(table: object) -> ModelConfig:
    if not isinstance(table, dict) or not all(isinstance(table.get(name), str) for name in ("name", "path")):
        raise RequestError("each of models.configs needs a name and a path", param="models.configs")
    lora = table.get("lora", [])
    if not isinstance(lora, list) or not all(isinstance(file, str) for file in lora):
        raise RequestError(
            "lora of models.configs: expected a list of adapters, FILE or FILE=SCALE", param="models.configs"
        )
    for name in table.keys() - {"name", "path", "lora"}:
        if name not in ("context_size", "batch_size") or type(table[name]) is not int or table[name] < 1:
            raise RequestError(
                f"{printable(name)} of models.configs: expected context_size or batch_size, at least 1, or lora",
                param="models.configs",
            )
    sizes = table.get("context_size"), table.get("batch_size")
    return ModelConfig(table["name"], user_path(table["path"]), *sizes, tuple(lora))


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _servers(value: object) -> dict[str, McpServer]:
    if not isinstance(value, Mapping):
        raise ValueError
    return {name: _server(name, table) for name, table in value.items()}


def _server(name: str, table: object) -> McpServer:
    """One table of [mcp.servers]."""
    what = f"mcp.servers.{printable(name)}"
    if not _NAME.fullmatch(name):
        raise RequestError(f"{what}: a name has 1 to 64 letters, digits, '_' or '-'", param="mcp.servers")
    readers: dict[str, Callable[[Any], Any]] = {
        "command": lambda v: tuple(shlex.split(v)) if isinstance(v, str) else _several(v, _text),
        "args": lambda v: _several(v, _text),
        "url": _url,
        "env": _texts,
        "headers": _texts,
        "allow": lambda v: _several(v, _text),
        "serve": _switch,
    }
    fields: dict[str, Any] = {}
    for key, value in table.items() if isinstance(table, Mapping) else ():
        try:
            fields[key] = readers[key](value)
        except (KeyError, ValueError):
            raise RequestError(
                f"{what}.{printable(key)} cannot be '{printable(value)}'; there are {', '.join(readers)}",
                param="mcp.servers",
            ) from None
    if bool(fields.get("command")) == bool(fields.get("url")):
        raise RequestError(f"{what} needs a command or a url, and not both", param="mcp.servers")
    fields["command"] = (*fields.get("command", ()), *fields.pop("args", ()))
    return McpServer(**fields)


def _url(value: object) -> str:
    if not isinstance(value, str) or not re.match(r"https?://[^/?#@\s]+(?:[/?][^#\s]*)?\Z", value):
        raise ValueError
    return value


def _numbers(value: object) -> dict[str, float]:
    """Numbers by name: a table, or text as `temperature=0.2,seed=1`; which names there are is checked elsewhere."""
    if isinstance(value, str):
        pairs = (part.partition("=") for part in value.split(",") if part.strip())
        value = {name.strip(): _parsed(number) for name, _, number in pairs}
    if not isinstance(value, Mapping) or not all(type(one) in (int, float) for one in value.values()):
        raise ValueError
    return dict(value)


def _parsed(text: str) -> float:
    try:
        return _integer(text)
    except ValueError:
        return float(text)


def _variables(value: object) -> dict[str, Scalar]:
    """Variables of a chat template: a table, or as JSON. Their names are checked where a request's are."""
    table = _json(value) if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not all(isinstance(one, Scalar) for one in table.values()):
        raise ValueError
    return dict(table)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError from None


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(text, str) and text.isprintable() for text in value.values()
    ):
        raise ValueError
    return dict(value)


KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {  # type of a field -> what is expected, and its reader
    "str": ("a text", _text),
    "bytes": ("a text", _text),
    "int": ("a whole number", _integer),
    "float": ("a number", _number),
    "Duration": ("seconds, or a time as 5m or 1h30m; below 0 is for ever", duration),
    "Processes": ("a count, or auto", _processes),
    "bool": ("true or false", _switch),
    "Path": ("a path", lambda value: user_path(_text(value))),
    "tuple[str, ...]": ("a list of texts", lambda value: _several(value, _text)),
    "tuple[bytes, ...]": ("a list of texts", lambda value: _several(value, _text)),
    "tuple[int, ...]": ("a whole number", lambda value: _several(value, _integer)),
    "tuple[ModelConfig, ...]": ("a list of tables", lambda value: _several(value, _model)),
    "Networks": ("addresses or networks, as 10.0.0.1 or 10.0.0.0/8", lambda value: _several(value, _network)),
    "Mapping[str, str]": ("a table", _aliases),
    "Mapping[str, float]": ("a table of numbers, or as NAME=X,NAME=X", _numbers),
    "Mapping[str, Scalar]": ("a table of numbers, texts, true or false, or such an object in JSON", _variables),
    "Mapping[str, McpServer]": ("a table", _servers),
}
