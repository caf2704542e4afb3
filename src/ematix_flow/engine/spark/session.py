"""Provides the Spark session of a run, built when the first load needs it; settings come from files and environment."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.lake_engine import SparkRequirements
from ematix_flow.connect.config.lookup import travelling_connections
from ematix_flow.connect.config.sources import project_file, user_file
from ematix_flow.declare.spark_settings import joined_conf, joined_names, settings_from
from ematix_flow.declare.toml import parsed
from ematix_flow.plan.remote_tasks import Away

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.declare.connection.registry import Connection
    from ematix_flow.declare.spark_settings import SparkSettings
    from ematix_flow.engine.batch.options import Options


def spark_settings() -> SparkSettings:
    """Return the settings of the project file, the user file and the environment, the nearest one winning."""
    table: dict[str, Any] = {}
    for file in (user_file(), project_file()):
        if file.is_file():
            table |= parsed(file.read_text(encoding="utf-8"), file.name).get("spark", {})
    return settings_from(table, os.environ)


def local_reason(options: Options) -> str:
    """Return why threads of this process move the rows of a load between systems; empty where Spark does."""
    if options.spark is not None:
        return ""
    if _replaces_source(options):
        return "the rows were handed in instead of the source"
    return "" if spark_settings().spark_moves_rows else 'the settings say engine = "local"'


def tasks_away(options: Options) -> Away | None:
    """Return where tasks run when they do not see the disk of this machine."""
    return None if _replaces_source(options) and options.spark is None else _away(options.spark)


def _replaces_source(options: Options) -> bool:
    """Return whether rows of a test stand for the source; rejects that are replayed are moved as all rows are."""
    return options.source_frame is not None and not options.replays


def _away(session: Any) -> Away | None:
    settings = spark_settings()
    master = _master_of(session, settings)
    return Away(master, settings.shared_paths, settings.staging or "") if master else None


def _master_of(borrowed: Any, settings: SparkSettings) -> str:
    if settings.remote_address or (borrowed is None and "pyspark" not in sys.modules):
        return settings.remote_address
    from ematix_flow.run.spark.session import remote_master

    return remote_master(borrowed)


def spark_transforms(options: Options) -> bool:
    """Return whether tasks of Spark read what the SQL of a stream transforms, and not this process for them."""
    return options.spark is not None or spark_settings().spark_moves_rows


LONG = SparkRequirements(heavy=True)
"""The requirements of long work."""

OWN = SparkRequirements(own=True)
"""The requirements of work that ships code of the user to tasks, or that lasts as long as its command."""

_SHARES = threading.Event()
"""Whether sessions of this process may be those of the warm engine."""

_REQUIREMENTS: list[SparkRequirements] = []
"""The requirements of the systems that this process has used; a session has all, so that it need not be replaced."""


def require(requirements: SparkRequirements) -> None:
    """Require something for every session from now on."""
    if requirements not in _REQUIREMENTS:
        _REQUIREMENTS.append(requirements)


def share_engine(*, share: bool = True) -> None:
    """Use sessions of the warm engine from now on, unless the settings have `warm = "off"`; or no longer."""
    (_SHARES.set if share else _SHARES.clear)()


def session_runs() -> bool:
    """Return whether this process has a session, or is starting one."""
    session = sys.modules.get("ematix_flow.run.spark.session")
    return session is not None and session.is_running()


def engine_ended() -> str | None:
    """Return why the warm engine that this process uses has ended; None where it lives, or there is none."""
    session = sys.modules.get("ematix_flow.run.spark.session")
    return None if session is None else session.engine_ended()


def engine_id() -> str:
    """Return the id of the warm engine that this process has a session on; empty where it has none."""
    session = sys.modules.get("ematix_flow.run.spark.session")
    return session.engine_id() if session is not None else ""


def session_settings() -> SparkSettings:
    """Return the settings of a session that starts now."""
    return with_requirements(spark_settings(), _REQUIREMENTS)


def with_requirements(settings: SparkSettings, requirements: Sequence[SparkRequirements]) -> SparkSettings:
    """Return the settings with what systems need; settings of the user come last."""
    all_ = sum(requirements, SparkRequirements())
    return replace(
        settings,
        packages=joined_names(all_.packages, settings.packages),
        excludes=joined_names(all_.excludes, settings.excludes),
        jars=joined_names(all_.jars, settings.jars),
        heavy=all_.heavy,
        shared=_SHARES.is_set() and not all_.own,
        conf=joined_conf(all_.settings, settings.conf.items()),
    )


def readable(session: Any, *connections: Connection) -> Any:
    """Return the session as one that reads every connection as a frame: `spark.read.format("ematix")`."""
    from ematix_flow.run.read.data_source import register

    register(session, travelling_connections(*connections), _away(session))
    return session


@dataclass(frozen=True, slots=True)
class SessionFactory:
    """Returns a session when a load calls it; modules may be named that workers import early."""

    borrowed: Any = None
    """The session of the caller."""

    def __call__(self, imports: Sequence[str] = ()) -> Any:
        """Return the session, started if there is none."""
        from ematix_flow.run.spark.session import equip, spark_session

        if self.borrowed is not None:
            return equip(self.borrowed)
        return spark_session(replace(session_settings(), worker_imports=tuple(imports)))

    def slots(self) -> int:
        """Return how many tasks run at a time; a Spark of this machine need not have started for that."""
        settings = spark_settings()
        if self.borrowed is None and settings.is_local:
            from ematix_flow.run.spark.conf import local_slots

            return local_slots(settings)
        from ematix_flow.run.spark.slots import session_slots

        return session_slots(self())


def session_for(options: Options) -> SessionFactory:
    """Return what a load calls when it needs Spark."""
    return SessionFactory(options.spark)
