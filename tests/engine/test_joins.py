"""Queries over several connections, as far as they are known without Spark: declared, planned, checked, refused."""

from __future__ import annotations

from typing import Any

import pytest

from ematix_flow import Source
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine import Options, preview_pipeline, run_pipeline, validate_pipeline
from ematix_flow.errors import DeclareError, DeclareTypeError, FlowError, PlanError, TransientError
from tests.engine.joined_shop import QUERY, shop


def test_a_source_names_its_connections() -> None:
    warehouse = connection_from_fields("warehouse", {"kind": "duckdb", "path": "w.duckdb"})
    source = Source.sql("SELECT 1 FROM pg.t", connections={"pg": warehouse, "lake": "lake"})
    assert (source.query, source.connections) == ("SELECT 1 FROM pg.t", {"pg": warehouse, "lake": "lake"})
    assert Source.sql("warehouse", "SELECT 1").connections == {}
    assert Source.sql("warehouse", sql="SELECT 1").query == "SELECT 1"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "names no connection"),
        ({"p g": "x"}, "'p g', which cannot stand for a connection"),
        ({"pg": "x", "PG": "y"}, "'PG', which cannot stand for a connection"),
        ({"pg": 3}, "connections\\['pg'\\]=3 is not a connection"),
    ],
)
def test_words_that_cannot_stand_for_a_connection_are_refused(given: Any, message: str) -> None:
    with pytest.raises((DeclareError, DeclareTypeError), match=message):
        Source.sql("SELECT 1", connections=given)


def test_a_query_alone_is_refused() -> None:
    with pytest.raises(DeclareTypeError, match="needs a connection and a query"):
        Source.sql("SELECT 1")
    with pytest.raises(DeclareTypeError, match="takes the query alone"):
        Source.sql("pg", "SELECT 1", connections={"pg": "pg"})


@pytest.mark.slow
def test_the_engine_that_has_no_spark_refuses_it() -> None:
    pipeline = shop(QUERY.format(low=0))
    for action in (preview_pipeline, run_pipeline):
        with pytest.raises(
            PlanError, match='joins across connections need Spark, and the settings say engine = "local"'
        ):
            action(pipeline, Options())


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("SELECT o.id FROM shopp.orders o", "connections= has no 'shopp'", "shop"),
        ("SELECT o.id FROM shop.order o", "reads 'shop.order', which duckdb cannot give", "shop.orders"),
        ("SELECT c.id FROM people.customer c", "reads 'people.customer': no files match", "customers"),
    ],
)
def test_what_is_not_there_is_named_with_its_place(
    query: str, message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    pipeline = shop(query)
    with pytest.raises(FlowError, match=message) as caught:
        preview_pipeline(pipeline)
    assert hint in str(caught.value.hint)
    assert caught.value.origin is not None
    assert caught.value.origin.file.endswith("joined_shop.py")
    assert not validate_pipeline(pipeline).ok


def test_the_plan_tells_what_is_read_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    result = preview_pipeline(shop(QUERY.format(low=1)))
    text = result.text()
    assert "source    shop_db, folder" in text
    assert "read      SQL of Spark over shop_db, folder" in text
    assert "shop.orders (duckdb): id, customer, amount" in text
    assert "people.customers (object_store_local): id, name" in text
    assert "shape     by Spark: the source is a query over several connections" in text
    assert 'SELECT "id", "customer", "amount" FROM "orders" WHERE "id" > 1' in result.text(verbose=True)
    assert result.to_dict()["targets"][0]["read"]["tables"][0]["connection"] == "shop_db"


@pytest.mark.slow
def test_a_database_that_is_away_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    away = {"pg": "postgres://me:canary@127.0.0.1:9/db?connect_timeout=2"}
    pipeline = shop(QUERY.format(low=1).replace("shop.orders", "pg.orders"), away)
    result = preview_pipeline(pipeline)
    assert "read      SQL of Spark over shop_db, folder, pg" in result.text()
    assert any("could not be queried" in note for note in result.notes)
    assert "canary" not in result.to_json()
    with pytest.raises(TransientError):
        run_pipeline(pipeline, Options())


@pytest.mark.slow
def test_the_databases_check_it_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMATIX_FLOW_ENGINE", "spark")
    assert validate_pipeline(shop(QUERY.format(low=1))).ok
    wrong = validate_pipeline(shop(QUERY.format(low=1).replace("o.amount", "o.ammount"), name="wrong"))
    assert not wrong.ok
    assert "ammount" in wrong.errors[0]
