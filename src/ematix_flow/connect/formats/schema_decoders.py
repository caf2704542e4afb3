"""What payloads with a schema share, whatever their format: the schema is found by the number that each message has.

Why the deserializers of confluent-kafka are not used: docs/decisions/kafka-serializers.md.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ematix_flow.connect.formats.decoders import Decoded, Decoder
from ematix_flow.connect.formats.values import UnfitError, arrow_field, fitted, plain
from ematix_flow.errors import MissingExtraError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from ematix_flow.connect.schema_registry.base import Registry, Schema

    Reader: TypeAlias = Callable[[bytes], dict[str, Any] | str]
    """Returns the values of a message, or what is wrong with it."""


@dataclass(frozen=True, slots=True)
class SchemaDecoder(Decoder, ABC):
    """Reads each message with the schema it was written with; a field that this schema lacks is NULL."""

    registry: Registry
    column_kinds: tuple[tuple[str, str], ...] = ()
    """Names of columns, with the declared kinds that they become."""
    kind: ClassVar[str]
    """What the registry calls schemas of this format."""

    @abstractmethod
    def reader(self, schema: Schema) -> Reader:
        """Return what reads messages of one schema; what cannot be read is reported, not raised."""

    @property
    def schema(self) -> pa.Schema:
        """Return the requested columns."""
        import pyarrow as pa

        return pa.schema([arrow_field(name, kind) for name, kind in self.column_kinds])

    def read(self, payload: bytes) -> dict[str, Any] | str:
        """Return the values of one message in their own types, or what is wrong with it."""
        values = self._values(payload)
        return values if isinstance(values, str) else plain(values)

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Return the requested columns of some messages."""
        import pyarrow as pa

        results = [self._decode_row(payload or b"") for payload in payloads]
        wrong = [f"({row})" if isinstance(row, str) else None for row in results]
        none = (None,) * len(self.column_kinds)
        rows = [none if isinstance(row, str) else row for row in results]
        columns = zip(*rows, strict=True) if rows else [()] * len(self.column_kinds)
        types = self.schema.types
        return Decoded(tuple(pa.array(c, t) for c, t in zip(columns, types, strict=True)), wrong)

    def _decode_row(self, payload: bytes) -> tuple[Any, ...] | str:
        values = self._values(payload)
        if isinstance(values, str):
            return values
        row = []
        for name, kind in self.column_kinds:
            try:
                row.append(fitted(values.get(name), kind))
            except UnfitError as error:
                return f"{name}: {error}"
        return tuple(row)

    def _values(self, payload: bytes) -> dict[str, Any] | str:
        frame = self.registry.unframed(payload)
        if isinstance(frame, str):
            return frame
        number, body = frame
        schema = self.registry.schema(number)
        if schema is None:
            return f"unknown schema {number}"
        if schema.kind != self.kind:
            return f"schema {number} is {schema.kind}, not {self.kind}"
        return self.reader(schema)(body)


@dataclass(frozen=True, slots=True)
class SchemaEncoder(ABC):
    """Writes rows with the newest schema of a subject; where there is none, it is inferred from the rows."""

    registry: Registry
    subject: str
    format: ClassVar[str]

    @abstractmethod
    def encode(self, rows: pa.Table) -> list[bytes]:
        """Return a message for each row."""

    def refuse_missing(self, names: Sequence[str]) -> None:
        """Stop where columns are missing in the schema; to leave them out would lose values."""
        if names:
            message = f"the newest schema of {self.subject!r} has no field {', '.join(map(repr, names))}"
            hint = (
                f"register a schema that has it at {self.registry.display_address}, or leave the column out in the SQL."
            )
            raise RunError(message, hint=hint)

    def refuse_to_register(self) -> None:
        """Stop where a schema is missing and may not be added."""
        if not self.registry.auto_register:
            message = f"schema registry {self.registry.display_address} has no subject {self.subject!r}"
            raise RunError(message, hint="register a schema, or take auto_register = false out of its connection.")

    def unfit(self, error: Exception) -> RunError:
        """Return the error for a row that its schema does not take."""
        message = (
            f"a row does not fit the newest schema of {self.subject!r}: {str(error)[:300] or type(error).__name__}"
        )
        return RunError(message, hint="convert the column in the SQL of the stream, or register a schema that fits.")


def with_values(rows: pa.Table) -> pa.Schema:
    """Return the columns that hold something; the others show no type."""
    import pyarrow as pa

    return pa.schema([f for f in rows.schema if rows.column(f.name).null_count < rows.num_rows])


def require_module(module: str, extra: str) -> Any:
    """Return a package that comes with an extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f"payloads of {extra} need the package {error.name!r}, which is not installed"
        raise MissingExtraError(message, hint=f'pip install "ematix-flow-spark[{extra}]"') from None
