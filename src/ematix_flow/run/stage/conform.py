"""Fits Arrow batches to the staged schema; a row that does not fit is never altered, it becomes a reject."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.base.stage import NULL_REASON, UNREAD
from ematix_flow.connect.base.stream_source import PAYLOAD
from ematix_flow.connect.formats.writers import as_text
from ematix_flow.connect.types.arrow import REJECTS, arrow_type, with_exact_text
from ematix_flow.connect.types.reject_rows import as_shaped, json_row
from ematix_flow.plan.columns import FAILED, OURS, POSITION, RAW
from ematix_flow.plan.shape.row_reasons import reason_of
from ematix_flow.run.stage.raw_json import python_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.capabilities import TimeRange
    from ematix_flow.connect.base.stage import StageColumn


@dataclass(frozen=True, slots=True)
class Rules:
    """What a staged row must satisfy."""

    columns: tuple[StageColumn, ...]
    required: frozenset[str]
    """Columns that may not be NULL."""
    forbidden: tuple[str, ...] = ()
    """Values that the target cannot store: nul, nan, infinity, far_instant."""
    times: TimeRange | None = None
    """Dates and times that the target can store, where it cannot store all of them."""
    filled: frozenset[str] = frozenset()
    """Columns of text that divide a table whose target takes some texts for NULL there."""
    alters: bool = False
    """True when a row is no row of the source any more, so that a reject of it has to say so."""
    given: bool = False
    """True when the rows of the source are in the shape of the target already."""


def conform(batch: pa.RecordBatch, rules: Rules) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the rows that fit, in the staged types, and the others as rejects."""
    reasons: dict[int, tuple[str, str]] = {}
    _marked(batch, reasons)
    arrays = [_fit(batch, column, rules, reasons) for column in rules.columns]
    schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in rules.columns])
    fitted = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if not reasons:
        return fitted, None
    bad = sorted(reasons)
    good = pa.array([row not in reasons for row in range(batch.num_rows)], pa.bool_())
    return fitted.filter(good), _rejects(batch, bad, reasons, rules)


def _marked(batch: pa.RecordBatch, reasons: dict[int, tuple[str, str]]) -> None:
    index = batch.schema.get_field_index(FAILED)
    if index < 0 or batch.column(index).null_count == batch.num_rows:
        return
    sources = batch.schema.get_field_index(RAW)
    for row, text in enumerate(batch.column(index).to_pylist()):
        if text is not None:
            reasons[row] = reason_of(text, None if sources < 0 else batch.column(sources)[row].as_py())


def _fit(batch: pa.RecordBatch, column: StageColumn, rules: Rules, reasons: dict[int, tuple[str, str]]) -> pa.Array:
    array = batch.column(column.name)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    target_type = arrow_type(column.type)
    fitted = array if array.type == target_type else _cast(array, target_type, column, reasons)
    if column.name in rules.required and fitted.null_count:
        for row in _rows(pc.is_null(fitted)):
            reasons.setdefault(row, (column.name, NULL_REASON))
    _check_text(fitted, column, rules, reasons)
    if column.name in rules.filled:
        _check_folder(fitted, column, reasons)
    if pa.types.is_floating(target_type):
        _check_float(fitted, column, rules, reasons)
    if rules.times is not None and pa.types.is_temporal(target_type):
        _check_time(fitted, column, rules.times, reasons)
    if "far_instant" in rules.forbidden and pa.types.is_timestamp(target_type):
        _check_instant(fitted, column, reasons)
    return fitted


FOLDERS_OF_NULL = {"": "empty", "__HIVE_DEFAULT_PARTITION__": "__HIVE_DEFAULT_PARTITION__"}
"""Texts that Spark takes for NULL where they divide a table, and the words for them."""


def _check_folder(array: pa.Array, column: StageColumn, reasons: dict[int, tuple[str, str]]) -> None:
    for text, meaning in FOLDERS_OF_NULL.items():
        for row in _rows(pc.fill_null(pc.equal(array, text), fill_value=False)):
            reason = f"is {meaning}, which the target keeps as NULL where it divides a table"
            reasons.setdefault(row, (column.name, reason))


