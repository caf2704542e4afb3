"""Lake tables as sources of streams: a position is a commit of the table, and a batch is what one commit added; no format is known here."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.connect.base.stream_source import (
    EARLIEST,
    LATEST,
    REWIND,
    StreamSource,
    as_text,
    from_text,
    parse_timestamp,
)
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.errors import RunError, StreamLostError, TransientError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.base.lake_engine import LakeEngine, SparkRequirements
    from ematix_flow.connect.base.stream_source import MessagePartition, Position
    from ematix_flow.connect.lake.source import LakeSource


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """One commit of a table."""

    number: int
    at: datetime
    rows: int
    """About how many rows it added; at least one where it added files."""
    removes: bool = False
    """Whether it took rows away or changed them."""
    replaces: bool = False
    """Whether files of earlier commits may be removed since, though their rows are all there."""

    @property
    def matters(self) -> bool:
        """Return whether the rows of the table are others than before."""
        return self.removes or self.rows > 0


@dataclass(frozen=True, slots=True)
class History:
    """The commits of a table after a position, the oldest first."""

    commits: tuple[LakeCommit, ...]
    cut: bool = False
    """Whether there were commits before these that can no longer be read."""

    def until(self, number: int | None) -> tuple[LakeCommit, ...]:
        """Return the commits up to one of them; none where it is not among them."""
        numbers = [commit.number for commit in self.commits]
        return self.commits[: numbers.index(number) + 1] if number in numbers else ()


@dataclass(frozen=True, slots=True)
class WholeTable:
    """All rows of a table at one commit."""

    relation: str
    number: int


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """Parquet files that commits added, by the values of the columns that the table is divided by."""

    relation: str
    number: int
    """The commit whose columns the rows have."""
    groups: tuple[tuple[tuple[tuple[str, str | None], ...], tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Appended:
    """Rows that were appended after one commit, up to another."""

    relation: str
    begin: int
    end: int


Added: TypeAlias = WholeTable | AddedFiles | Appended


class LakeStream(StreamSource):
    """One table of a lake; a stream takes the rows that are added to it."""

    columns: ClassVar[tuple[SourceColumn, ...]] = ()
    divisible: ClassVar[bool] = False
    key: ClassVar[str]
    """What a position calls the number of a commit."""

    def __init__(self, lake: LakeSource, query: str) -> None:
        super().__init__(lake.name, query)
        self.lake = lake
        self.schema, _, self.table = query.strip().rpartition(".")
        self._engine: Callable[[], LakeEngine] | None = None

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return the folder of the lake."""
        return self.lake.read_paths

    @property
    def spark_requirements(self) -> SparkRequirements:
        """Return what a session needs from its start."""
        return self.lake.spark_requirements

    def use(self, engine: Callable[[], LakeEngine]) -> None:
        """Set the engine that reads the table; it is started when it is needed."""
        self._engine = engine

    def engine(self) -> LakeEngine:
        """Return the engine, which knows the location of the table."""
        if self._engine is None:
            message = f"{self.kind} tables are read by Spark, which is not started here"
            raise UnsupportedError(message)
        engine = self._engine()
        self.lake.prepare(engine)
        return engine

    def run_query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query about the table."""
        try:
            return self.engine().query(sql)
        except EngineError as error:
            message = f"table {self.query!r} cannot be queried: {safe_text(error)}"
            raise (TransientError if error.transient else RunError)(message) from None

    @property
    def relation(self) -> str:
        """Return the table as Spark's SQL names it."""
        return ".".join(backticked(part) for part in self.lake.relation(self.schema, self.table))

    @abstractmethod
    def history(self, position: Position, end: Position | None = None) -> History:
        """Return the commits after a position, those up to an end at least; one that the table does not know is refused."""

    @abstractmethod
    def position_at(self, number: int) -> Position:
        """Return the position right behind a commit."""

    @abstractmethod
    def newest(self) -> Position:
        """Return the position behind everything that is there."""

    @abstractmethod
    def added(self, begin: Position, end: Position) -> Added:
        """Return the rows that came between two positions."""

    def start(self, where: str) -> Position:
        """Return the position before all commits, behind the newest, behind those of an instant, or one that is written out."""
        if where.lstrip().startswith("{"):
            return self._requested_position(from_text(where))
        if where == EARLIEST:
            return {self.key: None}
        return self.newest() if where == LATEST else self._since(parse_timestamp(where))

    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return the position behind the next commit that added rows, however many; one that took rows away is refused."""
        del most
        history = self.history(position, end_offset)
        commits = history.commits if end_offset is None else history.until(end_offset[self.key])
        changes = [commit for commit in commits if commit.matters]
        is_append_only = not history.cut and not any(commit.removes or commit.replaces for commit in commits)
        if commits and position[self.key] is None and not is_append_only:
            # What came when cannot be read commit by commit; what there is now can.
            return self.position_at(commits[-1].number)
        if not changes:
            return position
        if changes[0].removes:
            raise self._refused(changes[0].number)
        return self.position_at(changes[0].number)

    def distance(self, begin: Position, end: Position) -> int:
        """Return about how many rows were added; at least one where there is something to load."""
        if end[self.key] in (None, begin[self.key]):
            return 0
        history = self.history(begin, end)
        commits = history.until(end[self.key])
        least = int(bool(commits) and history.cut and begin[self.key] is None)
        return max(least, sum(max(commit.rows, 1) for commit in commits if commit.matters))

    def plan_partitions(
        self, begin: Position, end: Position, column_names: Sequence[str]
    ) -> tuple[MessagePartition, ...]:
        """Refuse to return rows as messages."""
        del begin, end, column_names
        message = f"the rows of table {self.query!r} are no messages"
        raise UnsupportedError(message)

    def lost(self, message: str) -> StreamLostError:
        """Return the error for a position that means nothing any more."""
        return StreamLostError(f"{message}; what the stream has not read is gone", hint=REWIND)

    def _refused(self, number: int) -> RunError:
        behind = as_text({self.key: number})
        message = f"{self.key} {number} of table {self.query!r} removes or changes rows, and a stream takes only rows that are added"
        return RunError(message, hint=f"to go on behind it: flow stream rewind NAME --to '{behind}'.")

    def _requested_position(self, requested: Position) -> Position:
        number = requested.get(self.key)
        if not isinstance(number, int) or isinstance(number, bool):
            message = f"{as_text(requested)} is no position in table {self.query!r}"
            raise RunError(message, hint=f'a position is written like {{"{self.key}": 12}}.')
        position = self.position_at(number)
        self.history(position)
        return position

    def _since(self, start: datetime) -> Position:
        history = self.history({self.key: None})
        before = [commit for commit in history.commits if commit.at <= start]
        if before:
            return self.position_at(before[-1].number)
        if history.cut:
            raise self.lost(f"what is known of table {self.query!r} begins after {start.isoformat()}")
        return {self.key: None}
