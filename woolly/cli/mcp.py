"""Offer the models of this machine to hosts of the Model Context Protocol, over the standard streams.

    woolly mcp                             the default model; a host may ask for any that is here
    woolly mcp smollm2                     this model where a host names none

A host (an editor, a desktop program, an agent) starts this command itself and speaks JSON-RPC with it, a message a
line. It has the tools generate, chat, embed and tokenize. A server has the same at /mcp (`woolly serve`).
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses

from woolly.cli.flags import add_flags, flag_values
from woolly.config import read_config


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a path or name, for hosts that name none")
    add_flags(parser, "context", "threads", "kv", "exact")


def call(args: argparse.Namespace) -> int:
    from woolly.server.app import build
    from woolly.server.mcp.stdio import serve_stdio
    from woolly.server.settings import read_settings
    from woolly.store import resolve

    config = read_config(**flag_values(args))
    settings = dataclasses.replace(read_settings({}), log_level="error")
    if args.model:
        settings = dataclasses.replace(settings, models=(resolve(args.model, config=config),))

    async def answer() -> None:
        app = build(settings, config)
        try:
            await serve_stdio(app.mcp, settings.limits)
        finally:
            await app.close()

    asyncio.run(answer())
    return 0
