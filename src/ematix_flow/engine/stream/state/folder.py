"""Where the state of a target is: a folder of its own below the root of checkpoints, and one more for each redeployment.

The position of the target names the folder, so that whoever moves the position changes from one state to another.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.commit.stream_offsets import STATE
from ematix_flow.connect.config.lookup import resolve_connection
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


def state_folder(stream: Stream, target: StreamTarget, name: str, position: Position | None = None) -> str:
    """Return where the state of a target is kept: below the root of checkpoints, under the stream's name and its own."""
    root = spark_settings().checkpoint_root
    if "://" not in root:
        root = str(Path(root).expanduser().absolute())
    where = f"{resolve_connection(target.connection)!r} {target.destination}"
    readable = re.sub(r"[^\w.-]+", "-", f"{name}-{stream.key_of(target)}")[:80]
    first = f"{root}/{readable}-{hashlib.sha256(f'{name} {where}'.encode()).hexdigest()[:12]}"
    return deployed(first, (position or {}).get(STATE))


def deployed(first: str, known: Mapping[str, object] | None) -> str:
    """Return the folder of the deployment that a position knows, from that of the first one."""
    deployment = (known or {}).get(DEPLOYMENT)
    return first if deployment is None else f"{first}/{DEPLOYMENTS}/{deployment}"


def forget_state(stream: Stream, target: StreamTarget, name: str, options: StreamOptions) -> None:
    """Remove what a target of a stream remembers between batches, in all of its deployments."""
    path = state_folder(stream, target, name)
    if "://" not in path:
        shutil.rmtree(path, ignore_errors=True)
        return
    StateFolder(session_for(options.load)(), path).remove(path)
