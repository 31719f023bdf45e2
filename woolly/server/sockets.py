"""What a server listens at: sockets, and the certificate that handshakes of TLS are made with."""

from __future__ import annotations

import errno
import socket
import ssl

from woolly.config import HOST, Settings
from woolly.errors import BusyError, NotFoundError, RequestError, printable

BACKLOG = 512  # connections that wait to be accepted


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes one that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(BACKLOG)
        except BaseException:
            sock.close()
            raise
        return sock
    except (OSError, UnicodeError) as error:  # the second: a name that no host can have
        number = getattr(error, "errno", None)
        taken = number == errno.EADDRINUSE
        reason = "it is in use" if taken else printable(getattr(error, "strerror", None) or error)
        raise BusyError(
            f"cannot listen at {printable(host)}:{port}: {reason}",
            suggestion="choose another with --port, or --port 0 for any that is free"
            if taken or number == errno.EACCES
            else "look at --host: it must be an address or a name of this machine",
            code="address_in_use",
            taken=taken,
        ) from None


def bind_all(settings: Settings) -> list[socket.socket]:
    """A socket for each address. A default one is this machine by both of its names, 127.0.0.1 and ::1."""
    socks: list[socket.socket] = []
    try:
        for host, port in settings.addresses:
            socks.append(bind("127.0.0.1" if host == "localhost" else host, port))
            if host == "localhost" or (host == HOST and not settings.bind and not settings.host):
                taken = socks[-1].getsockname()[1]
                try:
                    socks.append(bind("::1", taken))
                except BusyError as error:
                    if error.facts.get("taken") and port:  # another process would answer under the same name
                        raise
    except BaseException:
        for sock in socks:
            sock.close()
        raise
    return socks


def tls(settings: Settings) -> ssl.SSLContext | None:
    """What handshakes are made with, checked before the server listens; None where it speaks plain HTTP."""
    if settings.certificate is None and settings.certificate_key is None:
        return None
    if settings.certificate is None or settings.certificate_key is None:
        raise RequestError("TLS needs both --tls-cert and --tls-key (tls.cert_path and tls.key_path)", param="tls")
    for path in (settings.certificate, settings.certificate_key):
        if not path.is_file():
            raise NotFoundError(f"there is no file '{printable(path)}' for TLS", path=str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.certificate, settings.certificate_key)
    except (ssl.SSLError, OSError) as error:
        raise RequestError(
            f"the certificate '{printable(settings.certificate)}' cannot be used: {printable(error)}",
            suggestion="give a PEM file with the certificate, and one with its key without a password",
            param="tls",
        ) from None
    return context
