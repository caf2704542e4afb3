"""Serves the application of a page until the process is stopped."""

from __future__ import annotations

import gc
import socket
import threading
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.engine.report.overview import count_ahead
from ematix_flow.errors import RunError
from ematix_flow.serve.web.build import create_app

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

SHUTDOWN_SECONDS = 2
"""Open event streams never end by themselves, so a stop does not wait for them for long."""

HEADER_SECONDS = 30.0
"""How long a client may take to send the head of its first request."""


_COLLECT_AFTER = (100_000, 20, 20)
"""Objects, and collections of younger ones, after which Python looks for objects that only refer to each other."""


def run_server(*, bind: str = "127.0.0.1", port: int = 8080, log_level: str = "warning", **options: Any) -> None:
    """Serve the page until the process is stopped; options are those of `create_app`."""
    app = create_app(**{**options, "hosts": (*options.get("hosts", ()), bind)})
    run_app(app, bind, port, log_level)


def run_app(
    app: FastAPI, bind: str, port: int, log_level: str = "warning", on_ready: Callable[[str], None] = lambda _: None
) -> None:
    """Serve an application, and report its address once it can be opened; port 0 chooses a free one."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    # An answer with thousands of runs is hundreds of thousands of objects, which are gone after it: to look at them again
    # and again, and at everything that stays, takes a sixth of its time.
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    listening = _listening(bind, port)
    ahead = (app.state.flow.log, SYSTEM_CLOCK.now())
    threading.Thread(target=count_ahead, args=ahead, name="count-ahead", daemon=True).start()

    class Protocol(H11Protocol):
        """Closes connections on which no whole request has come."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.loop.call_later(HEADER_SECONDS, lambda: None if self.cycle else self.transport.close())

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            name = f"[{bind}]" if ":" in bind else bind
            on_ready(f"http://{name}:{listening.getsockname()[1]}/")

    config = uvicorn.Config(
        app,
        http=Protocol,
        log_level=log_level,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        server_header=False,
        date_header=False,
    )
    with listening:
        Server(config).run(sockets=[listening])


def _listening(bind: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((bind, port))
    except OSError as error:
        listening.close()
        hint = "another program listens there; --port 0 takes a free one."
        raise RunError(f"the page cannot listen on {bind}:{port}: {error.strerror}", hint=hint) from None
    return listening