def _check_time(array: pa.Array, column: StageColumn, times: TimeRange, reasons: dict[int, tuple[str, str]]) -> None:
    is_date = pa.types.is_date(array.type)
    counted = array.view(pa.int32()) if is_date else array.view(pa.int64())
    (low, high), years = (times.days, times.of_dates) if is_date else (times.micros, times.of_instants)
    ends = pc.min_max(counted).as_py()
    if ends["min"] is None or (low <= ends["min"] and ends["max"] <= high):
        return
    outside = pc.fill_null(pc.or_(pc.less(counted, low), pc.greater(counted, high)), fill_value=False)
    for row in _rows(outside):
        reasons.setdefault(row, (column.name, f"is not between the years {years}, and the target cannot store it"))


NANOSECOND_SECONDS = (1 << 63) // 10**9 - 1
"""Seconds around 1970 that 64 bits of nanoseconds can represent."""


def _check_instant(array: pa.Array, column: StageColumn, reasons: dict[int, tuple[str, str]]) -> None:
    """Refuse what ORC's library writes wrongly or cannot read again."""
    micros = pc.cast(array, pa.int64())
    whole = pc.multiply(pc.divide(micros, 1_000_000), 1_000_000)
    early = pc.and_(pc.less(micros, 0), pc.not_equal(micros, whole))
    far = pc.greater(pc.abs(pc.divide(micros, 1_000_000)), NANOSECOND_SECONDS)
    for reason, is_bad in (
        ("is before 1970 and has a fraction of a second, which the target cannot store", early),
        ("is not between 1678 and 2262, and the target cannot store it", far),
    ):
        for row in _rows(pc.fill_null(is_bad, fill_value=False)):
            reasons.setdefault(row, (column.name, reason))


def _check_float(array: pa.Array, column: StageColumn, rules: Rules, reasons: dict[int, tuple[str, str]]) -> None:
    for kind, is_special in (("nan", pc.is_nan), ("infinity", pc.is_inf)):
        if kind in rules.forbidden:
            for row in _rows(pc.fill_null(is_special(array), fill_value=False)):
                reasons.setdefault(row, (column.name, f"is {kind}, which the target cannot store"))


def _check_text(array: pa.Array, column: StageColumn, rules: Rules, reasons: dict[int, tuple[str, str]]) -> None:
    limit = getattr(column.type, "length", None)
    if limit is not None and len(array) and (pc.max(pc.utf8_length(array)).as_py() or 0) > limit:
        lengths = pc.utf8_length(array)
        for row in _rows(pc.fill_null(pc.greater(lengths, limit), fill_value=False)):
            reasons.setdefault(row, (column.name, f"is longer than {limit} characters ({lengths[row]})"))
    if "nul" in rules.forbidden and pa.types.is_string(array.type) and len(array):
        data = array.buffers()[2]
        if data is not None and b"\0" in data.to_pybytes():
            for row in _rows(pc.fill_null(pc.match_substring(array, "\0"), fill_value=False)):
                reasons.setdefault(row, (column.name, "contains a NUL character, which the target cannot store"))
    if column.type.kind == "uuid":
        _check_uuid(array, column, reasons)


def _check_uuid(array: pa.Array, column: StageColumn, reasons: dict[int, tuple[str, str]]) -> None:
    pattern = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
    good = pc.match_substring_regex(array, pattern)
    for row in _rows(pc.fill_null(pc.invert(good), fill_value=False)):
        reasons.setdefault(row, (column.name, "is not a UUID"))


