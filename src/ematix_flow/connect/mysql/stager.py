"""Staging in MySQL: the rows of one task attempt as text, through one LOAD DATA and one transaction.

Text is built by Arrow a column at a time. LOAD DATA LOCAL turns errors into warnings, so that a warning is an error
here, and so is a row that was not stored. Where the server refuses LOCAL, the same text goes in as INSERT statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from ematix_flow.connect.base.stage import ATTEMPT, Stager
from ematix_flow.connect.mysql.session import connect
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.connect.types.identifiers import backticked as quoted
from ematix_flow.errors import RunError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.connect.mysql.protocol import Wire
    from ematix_flow.connect.mysql.session import MySQLSettings

ROW = "_row"
"""Column that numbers the rows of an attempt; with the attempt it is the key of staging."""
LOCAL_REFUSED = (1148, 3948, 4166)
INSERT_BYTES = 1 << 20

_LOAD_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"))
_LITERAL_ESCAPES = (("\\", "\\\\"), ("'", "''"))
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), "<u2")


def reject_name(spec: StageSpec) -> str:
    """Return the name of the table of rejected rows."""
    return f"{spec.name}_r"


def own_column(spec: StageSpec, name: str) -> str:
    """Return a name for one of our staging columns that no declared column has; MySQL's names ignore case."""
    names = {column.name.lower() for column in spec.columns}
    while name.lower() in names:
        name = f"_{name}"
    return name


