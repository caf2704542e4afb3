"""What the direct backends of all brokers share: messages become batches of rows and back, and are let go only when they were handed out."""

from __future__ import annotations

import io
import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ematix_flow.errors import DeclareError, MissingExtraError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

FORMATS = ("json", "raw_bytes")
_AT_ONCE = 500
"""Messages that are received in one go, so that a limit of bytes is not passed by much."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a batch is full, and when a read is over."""

    rows: int = 10_000
    size: int = 8 << 20
    idle_ms: int = 1_000
    """A read ends after so long without a message."""
    window_ms: int = 60_000
    """A batch is handed out after so long, full or not."""

    @classmethod
    def of(cls, rows: int | None, size: int | None, idle_ms: int | None, window_ms: int | None = None) -> Limits:
        """Return the limits that are set, and the usual ones for the others."""
        options = {"rows": rows, "size": size, "idle_ms": idle_ms, "window_ms": window_ms}
        for name, value in options.items():
            if value is not None and value < 1:
                raise DeclareError(f"a limit of {value} ({name}) leaves no room for a message")
        return cls(**{name: value for name, value in options.items() if value is not None})


class ArrowBatchIter:
    """Returns the batches of one read, once."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)


class Backend(ABC):
    """One broker, read and written without a plan; every error is a ValueError."""

    formats: ClassVar[tuple[str, ...]] = FORMATS

    def __init__(self, limits: Limits, payload_format: str = "json") -> None:
        if payload_format not in self.formats:
            message = f"payload_format {payload_format!r} is not one of {', '.join(self.formats)}"
            raise DeclareError(message)
        self._limits = limits
        self._format = payload_format

    @abstractmethod
    def ping(self) -> None:
        """Check that the broker answers and lets us in."""

    @abstractmethod
    def write_arrow_stream(self, dest: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Send every row as a message, come back when the broker has them all, and return their number."""

    @abstractmethod
    def commit_offsets(self) -> None:
        """Acknowledge everything that was handed out."""

    def read_arrow_stream(self, query: str) -> list[pa.RecordBatch]:
        """Return everything there is to read now, as batches."""
        return list(self.iter_arrow_stream(query))

    def iter_arrow_stream(self, query: str) -> ArrowBatchIter:
        """Return the batches one after the other, as they are received."""
        if not query:
            raise DeclareError("a read needs a name to read from")
        return ArrowBatchIter(self._batches(query))

    @abstractmethod
    def _receive(self, query: str, count: int, seconds: float) -> Sequence[bytes]:
        """Return at most so many messages, after so many seconds at the latest; none means that it is over."""

    @abstractmethod
    def _hand_out(self) -> None:
        """Count everything that was received as handed out."""

    @abstractmethod
    def _requeue(self) -> None:
        """Let what was received and not handed out be received again."""

    def _batches(self, query: str) -> Iterator[pa.RecordBatch]:
        while payloads := self._collected(query):
            try:
                batch = self._rows(payloads)
            except RunError:
                self._requeue()
                raise
            self._hand_out()
            yield batch

    def _rows(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        return rows_of(payloads, self._format)

    def _collected(self, query: str) -> list[bytes]:
        limits = self._limits
        payloads: list[bytes] = []
        size = 0
        end = time.monotonic() + limits.window_ms / 1000
        while len(payloads) < limits.rows and size < limits.size and time.monotonic() < end:
            count = min(limits.rows - len(payloads), _AT_ONCE)
            received = self._receive(query, count, limits.idle_ms / 1000)
            if not received:
                break
            payloads += received
            size += sum(map(len, received))
        return payloads


def rows_of(payloads: Sequence[bytes], payload_format: str) -> pa.RecordBatch:
    """Return the rows of some messages; one that cannot be read refuses them all, so that none is lost."""
    import pyarrow as pa

    if payload_format == "raw_bytes":
        return pa.record_batch([pa.array(payloads, pa.binary())], names=["value"])
    return batch_of([_object(payload) for payload in payloads])


def batch_of(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows as a batch; a field that one of them lacks is NULL."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        return pa.record_batch([pa.array([row.get(name) for row in rows]) for name in names], names=names)
    except (pa.ArrowException, OverflowError) as error:
        raise RunError(f"the messages of a batch have no common types: {error}") from None


def payloads_of(batch: pa.RecordBatch, payload_format: str) -> list[bytes]:
    """Return a message for each row: an object in which a NULL has no field, or the bytes of the column `value`."""
    if payload_format == "raw_bytes":
        if "value" not in batch.schema.names:
            raise RunError("raw bytes are sent from a column `value`, which the rows lack")
        return [value if isinstance(value, bytes) else str(value).encode() for value in batch["value"].to_pylist()]
    from ematix_flow.connect.formats.writers import writer

    sink = io.BytesIO()
    lines = writer("json_lines", sink, batch.schema, {})
    lines.write(batch)
    lines.close()
    return sink.getvalue().split(b"\n")[: batch.num_rows]


def missing(system: str, package: str, extra: str) -> MissingExtraError:
    """Return the error for a package that is not installed, with the command that installs it."""
    message = f"{system} needs the package {package!r}, which is not installed"
    return MissingExtraError(message, hint=f'pip install "ematix-flow-spark[{extra}]"')


def _object(payload: bytes) -> dict[str, Any]:
    try:
        row = json.loads(payload)
    except ValueError as error:
        raise RunError(f"a message is no JSON: {error}") from None
    if not isinstance(row, dict):
        raise RunError("a message of JSON is no object")
    return row
