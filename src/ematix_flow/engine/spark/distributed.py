"""What `engine = "distributed"`, `peers` and `[transform.tls]` of older configurations mean here: a Spark cluster, or a refusal."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ematix_flow.engine.spark.session import spark_settings
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.declare.spark_settings import SparkSettings
    from ematix_flow.declare.stream.stream import Stream

_MASTERS = ("spark://", "sc://", "k8s://", "yarn")
_ENCRYPTED = ("spark.ssl.rpc.enabled", "spark.ssl.enabled", "spark.network.crypto.enabled")
_PAGE = "docs/cluster.md shows each step."


def check_distribution(stream: Stream) -> None:
    """Refuse a stream that requires distribution or encryption where the settings have none."""
    transform, settings = stream.transform, spark_settings()
    if transform.engine == "distributed" and not settings.remote_address:
        raise UnsupportedError(_alone(stream, transform.peers), hint=_setting(transform.peers), origin=stream.origin)
    if transform.engine == "distributed" and transform.tls and not _is_encrypted(settings):
        message = f"stream {stream.name!r} has [transform.tls], and the settings of Spark do not encrypt what machines exchange"
        hint = (
            'set "spark.authenticate" and "spark.ssl.rpc.enabled" (or "spark.network.crypto.enabled") under [spark.conf] '
            f"and remove [transform.tls]. {_PAGE}"
        )
        raise UnsupportedError(message, hint=hint, origin=stream.origin)
    if transform.engine == "auto" and transform.peers and not settings.remote_address:
        text = f'stream {stream.name!r} runs on this machine: engine = "auto" uses a Spark cluster if `master` of [spark] names one'
        warnings.warn(text, UserWarning, stacklevel=2)


def _alone(stream: Stream, peers: tuple[str, ...]) -> str:
    listed = f" with peers {', '.join(peers)}" if peers else ""
    return f'stream {stream.name!r} has engine = "distributed"{listed}, and work is distributed by a Spark cluster'


def _setting(peers: tuple[str, ...]) -> str:
    """Return the setting for the hint: an address of Spark among the peers is taken as it is."""
    master = next((peer for peer in peers if peer.startswith(_MASTERS)), "spark://host:7077")
    name = "remote" if master.startswith("sc://") else "master"
    return f'write {name} = "{master}" under [spark], and no peers; or leave engine out to run on this machine. {_PAGE}'


def _is_encrypted(settings: SparkSettings) -> bool:
    # A Connect server has settings of its own, which this process does not see.
    return settings.remote is not None or any(settings.conf.get(key) == "true" for key in _ENCRYPTED)
