"""The columns of frames of any kind, as the planner knows columns; no row is read."""

from __future__ import annotations

from typing import Any

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.types.frames import is_spark_frame, loaded_schema


def frame_columns(frame: Any) -> tuple[SourceColumn, ...]:
    """Return the columns of a frame of any kind."""
    if is_spark_frame(frame):
        return tuple(SourceColumn(f.name, _spark_family(f.dataType.simpleString())) for f in frame.schema.fields)
    from ematix_flow.connect.types.arrow import family_of

    return tuple(SourceColumn(f.name, family_of(f.type), str(f.type)) for f in loaded_schema(frame))


def _spark_family(name: str) -> str:
    families = {
        "string": "text",
        "boolean": "boolean",
        "date": "date",
        "timestamp": "timestamp_tz",
        "timestamp_ntz": "timestamp",
        "binary": "binary",
        "float": "float",
        "double": "float",
    }
    if name.startswith("decimal"):
        return "decimal"
    if name.startswith(("array<", "struct<", "map<", "variant")):
        return "json"
    return "integer" if name in ("tinyint", "smallint", "int", "bigint") else families.get(name, "other")
