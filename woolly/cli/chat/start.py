"""A chat at this terminal: its screen, its model and its tools, until it ends and each is given back."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from woolly.cli.chat.commands import COMMANDS
from woolly.cli.chat.keys import echo_off, terminal_restored
from woolly.cli.chat.loop import run_chat
from woolly.cli.chat.reader import Reader, line_reader
from woolly.cli.chat.screen import Screen, appearance_of, moves_cursor
from woolly.cli.chat.session import Session
from woolly.cli.chat.tools import Tools
from woolly.cli.find import find_model
from woolly.cli.input_text import check_utf8
from woolly.cli.interrupt import ctrl_c_kills
from woolly.config import Config
from woolly.errors import RequestError
from woolly.mcp import Client, Toolbox
from woolly.request.messages import read_choice

if TYPE_CHECKING:
    from woolly.cli.chat.remote import Server
    from woolly.llm.llm import LLM


def start_chat(
    args: argparse.Namespace,
    config: Config,
    server: Server | None,
    model: str,
    load: Callable[..., LLM],
    *,
    system: str,
    options: dict[str, Any],
) -> int:
    """Run a chat. load: loads the model of a file, as `starting` or in the middle of the chat."""
    with ctrl_c_kills():
        appearance = appearance_of(sys.stdout, os.environ, plain=args.plain, raw=args.raw)
        screen = Screen(sys.stdout, appearance, os.environ)
    starting = True
    choice = options.pop("tool_choice", "auto")
    tools = _chosen_tools(config, server, choice, quiet=args.quiet)

    def load_file(path: Path) -> LLM:
        return load(path, config, starting=starting, quiet=args.quiet)

    with contextlib.ExitStack() as stack:
        if tools is not None:
            stack.callback(tools.box.close)
            read_choice(choice, tools.box.tools)
        session = Session(
            screen,
            (lambda name: find_model(name, config, quiet=args.quiet)) if server is None else str,
            load_file if server is None else server.model,
            model,
            system=system,
            options=options,
            folder=config.state / "chats",
            hide=args.hide_thinking,
            quiet=args.quiet,
            no_echo=echo_off,
            tools=tools,
            tool_choice=choice,
        )
        stack.callback(session.close)
        starting = False
        with ctrl_c_kills():
            screen.prepare()
            read = _reader(config, screen)
        with terminal_restored():
            if not args.quiet:
                session.greet()
            if args.session is not None:
                session.save_as(check_utf8(args.session, "--session"))
            return run_chat(session, read)


def _reader(config: Config, screen: Screen) -> Reader:
    """Reads what is typed, with a history and a line to edit where the terminal can show one."""
    if not moves_cursor(os.environ):
        return line_reader()
    from woolly.cli.chat.editing import editing_reader  # late: it imports a terminal's worth of code

    return editing_reader(config.state / "history", COMMANDS, screen.note)


def _chosen_tools(config: Config, server: Server | None, choice: str, *, quiet: bool) -> Tools | None:
    """The tools of a chat; refused where a call is asked for and there are none."""
    tools = _mcp_tools(config, quiet=quiet) if server is None and choice != "none" else None
    if tools is None and choice not in ("auto", "none"):
        raise RequestError(
            "--tool-choice asks for a call, but a chat has no tools",
            suggestion="name a server under [mcp.servers] in the settings",
            param="--tool-choice",
        )
    return tools


def _mcp_tools(config: Config, *, quiet: bool) -> Tools | None:
    """The tools of the servers that the settings name, for a chat; a server that does not answer is a line of error."""
    if not config.mcp_servers:
        return None
    box = Toolbox(Client(name, server, config.mcp_timeout) for name, server in config.mcp_servers.items())
    for fault in box.faults.values():
        print(f"error: {fault}", file=sys.stderr)
    if not quiet and box.offered:
        print(f"tools: {', '.join(box.offered)}; /tools tells more", file=sys.stderr)
    return Tools(box)
