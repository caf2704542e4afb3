"""Where the state of a target is: a folder of its own below the root of checkpoints, and one more for each redeployment.

The position of the target names the folder, so that whoever moves the position changes from one state to another.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from ematix_flow.commit.stream_offsets import STATE
from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.declare.connection.base import Connection
from ematix_flow.declare.masking import is_secret_field, mask_value
from ematix_flow.engine.spark.session import session_for, spark_settings
from ematix_flow.run.streams.query import StateFolder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.connect.base.stream_source import Position
    from ematix_flow.declare.stream.stream import Stream, StreamTarget
    from ematix_flow.engine.stream.options import StreamOptions

DEPLOYMENT = "deployment"
"""Key in what a position says of its state for the redeployment that it belongs to; the first one has none."""

DEPLOYMENTS = "deployments"
"""The folder of redeployments, inside the one of the first deployment."""

NAMING = "naming"
"""Key in what a position says of its state for how its folder is named; states of earlier versions have none."""

BY_LOCATION = 2
"""Named by where the target is. Earlier versions named it by how its connection is written, which two targets may share."""

_NO_LOCATION = ("timezone", "user")
"""Settings that say how a target is opened, and not which one it is."""

_LOCATION_OPTIONS = ("dbname", "host", "hostaddr", "port", "service", "unix_socket")
"""Options of URLs that do say which one it is."""


def state_folder(stream: Stream, target: StreamTarget, name: str, position: Position | None = None) -> str:
    """Return where the state of a target is kept at a position; without one, where a new state will be."""
    return deployed(first_folder(stream, target, name, position), (position or {}).get(STATE))


def first_folder(stream: Stream, target: StreamTarget, name: str, position: Position | None = None) -> str:
    """Return the folder of the first deployment: below the root of checkpoints, under the stream's name and the target's."""
    root = spark_settings().checkpoint_root
    if "://" not in root:
        root = str(Path(root).expanduser().absolute())
    connection, known = resolve_connection(target.connection), (position or {}).get(STATE)
    is_earlier = known is not None and known.get(NAMING) != BY_LOCATION
    where = f"{repr(connection) if is_earlier else _location(connection)} {target.destination}"
    readable = re.sub(r"[^\w.-]+", "-", f"{name}-{stream.key_of(target)}")[:80]
    return f"{root}/{readable}-{hashlib.sha256(f'{name} {where}'.encode()).hexdigest()[:12]}"


def naming(known: Mapping[str, object] | None) -> dict[str, object]:
    """Return what the next position has to say of a state besides its batch, so that its folder is found."""
    if not known:
        return {NAMING: BY_LOCATION}
    return {key: known[key] for key in (NAMING, DEPLOYMENT) if key in known}


def _location(connection: Connection) -> str:
    """Return where a system is, however its connection is called and written; no secret is in it."""
    settings = {name: value for name, value in connection.settings().items() if not isinstance(value, Connection)}
    chosen = {
        name: _plain(name, value)
        for name, value in sorted(settings.items())
        if value is not None and name not in _NO_LOCATION and not is_secret_field(name)
    }
    return f"{connection.kind} {chosen}"


def _plain(name: str, value: object) -> object:
    """Return a setting without what may change while it means the same: login and options of a URL, the current folder."""
    if not isinstance(value, str):
        return value
    if name == "path" and "://" not in value:
        return str(Path(value).expanduser().absolute())
    with suppress(ValueError):
        url = urlsplit(value)
        if url.hostname:
            chosen = [(key, one) for key, one in parse_qsl(url.query) if key in _LOCATION_OPTIONS]
            return f"{url.scheme}://{url.hostname}:{url.port or ''}{url.path}{chosen or ''}"
    return mask_value(value)


def deployed(first: str, known: Mapping[str, object] | None) -> str:
    """Return the folder of the deployment that a position knows, from that of the first one."""
    deployment = (known or {}).get(DEPLOYMENT)
    return first if deployment is None else f"{first}/{DEPLOYMENTS}/{deployment}"


def forget_state(
    stream: Stream, target: StreamTarget, name: str, options: StreamOptions, position: Position | None
) -> None:
    """Remove what a target of a stream remembers between batches at a position, in all of its deployments."""
    for path in {first_folder(stream, target, name), first_folder(stream, target, name, position)}:
        if "://" not in path:
            shutil.rmtree(path, ignore_errors=True)
        else:
            StateFolder(session_for(options.load)(), path).remove(path)