def _cast(
    array: pa.Array, target_type: pa.DataType, column: StageColumn, reasons: dict[int, tuple[str, str]]
) -> pa.Array:
    try:
        return _cast_all(array, target_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _cast_each(array, target_type, column, reasons)


def _cast_all(array: pa.Array, target_type: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(target_type) and not pa.types.is_string(array.type):
        return _to_decimal(array, target_type)
    if pa.types.is_decimal(target_type):
        return _to_decimal(pc.cast(array, pa.decimal256(_WIDEST, 38)), target_type)
    if pa.types.is_timestamp(target_type) and pa.types.is_timestamp(array.type) and target_type.tz != array.type.tz:
        # A naive value counts as UTC, an instant becomes its UTC wall time: the digits stay.
        moved = pc.cast(array, pa.timestamp(array.type.unit, tz=target_type.tz)) if array.type.tz else array
        return pc.cast(
            pc.cast(moved, pa.timestamp("us"), safe=False) if not target_type.tz else moved, target_type, safe=False
        )
    if pa.types.is_timestamp(target_type) and pa.types.is_timestamp(array.type):
        return pc.cast(array, target_type, safe=False)
    if pa.types.is_string(target_type) and (pa.types.is_fixed_size_binary(array.type) and array.type.byte_width == 16):  # noqa: PLR2004
        import uuid

        return pa.array([None if v is None else str(uuid.UUID(bytes=v)) for v in array.to_pylist()], pa.string())
    if pa.types.is_floating(target_type) and not pa.types.is_string(array.type):
        converted = pc.cast(with_exact_text(array), target_type, safe=False)
        if target_type != array.type and pc.sum(pc.is_inf(converted)).as_py() != pc.sum(pc.is_inf(array)).as_py():
            raise pa.ArrowInvalid("too large")
        return converted
    if pa.types.is_string(target_type) and pa.types.is_decimal(array.type):
        return as_text(array)
    return pc.cast(array, target_type)


_WIDEST = 76
"""The digits of the widest decimals."""


def _to_decimal(array: pa.Array, target_type: pa.DataType) -> pa.Array:
    if pa.types.is_floating(array.type):
        array = pc.cast(pc.cast(array, pa.string()), pa.decimal256(_WIDEST, 38))
    elif pa.types.is_integer(array.type):
        array = pc.cast(array, pa.decimal128(38, 0))
    return pc.cast(_rounded(array, target_type.scale), target_type)


_EXACT_DIGITS = 9
"""How many digits Arrow removes at once without a fault: more are a division by two words, whose quotients can be wrong."""


def _rounded(array: pa.Array, scale: int) -> pa.Array:
    """Return decimals rounded to so many digits, halves away from zero: what that means is said by the first digit that goes."""
    while array.type.scale > scale + 1:
        shorter = max(scale + 1, array.type.scale - _EXACT_DIGITS)
        array = pc.cast(array, pa.decimal256(_WIDEST, shorter), safe=False)
    if array.type.scale == scale + 1:
        return pc.round(array, ndigits=scale, round_mode="half_towards_infinity")
    return array


def _cast_each(
    array: pa.Array, target_type: pa.DataType, column: StageColumn, reasons: dict[int, tuple[str, str]]
) -> pa.Array:
    chunks = []
    for row in range(len(array)):
        one = array.slice(row, 1)
        try:
            chunks.append(_cast_all(one, target_type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            value_text = str(one[0].as_py())[:80]
            reasons.setdefault(row, (column.name, f"{value_text!r} does not fit {column.type}"))
            chunks.append(pa.nulls(1, target_type))
    return pa.concat_arrays(chunks) if chunks else pa.array([], target_type)


def _rows(mask: pa.Array) -> Sequence[int]:
    return pc.indices_nonzero(mask).to_pylist() if isinstance(mask, pa.Array) else []


def _rejects(
    batch: pa.RecordBatch, bad: list[int], reasons: dict[int, tuple[str, str]], rules: Rules
) -> pa.RecordBatch:
    chosen = batch.take(pa.array(bad, pa.int64()))
    index = batch.schema.get_field_index(POSITION)
    positions = chosen.column(index).to_pylist() if index >= 0 else [None] * len(bad)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([reasons[row][1] for row in bad], pa.string()),
            pa.array([reasons[row][0] for row in bad], pa.string()),
            pa.array([None if p is None else str(p) for p in positions], pa.string()),
            pa.array(_reject_rows(chosen, rules), pa.string()),
        ],
        schema=REJECTS,
    )


def _reject_rows(chosen: pa.RecordBatch, rules: Rules) -> list[str]:
    """Return the rows of the source as JSON, where they came along, and otherwise the rows as they are."""
    names = [name for name in chosen.schema.names if name not in (FAILED, RAW, UNREAD, *OURS)]
    rows = zip(*(python_values(chosen.column(name)) for name in names), strict=True)
    sources, unread = (_texts(chosen, name) for name in (RAW, UNREAD))
    written = []
    for row, source, text in zip(rows, sources, unread, strict=True):
        if source:
            written.append(as_shaped(source) if rules.given else source)
            continue
        values = dict(zip(names, row, strict=True)) | json.loads(text or "{}")
        written.append(as_shaped(json_row(values)) if rules.alters and PAYLOAD not in values else json_row(values))
    return written


def _texts(chosen: pa.RecordBatch, name: str) -> list[str | None]:
    index = chosen.schema.get_field_index(name)
    return chosen.column(index).to_pylist() if index >= 0 else [None] * chosen.num_rows
