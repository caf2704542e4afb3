"""Types of existing columns of DuckDB that no declaration spells: what carries their values; it runs nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.connect.types.existing import WHOLE, ExistingTypes, is_whole
from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType


class DuckDBTypes(ExistingTypes):
    """Small and unsigned integers, and everything else as text that DuckDB casts."""

    _INTEGERS = ("TINYINT", "UTINYINT", "USMALLINT", "UINTEGER")
    _HUGE = ("HUGEINT", "UHUGEINT")
    _ROUNDED = ("TIMESTAMP_S", "TIMESTAMP_MS")
    _NESTED = re.compile(r"\]$|^(STRUCT|MAP|UNION)\(")

    def carried_as(self, native: str, incoming: ColumnType) -> ColumnType | None:
        """Carry numbers and points in time as such."""
        del incoming
        if native in self._INTEGERS:
            return types.BigInt()
        if native == "UBIGINT":
            return WHOLE
        return types.Timestamp() if native.startswith("TIMESTAMP_") else types.Text()

    def takes(self, native: str, declared: ColumnType) -> bool:
        """Return True for Text over times of day, intervals, bits, enums, lists, structs and maps, and for numbers and points in time."""
        if native in (*self._INTEGERS, "UBIGINT", *self._HUGE):
            return is_whole(declared)
        if native in self._ROUNDED or native == "TIMESTAMP_NS":
            return declared.kind == "timestamp"
        spoken = native in ("TIME", "TIME WITH TIME ZONE", "INTERVAL", "BIT") or native.startswith("ENUM(")
        return declared.kind == "text" and bool(spoken or self._NESTED.search(native))

    def typed(self, native: str, value: str) -> str:
        """Cast; documents become lists and structs by their own rules, whole numbers have to be spelled as such, and nothing is cut."""
        if self._NESTED.search(native):
            document = f"CAST(CAST({value} AS JSON) AS {native})"
            return f"CASE WHEN json_valid({value}) THEN {document} ELSE CAST({value} AS {native}) END"
        if native in self._HUGE:
            digits = f"CAST({value} AS VARCHAR)"
            spelled = f"regexp_full_match({digits}, '[+-]?[0-9]+')"
            value = f"CASE WHEN {spelled} THEN {digits} ELSE {digits} || ' is no whole number' END"
        if native in self._ROUNDED:
            more = f"CAST(CAST({value} AS VARCHAR) || ' has more digits' AS TIMESTAMP)"
            same = f"{value} IS NULL OR CAST(CAST({value} AS {native}) AS TIMESTAMP) = {value}"
            value = f"CASE WHEN {same} THEN {value} ELSE {more} END"
        return f"CAST({value} AS {native})"
