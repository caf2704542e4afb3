"""Planted bugs: each takes one rule of the commit away in this process, so that a test can show that it is missed.

They are what loaders usually get wrong. A harness that stays silent about one of them proves nothing about the product.
"""

# ruff: noqa: ARG005, D401 - replaced functions ignore what they are given, and a bug is a statement, not an order

from __future__ import annotations

import time
import uuid
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit import publish as publishing
from ematix_flow.commit.ledger import Ledger, transaction
from ematix_flow.connect.delta import commit as delta_commit
from ematix_flow.connect.delta import table as delta
from ematix_flow.connect.files.table import FileTables
from ematix_flow.connect.files.transaction import FileSession
from ematix_flow.connect.iceberg import changes as iceberg_changes
from ematix_flow.connect.lake.lock import Lock
from ematix_flow.connect.lake.transaction import LakeSession
from ematix_flow.connect.metadata.target import StoreTarget
from ematix_flow.connect.mysql import session as mysql_session
from ematix_flow.connect.postgres import database as postgres
from ematix_flow.connect.postgres import stager as postgres_stage
from ematix_flow.connect.sqlite.session import SQLiteSession
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.engine.batch import load as loading
from ematix_flow.engine.batch import run as conductor
from ematix_flow.engine.batch import stager as staging
from ematix_flow.plan.sql.modes import append_truncate_merge as modes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.clock import Clock
    from ematix_flow.commit.request import CommitRequest
    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.lake.change import Change
    from ematix_flow.records import Committed, Token

WINDOW = 0.02
"""Seconds between two transactions that should have been one; as a remote server would make it."""

_publish = publishing.publish


def plant(name: str) -> None:
    """Put a bug into the product as this process has it."""
    BUGS[name]()


def closed_before_the_print() -> None:
    """The request of a run is closed with its commit, before anybody was told of its result."""

    def run_unclosed(pipeline: Any, options: Any) -> tuple[Any, Callable[[], None]]:
        return conductor.run_pipeline(pipeline, options), lambda: None

    conductor.run_unclosed = run_unclosed


def direct_write() -> None:
    """Rows go into the target before the transaction that remembers them."""

    def publish(order: CommitRequest, database: Database, clock: Clock) -> Committed:
        with closing(database.session()) as session, transaction(session):
            relation, counts = publishing.staged_rows(order, database, session, {})
            publishing.run_program(order, database, session, relation, counts, {})
        time.sleep(WINDOW)
        return _publish(replace(order, program=replace(order.program, statements=())), database, clock)

    loading.publish = publish
    publishing.balanced = lambda order, counts: counts


def watermark_apart() -> None:
    """The watermark moves in a transaction of its own."""

    def publish(order: CommitRequest, database: Database, clock: Clock) -> Committed:
        if order.watermark_after is not None:
            with closing(database.session()) as session, transaction(session):
                Ledger(database).move_watermark(
                    session, order.watermark_name, order.watermark_before, order.watermark_after, clock.now()
                )
        time.sleep(WINDOW)
        return _publish(replace(order, watermark_after=None), database, clock)

    loading.publish = publish


def token_afterwards() -> None:
    """The ledger learns of a load when its rows are already committed."""
    insert = Ledger.insert_token
    Ledger.insert_token = lambda *arguments: None

    def publish(order: CommitRequest, database: Database, clock: Clock) -> Committed:
        committed = _publish(order, database, clock)
        time.sleep(WINDOW)
        with closing(database.session()) as session, transaction(session):
            ledger = Ledger(database)
            insert(ledger, session, order.token, order.fence, order.schema_hash, clock.now())
            ledger.finish_token(session, order.token, committed.counts, None, None)
        return committed

    loading.publish = publish


def new_token_on_retry() -> None:
    """Every attempt at a load has a name of its own."""
    token_for = loading.token_for

    def forgetful(*arguments: Any) -> Token:
        return replace(token_for(*arguments), slot=uuid.uuid4().hex)

    loading.token_for = forgetful


def staging_reused() -> None:
    """The staging of a load has the same name in every process, and one that is there already is taken over, uncounted."""
    postgres_stage.compare = lambda spec, parts, existing: None
    create = postgres_stage.create_sql
    postgres_stage.create_sql = lambda spec: create(spec).replace("UNLOGGED TABLE", "UNLOGGED TABLE IF NOT EXISTS")
    staging.uuid = _SameUuid()


