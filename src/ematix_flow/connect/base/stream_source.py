"""What every source of a stream offers: messages at positions that can be read again; it knows no broker and remembers nothing.

How far a stream has come is stored in its targets, in the same commit as the rows. So a source only has to report what
lies ahead of a position, and to return the same messages for the same range at every read.
"""

from __future__ import annotations

import base64
import json
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ematix_flow.errors import RunError, StreamLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.columns import SourceColumn
    from ematix_flow.connect.schema_registry.base import Registry

Position: TypeAlias = dict[str, Any]
"""A position between messages, as what JSON can hold; only its source knows what it means."""

VALUE = "value"
"""Column of a message's payload."""

FIELDS = "_fields"
"""Column of the fields of rows, as they are written in the payloads, of messages that differ in nothing else."""

MESSAGE_OFFSET = "_place"
"""Column of the text by which a message is found again."""

PAYLOAD = "_flow_payload"
"""Under this name a message that could not be read keeps its payload, so that it can be tried again.

No column can be declared under it."""

LEGACY_PAYLOAD = "_payload"
"""The same in dead letters of earlier versions, which have no other column for it."""

MOST_FIELDS = 4_096
"""Values of a message from which on it is no row, and columns that rows may make: hardly a database has wider tables."""

UNREADABLE = "line"
"""What rejects name as the column where a whole message could not be read."""

SQL_FAILED = "transform: "
"""How the reason of a reject begins where the SQL of a stream failed at a row."""

LATE = "late_data: "
"""How the reason of a reject begins that came after its window was closed."""

_BASE64 = "base64:"

EARLIEST, LATEST = "earliest", "latest"

TURN = "turn"
"""Key in a position for how often an operator has moved it.

The same messages may be read again after that, so their loads must not be taken for the earlier ones.
"""

REWIND = "say where to go on with: flow stream rewind NAME --to earliest | latest | an instant | offsets as JSON."


@dataclass(frozen=True, slots=True)
class MessagePartition:
    """A part of a range that can be read without the others, by any process."""

    label: str
    size: int
    """About how many messages it has."""
    read: Callable[[], Iterator[pa.Table]]
    """Returns the payloads, the columns that were requested and the position of every message."""


class StreamSource(ABC):
    """One topic, queue, shard set or folder that a stream reads."""

    kind: ClassVar[str]
    columns: ClassVar[tuple[SourceColumn, ...]]
    """The metadata columns that a message has besides its payload."""
    line: ClassVar[str] = ""
    """Column that names the part of the source within which messages have an order; empty where all of them have one."""
    divisible: ClassVar[bool] = True
    """Whether a batch can have as many messages as are wanted; what one commit or one file adds is read together."""
    payload_format: str = "json"
    registry: Registry | None = None
    """Where the schemas of the payloads are stored, for formats that need one."""

    def __init__(self, name: str, query: str) -> None:
        self.name = name
        self.query = query
        self.instance_id = uuid.uuid4().hex
        """Distinguishes what is cached of this source in this process from others of its name."""

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return what of this machine's disk a task needs that reads messages; most sources are services."""
        return ()

    @property
    def source_id(self) -> str:
        """Return the text under which positions in this source are stored."""
        return f"{self.kind}:{self.query}"

    @property
    def full_id(self) -> str:
        """Return the id with the name of the connection: two parts of a source may read topics of one name."""
        return f"{self.source_id}@{self.name}"

    @property
    def parts(self) -> tuple[StreamSource, ...]:
        """Return the sources that this one is put together of: itself, unless a stream reads several."""
        return (self,)

    @property
    def reads_ahead(self) -> bool:
        """Return whether messages may be read while earlier ones are loaded: they stay, and reading them changes nothing."""
        return False

    def label_of(self, part: StreamSource) -> str:
        """Return the name under which a part is known among the others."""
        return part.query

    def part_position(self, position: Position, part: StreamSource) -> Position:
        """Return the position in one of the parts."""
        del part
        return position

    def read_for(self, stream: str) -> None:  # noqa: B027 - most sources need no name
        """Set the name of the stream that reads; what a source leaves in its system is named after it."""

    def with_part_position(self, position: Position, part: StreamSource, at: Position) -> Position:
        """Return a position with another one in one of the parts."""
        del part
        return position | at

    def begin(self) -> None:  # noqa: B027 - most sources keep their messages themselves
        """Prepare to be read by a stream that runs; without it a source can be queried, and changes nothing."""

    def warnings(self) -> tuple[str, ...]:
        """Return what of the source messages will not say, and an operator should know of; asked when it has begun."""
        return ()

    @abstractmethod
    def start(self, where: str) -> Position:
        """Return the position that a word, an instant or a position as JSON means."""

    def first_position(self, where: str) -> Position:
        """Return the position at which a target begins, for good: like `start`, but one behind which something is lost is refused."""
        return self.start(where)

    def seek(self, position: Position | None, where: str) -> Position:
        """Return the position that an operator means who finds a target at one; what is not mentioned stays where it is."""
        del position
        return self.start(where)

    @abstractmethod
    def ahead(self, position: Position, most: int, end_offset: Position | None = None) -> Position:
        """Return a position at most so many messages on and not behind `end_offset`, the same one without new messages.

        A position whose messages are gone is refused.
        """

    def gone_before(self, position: Position) -> str | None:
        """Return what the source has had right before a position, and has no longer; None where nothing is missing there.

        The position of an instant is that of the oldest message there is, where those of the instant are gone.
        """
        del position
        return None

    @abstractmethod
    def plan_partitions(self, begin: Position, end: Position, requested: Sequence[str]) -> tuple[MessagePartition, ...]:
        """Return the messages between two positions, with some of the columns."""

    def plan_split_partitions(
        self, begin: Position, end: Position, requested: Sequence[str]
    ) -> tuple[MessagePartition, ...]:
        """Return the same messages in partitions that may be parts of a line, each line's in their order."""
        return self.plan_partitions(begin, end, requested)

    def has_one_line(self, begin: Position, end: Position) -> bool:
        """Return whether all messages between two positions are in one line, in the order of their partitions."""
        del begin, end
        return not self.line

    @abstractmethod
    def distance(self, begin: Position, end: Position) -> int:
        """Return how many messages lie between two positions, as far as is known without reading them."""

    def earlier(self, one: Position, other: Position) -> Position:
        """Return a position with all messages behind either of two; where messages are in several lines, by line."""
        return one if self.distance(one, other) else other

    def waiting(self, position: Position) -> Mapping[str, int]:
        """Return how many messages wait behind a position, by the part of the source they are in."""
        return {self.query: self.distance(position, self.start(LATEST))}

    def details(self) -> Mapping[str, object]:
        """Return what else an operator should know of the source, such as what it retains for the stream."""
        return {}

    def commit_offsets(self, positions: Sequence[Position]) -> None:
        """Receive how far each target has come."""
        del positions

    def close(self) -> None:  # noqa: B027 - most sources hold none
        """Let go of connections."""


