"""Answer over HTTP, as OpenAI's clients, Ole and a browser ask.

    woolly serve                           every model in the model folders, loaded when asked for
    woolly serve smollm2                   this model, loaded at once
    woolly serve model.gguf --port 9000    a file, at another port
    woolly serve --config server.toml      settings from a file
    woolly serve smollm2 --replicas 2      with two processes, of which one may die without a word lost
    woolly serve smollm2 --replicas auto   with one for each memory node of a large machine
    woolly serve smollm2 --join http://gate:8080      as a replica of a gate

Listens to this machine only; another --host needs a key (WOOLLY_API_KEY). Ends on Ctrl-C when the answers that run
have been given.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from woolly import system
from woolly.cli.flags import add_flags, flag_values
from woolly.cli.replicas import UNTIL_EOF, Replicas, end_with_input, flags_of
from woolly.cli.sampling import add_options, option_values
from woolly.config import BY_KEY, Config, file_values, find_values, read_config, settings_file
from woolly.config.rows import ModelConfig
from woolly.errors import RequestError, printable
from woolly.request import SAMPLING
from woolly.store import NAME, resolve

if TYPE_CHECKING:
    from woolly.config import Settings
    from woolly.server.app import App

POOLING = ("none", "mean", "cls", "last", "rank")
DEFAULTS = (*SAMPLING, "seed", "max_tokens")  # options of the server for requests that do not say


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="MODEL", help="a path or name; loaded at the start")
    parser.add_argument("--model", action="append", default=[], metavar="MODEL", help="the same; may be repeated")
    parser.add_argument("--alias", "-a", default="", metavar="NAME", help="the first MODEL's name for clients")
    parser.add_argument("--config", "-c", metavar="FILE", help="settings in TOML")
    add_flags(parser)
    parser.add_argument("--pooling", choices=POOLING, help="how the file of each MODEL must say that rows are pooled")
    add_defaults(parser)
    parser.add_argument("--json-logs", action="store_true", help="log lines in JSON")
    parser.add_argument("--insecure", action="store_true", help="another address than this machine without a key")
    parser.add_argument("--show-limits", action="store_true", help="print every limit as [limits] of a file, and end")
    parser.add_argument(UNTIL_EOF, action="store_true", help=argparse.SUPPRESS)  # for replicas that a gateway starts
    parser.add_argument("--use-optimized-inference", action="store_true", help=argparse.SUPPRESS)  # older clients


def add_defaults(parser: argparse.ArgumentParser) -> None:
    """Add the options for what requests leave unsaid."""
    add_options(
        parser.add_argument_group("for requests that do not say, by default as the model recommends"), *DEFAULTS
    )


def defaults_of(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that these options are."""
    defaults = option_values(args, *DEFAULTS)
    return {"answer_tokens": defaults.pop("max_tokens", None), "defaults": defaults}


def call(args: argparse.Namespace) -> int:
    flags = flag_values(args) | defaults_of(args) | ({"log_format": "json"} if args.json_logs else {})
    settings, read_again = read_now_and_again(flags, args)
    if args.show_limits:
        rows = dataclasses.asdict(settings.limits)
        print("[limits]\n" + "\n".join(f"{name} = {value}" for name, value in rows.items()))
        return 0
    if args.use_optimized_inference:
        print("woolly: --use-optimized-inference has no effect: there is one path, and it is the fast one")
    environ = os.environ | ({"WOOLLY_CONFIG": args.config} if args.config else {})
    config = read_config(environ, **flags)
    if _names_a_folder(flags, environ):
        config = dataclasses.replace(config, folders=(config.models,))
    settings = dataclasses.replace(settings, models=_models([*args.words, *args.model], config, args.pooling))
    if args.alias:
        settings = _named(args.alias, settings)

    if settings.join:
        from woolly.fleet.membership import check_join

        check_join(settings)
    if args.until_eof:
        end_with_input()
    if settings.replicas:
        return _serve_with_replicas(settings, config, flags, args, read_again)
    if settings.join:
        from woolly.fleet.replica import build_replica as build
    else:
        from woolly.server.app import build

    listen(settings, build(settings, config), read_again)
    return 0


def read_now_and_again(flags: Mapping[str, Any], args: argparse.Namespace) -> tuple[Settings, Callable[[], Settings]]:
    """The settings of a server, and a function that reads them anew: with the same options and environment, out of
    which the first reading takes the secrets."""
    from woolly.server.settings import read_settings  # imports come late, so that the port opens at once

    read = functools.partial(read_settings, flags, file=args.config, insecure=args.insecure)
    environ = dict(os.environ)
    return read(), lambda: read(dict(environ))


