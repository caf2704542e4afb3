"""Every command and snippet of the README and the documents runs, and prints what they say it prints."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.harness import wait_until
from tests.services.engines import surroundings
from tests.services.server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.kafka import KafkaBroker

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

MARKERS = {
    "README.md": [pytest.mark.timeout(900)],
    "cluster.md": [pytest.mark.deep, pytest.mark.xdist_group("cluster")],
}
PARAMETERS = [pytest.param(page, id=page.name, marks=MARKERS.get(page.name, pytest.mark.deep)) for page in DOCUMENTS]
"""The pages; each takes up to a minute to be followed."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^# ([\w./-]+\.(?:py|toml|csv|jsonl|sql))\n")
PLAN = re.compile(r"\bp-[0-9a-f]{8}\b")
LANGUAGES = {"python", "sh", "text", "csv", "jsonl", "toml", "bash", "cron", "console", "mermaid"}
"""What blocks may be: `toml` is tried by test_document_settings.py, `bash` starts servers, and is tried below."""

UNTRIED = {
    "make ": "the demo has a test of its own, and the tests are these",
    "flow engine pack": "packs all of this environment; tests/run/cluster/test_packages.py packs a small one and uses it",
}
"""Commands that a reader of these tests leaves out, each with the reason."""

TESTED_BY_OTHERS = {
    "NAME             KIND      STATUS  ms    DETAIL\nexecutors": "an executor that lacks a package has one in tests/run/cluster/test_doctor.py",
}
"""Beginnings of what documents show and no command before it prints, each with the reason."""

VARYING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{3}\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b\d+\.\d\b"), "<seconds>"),
    (PLAN, "<plan>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d UTC"), "<time>"),
)


@dataclass(frozen=True)
class Block:
    language: str
    text: str


def blocks(document: Path) -> list[Block]:
    return [Block(match[1], match[2]) for match in FENCE.finditer(document.read_text(encoding="utf-8"))]