def as_text(position: Position) -> str:
    """Return a position in the one form in which it is stored and compared."""
    return json.dumps(position, sort_keys=True, separators=(",", ":"))


def from_text(text: str) -> Position:
    """Return the position that was stored; what is none is refused."""
    try:
        position = json.loads(text)
    except (ValueError, RecursionError):
        position = None
    if not isinstance(position, dict):
        message = f"{text[:80]} is not a position in a stream"
        raise StreamLostError(message, hint=REWIND)
    return position


def refuse_other_source(name: str, before: str, now: str) -> None:
    """Refuse to go on from a position that is one of another source."""
    if before != now:
        message = f"stream {name!r} read {before} before, and reads {now} now"
        raise StreamLostError(message, hint="give the stream another name, or say where to begin: flow stream rewind.")


def format_payload(payload: bytes) -> str:
    """Return a payload as text from which the same bytes can be restored."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return _BASE64 + base64.b64encode(payload).decode()
    return text if not text.startswith(_BASE64) else _BASE64 + base64.b64encode(payload).decode()


def format_payloads(payloads: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return payloads as texts from which the same bytes can be restored."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        texts = payloads.cast(pa.string())
    except pa.ArrowInvalid:  # one of them is no text
        texts = None
    if texts is not None and not pc.any(pc.starts_with(texts, _BASE64)).as_py():
        return texts
    return pa.array([None if one is None else format_payload(one) for one in payloads.to_pylist()], pa.string())


def payload_of(row: str) -> bytes:
    """Return the payload of a message that a reject keeps: as it came, or the row it was made into."""
    text = _stored_payload(row)
    if text is None:
        return row.encode()
    return base64.b64decode(text.removeprefix(_BASE64)) if text.startswith(_BASE64) else text.encode()


def metadata_of(row: str) -> dict[str, Any]:
    """Return what a reject that keeps a message says of it besides its payload."""
    if not keeps_payload(row):
        return {}
    return {name: value for name, value in json.loads(row).items() if name not in (PAYLOAD, LEGACY_PAYLOAD)}


def keeps_payload(row: str) -> bool:
    """Return whether a reject keeps a message as it came, and not the row it was made into."""
    return _stored_payload(row) is not None


def _stored_payload(row: str) -> str | None:
    document = json.loads(row)
    key = PAYLOAD if isinstance(document, dict) and PAYLOAD in document else LEGACY_PAYLOAD
    if not isinstance(document, dict) or key not in document or (key == LEGACY_PAYLOAD and len(document) > 1):
        return None
    return str(document[key])


def parse_timestamp(text: str) -> datetime:
    """Return the instant that a text means; one without a zone is UTC."""
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is neither earliest, latest, an instant nor a position as JSON"
        raise RunError(message, hint="an instant is written like 2026-01-31T12:00:00Z.") from None
    return timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp
