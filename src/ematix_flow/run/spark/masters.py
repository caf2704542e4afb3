"""Checks that the master of a standalone cluster is there, before Java is started for it.

Other clusters are not checked.
"""

from __future__ import annotations

import socket

from ematix_flow.errors import DeclareError, TransientError

SCHEME = "spark://"
_PORT = 7077
_ANSWER_SECONDS = 5.0


def expect_master(master: str) -> None:
    """Refuse a standalone cluster none of whose masters can be reached: Spark itself would try for minutes."""
    if not master.startswith(SCHEME):
        return
    failures = []
    for endpoint in master.removeprefix(SCHEME).split(","):
        try:
            socket.create_connection(_address(master, endpoint), _ANSWER_SECONDS).close()
        except OSError as error:
            failures.append(f"{endpoint}: {error.strerror or error}")
        else:
            return
    message = f"no Spark master answers at {master} ({'; '.join(failures)})"
    raise TransientError(message, hint="start the cluster, or name another `master` under [spark].")


def _address(master: str, endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", str(_PORT))
    if not host or not port.isdigit():
        raise DeclareError(f"{master!r} is no address of a Spark master.", hint="write it as spark://host:7077.")
    return host.strip("[]"), int(port)
