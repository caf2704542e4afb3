"""Change events as rows of a log: what each change did, when, and in which order, next to the values it carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.changes.change import OPERATIONS, SKIP
from ematix_flow.connect.changes.decoder import ChangeDecoder
from ematix_flow.connect.formats.decoders import Decoded
from ematix_flow.connect.types.arrow import family_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

LOG_COLUMNS = ("_cdc_op", "_cdc_order", "_cdc_at")
"""The columns of a log besides those of the changed table: create, read, update, delete or truncate; order; time."""

_OPERATION_NAMES = {code: name for name, code in OPERATIONS.items()}


@dataclass(frozen=True, slots=True)
class ChangeLogDecoder(ChangeDecoder):
    """Change events of one envelope as rows."""

    @property
    def changes(self) -> bool:
        """Return False: the rows are added as they are."""
        return False

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the table, and those of a log."""
        import pyarrow as pa

        types = (pa.string(), pa.string(), pa.timestamp("us", tz="UTC"))
        more = [pa.field(name, kind) for name, kind in zip(LOG_COLUMNS, types, strict=True)]
        return pa.schema([*self.table_fields(), *more])

    @property
    def columns(self) -> tuple[SourceColumn, ...]:
        """Return all columns."""
        return tuple(SourceColumn(one.name, family_of(one.type), str(one.type)) for one in self.schema)

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Return the changes of payloads whose messages have no place."""
        return self._as_log(ChangeDecoder.decode(self, payloads))

    def decode_messages(self, messages: pa.Table) -> Decoded:
        """Return the changes of messages; what changes no row is no row of a log."""
        return self._as_log(ChangeDecoder.decode_messages(self, messages))

    def _as_log(self, decoded: Decoded) -> Decoded:
        import pyarrow as pa

        codes = decoded.columns[len(self.table.columns)].to_pylist()
        chosen = [i for i, code in enumerate(codes) if code != SKIP or decoded.wrong[i] is not None]
        rows = pa.array(chosen, pa.int64())
        *own, _, order, at, _, _ = (column.take(rows) for column in decoded.columns)
        names = pa.array([_OPERATION_NAMES.get(codes[i]) for i in chosen], pa.string())
        messages = decoded.messages or ()
        return Decoded((*own, names, order, at), [decoded.wrong[i] for i in chosen], [messages[i] for i in chosen])
