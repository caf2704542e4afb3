"""Addresses of run logs: what each means, what is refused, and that no secret of one is ever shown."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import ematix, run_log
from ematix_flow.commit.runlog.objects.backend import ObjectBackend
from ematix_flow.commit.runlog.open import local_path, open_run_log
from ematix_flow.commit.runlog.urls import read_address
from ematix_flow.declare.connection.registry import DuckDBConnection
from ematix_flow.errors import DeclareError, RunLogError
from ematix_flow.run_log import PipelineState, from_url

if TYPE_CHECKING:
    from collections.abc import Callable

CANARY = "hunter2hunter2"


def is_sqlite(path: str | Path) -> bool:
    return Path(path).is_file() and Path(path).read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize(
    "url", ["a.db", "sqlite://a.db", "file://a.db", "SQLITE://a.db", "sqlite://a.db?retention_days=9"]
)
def test_a_file_is_sqlite(url: str) -> None:
    assert from_url(url).path == Path("a.db")
    assert is_sqlite("a.db")


@pytest.mark.parametrize("url", ["here/", "file://here/", "made", "file://made"])
def test_a_folder_that_is_there_or_ends_with_a_slash_has_objects(url: str) -> None:
    Path("made").mkdir()
    log = from_url(url)
    assert isinstance(log.backend.everything, ObjectBackend)
    log.swap(None, PipelineState("p"))
    assert [path.name for path in Path(log.display_address).glob("state/*/*/*")] == ["000000000001.json"]


def test_absolute_paths_and_the_home_folder(tmp_path: Path) -> None:
    from_url(f"sqlite://{tmp_path}/deep/a.db")
    from_url("~/b.db")
    assert is_sqlite(tmp_path / "deep" / "a.db")
    assert is_sqlite(Path.home() / "b.db")
    assert local_path("~/b.db") == Path.home() / "b.db"
    assert local_path("s3://bucket") is None


def test_memory_is_forgotten_with_its_log() -> None:
    log, other = from_url("memory://"), from_url("memory://")
    folder = log.folder
    log.swap(None, PipelineState("p"))
    assert other.all(PipelineState) == []
    assert folder.is_dir()
    del log
    assert not folder.exists()
    assert from_url("duckdb://:memory:").all(PipelineState) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgress://u:hunter2hunter2@h/d", "did you mean 'postgres'"),
        ("carrier-pigeon://u:hunter2hunter2@loft", "known: sqlite://"),
        ("sqlite://a.db?retention=hunter2hunter2", "did you mean 'retention_days'"),
        ("s3://bucket/p?regoin=hunter2hunter2", "did you mean 'region'"),
        ("sqlite://a.db?retention_days=hunter2hunter2", "above zero"),
        ("sqlite://a.db?create_tables=hunter2hunter2", "true or false"),
        ("azure://account", "lacks its container"),
        ("s3://", "lacks its bucket"),
        ("mysql://u:hunter2hunter2@h/d?no_such=1", "no_such"),
    ],
)
def test_wrong_addresses_are_refused_without_their_secrets(url: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - as the contract says
        from_url(url)
    assert isinstance(caught.value, DeclareError)
    assert message in str(caught.value)
    assert CANARY not in str(caught.value)


def test_options_of_a_driver_are_left_to_it() -> None:
    address = read_address("postgresql://u:p%2Bw@h/d?schema=ops&options=-c%20x=1+2&retention_days=3&create_tables=no")
    assert address is not None
    assert address.url == "postgres://u:p%2Bw@h/d?options=-c%20x=1+2"
    assert (address.options["schema"], address.switch("create_tables", default=True)) == ("ops", False)
    assert CANARY not in repr(read_address(f"mysql://u:{CANARY}@h/d"))


def test_the_strongest_place_names_the_run_log(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(**given: Any) -> str:
        return str(open_run_log(**given).display_address)

    assert opened() == "~/.ematix-flow/run_log.db"
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_PATH", "env-path.db")
    assert opened() == "env-path.db"
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_URL", "sqlite://env-url.db")
    assert opened() == "env-url.db"
    assert opened(path="path.db") == "path.db"
    assert opened(path="path.db", url="sqlite://url.db") == "url.db"


def test_a_connection_or_its_name_is_an_address_too() -> None:
    @ematix.connection
    class logs:  # noqa: N801 - as a user writes it
        kind = "duckdb"
        path = "logs.duckdb"

    stored = from_url("logs").swap(None, PipelineState("p"))
    assert from_url(DuckDBConnection("x", path="logs.duckdb")).all(PipelineState) == [stored]
    assert local_path("logs") is None
    from_url("logz")
    assert is_sqlite("logz"), "a word that names no connection is a path"

    @ematix.connection
    class bus:  # noqa: N801 - as a user writes it
        kind = "kafka"
        bootstrap_servers = "localhost:1"

    with pytest.raises(DeclareError, match="keeps no run log"):
        from_url("bus")


@pytest.mark.service
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_tables_live_where_the_address_says(kind: str, url_of: Callable[[str], str]) -> None:
    url = url_of(kind)
    option = {"postgres": "schema=ops", "mysql": "table_prefix=ops_"}[kind]
    plain, other = from_url(url), from_url(f"{url}?{option}")
    plain.swap(None, PipelineState("p"))
    assert other.all(PipelineState) == []
    names = {
        "postgres": ("ematix_flow.pipeline_state", "ops.pipeline_state"),
        "mysql": ("ematix_flow_pipeline_state", "ops_pipeline_state"),
    }[kind]
    with closing(plain.backend.everything._connector.open()) as session:  # type: ignore[attr-defined]
        assert [session.query(f"SELECT COUNT(*) FROM {name}")[0][0] for name in names] == [1, 0]


@pytest.mark.parametrize(
    "kind", ["sqlite", "duckdb", *(pytest.param(k, marks=pytest.mark.service) for k in ("postgres", "mysql"))]
)
def test_nothing_is_made_where_that_is_forbidden(kind: str, url_of: Callable[[str], str]) -> None:
    url = url_of(kind)
    forbidden = f"{url}{'&' if '?' in url else '?'}create_tables=false"
    if kind == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite://"))) as connection:
            connection.execute("CREATE TABLE other (n INTEGER)")
    with pytest.raises(DeclareError, match="lacks pipeline_state") as caught:
        from_url(forbidden)
    assert "ematix_flow.run_log.ddl(URL)" in str(caught.value)
    with closing(from_url(url).backend.everything._connector.open()) as session:  # type: ignore[attr-defined]
        for statement in run_log.ddl(url).split(";\n"):
            if statement:
                session.execute(statement)
    assert from_url(forbidden).all(PipelineState) == []


def test_an_address_that_does_not_answer_is_told_without_its_secrets() -> None:
    url = f"postgres://reader:{CANARY}@127.0.0.1:1/d"
    with pytest.raises(RunLogError) as caught:
        from_url(url)
    assert CANARY not in str(caught.value)
    with pytest.warns(UserWarning, match="not remembered") as warned:
        log = open_run_log(url)
    assert CANARY not in str(warned[0].message)
    assert log.list_runs() == ([], 0)
    assert CANARY not in repr(log)


@pytest.mark.slow
def test_the_former_constructors_give_run_logs(tmp_path: Path) -> None:
    assert run_log.SqliteRunLog(tmp_path / "a.db").path == tmp_path / "a.db"
    assert run_log.InMemoryRunHistory().list_runs() == ([], 0)
    assert run_log.DuckDBRunLog(tmp_path / "a.duckdb").claim("p", "w", 9).acquired
    assert os.path.exists(tmp_path / "a.duckdb")  # noqa: PTH110
