"""The branches that loads of Iceberg tables are written to: how they are called, and those that dead loads left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ematix_flow.connect.types.identifiers import backticked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base.lake_engine import LakeEngine

BRANCH = "flow_"
"""How they begin; the name of the change follows."""

PROPERTY = "ematix_flow.change"
"""Names a load in the summary of its snapshot and among the properties of the table."""

_NAME = re.compile(f"{BRANCH}[0-9a-f]{{32}}")


def branches_of(engine: LakeEngine, table: str) -> list[str]:
    """Return the branches of loads that a table has; a process that holds its lock knows that no load uses them."""
    rows = engine.query(f"SELECT name FROM {table}.refs WHERE type = 'BRANCH'")
    return [name for (name,) in rows if is_branch(name)]


def is_branch(name: str) -> bool:
    """Return whether a branch is one that a load was written to."""
    return _NAME.fullmatch(name) is not None


def drop_branches(engine: LakeEngine, table: str, names: Sequence[str]) -> None:
    """Remove branches: their snapshots would never go."""
    for name in names:
        engine.run(f"ALTER TABLE {table} DROP BRANCH IF EXISTS {backticked(name)}", {})
