"""Answer over HTTP with the models of replicas: the same server, and none of the weights.

    woolly gate                                               listens at 127.0.0.1:8080, for replicas of this machine
    woolly serve smollm2 --port 0 --join http://127.0.0.1:8080          a replica; start as many as there is room for
    WOOLLY_FLEET_KEY=... woolly gate --host 10.0.0.1                    replicas of other machines know the same secret

A replica that dies in the middle of an answer is no fault: another one goes on with the very same text.
"""

from __future__ import annotations

import argparse
import os

from woolly.cli.flags import add_flags, flag_values
from woolly.cli.serve import add_defaults, defaults_of, listen, read_now_and_again
from woolly.config import Settings, read_config
from woolly.config.rows import rows
from woolly.config.serving import Serving

OF_REPLICAS = ("join", "advertise", "replicas")  # settings that only replicas have


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", "-c", metavar="FILE", help="settings in TOML")
    add_flags(parser, *(one.name for one in (*rows(Settings), *rows(Serving)) if one.name not in OF_REPLICAS))
    add_defaults(parser)
    parser.add_argument("--json-logs", action="store_true", help="log lines in JSON")
    parser.add_argument("--insecure", action="store_true", help="another address than this machine without a key")


def call(args: argparse.Namespace) -> int:
    from woolly.fleet.access import check_secret

    flags = flag_values(args) | defaults_of(args) | ({"log_format": "json"} if args.json_logs else {})
    settings, read_again = read_now_and_again(flags, args)
    check_secret(settings)
    config = read_config(os.environ | ({"WOOLLY_CONFIG": args.config} if args.config else {}))

    from woolly.fleet.gateway import build_gateway

    listen(settings, build_gateway(settings, config), read_again)
    return 0
