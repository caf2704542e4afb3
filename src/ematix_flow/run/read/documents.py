"""Columns of Spark whose types no system has, as JSON or text; it reads no row and knows no frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql import types as st

DOCUMENT = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""How nested values are written as JSON: with every NULL and to the microsecond."""


def is_loadable(kind: st.DataType) -> bool:
    """Return whether values of a type are loaded as they are."""
    from pyspark.sql import types as st

    return not (
        _is_nested(kind) or isinstance(kind, st.VariantType | st.YearMonthIntervalType | st.CalendarIntervalType)
    )


def loadable_column(column: Column, kind: st.DataType) -> Column:
    """Return a column of a type that is not loadable: nested values and variants as JSON, intervals of months as text."""
    from pyspark.sql import types as st

    return json_of(column, kind) if _is_nested(kind) or isinstance(kind, st.VariantType) else column.cast("string")


def json_of(column: Column, kind: st.DataType) -> Column:
    """Return a column of nested values or variants as JSON."""
    from pyspark.sql import functions as sf

    written = _with_text_keys(kind)
    return sf.to_json(column if written == kind else column.cast(written), DOCUMENT)


def _is_nested(kind: st.DataType) -> bool:
    from pyspark.sql import types as st

    return isinstance(kind, st.ArrayType | st.StructType | st.MapType)


def _with_text_keys(kind: st.DataType) -> st.DataType:
    """Return a type whose maps have no dates and timestamps as keys: Spark would write days or microseconds since 1970."""
    from pyspark.sql import types as st

    if isinstance(kind, st.ArrayType):
        return st.ArrayType(_with_text_keys(kind.elementType), kind.containsNull)
    if isinstance(kind, st.MapType):
        is_counted = isinstance(kind.keyType, st.DateType | st.TimestampType | st.TimestampNTZType)
        key = st.StringType() if is_counted else kind.keyType
        return st.MapType(key, _with_text_keys(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, st.StructType):
        return st.StructType([st.StructField(f.name, _with_text_keys(f.dataType), f.nullable) for f in kind.fields])
    return kind