class _SameUuid:
    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=0)


def every_attempt_applied() -> None:
    """All rows of a staging are applied, whichever attempt wrote them."""
    postgres_stage.named = lambda spec, parts: "TRUE"
    postgres_stage.compare = lambda spec, parts, existing: None


def unverified_staging() -> None:
    """Nobody looks whether staging still holds what the tasks wrote."""
    postgres.Postgres.verify_stage = lambda *arguments: None


def lease_without_fence() -> None:
    """A run that lost its lease while it was frozen may still commit."""
    Ledger.lock_fence = lambda *arguments: None


def truncate_commits() -> None:
    """MySQL empties the table with TRUNCATE, which commits by itself."""
    real = modes.truncate

    def truncate(load: Any) -> Any:
        program = real(load)
        clear, insert = program.statements
        committing = replace(clear, sql=clear.sql.replace("DELETE FROM", "TRUNCATE TABLE"))
        return replace(program, statements=(committing, insert))

    modes.truncate = truncate


def truncate_commits_unseen() -> None:
    """The same, and the session does not watch for statements that commit."""
    truncate_commits()
    mysql_session.MySQLSession._check = lambda *arguments: None
    publishing.balanced = lambda order, counts: counts


def no_transaction() -> None:
    """Every statement is a transaction of its own."""
    SQLiteSession.begin = lambda self: None
    SQLiteSession.commit = lambda self: None


def shown_before_the_record() -> None:
    """Files get their names before the record that makes them part of their table."""

    def reported(self: FileSession) -> dict[str, Any]:
        FileSession.finalize_files(self)
        return {}

    FileSession.commit_metadata = reported  # type: ignore[method-assign]


def records_replaced() -> None:
    """A record is written whoever was first."""

    def create(self: LocalStore, key: str, data: bytes) -> bool:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return True

    LocalStore.create = create  # type: ignore[method-assign]


def stage_dropped_with_its_files() -> None:
    """Staging is removed although a record names what is in it."""
    FileTables.drop_stage = StoreTarget.drop_stage
    FileSession.finalize_files = lambda self: False


def intent_is_not_written() -> None:
    """Whoever comes after a crash cannot know which change of a lake table was under way."""

    def write_intent(self: Lock, change: Change) -> None:
        self.intent = change

    Lock.write_intent = write_intent  # type: ignore[method-assign]


def ownership_is_not_checked() -> None:
    """The books of a dead owner are taken over, whether or not its rows were."""
    LakeSession._resolve = LakeSession._follow  # type: ignore[method-assign]


def late_changes_applied() -> None:
    """A change that others have given up is made when it comes."""
    for applier in (delta._Changes, iceberg_changes.IcebergChanges):
        applier.refuse = applier.clean_up = lambda *arguments: None  # type: ignore[attr-defined]


def unnumbered() -> None:
    """Nobody looks at the number of a Delta table's change, under which each is let through once."""
    delta_commit.has_number = lambda table, change: False


def straight_to_the_table() -> None:
    """An Iceberg load goes to the table itself, and not to a branch that can only follow where it began."""
    iceberg_changes.IcebergChanges.change = lambda self, engine, sql, change: engine.run(  # type: ignore[method-assign]
        sql, iceberg_changes._snapshot_settings(change.id)
    )


def overtaken_commits_repeated() -> None:
    """A commit of files that was overtaken is made again on top of whatever came first, as pyiceberg would by itself."""
    from ematix_flow.connect.iceberg import client as iceberg_client

    del iceberg_client._StoreCatalog.commit_table


BUGS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        direct_write,
        watermark_apart,
        token_afterwards,
        new_token_on_retry,
        staging_reused,
        every_attempt_applied,
        unverified_staging,
        lease_without_fence,
        truncate_commits,
        truncate_commits_unseen,
        no_transaction,
        shown_before_the_record,
        records_replaced,
        stage_dropped_with_its_files,
        intent_is_not_written,
        ownership_is_not_checked,
        late_changes_applied,
        unnumbered,
        straight_to_the_table,
        overtaken_commits_repeated,
        closed_before_the_print,
    )
}
