"""What errors and rejects say of a bad value: the column, the value as the source has it, the reason and the row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import JSONB, BigInt, String
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.engine.rejects import list_rejects
from ematix_flow.errors import FlowError
from ematix_flow.normalize import sql
from tests.engine.conftest import SYSTEMS
from tests.engine.existing_tables import existing_on

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.existing_tables import Existing

COLUMNS = (
    Column(BigInt(), primary_key=True, name="id"),
    Column(BigInt(), nullable=True, name="n"),
    Column(String(8), nullable=True, name="word"),
)
PATHS = ("same_db", "cross_db")


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Existing:
    """Return a database with the source table of the loads."""
    existing = existing_on(request.param, tmp_path, request)
    existing.run("CREATE TABLE source_rows (id INTEGER, n VARCHAR(200), word VARCHAR(200))")
    return existing


def pipeline(system: Existing, path: str, **options: Any) -> Pipeline:
    return Pipeline(
        name="bad_values",
        function=lambda: "SELECT * FROM source_rows",
        targets=(
            TargetDeclaration(Table(system.schema, "fitting", COLUMNS), write("append", **options), system.connection),
        ),
        source_connection=system.connection,
        force_path=path,
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_an_error_shows_the_value_of_the_source(system: Existing, path: str) -> None:
    system.run("INSERT INTO source_rows VALUES (1, '5', 'tea'), (22, 'five', 'salt')")
    with pytest.raises(FlowError) as refused:
        run_pipeline(pipeline(system, path), Options())
    message = str(refused.value)
    assert "\n  n: 'five' could not be parsed; row {" in message
    assert '"id":22' in message.replace(" ", "")
    assert "salt" in message


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_a_text_that_is_too_long_is_called_so(system: Existing, path: str) -> None:
    system.run("INSERT INTO source_rows VALUES (1, '5', 'tea'), (22, '5', 'seventeen letters')")
    with pytest.raises(FlowError, match=r"\n  word: is longer than 8 characters \(17\); row \{.*seventeen letters"):
        run_pipeline(pipeline(system, path), Options())


@pytest.mark.slow
def test_rejects_tell_the_same(system: Existing) -> None:
    system.run("INSERT INTO source_rows VALUES (1, 'five', 'tea'), (22, '5', 'seventeen letters'), (3, '3', 'ok')")
    load = pipeline(system, "cross_db", on_bad_row="reject")
    assert run_pipeline(load, Options())["rows_inserted"] == 1
    reasons = {(reject.column_name, reject.reason) for reject in list_rejects(load)}
    assert reasons == {("n", "'five' could not be parsed"), ("word", "is longer than 8 characters (17)")}


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_a_constraint_of_the_target_is_told_with_the_row_that_breaks_it(system: Existing, path: str) -> None:
    system.run("INSERT INTO source_rows VALUES (1, '5', 'tea'), (2, '6', 'salt'), (3, '7', 'rice')")
    run_pipeline(pipeline(system, path), Options(slot="first"))
    system.run("DELETE FROM source_rows", "INSERT INTO source_rows VALUES (9, '1', 'tea'), (2, '8', 'milk')")
    with pytest.raises(FlowError) as refused:
        run_pipeline(pipeline(system, path), Options(slot="second"))
    message = str(refused.value)
    assert "refused; row {" in message
    assert '"id":2,' in message.replace(" ", "")
    assert "milk" in message


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["duckdb", pytest.param("postgres", marks=pytest.mark.service)])
def test_a_value_that_the_database_itself_cannot_read_is_told_with_its_column_and_row(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    system = existing_on(kind, tmp_path, request)
    system.run("CREATE TABLE source_rows (id INTEGER, doc VARCHAR(200), n VARCHAR(200))")
    system.run("""INSERT INTO source_rows VALUES (1, '{"a": 1}', '1'), (22, '{"a": 1}', 'five'), (3, NULL, '3')""")
    columns = (
        COLUMNS[0],
        Column(JSONB(), name="doc"),
        Column(BigInt(), name="n", normalizers=(sql("CAST(col AS INT)"),)),
    )
    target = TargetDeclaration(Table(system.schema, "fitting", columns), write("append"), system.connection)
    load = Pipeline("read", lambda: "SELECT * FROM source_rows", (target,), source_connection=system.connection)
    with pytest.raises(FlowError, match=r"\n  n: refused; row \{.*five"):
        run_pipeline(load, Options())
    if kind == "postgres":
        system.run("UPDATE source_rows SET n = '5', doc = '{oops' WHERE id = 22")
        with pytest.raises(FlowError, match=r"\n  doc: refused; row \{.*oops"):
            run_pipeline(load, Options())
