from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ematix_flow.run.spark.class_archive import Archive, archive_for, sole_builder
from ematix_flow.run.spark.java import find_java
from ematix_flow.run.spark.java_process import spark_jars
from tests.crash.harness import wait_until
from tests.depth import deep

SOURCE = Path(__file__).parent.parent.parent / "src"
GIVE_UP_SECONDS = 300.0
USE = """
from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.run.spark.session import spark_session
spark = spark_session(SparkSettings(master="local[1, 2]", conf={"spark.driver.extraJavaOptions": "-Xlog:class+load:file=LOG"}))
print(spark.range(3).count())
"""


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)  # the builder yields to everything else on the machine
def test_a_trained_archive_is_what_the_next_session_loads_its_classes_from(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    built = subprocess.run(
        [sys.executable, "-m", "ematix_flow.run.spark.class_archive_training"], env=environ, check=False
    )
    archive = archive_for(find_java(os.environ), spark_jars(os.environ), environ)
    assert archive is not None
    assert built.returncode == 0
    assert archive.usable
    assert not archive.failed.exists()

    log = tmp_path / "classes.log"
    done = subprocess.run(
        [sys.executable, "-c", USE.replace("LOG", str(log))], env=environ, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("3\n", "")
    context = [line for line in log.read_text().splitlines() if " org.apache.spark.SparkContext " in line]
    assert "shared objects file (top)" in context[0]
    assert sorted(path.suffix for path in archive.file.parent.iterdir()) == [".jsa", ".lock", ".ok"]
    assert list(tmp_path.glob("ematix-flow-spark-*")) == []


def test_only_one_archive_is_built_at_a_time_and_what_a_killed_builder_left_goes(tmp_path: Path) -> None:
    left = tmp_path / "spark-other.77.part"
    left.touch()
    with sole_builder(Archive(tmp_path / "spark-one.jsa")) as alone:
        assert (alone, left.exists()) == (True, False)
        left.touch()
        with sole_builder(Archive(tmp_path / "spark-two.jsa")) as second:
            assert (second, left.exists()) == (False, True), "the part may be that of the builder at work"


@pytest.mark.slow
def test_the_trainer_ends_itself(tmp_path: Path) -> None:
    code = (
        "import time; from ematix_flow.run.spark import class_archive_training as training\n"
        "training.LIMIT_SECONDS = 1; training.find_java = lambda _: time.sleep(60)\n"
        "training.main()"
    )
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_CACHE_HOME": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", code], env=environ, check=False).returncode == -signal.SIGALRM


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("number", [deep(signal.SIGALRM), signal.SIGKILL])
def test_java_ends_with_the_trainer(tmp_path: Path, number: signal.Signals) -> None:
    """An alarm is how the trainer ends itself."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "ematix_flow.run.spark.class_archive_training"], env=environ
    ) as trainer:
        java: list[int] = []
        wait_until(lambda: java.extend(_java_of(trainer.pid)) or bool(java), GIVE_UP_SECONDS)
        trainer.send_signal(number)
        assert trainer.wait() == -number
        wait_until(lambda: _is_over(java[0]), GIVE_UP_SECONDS)


def _java_of(pid: int) -> list[int]:
    """Return the Java of Spark among the children of a process."""
    with suppress(FileNotFoundError, ProcessLookupError):  # threads and children that end meanwhile
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [int(number) for task in tasks for number in (task / "children").read_text().split()]
        return [child for child in children if b"PythonGatewayServer" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return []


def _is_over(pid: int) -> bool:
    """Return whether a process has ended; one whose end nobody asks for is still listed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
