"""Types of existing columns of DuckDB that no declaration spells: what carries their values; it runs nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.connect.types.existing import WHOLE, ExistingTypes
from ematix_flow.declare.table import types

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType


class DuckDBTypes(ExistingTypes):
    """Small and unsigned integers, and everything else as text that DuckDB casts."""

    _INTEGERS = ("TINYINT", "UTINYINT", "USMALLINT", "UINTEGER")
    _NESTED = re.compile(r"\]$|^(STRUCT|MAP|UNION)\(")

    def carried_as(self, native: str, given: ColumnType) -> ColumnType | None:
        """Carry numbers and points in time as such."""
        del given
        if native in self._INTEGERS:
            return types.BigInt()
        if native == "UBIGINT":
            return WHOLE
        return types.Timestamp() if native.startswith("TIMESTAMP_") else types.Text()

    def foreign(self, native: str) -> bool:
        """Return True for times of day, intervals, bits, enums, lists, structs and maps."""
        return native in ("TIME", "TIME WITH TIME ZONE", "INTERVAL", "BIT") or bool(
            native.startswith("ENUM(") or self._NESTED.search(native)
        )

    def typed(self, native: str, value: str) -> str:
        """Cast; documents become lists and structs by their own rules, and whole numbers have to be spelled as such."""
        if self._NESTED.search(native):
            document = f"CAST(CAST({value} AS JSON) AS {native})"
            return f"CASE WHEN json_valid({value}) THEN {document} ELSE CAST({value} AS {native}) END"
        if native in ("HUGEINT", "UHUGEINT"):
            spelled = f"regexp_full_match({value}, '[+-]?[0-9]+')"
            value = f"CASE WHEN {spelled} THEN {value} ELSE {value} || ' is no whole number' END"
        return f"CAST({value} AS {native})"
