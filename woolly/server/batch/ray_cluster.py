"""A Ray cluster: connect to it, count the cores of its machines, and cut its errors to a line.

Ray is an extra (`pip install 'woolly[ray]'`) and is imported here alone, when a command asks for a cluster. It places,
restarts and counts processes; no token of an answer goes through it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from woolly.errors import BusyError, UnsupportedError, printable

NAMESPACE = "woolly"  # the namespace of actors that outlive the command which began them


@contextmanager
def connected(address: str, *, logs: bool = False) -> Iterator[Any]:
    """The module `ray`, connected. address: of a cluster; "local" begins one here. logs: print what actors print."""
    try:
        import ray
    except ImportError:
        raise UnsupportedError("Ray is not installed", suggestion="pip install 'woolly[ray]'") from None
    own = not ray.is_initialized()
    if own:
        local: dict[str, Any] = {} if address != "local" else {"include_dashboard": False}
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=logs, logging_level="ERROR", **local)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise BusyError(
                f"there is no Ray cluster at '{printable(address)}': {last_line(error)}",
                suggestion="start one with `ray start --head`, or use `local`",
            ) from None
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield ray
    except ray.exceptions.RayError as error:
        raise BusyError(
            f"Ray gave up: {last_line(error)}", suggestion="the same command goes on where it ended"
        ) from None
    finally:
        if own:
            ray.shutdown()


def cores(ray: Any) -> int:
    """The cores of the largest machine: a model without a number of threads takes all of its machine."""
    return max((int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["Alive"]), default=1)


def last_line(error: Exception) -> str:
    """The last line of an error of Ray's: its reports are long, and end with the reason."""
    return printable((str(error).strip().splitlines() or ["it does not say why"])[-1], 300)
