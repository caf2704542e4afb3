"""A load that Spark or the table refuses is told in one error; what Java says about it is kept in the log of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.depth import deep
from tests.lakes.targets import TargetTable, lake_fields

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("lakes")]

MODULE = """
from typing import Annotated

from ematix_flow import BigInt, Text, ematix, pk


@ematix.connection
class source:
    kind = "duckdb"
    path = "source.duckdb"


@ematix.connection
class landing:
    kind = "files"
    path = "landing"
    format = "json_lines"


@ematix.connection
class lake:
    kind = "delta_local"
    path = "lake"


@ematix.table(schema="shop", name="things")
class Things:
    id: Annotated[BigInt, pk()]
    word: Text


@ematix.pipeline(target=Things, source_connection="source", target_connection="lake", mode="merge")
def things(conn):
    return "SELECT * FROM things"


@ematix.pipeline(target=Things, source_connection="landing", target_connection="lake", mode="append")
def divided(files):
    return "SELECT CAST(1 / (LENGTH(word) - LENGTH(word)) AS BIGINT) AS id, word FROM words"


@ematix.streaming_pipeline(source="landing", source_query="words", target="lake", target_table=Things)
def words(): ...
"""


class Flow:
    """A project whose table refuses a word."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pipelines.py").write_text(MODULE)
        (folder / "landing" / "words").mkdir(parents=True)
        (folder / "landing" / "words" / "one.jsonl").write_text('{"id": 1, "word": "postgres://me:canary-1@host"}\n')
        with duckdb.connect(str(folder / "source.duckdb")) as source:
            source.execute("CREATE TABLE things AS SELECT 2 AS id, 'postgres://me:canary-1@host' AS word")
        engine = TargetTable(lake_fields("delta_local", folder), folder, {}).database().engine()  # type: ignore[attr-defined]
        table = f"delta.`{folder}/lake/shop/things`"
        engine.run(
            f"CREATE TABLE {table} (id BIGINT NOT NULL, word STRING NOT NULL, _loaded_at TIMESTAMP NOT NULL, _batch_id STRING NOT NULL) USING delta",
            {},
        )
        engine.run(f"ALTER TABLE {table} ADD CONSTRAINT word_is_ok CHECK (word = 'ok')", {})

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ematix_flow", *arguments]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=250, check=False
        )


@pytest.mark.deep
@pytest.mark.parametrize(
    ("command", "name", "fact"),
    [
        ("run", "things", "CHECK constraint word_is_ok (word = 'ok') violated by row with values: word : postgres://"),
        deep("run", "divided", "Division by zero"),
        deep(
            "consume",
            "words",
            "CHECK constraint word_is_ok (word = 'ok') violated by row with values: word : postgres://",
        ),
    ],
)
def test_a_refused_load_is_one_error_and_java_is_in_the_log(command: str, name: str, fact: str, tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    ended = flow(command, name, "--module", "pipelines", *(["--once"] if command == "consume" else []))
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1, ended.stderr
    assert len([line for line in lines if line.startswith("error: ")]) == 1
    assert fact in next(line for line in lines if line.startswith("error: "))
    assert len(lines) < 12, ended.stderr
    assert not [line for line in lines if line.startswith(("\tat ", "Caused by", "Traceback", "  File"))]
    # Streams have no log of a run: what Java says is dropped, and `--traceback` shows where the error came from.
    log_text = flow("logs", name).stdout
    assert ("Traceback (most recent call last)" in log_text) == (command == "run")
    assert ("\tat org.apache.spark" in log_text) == (name == "things")
    assert "canary-1" not in ended.stderr + log_text
