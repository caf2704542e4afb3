"""Every database that a load can go into, as one table: adding a system here puts it through all contract tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection import connection_from_fields

if TYPE_CHECKING:
    from ematix_flow.connect.base import Database
    from ematix_flow.declare.connection import Connection


@dataclass(frozen=True)
class System:
    """A kind of database, the fixture that gives an empty one, and what it cannot hold."""

    kind: str
    fixture: str
    field: str = "path"
    server: bool = False
    infinity: bool = True
    nul: bool = True
    schemas_outlive: bool = False
    """True where a schema is a database of its own, which outlives the one of the test."""

    def connect(self, request: pytest.FixtureRequest) -> Connection:
        """Give the connection to this test's empty database of this kind."""
        place = str(request.getfixturevalue(self.fixture))
        return connection_from_fields("target", {"kind": self.kind, self.field: place})

    def open(self, request: pytest.FixtureRequest) -> Database:
        """Give this test's empty database of this kind."""
        return open_database(self.connect(request))


SYSTEMS = (
    System("duckdb", "duckdb_path"),
    System("sqlite", "sqlite_path"),
    System("postgres", "postgres_url", field="url", server=True, nul=False),
    System("mysql", "mysql_url", field="url", server=True, infinity=False, schemas_outlive=True),
)

SCHEMAS = ("analytics", "main", "hist")
"""Schemas that contract tests may use."""

PARAMETERS = [pytest.param(s, id=s.kind, marks=[pytest.mark.service] if s.server else []) for s in SYSTEMS]


def only(*kinds: str) -> pytest.MarkDecorator:
    """Let a test run on these systems: the others cannot hold what it is about."""
    chosen = [parameter for parameter in PARAMETERS if parameter.id in kinds]
    return pytest.mark.parametrize("system", chosen, indirect=True)
