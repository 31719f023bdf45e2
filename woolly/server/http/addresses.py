"""The address of a client: that of its connection, or what the proxies tell that the operator has named.

Whoever connects can write `X-Forwarded-For`. Of its addresses only the last is known to be true, and only where the
connection comes from such a proxy, which has added it; the one before that is, if the last one is a proxy, too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
FORWARDED = b"x-forwarded-for"
SUBNET = 64  # bits of an IPv6 address that its owner does not choose


def client_address(peer: str, headers: Sequence[tuple[bytes, bytes]], proxies: Sequence[Network]) -> str:
    """The address of a client whose connection comes from `peer`. What is no address ends the walk through proxies."""
    if not proxies:
        return peer
    address, client = _read(peer), peer
    forwarded = [part for name, value in headers if name == FORWARDED for part in value.split(b",")]
    while address is not None and forwarded and any(address in network for network in proxies):
        address = _read(forwarded.pop().decode("latin-1").strip())
        client = client if address is None else str(address)
    return client


def neighbours_of(address: str) -> str:
    """Whom a limit on an address counts together: this machine has millions of loopback addresses, and whoever has an
    IPv6 address has a whole subnet."""
    read = _read(address)
    if read is None:
        return address
    if read.is_loopback:
        return "loopback"
    return str(read if read.version == 4 else ipaddress.ip_network((read, SUBNET), strict=False))


def _read(text: str) -> Address | None:
    """An address; one of IPv4 that is written as IPv6, and one with a zone, without that."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
