"""Passwords planted everywhere and every way to fail: nothing that a run writes, shows or starts contains one."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest

from tests.services.mariadb import PASSWORD as MYSQL_PASSWORD
from tests.services.postgres import PASSWORD as POSTGRES_PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.slow

SRC = str(Path(__file__).parents[2] / "src")
WRONG = "c4n4ry/@:wrong#1"
LITERAL = "c4n4ry-literal-2"
VARIABLE = "c4n4ry-variable-3"
SECRETS = (WRONG, LITERAL, VARIABLE, POSTGRES_PASSWORD, MYSQL_PASSWORD)

FLOWS = """
import os, subprocess
from typing import Annotated
from ematix_flow import BigInt, Text, ematix, pk

@ematix.table(schema="mart", name="copies")
class Copies:
    id: Annotated[BigInt, pk()]
    name: Text

@ematix.table(schema="mart", name="drifted")
class Drifted:
    id: Annotated[BigInt, pk()]
    name: Text

GOOD = "SELECT 1 AS id, 'a' AS name"

def flow(name, target="right", table=Copies, query=GOOD, **more):
    @ematix.pipeline(name=name, target=table, target_connection=target, mode="append", **more)
    def load(conn):
        return query

for name in ("wrong_password", "wrong_host", "wrong_database", "closed_port", "literal", "variable", "my_wrong", "my_variable"):
    flow(name, name)
flow("good")
flow("bad_sql", query="SELECT nothing FROM nowhere")
flow("bad_rows", query="SELECT 2 AS id, CAST(NULL AS TEXT) AS name")
flow("bad_value", query="SELECT 2 AS id, CAST('x' || 'y' AS INT)::text AS name")
flow("drift", table=Drifted)
flow("post", query="SELECT 3 AS id, 'c' AS name", transforms_post=["SELECT * FROM missing_table"])

@ematix.pipeline(name="told", target=Copies, target_connection="right", mode="append")
def told(conn):
    raise RuntimeError("cannot use " + os.environ["EMATIX_FLOW_DSN_RIGHT"])

@ematix.pipeline(name="task", target=Copies, target_connection="right", mode="append")
def task(spark):
    shown = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, check=True).stdout
    open("ps.txt", "wb").write(shown)
    secret = os.environ["EMATIX_FLOW_DSN_RIGHT"]
    def fail(batches):
        raise RuntimeError("cannot use " + secret)
    return spark.range(3).mapInArrow(fail, "id long, name string")
"""


def forms(secret: str) -> Iterable[bytes]:
    """Return the ways to write a secret."""
    raw = secret.encode()
    yield from (raw, quote(raw, safe="").encode(), quote(raw, safe="").lower().encode())
    yield from (base64.b64encode(raw).rstrip(b"="), base64.urlsafe_b64encode(raw).rstrip(b"="))


def shown_in(data: bytes) -> list[bytes]:
    """Return the secrets that can be read in the data."""
    return [form for secret in SECRETS for form in forms(secret) if form in data]


def changed(url: str, **parts: str) -> str:
    """Return a URL with another password, address or database."""
    split = urlsplit(url)
    user = f"{split.username}:{quote(parts.get('password', split.password or ''), safe='')}"
    address = parts.get("address")
    return urlunsplit(
        split._replace(
            netloc=f"{user}@{address or split.netloc.rpartition('@')[2]}", path=parts.get("path", split.path)
        )
    )


@pytest.fixture
def environment(postgres_url: str, mysql_url: str) -> dict[str, str]:
    """Return the environment of a project with a module, a file of connections and canaries in all of them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    Path("flows.py").write_text(FLOWS, encoding="utf-8")
    variable = changed(postgres_url, password="hidden").replace("hidden", "${PLANTED}")
    Path(".ematix-flow.toml").write_text(
        f"""
[connections.literal]
url = "{changed(postgres_url, password=LITERAL)}"
[connections.variable]
url = "{variable}"
[connections.my_variable]
url = "{changed(mysql_url, password="hidden").replace("hidden", "${PLANTED}")}"
[spark.conf]
"spark.eventLog.enabled" = "true"
"spark.eventLog.dir" = "file://{Path.cwd()}/events"
"spark.eventLog.compress" = "false"
""",
        encoding="utf-8",
    )
    Path("events").mkdir()
    dsns = {
        "RIGHT": postgres_url,
        "WRONG_PASSWORD": changed(postgres_url, password=WRONG),
        "WRONG_HOST": changed(postgres_url, address="nobody.invalid:5432"),
        "WRONG_DATABASE": changed(postgres_url, path="/no_such_database"),
        "CLOSED_PORT": changed(postgres_url, address=closed),
        "MY_WRONG": changed(mysql_url, password=WRONG),
    }
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA mart")
        connection.execute("CREATE TABLE mart.drifted (id TEXT PRIMARY KEY)")
    return {
        **os.environ,
        **{f"EMATIX_FLOW_DSN_{name}": url for name, url in dsns.items()},
        "PLANTED": VARIABLE,
        "EMATIX_FLOW_CAPTURE_LOGS": "1",
        "PYTHONPATH": SRC,
    }


def run(environment: dict[str, str], *arguments: str) -> tuple[int, bytes]:
    """Return the exit code of a command and everything it said."""
    done = subprocess.run(
        [sys.executable, "-m", "ematix_flow", *arguments, "-m", "flows"],
        env=environment, capture_output=True, check=False, timeout=200,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def left_behind() -> dict[str, list[bytes]]:
    """Return the files that runs left in home and working folder, with the secrets in each."""
    planted = {Path(".ematix-flow.toml").absolute(), Path("flows.py").absolute()}
    files = [p for root in (Path.home(), Path.cwd()) for p in root.rglob("*") if p.is_file() and p not in planted]
    assert any(p.suffix == ".log" for p in files), "captured logs are among them"
    return {str(path): shown for path in files if (shown := shown_in(path.read_bytes()))}


FAILING = (
    "wrong_password", "wrong_host", "wrong_database", "closed_port", "literal", "variable", "my_wrong", "my_variable",
    "bad_sql", "bad_rows", "bad_value", "drift", "post", "told",
)  # fmt: skip


@pytest.mark.slow  # two dozen processes
@pytest.mark.service
def test_no_failure_shows_a_password(environment: dict[str, str], postgres_url: str) -> None:
    assert run(environment, "run", "good")[0] == 0
    for name in FAILING:
        code, output = run(environment, "run", name, "--traceback", "--format", "json")
        assert (code, shown_in(output)) == (1, []), name
        assert b"error: " in output
    for command in (("connections", "check"), ("runs", "list"), ("preview", "wrong_password"), ("dry-run", "literal")):
        assert shown_in(run(environment, *command)[1]) == []
    assert left_behind() == {}
    with psycopg.connect(postgres_url) as connection:
        history = connection.execute("SELECT * FROM ematix_flow.run_history").fetchall()
    assert len(history) >= 4
    assert shown_in(repr(history).encode()) == []


@pytest.mark.slow  # two dozen processes
@pytest.mark.service
@pytest.mark.spark
def test_a_failing_task_shows_no_password(environment: dict[str, str]) -> None:
    code, output = run(environment, "run", "task", "--traceback")
    assert (code, shown_in(output)) == (1, [])
    assert b"cannot use" in output
    assert b"org.apache.spark" in Path("ps.txt").read_bytes(), "Java was running"
    left = left_behind()
    assert [path for path in left if "/events/" not in path] == []
