"""Payloads of messages as columns: errors of a message are reported next to it, nothing is dropped or altered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.base.stream_source import VALUE
from ematix_flow.connect.formats.json_fast_path import read_alike
from ematix_flow.connect.types.arrow import family_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Decoded:
    """The columns of some messages, and for each message what is wrong with it, or None."""

    columns: tuple[pa.Array | pa.ChunkedArray, ...]
    wrong: Sequence[str | None]
    messages: Sequence[int] | None = None
    """The number of the message that each row comes from, where a message is not always one row."""


class Decoder(ABC):
    """Turns payloads into columns; it travels to the tasks that read the messages."""

    format: ClassVar[str]
    """As plans name it; `json_lines` has texts that the shape converts."""
    tombstones: ClassVar[bool] = True
    """A message without a payload means that its key is gone; it is no row."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the columns that a message becomes."""

    @property
    def columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns as plans know them."""
        return tuple(SourceColumn(field.name, family_of(field.type), str(field.type)) for field in self.schema)

    @property
    def metadata(self) -> tuple[str, ...]:
        """Return the columns of messages besides their payload that it reads."""
        return ()

    @property
    def changes(self) -> bool:
        """Return whether rows are changes, with columns that say what they do."""
        return False

    @property
    def replays_messages(self) -> bool:
        """Return whether every row that cannot be loaded is tried again as the message that it came in."""
        return False

    @abstractmethod
    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Return the columns of some payloads."""

    def decode_messages(self, messages: pa.Table) -> Decoded:
        """Return the columns of some messages."""
        return self.decode(messages.column(VALUE).to_pylist())


@dataclass(frozen=True, slots=True)
class JsonDecoder(Decoder):
    """Objects of JSON, whose values stay as they are written until the shape converts them."""

    names: tuple[str, ...]
    format: ClassVar[str] = "json_lines"

    @property
    def schema(self) -> pa.Schema:
        """Return every name as text."""
        import pyarrow as pa

        return pa.schema([pa.field(name, pa.string()) for name in self.names])

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Read one object from each payload."""
        read = read_alike(payloads, self.names)
        wrong: list[str | None] = [None] * len(payloads)
        for index, row in read.others.items():
            wrong[index] = row if isinstance(row, str) else None
        return Decoded(read.columns(self.names), wrong)


@dataclass(frozen=True, slots=True)
class RawDecoder(Decoder):
    """The bytes themselves, as one column."""

    name: str = "value"
    format: ClassVar[str] = "messages"
    tombstones: ClassVar[bool] = False

    @property
    def schema(self) -> pa.Schema:
        """Return the one column."""
        import pyarrow as pa

        return pa.schema([pa.field(self.name, pa.binary())])

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Return the payloads as they are."""
        import pyarrow as pa

        return Decoded((pa.array(payloads, pa.binary()),), [None] * len(payloads))
