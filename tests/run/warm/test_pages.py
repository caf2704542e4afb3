"""Spark's pages of a warm engine: on request, with the names of pipelines, and with no secret in them or around them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.test_secrets_never_show import shown_in
from tests.services.engines import engines_in, surroundings
from tests.services.server import _processes

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.service, pytest.mark.deep]

SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture
def environment(tmp_path: Path, engines: Path, postgres_url: str) -> dict[str, str]:
    """Return the surroundings of a program whose engine serves pages and writes an event log."""
    shutil.copy(Path(__file__).with_name("showing.py"), tmp_path)
    (tmp_path / "in" / "items").mkdir(parents=True)
    (tmp_path / "in" / "items" / "a.csv").write_text("id,name\n1,tea\n2,salt\n")
    (tmp_path / "events").mkdir()
    conf = {"spark.ui.enabled": "true", "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{tmp_path}/events"}  # fmt: skip
    (tmp_path / ".ematix-flow.toml").write_text(
        "[spark.conf]\n" + "".join(f'"{key}" = "{value}"\n' for key, value in conf.items())
    )
    return {
        **surroundings(engines),
        "PYTHONPATH": str(SOURCE),
        "HOME": str(tmp_path),
        "EMATIX_FLOW_DSN_RIGHT": postgres_url,
    }


def _output(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=environment["HOME"], env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_load_is_seen_by_name_and_no_secret_is(environment: dict[str, str], engines: Path) -> None:
    pages = json.loads(_output(environment, "showing.py"))
    (state,) = engines_in(engines)
    assert (pages["id"], pages["ui"], pages["engine"], pages["after"]) == (state.id, state.ui, "spark", "")
    assert "load_items: stage mart.items" in pages["jobs"]
    assert _output(environment, "-m", "ematix_flow", "engine", "ui").strip() == state.ui
    preview = _output(environment, "-m", "ematix_flow", "preview", "load_items", "-m", "showing", "-v")

    folder = Path(environment["HOME"])
    events = [file.read_text() for file in (folder / "events").rglob("*") if file.is_file()]
    assert any("load_items: stage" in text for text in events)
    log = next(engines.rglob("engine.log")).read_text()
    started = [Path(f"/proc/{pid}/cmdline").read_text() for pid in _of_the_engine(state.pid)]
    assert len(started) >= 3  # the one that watches, Java, the daemon of the workers
    everywhere = "\n".join([*pages["shown"], *events, *started, log, preview])
    assert state.token not in everywhere
    assert shown_in(everywhere.encode()) == []


def _of_the_engine(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    children = [child for child, parent, _ in _processes() if parent == pid]
    return [pid, *(one for child in children for one in _of_the_engine(child))]
