"""A relay before a server: a network that is slow, and that cuts connections."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class Relay:
    """Passes requests on. cuts: after how many bytes of the answer each of the first connections is cut.
    delay_s: before each piece of an answer."""

    def __init__(self, port: int, *cuts: int, delay_s: float = 0.0) -> None:
        self.target, self.cuts, self.delay_s = port, list(cuts), delay_s
        self.asked = 0
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.sock.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a connection
        self.sock.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.sock.accept()
            except OSError:
                return
            self.asked += 1
            cut = self.cuts.pop(0) if self.cuts else 1 << 30
            threading.Thread(target=self._pass, args=(client, cut), daemon=True).start()

    def _pass(self, client: socket.socket, cut: int) -> None:
        with client, socket.create_connection(("127.0.0.1", self.target)) as server:
            threading.Thread(target=_pump, args=(client, server), daemon=True).start()
            with contextlib.suppress(OSError):  # the reader has gone
                while cut > 0 and (data := server.recv(min(cut, 4096))):
                    time.sleep(self.delay_s)
                    client.sendall(data)
                    cut -= len(data)
            for end in (client, server):  # the other thread still reads, and closing alone would not wake it
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def _pump(client: socket.socket, server: socket.socket) -> None:
    try:
        while data := client.recv(65536):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)
    except OSError:
        pass