class MySQLStager(Stager):
    """Writes one attempt; its connection is opened by the first row."""

    def __init__(self, settings: MySQLSettings, name: str, spec: StageSpec, attempt: int) -> None:
        self._settings, self._name = settings, name
        own = (own_column(spec, ATTEMPT), own_column(spec, ROW))
        schema = pa.ipc.read_schema(pa.py_buffer(spec.schema))
        uuids = frozenset(column.name for column in spec.columns if column.type.kind == "uuid")
        self._rows = _StagingTable(spec.name, schema, attempt, own, uuids)
        self._rejects = _StagingTable(reject_name(spec), REJECTS, attempt, (ATTEMPT, ROW))
        self._wire: Wire | None = None
        self._loading: _StagingTable | None = None
        self._local = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Send rows; the statement stays open for the next ones, and the server stores them meanwhile."""
        self._put(self._rows, batch)

    def reject(self, batch: pa.RecordBatch) -> None:
        """Send rejected rows."""
        self._put(self._rejects, batch)

    def finish(self) -> tuple[str, str]:
        """Commit the attempt."""
        if self._wire is not None:
            self._end_load()
        failpoint("stage.before_task_commit")
        if self._wire is not None:
            self._wire.commit()
            self._wire.close()
            self._wire = None
        return "", ""

    def abandon(self) -> None:
        """Break the connection, which rolls the attempt back."""
        if self._wire is not None:
            self._wire.break_off()
            self._wire = None

    def _put(self, table: _StagingTable, batch: pa.RecordBatch) -> None:
        if self._wire is None:
            self._wire = connect(self._settings, self._name, load=True)
            self._wire.query("START TRANSACTION")
        if self._loading is not table:
            self._end_load()
            self._start_load(table)
        if self._local:
            self._wire.send(memoryview(table.lines(batch)))
        else:
            for statement in table.inserts(batch):
                cast("Any", self._wire).query(statement)
        table.sent += batch.num_rows

    def _start_load(self, table: _StagingTable) -> None:
        assert self._wire is not None  # noqa: S101 - opened by the caller
        if self._local:
            try:
                self._wire.start_load(table.load_statement())
                self._loading = table
            except pymysql.Error as error:
                if error.args[0] not in LOCAL_REFUSED:
                    raise
                self._local = False

    def _end_load(self) -> None:
        table, wire = self._loading, self._wire
        if table is None or wire is None:
            return
        self._loading = None
        stored, warnings = wire.end_load()
        if warnings or stored != table.sent - table.stored:
            details = "; ".join(str(row[2]) for row in wire.rows("SHOW WARNINGS LIMIT 3"))
            message = f"staging {table.name} could not store the rows as they are: {details or 'some are missing'}"
            raise RunError(message, hint="nothing was loaded.")
        table.stored = table.sent


class _StagingTable:
    """A staging table as the target of one attempt's rows."""

    def __init__(
        self, name: str, schema: pa.Schema, attempt: int, own: tuple[str, str], uuids: frozenset[str] = frozenset()
    ) -> None:
        self.name = name
        self.sent = self.stored = 0
        self._schema = schema
        self._attempt = attempt
        self._own = own
        self._uuids = uuids

    def load_statement(self) -> str:
        """Return the LOAD DATA statement; binary columns come as hexadecimal digits."""
        columns = [f"@b{i}" if _is_binary(f.type) else quoted(f.name) for i, f in enumerate(self._schema)]
        sets = [f"{quoted(f.name)} = UNHEX(@b{i})" for i, f in enumerate(self._schema) if _is_binary(f.type)]
        sets.insert(0, f"{quoted(self._own[0])} = {self._attempt}")
        return (
            f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {quoted(self.name)} CHARACTER SET utf8mb4 "
            "FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' "
            f"({', '.join([*columns, quoted(self._own[1])])}) SET {', '.join(sets)}"
        )

    def lines(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Return the rows as lines of LOAD DATA."""
        fields = [pc.fill_null(_escaped(array, _LOAD_ESCAPES), "\\N") for array in self._texts(batch)]
        ends = pc.binary_join_element_wise(self._numbers(batch.num_rows), "", "\n")
        return _content(pc.binary_join_element_wise(*fields, ends, "\t"))

    def inserts(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Return the rows as INSERT statements of a size that every server takes."""
        attempt, row = self._own
        names = ", ".join(quoted(name) for name in (*self._schema.names, row, attempt))
        head = f"INSERT INTO {quoted(self.name)} ({names}) VALUES ".encode()
        kinds = [_is_binary(field.type) for field in self._schema]
        values = [_literal(array, binary=kind) for array, kind in zip(self._texts(batch), kinds, strict=True)]
        lines = pc.binary_join_element_wise(*values, self._numbers(batch.num_rows), ",")
        rows = pc.binary_join_element_wise("(", lines, f",{self._attempt}),", "")
        text, ends = _content(rows).to_pybytes(), np.cumsum(pc.binary_length(rows).to_numpy())
        start = 0
        while start < len(text):
            first, beyond = np.searchsorted(ends, (start, start + INSERT_BYTES), "right")
            stop = int(ends[max(first, beyond - 1)])
            yield head + text[start : stop - 1]
            start = stop

    def _texts(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return each column as text; a UUID has one spelling, since MySQL keeps it as text."""
        columns = zip(self._schema.names, (texts(array) for array in batch.columns), strict=True)
        return [pc.ascii_lower(array) if name in self._uuids else array for name, array in columns]

    def _numbers(self, count: int) -> pa.Array:
        return pc.cast(pa.array(np.arange(self.sent, self.sent + count)), pa.string())


def texts(array: pa.Array) -> pa.Array:
    """Return values as the text that MySQL reads back exactly; bytes as hexadecimal digits."""
    kind = array.type
    if pa.types.is_string(kind):
        return array
    if _is_binary(kind):
        return _hexadecimal(array)
    if pa.types.is_boolean(kind):
        array = pc.cast(array, pa.int8())
    elif pa.types.is_float32(kind):
        array = pc.cast(array, pa.float64())
    elif pa.types.is_timestamp(kind) and kind.tz:
        array = pc.cast(array, pa.timestamp(kind.unit))
    return pc.cast(array, pa.string())


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind))


def _hexadecimal(array: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(2 * lengths, out=offsets[1:])
    data = np.frombuffer(_content(pc.fill_null(array, b"")), np.uint8)
    valid = pc.is_valid(array).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(pa.string(), len(array), [valid, pa.py_buffer(offsets), pa.py_buffer(_HEX[data])])


def _escaped(array: pa.Array, escapes: tuple[tuple[str, str], ...]) -> pa.Array:
    content = _content(array).to_pybytes()
    for character, escape in escapes:
        if character.encode() in content:
            array = pc.replace_substring(array, character, escape)
    return array


def _literal(array: pa.Array, *, binary: bool) -> pa.Array:
    """Return texts as SQL literals; MySQL reads numbers and dates out of quoted text, strictly."""
    opening = "X'" if binary else "'"
    literal = pc.binary_join_element_wise(opening, _escaped(array, _LITERAL_ESCAPES), "'", "")
    return pc.fill_null(literal, "NULL")


def _content(array: pa.Array) -> pa.Buffer:
    """Return the bytes of all values, one after the other."""
    _, offsets, data = array.buffers()
    if data is None:
        return pa.py_buffer(b"")
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