def _serve_with_replicas(
    settings: Settings,
    config: Config,
    flags: Mapping[str, Any],
    args: argparse.Namespace,
    read_again: Callable[[], Settings],
) -> int:
    """Serve as the gateway of processes on this machine, each with the models loaded; the exit code of the command."""
    from woolly.fleet.gateway import build_gateway

    if not settings.models:
        raise RequestError("--replicas needs a MODEL", suggestion="name one before it", param="--replicas")
    if settings.certificate is not None:
        raise RequestError(
            "--replicas and TLS do not go together",
            suggestion="start `woolly gate` with TLS, and `woolly serve MODEL --join URL` for each replica",
            param="--replicas",
        )
    count = system.nodes() if settings.replicas < 0 else settings.replicas
    key = settings.fleet_key or secrets.token_hex(16)
    settings = dataclasses.replace(settings, fleet_key=key)
    environ = os.environ | {"WOOLLY_FLEET_KEY": key} | ({"WOOLLY_CONFIG": args.config} if args.config else {})
    started: list[Replicas] = []

    def start(url: str) -> None:
        threads = config.engine.threads or max(system.cores() // count, 1)
        words = [*map(str, settings.models), *flags_of({**flags, "threads": threads}), "--join", url]
        words += ["--host", "127.0.0.1", "--port", "0", "--ollama-port", "0", "--replicas", "0"]
        words += ["--log-level", settings.log_level, *(["--alias", args.alias] if args.alias else [])]
        started.append(Replicas(count, words, environ))
        started[0].start()

    try:
        listen(settings, build_gateway(settings, config), read_again, start)
    finally:
        for replicas in started:
            replicas.close()
    return next((replicas.refused for replicas in started), 0)


def listen(
    settings: Settings,
    app: App,
    read_again: Callable[[], Settings],
    on_listening: Callable[[str], None] = lambda _: None,
) -> None:
    """Listen at the addresses of the settings, print them, and answer until a signal comes. read_again: reads the
    settings anew. on_listening: called with the first URL."""
    from woolly.server.heap import keep_compact
    from woolly.server.serve import serve
    from woolly.server.sockets import bind_all, tls

    keep_compact()
    tls(settings)
    socks = bind_all(settings)
    for warning in settings.warnings:
        print(f"woolly: warning: {warning}", file=sys.stderr)
    if settings.insecure:
        print("woolly: warning: --insecure: everybody who reaches this address may use the server", file=sys.stderr)
    urls = [_url(*sock.getsockname()[:2], secure=settings.certificate is not None) for sock in socks]

    def ready() -> None:
        on_listening(urls[0])
        _welcome(*urls, key=bool(settings.keys))

    serve(app, socks, ready, read_again)


def _names_a_folder(flags: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Whether the server's own settings name a folder of models; it then offers that folder alone. WOOLLY_MODELS_DIR is
    for all commands, and replaces only the first of the folders."""
    one = BY_KEY["models.models_dir"]
    setting = find_values([one], flags, environ, file_values(environ), settings_file(environ)).get(one.name)
    return setting is not None and not setting.source.endswith(one.environ)


def _models(names: list[str], config: Config, pooling: str | None) -> tuple[Path, ...]:
    """The files of these models. A name that is no model, or one that does not pool so, ends the command before the
    port is taken."""
    if pooling is not None and not names:
        raise RequestError("--pooling needs a MODEL", suggestion="name one before it", param="--pooling")
    paths = tuple(resolve(name, config=config) for name in names)
    for path in paths:
        from woolly.examine import report

        card = report(path, quick=True).card
        if pooling not in (None, card.pooling):
            says = f"pools by '{card.pooling}'" if card.pooling else "continues texts"
            raise RequestError(
                f"{card.file} {says}, and --pooling is '{pooling}'",
                suggestion="leave it out: what the file says counts",
                param="--pooling",
            )
    return paths


def _named(words: str, settings: Settings) -> Settings:
    """The settings with another name for the first model of the command line; more names, after commas, mean it too."""
    if not settings.models:
        raise RequestError("--alias needs a MODEL", suggestion="name one before it", param="--alias")
    name, *others = names = [word.strip() for word in words.split(",")]
    for wrong in (each for each in names if not NAME.fullmatch(each)):
        raise RequestError(
            f"--alias has '{printable(wrong)}'; a name has letters, digits and . _ - : / in it", param="--alias"
        )
    path = settings.models[0]
    row = next((row for row in settings.configs if row.path == path), ModelConfig(name, path))
    return dataclasses.replace(
        settings,
        configs=(dataclasses.replace(row, name=name), *settings.configs),
        aliases={**settings.aliases, **{other.lower(): name for other in others}},
    )


def _url(host: str, port: int, *, secure: bool) -> str:
    return f"http{'s' * secure}://{f'[{host}]' if ':' in host else host}:{port}"


def _welcome(url: str, *others: str, key: bool) -> None:
    also = f" (and {', '.join(others)})" if others else ""
    word = "YOUR_KEY" if key else "none"
    print(
        f"woolly: listening at {url}{also}\n"
        f"  OpenAI SDK:  OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={word}\n"
        f"  Open WebUI:  Settings, Connections, OpenAI API: {url}/v1\n"
        f"  Ole:         Settings, Providers, Woolly: {url}",
        flush=True,
    )
