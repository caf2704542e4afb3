"""What a run log stores besides the history of runs: frozen records with a key and a version; backends know how."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from ematix_flow.records import Incident, PipelineState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Record(Protocol):
    """A value under a key; version 0 means that it is not stored yet."""

    table: ClassVar[str]
    """Name of the table, or of the folder of objects."""
    key: ClassVar[tuple[str, ...]]
    """Fields that distinguish it from others of its kind."""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def version(self) -> int:
        """Return how often it was written, so that the next writer knows what it replaces."""


R = TypeVar("R", bound=Record)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Claim:
    """The worker that may run a pipeline now; a row without a token is free and keeps the epoch."""

    table: ClassVar[str] = "pipeline_claims"
    key: ClassVar[tuple[str, ...]] = ("pipeline_name",)

    pipeline_name: str
    claim_token: str = ""
    worker_id: str = ""
    claimed_at: str = ""
    expires_at: str = ""
    epoch: int = 0
    """Grows with every claim of this name, also after it was released."""
    cancelled_by: str = ""
    """Who requested that the holder stops; empty without such a request."""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a user requested and a scheduler or worker does, or that was done at once."""

    table: ClassVar[str] = "actions"
    key: ClassVar[tuple[str, ...]] = ("id",)

    id: str
    """act-<hex>"""
    kind: str
    """run, rerun, restart, pause, unpause, resume, cancel or another word for what was done."""
    pipeline: str
    run_id: str = ""
    from_step: str = ""
    note: str = ""
    asked_at: str = ""
    asked_by: str = ""
    state: str = "asked"
    """asked, taken, done or failed."""
    taken_by: str = ""
    ended_at: str = ""
    outcome: str = ""
    interruptions: int = 0
    """How often a process that worked on it died."""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Backfill:
    """A range of the past that is loaded chunk by chunk."""

    table: ClassVar[str] = "backfills"
    key: ClassVar[tuple[str, ...]] = ("id",)

    id: str
    """bf-<hex>"""
    pipeline: str
    first: str = ""
    last: str = ""
    chunk_seconds: int = 0
    done: str = ""
    """The chunks that are loaded, as JSON."""
    state: str = "open"
    """open, done, failed or cancelled."""
    note: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class RequestRow:
    """The newest run of a pipeline that a user requested, and the process that works on it."""

    table: ClassVar[str] = "requests"
    key: ClassVar[tuple[str, ...]] = ("pipeline",)

    pipeline: str
    request_id: str = ""
    state: str = ""
    """open, finished (its rows are committed, its result was not delivered yet) or done."""
    opened_at: str = ""
    closed_at: str = ""
    host: str = ""
    pid: int = 0
    """0 when no process works on it."""
    pid_started: str = ""
    result: str = ""
    """The result of a finished request as JSON, without secrets."""
    ended: str = ""
    """failed or stopped when the last attempt recorded it; empty after a crash."""
    cancelled_by: str = ""
    """Who requested that the process stops; empty without such a request."""
    version: int = 0


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """Work on the run log itself that is done once in a while by the first process that is there."""

    table: ClassVar[str] = "chores"
    key: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    done_at: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Adoption:
    """Which project has taken over a record from before there were projects; the first one does, and no other."""

    table: ClassVar[str] = "adoptions"
    key: ClassVar[tuple[str, ...]] = ("record",)

    record: str
    """The table and a digest of the key."""
    project: str = ""
    """The digest of the project."""
    done: bool = False
    """The old record is gone; a later one under its key belongs to no project."""
    version: int = 0


KINDS: tuple[type[Record], ...] = (PipelineState, Claim, Action, Incident, Backfill, RequestRow, PeriodicJob, Adoption)


@cache
def columns_of(kind: type[Record]) -> tuple[tuple[str, str], ...]:
    """Return the names of a kind's fields, each with `str`, `int` or `bool`."""
    return tuple((field.name, str(field.type)) for field in fields(kind))


def key_of(record: Record) -> tuple[str, ...]:
    """Return the values that distinguish a record from others of its kind."""
    return tuple(str(getattr(record, name)) for name in type(record).key)


def values_of(record: Record) -> tuple[Any, ...]:
    """Return the values of a record in the order of its fields, as text and whole numbers."""
    return tuple(
        int(value) if isinstance(value, bool) else value
        for value in (getattr(record, name) for name, _ in columns_of(type(record)))
    )


def from_values(kind: type[R], rows: Iterable[tuple[Any, ...]]) -> list[R]:
    """Return the records of rows; a column that an older version left empty has its default."""
    columns = columns_of(kind)
    truths = tuple(index for index, (_, type_name) in enumerate(columns) if type_name == "bool")
    return [kind(*_cleaned(kind, row, truths) if truths or None in row else row) for row in rows]


def _cleaned(kind: type[Record], row: tuple[Any, ...], truths: tuple[int, ...]) -> list[Any]:
    values = list(row)
    if None in row:
        empty = {"str": "", "int": 0, "bool": False}
        values = [empty[type_name] if v is None else v for v, (_, type_name) in zip(row, columns_of(kind), strict=True)]
    for index in truths:
        values[index] = bool(values[index])
    return values


def document_of(record: Record) -> dict[str, Any]:
    """Return a record as the document that an object holds."""
    return {name: getattr(record, name) for name, _ in columns_of(type(record))}


def from_document(kind: type[R], document: Mapping[str, Any]) -> R:
    """Return the record of a document; what a newer version added to it is left out."""
    return kind(**{name: document[name] for name, _ in columns_of(kind) if name in document})


def with_version(record: R, version: int) -> R:
    """Return a record as it is stored."""
    return replace(record, version=version)


def storable(value: T) -> T:
    """Return a value whose texts every database can store: no zero bytes, nothing that is no character."""
    texts = {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]
    changed = {
        name: storable_text(text) for name, text in texts.items() if isinstance(text, str) and not _is_storable(text)
    }
    return replace(value, **changed) if changed else value  # type: ignore[type-var]


def _is_storable(text: str) -> bool:
    return text.isascii() and "\0" not in text


def storable_text(text: str) -> str:
    """Return a text that every database can store."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def instant(text: str) -> datetime:
    """Return the instant that a text holds; the earliest there is when it holds none."""
    if not text:
        return datetime.min.replace(tzinfo=UTC)
    parsed = datetime.fromisoformat(text)
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def format_instant(at: datetime) -> str:
    """Return an instant as text of one width, so that the order of texts is that of instants."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")
