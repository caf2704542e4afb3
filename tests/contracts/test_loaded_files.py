"""Files that a load brings are remembered with it, on every system: none is read twice, and an empty load is no error."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.commit.ledger import Ledger, transaction
from ematix_flow.connect.registry import target_of
from ematix_flow.plan.steps import FileChoice
from ematix_flow.records import FileScope, SourceFile, Token
from tests.contracts.systems import FILES, PARAMETERS, parameter
from tests.engine.inboxes import Inbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.session import Session
    from tests.contracts.systems import System

pytestmark = pytest.mark.slow

everywhere = pytest.mark.parametrize("system", [*PARAMETERS, *map(parameter, FILES)], indirect=True)
SCOPE = FileScope("loads", "main.items")
TOKEN = Token("loads", "target:main.items", "slot")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "in/" + "deep ünd wide/" * 70


@pytest.fixture
def target(system: System, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of an empty target of each system in turn."""
    return system.fields(request)


@pytest.fixture
def inbox(target: dict[str, Any], tmp_path: Path) -> Inbox:
    """Return an inbox that is loaded into each system in turn."""
    url = str(target.get("url", ""))
    schema = url.rsplit("/", 1)[1] if target["kind"] == "mysql" else "main"
    return Inbox(str(tmp_path), target, str(tmp_path / "log.db"), schema=schema)


@pytest.fixture
def open_ledger(inbox: Inbox) -> Iterator[tuple[Ledger, Session]]:
    """Return the ledger of each system in turn, with a session."""
    database: Database = target_of(inbox.connection)
    ledger = Ledger(database)
    with closing(database.session()) as session:
        ledger.ensure(session)
        yield ledger, session


def files(*keys: str, etag: str = "1") -> tuple[SourceFile, ...]:
    return tuple(SourceFile(key, etag, 1 << 40) for key in keys)


@everywhere
def test_files_are_loaded_once_and_an_empty_load_is_committed(inbox: Inbox) -> None:
    inbox.put("b.csv", 1, 2)
    first, again = inbox.run(), inbox.run()
    assert (first["rows_inserted"], again["rows_inserted"], again["files_known"]) == (2, 0, 1)
    inbox.put("a.csv", 3)
    inbox.put("b.csv", 4)
    assert inbox.run(on_replaced="load")["files_loaded"] == 2
    assert inbox.run()["files_known"] == 2
    assert inbox.ids() == [1, 2, 3, 4]


@pytest.mark.parametrize("options", [{"mode": "merge"}, {"mode": "scd2"}], ids=["merge", "scd2"])
@pytest.mark.parametrize("system", PARAMETERS, indirect=True)
def test_nothing_new_changes_no_row_in_any_mode(inbox: Inbox, options: dict[str, Any]) -> None:
    inbox = replace(inbox, options=options)
    inbox.put("a.csv", 1, 2)
    inbox.run()
    result = inbox.run()
    assert {value for name, value in result.items() if name.startswith("rows_")} == {0}
    assert inbox.ids() == [1, 2]


@everywhere
def test_a_file_is_remembered_once(open_ledger: tuple[Ledger, Session]) -> None:
    ledger, session = open_ledger
    given_files = files("a.csv", "A.csv", "ä.csv", "name'with\"quotes`.csv", LONG, f"{LONG}x")
    with transaction(session):
        ledger.remember_files(session, FileChoice(SCOPE, "error", given_files), TOKEN, NOW)
    known = ledger.loaded_files(session, SCOPE)
    assert known == {SCOPE.id_of(file.key): file for file in given_files}
    assert ledger.loaded_files(session, FileScope("loads", "main.others")) == {}
    for doubled in (files("new.csv", "a.csv"), files("twice.csv", "twice.csv")):
        with pytest.raises(ledger.database.errors) as caught, transaction(session):
            ledger.remember_files(session, FileChoice(SCOPE, "error", doubled), TOKEN, NOW)
        assert ledger.database.is_duplicate_key(caught.value)
    assert ledger.loaded_files(session, SCOPE) == known


@everywhere
def test_a_replaced_file_takes_the_place_of_the_one_before(open_ledger: tuple[Ledger, Session]) -> None:
    ledger, session = open_ledger
    with transaction(session):
        ledger.remember_files(session, FileChoice(SCOPE, "load", files("a.csv", "b.csv")), TOKEN, NOW)
    again = FileChoice(SCOPE, "load", files("c.csv"), files("a.csv", etag="2"))
    with transaction(session):
        ledger.remember_files(session, again, TOKEN, NOW)
    etags = {file.key: file.etag for file in ledger.loaded_files(session, SCOPE).values()}
    assert etags == {"a.csv": "2", "b.csv": "1", "c.csv": "1"}


@everywhere
def test_books_from_before_there_were_files_get_their_table(open_ledger: tuple[Ledger, Session]) -> None:
    ledger, session = open_ledger
    session.execute(f"DROP TABLE {ledger.name('loaded_files')}")
    assert (ledger.exists(session), ledger.loaded_files(session, SCOPE)) == (True, {})
    ledger.ensure(session)
    with transaction(session):
        ledger.remember_files(session, FileChoice(SCOPE, "error", files("a.csv")), TOKEN, NOW)
    assert len(ledger.loaded_files(session, SCOPE)) == 1


@everywhere
def test_many_files_are_remembered_by_some_statements(open_ledger: tuple[Ledger, Session]) -> None:
    ledger, session = open_ledger
    many = files(*(f"in/2026/{number:05}.csv" for number in range(1001)))
    with transaction(session):
        ledger.remember_files(session, FileChoice(SCOPE, "load", many), TOKEN, NOW)
    with transaction(session):
        ledger.remember_files(session, FileChoice(SCOPE, "load", (), many), TOKEN, NOW)
    assert len(ledger.loaded_files(session, SCOPE)) == 1001
