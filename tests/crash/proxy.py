"""A TCP proxy between a load and its server, which can cut, silence or slow the conversation at a COMMIT; reads no SQL."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

WAIT = 0.05


class Proxy:
    """Listens on a free port of the loopback interface and passes everything on, until it is told otherwise."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = url.replace(f":{self._server[1]}/", f":{self.port}/")
        self.at_commit = ""
        """What happens at the next COMMIT: `cut before`, `cut after`, `silence before`, `silence after`."""
        self.delay = 0.0
        """Seconds that every piece of the conversation takes, in each direction."""
        self.lost_after = 0
        """Pieces after which the connection that says the next one is cut; 0 for none, and it counts anew then."""
        self._packets = 0
        self._open = True
        self._refusing = self._down = False
        threading.Thread(target=self._accept, daemon=True).start()

    def down(self) -> None:
        """Cut every conversation and every new connection, as a server that has crashed would."""
        self._refusing = self._down = True

    def refuse(self) -> None:
        """Cut every new connection at once."""
        self._refusing = True

    def accept(self) -> None:
        """Take new connections again."""
        self._refusing = self._down = False

    def close(self) -> None:
        """End the proxy and every conversation."""
        self._open = False
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refusing:
                    client.close()
                    continue
                threading.Thread(target=self._converse, args=(client,), daemon=True).start()

    def _converse(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._server) as server:
            silent = False
            while self._open and not self._down:
                ready, _, _ = select.select([client, server], [], [], WAIT)
                for side in ready:
                    data = side.recv(1 << 16)
                    if not data:
                        return
                    time.sleep(self.delay)
                    self._count()
                    if side is server and not silent:
                        client.sendall(data)
                    elif side is client and self._is_commit(data):
                        silent = self._interfere(server, data)
                    elif side is client:
                        server.sendall(data)

    def _count(self) -> None:
        self._packets += 1
        if self.lost_after and self._packets > self.lost_after:
            self._packets = 0
            raise ConnectionAbortedError("lost")

    def _is_commit(self, data: bytes) -> bool:
        return bool(self.at_commit) and b"COMMIT" in data[:64]

    def _interfere(self, server: Any, data: bytes) -> bool:
        """Do what was asked for at this COMMIT; returns True to stay silent, and raises to cut the connection."""
        what, self.at_commit = self.at_commit, ""
        if what.endswith("after"):
            server.sendall(data)
            server.recv(1 << 16)
        if what.startswith("cut"):
            raise ConnectionAbortedError(what)
        return True
