"""What a batch target is: tables that rows are staged for, and that take them in one transaction with our metadata."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from ematix_flow.connect.base.catalog import Catalog
from ematix_flow.connect.base.lake_engine import SparkRequirements
from ematix_flow.connect.base.maintenance import Maintainable
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ematix_flow.connect.base.columns import TableName
    from ematix_flow.connect.base.metadata_store import MetadataStore
    from ematix_flow.connect.base.session import Session, Split
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.connect.base.stage import Stager, StageSpec, WorkTable
    from ematix_flow.records import TaskReport


class TargetSystem(Maintainable, Catalog):
    """A system whose tables loads write to."""

    spark_requirements: ClassVar[SparkRequirements] = SparkRequirements()

    @property
    def write_paths(self) -> tuple[str, ...]:
        """Return the folders of this machine that tasks write to when rows are loaded into this target."""
        return ()

    @property
    def staging_paths(self) -> tuple[str, ...]:
        """Return the folders of this machine in which parts wait for the driver, which can fetch them remotely too."""
        return ()

    def check_files(self, options: Mapping[str, Any]) -> None:
        """Refuse options of files that this system does not take; here all of them."""
        for name in options:
            message = f"{name}= is an option of files, and the target is {self.kind}"
            raise UnsupportedError(message, hint="leave it out, or write to an object store.")

    # Transactions

    @property
    @abstractmethod
    def metadata_store(self) -> MetadataStore:
        """Return what keeps our own tables."""

    @abstractmethod
    def metadata_table(self, name: str) -> TableName:
        """Return the location of one of our own tables."""

    def data(self, session: Session) -> Session:
        """Return the session over the rows of tables for a session: the same one, unless they are elsewhere."""
        return session

    def begin_alone(self, session: Session, tables: Sequence[TableName]) -> None:
        """Open a transaction in which no other session changes these tables, as far as that needs anything more."""
        del tables
        session.begin()

    @abstractmethod
    def fingerprint(self, session: Session, table: TableName, columns: Sequence[str]) -> str:
        """Return a text that is another one when rows of a table change in these columns; EMPTY when it has none."""

    # Staging

    @abstractmethod
    def open_stage(self, session: Session, spec: StageSpec) -> StageSpec:
        """Create the staging of a load with a plain create, so that a name clash is an error."""

    @abstractmethod
    def stager(self, spec: StageSpec, partition: int, attempt: int) -> Stager:
        """Open staging for one task attempt; runs inside a task."""

    @abstractmethod
    def verify_stage(self, session: Session, spec: StageSpec, parts: Sequence[TaskReport]) -> None:
        """Compare staging with the reports of the winning attempts; raises StagingLostError on any difference."""

    @abstractmethod
    def staged_relation(self, session: Session, spec: StageSpec, parts: Sequence[TaskReport]) -> str:
        """Return SQL for a relation with exactly the named attempts' rows, in the target's types."""

    @abstractmethod
    def reject_relation(self, session: Session, spec: StageSpec, parts: Sequence[TaskReport]) -> str:
        """Return SQL for the relation of rejected rows of the named attempts."""

    @abstractmethod
    def drop_stage(self, session: Session, spec: StageSpec) -> None:
        """Remove the staging of a load that is known to be over."""

    @abstractmethod
    def stages(self, session: Session) -> Iterable[tuple[str, float]]:
        """List all staging names with their age in seconds."""


class SqlTarget(TargetSystem):
    """A target whose rows answer SQL, so that programs over them may fill tables on the way."""

    @abstractmethod
    def create_work_table(self, session: Session, table: WorkTable, incarnation: str) -> str:
        """Create a scratch table before the transaction begins and return its SQL name."""


class RelayTarget(TargetSystem):
    """A target that can stage rows of some sources without inspecting their values."""

    @abstractmethod
    def relays(self, source: SqlSource, session: Session, split: Split, spec: StageSpec) -> bool:
        """Return whether `relay` can stage a split of this source; `session` is one of the source's."""

    @abstractmethod
    def relay(
        self, source: SqlSource, split: Split, spec: StageSpec, attempt: int, count: Callable[[int], None]
    ) -> int:
        """Stage a split in a task without inspecting its values; return the number of rows, passed to `count` too."""