def steady(text: str) -> list[str]:
    """Return the lines without what differs from run to run."""
    for pattern, replacement in VARYING:
        text = pattern.sub(replacement, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


class Reader:
    """A person who follows a document in an empty folder."""

    def __init__(self, folder: Path, engines: Path) -> None:
        self.folder = folder
        programs = Path(sys.executable).parent
        self.environment = {
            **surroundings(engines),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "EMATIX_FLOW_NO_BANNER": "1",
            "COLUMNS": "160",
        }
        self.output = ""
        self.plan = ""

    def follow(self, block: Block) -> None:
        named = FILE.match(block.text)
        if named:
            path = self.folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            data = named[1].endswith(("csv", "jsonl"))
            path.write_text(block.text[named.end() :] if data else block.text, encoding="utf-8")
        elif block.language == "sh":
            self.run(block.text)
        elif block.language == "python":
            self.python(block.text)
        elif block.language == "text" and not block.text.startswith(tuple(TESTED_BY_OTHERS)):
            self.compare(block.text)
        elif block.language in ("cron", "console"):
            self.check_options(block.text)

    def check_options(self, text: str) -> None:
        """See whether there is such a command with such options; to run it would take a cluster, or for ever."""
        for command in re.findall(r"\bflow ([^>\n]+)", text):
            arguments = [sys.executable, "-m", "ematix_flow", *shlex.split(command), "--help"]
            done = subprocess.run(arguments, cwd=self.folder, env=self.environment, capture_output=True, check=False)
            assert done.returncode == 0, f"{command}\n{done.stderr.decode()}"

    def run(self, text: str) -> None:
        # Whoever follows a document applies the plan of his own that was printed last.
        self.plan = (PLAN.findall(self.output) or [self.plan])[-1]
        self.output = ""
        for line in PLAN.sub(self.plan or "p-00000000", text).splitlines():
            command, _, comment = line.partition("#")
            if not command.strip() or command.startswith(tuple(UNTRIED)):
                continue
            match = re.search(r"exits (\d)", comment)
            expected = int(match[1]) if match else 0
            done = subprocess.run(
                ["bash", "-c", re.sub(r"\bflow ", f"{sys.executable} -m ematix_flow ", command, count=1)],
                cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=280,
            )  # fmt: skip
            assert done.returncode == expected, f"{command}\n{done.stdout}\n{done.stderr}"
            self.output += done.stdout + done.stderr

    def python(self, text: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", text],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        self.output = done.stdout

    def compare(self, text: str) -> None:
        printed = steady(self.output)
        for line in steady(text):
            assert line in printed, f"the document shows {line!r}, the command printed:\n{self.output}"


@pytest.fixture
def empty_broker(kafka_broker: KafkaBroker) -> Iterator[KafkaBroker]:
    """Return the Kafka broker, and remove the topics that the reader of a document has made."""
    before = set(kafka_broker.admin().list_topics(timeout=10).topics)
    yield kafka_broker
    for topic in set(kafka_broker.admin().list_topics(timeout=10).topics) - before:
        if not topic.startswith("__"):
            kafka_broker.drop_topic(topic)


@pytest.mark.spark
@pytest.mark.parametrize("document", PARAMETERS)
def test_a_document_can_be_followed(
    document: Path, tmp_path: Path, engines: Path, request: pytest.FixtureRequest
) -> None:
    reader = Reader(tmp_path, engines)
    if "${KAFKA_BROKERS}" in document.read_text(encoding="utf-8"):
        reader.environment["KAFKA_BROKERS"] = request.getfixturevalue("empty_broker").address
    if document.name == "cdc-sources.md":
        databases = request.getfixturevalue("postgres_server")
        reader.environment["SHOP_DSN"] = databases.create_database()
    if document.name == "cluster.md":
        reader.environment |= _cluster(request)
    for block in blocks(document):
        reader.follow(block)


ON_SPARK = ("stage by Spark: rows move from one system to another", '"engine": "spark",')
WITHOUT = ('stage by this process: the settings say engine = "local"', '"engine": "local",')


@pytest.mark.service
def test_the_readme_can_be_followed_without_java(tmp_path: Path, empty_broker: KafkaBroker) -> None:
    reader = Reader(tmp_path, tmp_path)
    reader.environment["KAFKA_BROKERS"] = empty_broker.address
    reader.environment |= {"EMATIX_FLOW_ENGINE": "local", "JAVA_HOME": "/nowhere", "PATH": str(_programs(tmp_path))}
    for block in blocks(ROOT / "README.md"):
        if block.language != "text":
            reader.follow(block)
            continue
        printed = steady(reader.output)
        expected = [WITHOUT[ON_SPARK.index(line)] if line in ON_SPARK else line for line in steady(block.text)]
        assert [line for line in expected if line not in printed] == [], reader.output


def _programs(folder: Path) -> Path:
    """Return a folder with what a shell needs, and no Java in it."""
    programs = folder / ".programs"
    programs.mkdir()
    for name in ("bash", "cat", "cp", "echo", "ls", "mkdir", "rm", "sed", "grep"):
        (programs / name).symlink_to(shutil.which(name) or name)
    return programs


def _cluster(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the variables of somebody who has two databases, a cluster and a Connect server on it."""
    cluster, server = request.getfixturevalue("cluster"), request.getfixturevalue("connect_server")
    databases = request.getfixturevalue("postgres_server")
    chosen = ("EMATIX_FLOW_SPARK_MASTER", "EMATIX_FLOW_ENGINE")
    settings = {name: value for name, value in cluster.settings().items() if name not in chosen}
    dsn = {"SHOP_DSN": databases.create_database(), "WAREHOUSE_DSN": databases.create_database()}
    return {**settings, **dsn, "SPARK_MASTER": cluster.url, "CONNECT_SERVER": server.remote}


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.xdist_group("cluster")
def test_the_commands_that_start_a_cluster_start_one(tmp_path: Path) -> None:
    starting, serving = (block.text for block in blocks(ROOT / "docs" / "cluster.md") if block.language == "bash")
    addresses = {"spark-1": "127.0.0.1", "7077": str(free_port()), "15002": str(free_port())}
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / "work")}
    environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for name, value in addresses.items():
        starting, serving = starting.replace(name, value), serving.replace(name, value)
    home, master, worker = starting.splitlines()

    def start(command: str) -> Path:
        log = tmp_path / f"{len(running)}.log"
        with log.open("wb") as output:
            running.append(
                subprocess.Popen(
                    ["bash", "-c", f"{home}\n{command}"],
                    cwd=tmp_path,
                    env=environment,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )
        return log

    def saying(log: Path, text: str) -> None:
        wait_until(lambda: text in log.read_text() or running[-1].poll() is not None, 120)
        assert text in log.read_text(), log.read_text()[-3000:]

    running: list[subprocess.Popen[bytes]] = []
    try:
        saying(start(master), "Starting Spark master")
        saying(start(worker), "Successfully registered with master")
        saying(start(serving), "Spark Connect server started")
        program = f"import pyspark.sql as s; print(s.SparkSession.builder.remote('sc://127.0.0.1:{addresses['15002']}').getOrCreate().range(3).count())"
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stdout == "3\n", done.stderr[-3000:]
    finally:
        for process in reversed(running):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_every_block_of_the_documents_is_of_a_known_kind() -> None:
    written = {document.name: document.read_text(encoding="utf-8") for document in DOCUMENTS}
    fences = {name: set(re.findall(r"^```(\w+)", text, re.MULTILINE)) for name, text in written.items()}
    assert {name: kinds - LANGUAGES for name, kinds in fences.items() if kinds - LANGUAGES} == {}
    text = "\n".join(written.values())
    assert [
        beginning
        for beginning in (*UNTRIED, *TESTED_BY_OTHERS)
        if f"```\n{beginning}" not in re.sub(r"```\w+", "```", text)
    ] == []


def test_the_documents_link_to_files_that_exist() -> None:
    for document in DOCUMENTS:
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / link).exists(), f"{document.name} links to {link}"


def test_the_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs.py"), "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: run make docs"
