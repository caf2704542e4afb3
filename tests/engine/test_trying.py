# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""A user's own test of a pipeline: the real load over given rows, whatever database it was declared for."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
import pytest

from ematix_flow import BigInt, PostgresConnection, Target, Text, ematix, pk, register_connection
from ematix_flow.normalize import lower, trim
from ematix_flow.testing import run_with

pytestmark = pytest.mark.slow


@ematix.table(schema="analytics")
class People:
    person_id: Annotated[BigInt, pk()]
    email: Annotated[Text | None, lower(), trim()]


@ematix.table(schema="archive", name="kept")
class ArchivedPeople:
    person_id: Annotated[BigInt, pk()]


def _declare(mode: str = "merge", **keywords: Any) -> Any:
    @ematix.pipeline(target=People, target_connection="warehouse", mode=mode, **keywords)
    def load_people(conn: Any) -> str:
        raise AssertionError(conn)

    return load_people


@pytest.mark.parametrize("known", [True, False])
def test_no_server_is_asked_whether_or_not_the_connection_is_known(known: bool) -> None:
    if known:
        register_connection(PostgresConnection(name="warehouse", url="postgres://u:p@127.0.0.1:1/none"))
    done = run_with(
        _declare(),
        [{"person_id": 1, "email": " A@X "}, {"person_id": 2, "email": "b@x"}],
        target=[{"person_id": 2, "email": "b@x"}],
    )
    assert done.rows == [{"person_id": 1, "email": "a@x"}, {"person_id": 2, "email": "b@x"}]
    assert [done.result[key] for key in ("rows_inserted", "rows_updated", "rows_unchanged")] == [1, 0, 1]
    assert done.rejects == []


def test_expressions_keep_the_dialect_of_the_declared_source() -> None:
    register_connection(PostgresConnection(name="warehouse", url="postgres://u:p@127.0.0.1:1/none"))
    handle = _declare(column_map={"email": "left(mail, 3)::text"})
    assert run_with(handle, [{"person_id": 1, "mail": "ABCDE"}]).rows == [{"person_id": 1, "email": "abc"}]


def test_versions_of_existing_rows_are_closed() -> None:
    done = run_with(_declare("scd2"), [{"person_id": 1, "email": "new"}], target=[{"person_id": 1, "email": "old"}])
    assert [(row["email"], row["is_current"]) for row in done.rows] == [("old", False), ("new", True)]


def test_a_frame_and_a_fan_out() -> None:
    @ematix.pipeline(targets=[Target(table=People), Target(table=ArchivedPeople)], mode="append")
    def both(conn: Any) -> str:
        raise AssertionError(conn)

    done = run_with("both", pa.table({"person_id": [7], "email": ["X"]}), target={"archive.kept": [{"person_id": 1}]})
    assert done.rows == {
        "analytics.people": [{"person_id": 7, "email": "x"}],
        "archive.kept": [{"person_id": 1}, {"person_id": 7}],
    }


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_rows_that_do_not_fit_come_back_as_rejects() -> None:
    rows = [{"person_id": "1", "email": "a"}, {"person_id": "one", "email": "b"}]
    done = run_with(_declare(on_bad_row="reject"), rows)
    assert done.rows == [{"person_id": 1, "email": "a"}]
    assert [(reject["column_name"], reject["row"]["email"]) for reject in done.rejects] == [("person_id", "b")]


@pytest.mark.parametrize("wrong", [5, object()])
def test_what_is_no_pipeline_is_a_type_error(wrong: object) -> None:
    with pytest.raises(TypeError, match="is not a pipeline that loads rows"):
        run_with(wrong, [])
