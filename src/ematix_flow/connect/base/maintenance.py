"""What a system offers for its tables besides loads: how it can divide them, and their maintenance tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.session import Session
    from ematix_flow.declare.table.maintenance import Maintenance

Numbers: TypeAlias = "Mapping[str, int | str]"
"""What a maintenance task counted: files before and after, bytes, versions; or why there was nothing to count."""

SMALL = 0.75
"""A file is small when it is below this part of the size that is aimed at."""


@dataclass(frozen=True, slots=True)
class MaintenanceTask:
    """One maintenance task: its name, the work, and a preview of what the work would do."""

    name: str
    work: Callable[[], Numbers]
    preview: Callable[[], Numbers]


def guarded(task: MaintenanceTask, check: Callable[[], None]) -> MaintenanceTask:
    """Return the maintenance task with a check right before its work."""

    def work() -> Numbers:
        check()
        return task.work()

    return replace(task, work=work)


class Maintainable:
    """The part of a system that maintenance calls; a system that overrides nothing has no tasks of its own."""

    metadata_per_table: ClassVar[bool] = False
    """True where every table has metadata of its own, rather than all tables of a connection together."""

    def maintenance_tasks(self, session: Session, rules: Maintenance, now: datetime) -> Sequence[MaintenanceTask]:
        """Return what is to be done about the tables; where tables are locked for loads, the session holds the lock."""
        del session, rules, now
        return ()
