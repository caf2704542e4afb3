"""Types of values in the state of a stream: those of earlier rows and of later ones together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ematix_flow.run.read.merged_types import merged

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def schema_of(text: str) -> StructType:
    """Return the types that Spark has written as a text."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text, object_hook=_nullable))


def merged_schema(one: str | None, other: str) -> str:
    """Return the types in which values of both schemas can be read, as Spark writes them; there may be no first one."""
    if one is None or one == other:
        return other
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    before, now = schema_of(one), schema_of(other)
    kinds = merged(*({field.name: field.type for field in to_arrow_schema(schema)} for schema in (before, now)))
    both = pa.schema([pa.field(name, kind) for name, kind in kinds.items()])
    known = {field.name: field for field in before.fields}
    # Types that both have stay as Spark has them.
    same = {field.name: field for field in now.fields if known.get(field.name) == field}
    wider = from_arrow_schema(both, prefer_timestamp_ntz=True)
    return StructType([same.get(field.name, field) for field in wider.fields]).json()


def is_typed(kind: DataType) -> bool:
    """Return whether values have shown a type: of a column, or of the elements of its lists."""
    from pyspark.sql.types import ArrayType, NullType

    inside = kind.elementType if isinstance(kind, ArrayType) else kind
    return not isinstance(inside, NullType)


def readable(schema: StructType) -> StructType:
    """Return types in which Spark can read values: text where no value has shown a type."""
    from pyspark.sql.types import StructType

    fields = json.loads(schema.json(), object_hook=_with_text)
    return StructType.fromJson(fields)


def _nullable(one: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema that says of no value that it is there; Arrow knows no list of nothing otherwise."""
    return {
        name: True if name in ("nullable", "containsNull", "valueContainsNull") else kind for name, kind in one.items()
    }


def _with_text(one: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a schema with text instead of types that are not known."""
    return {
        name: "string" if name in ("type", "elementType", "valueType") and kind == "void" else kind
        for name, kind in one.items()
    }
