"""Two projects of one account have a pipeline `load` each: neither takes, resumes, hides or shows anything of the other."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ematix_flow.commit.runlog.log import RunLog
from ematix_flow.commit.runlog.open import sqlite_backend
from ematix_flow.commit.runlog.project_backend import ProjectBackend
from ematix_flow.connect.config.project_name import ProjectName
from ematix_flow.failpoints import ADOPTION_NAMES
from ematix_flow.records import PipelineState
from tests.depth import deep, deep_but
from tests.serve.cli.conftest import SRC, CommandResult

FLOWS = """
import os
import sys
import time
from pathlib import Path
from typing import Annotated

from ematix_flow import BigInt, ematix, pk
from ematix_flow.pipeline import register


@ematix.connection
class lite:
    kind = "sqlite"
    path = os.environ.get("SHARED_TARGET", "lite.db")


@ematix.table(schema="main", name="loaded")
class Loaded:
    id: Annotated[BigInt, pk()]


@ematix.pipeline(target=Loaded, target_connection="lite", mode="append", schedule="0 * * * *")
def load(conn):
    print(f"loading {Path.cwd().name}", file=sys.stderr)
    return "SELECT abs(random()) AS id"  # a second load is seen


@register(name="slow", schedule=None)
def slow():
    Path("started").touch()
    while not Path("go").exists():
        time.sleep(0.02)
"""
pytestmark = pytest.mark.slow  # every test starts several commands

NOON = ("--now", "2026-03-02T12:00:20Z")


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A project folder and the command called in it."""

    folder: Path

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ematix_flow", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": SRC, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, **environ: str) -> CommandResult:
        process = self.start(*arguments, **environ)
        out, err = process.communicate(timeout=120)
        return CommandResult(process.returncode, out, err)

    def rows(self, file: str = "lite.db") -> int:
        with closing(sqlite3.connect(self.folder / file)) as connection:
            return int(connection.execute("SELECT count(*) FROM loaded").fetchone()[0])

    def configure(self, project: str = '[project]\nmodule = "flows"\n') -> None:
        (self.folder / ".ematix-flow.toml").write_text(project, encoding="utf-8")


def new_project(name: str, project: str | None = '[project]\nmodule = "flows"\n') -> ProjectFolder:
    project_folder = ProjectFolder(Path.cwd() / name)
    project_folder.folder.mkdir()
    (project_folder.folder / "flows.py").write_text(FLOWS, encoding="utf-8")
    if project is not None:
        project_folder.configure(project)
    return project_folder


@pytest.fixture
def a() -> ProjectFolder:
    return new_project("a")


@pytest.fixture
def b() -> ProjectFolder:
    return new_project("b")


def ran(result: CommandResult) -> list[str]:
    return [one["_pipeline"] for one in json.loads(result.out)["ran"]]


@pytest.mark.deep
def test_a_slot_of_one_is_not_used_up_for_the_other(a: ProjectFolder, b: ProjectFolder) -> None:
    assert ran(a("run-due", *NOON)) == ["load"]
    assert ran(b("run-due", *NOON)) == ["load"]
    assert ran(b("run-due", *NOON)) == []
    assert (a.rows(), b.rows()) == (1, 1)


def test_a_killed_append_is_resumed_by_its_own_project_only(a: ProjectFolder, b: ProjectFolder) -> None:
    assert a("run", "load", FLOW_FAILPOINTS="commit.after_commit=kill").code == -9
    other = b("run", "load")
    assert other.code == 0
    assert "takes it up" not in other.err
    again = a("run", "load")
    assert json.loads(again.out)["recovered"] is True
    assert (a.rows(), b.rows()) == (1, 1)


def test_a_run_of_one_does_not_keep_the_other_from_running(a: ProjectFolder, b: ProjectFolder) -> None:
    (b.folder / "go").touch()
    running = a.start("run", "slow")
    while not (a.folder / "started").exists():
        assert running.poll() is None
        time.sleep(0.02)
    refused, other = a("run", "slow"), b("run", "slow")
    (a.folder / "go").touch()
    running.communicate(timeout=60)
    assert (running.returncode, other.code) == (0, 0), other.err
    assert "is running already" in refused.err


def test_logs_and_history_are_those_of_the_project(a: ProjectFolder, b: ProjectFolder) -> None:
    a("run", "load")
    b("run", "load")
    assert "loading a" in a("logs", "load").out
    assert "loading b" in b("logs", "load").out
    (run,) = json.loads(a("runs", "list", "--format", "json").out)["runs"]
    assert run["project"] == str(a.folder.resolve())
    assert a("logs", run["run_id"]).code == 0
    assert b("logs", run["run_id"]).code == 1
    everything = b("runs", "list", "--all-projects")
    assert everything.out.splitlines()[0].startswith("PROJECT")
    assert [line.split()[0] for line in everything.out.splitlines()[1:]] == [str(b.folder), str(a.folder)]
    assert b("runs", "show", run["run_id"]).code == 0
    for command in ("cancel", "rerun", "resume"):
        refused = b("runs", command, run["run_id"])
        assert refused.code != 0, "it is a run of the other project"


def test_whoever_has_no_runs_hears_that_others_have(a: ProjectFolder, b: ProjectFolder) -> None:
    a("run", "load")
    assert "no such runs of this project, and 1 of others; --all-projects" in b("runs", "list").err


@pytest.mark.deep
def test_the_first_project_takes_over_what_an_old_run_log_has_open(b: ProjectFolder) -> None:
    a = new_project("a", None)
    assert a("run", "load", "-m", "flows", FLOW_FAILPOINTS="commit.after_commit=kill").code == -9
    a.configure()
    assert json.loads(a("run", "load").out)["recovered"] is True
    assert "takes it up" not in b("run", "load").err
    assert (a.rows(), b.rows()) == (1, 1)
    assert a("runs", "list").out.count("succeeded") == 1


@pytest.mark.crash
@pytest.mark.parametrize("point", deep_but(ADOPTION_NAMES, "runlog.adopting"))
def test_a_kill_while_it_is_taken_over_leaves_it_to_the_same_project(b: ProjectFolder, point: str) -> None:
    a = new_project("a", None)
    assert a("run", "load", "-m", "flows", FLOW_FAILPOINTS="commit.after_commit=kill").code == -9
    a.configure()
    assert a("run", "load", FLOW_FAILPOINTS=f"{point}=kill").code == -9
    assert "takes it up" not in b("run", "load").err
    assert json.loads(a("run", "load").out)["recovered"] is True
    assert (a.rows(), b.rows()) == (1, 1)


def test_named_projects_load_one_table_at_one_slot_each(tmp_path: Path) -> None:
    shared = {"SHARED_TARGET": str(tmp_path / "shared.db")}
    first, second = (new_project(n, f'[project]\nmodule = "flows"\nname = "{n}"\n') for n in ("one", "two"))
    for one in (first, second):
        assert ran(one("run-due", *NOON, **shared)) == ["load"]
    assert first.rows(shared["SHARED_TARGET"]) == 2
    for name in ("load@2026-03-02T12:00:00Z", "load@2026-03-02T12:00:00Z of two"):
        assert "loading two" in second("logs", name).out
    interval = ("--from", "2026-03-02T11:00:00Z", "--to", "2026-03-02T12:00:00Z")
    assert second("backfill", "load", *interval, **shared).code == 0
    assert "loading two" in second("logs", "load@2026-03-02T11:00:00Z").out


@pytest.mark.parametrize("name", [deep(""), 'name = "shop"\n'])
def test_a_release_in_another_folder_finds_its_slot_loaded(tmp_path: Path, name: str) -> None:
    shared = {"SHARED_TARGET": str(tmp_path / "shared.db")}
    old, new = (new_project(n, f'[project]\nmodule = "flows"\n{name}') for n in ("release-1", "release-2"))
    log = ("--run-log", f"sqlite://{tmp_path}/log.db")
    assert ran(old("run-due", *NOON, *log, **shared)) == ["load"]
    assert ran(new("run-due", *NOON, *log, **shared)) == ([] if name else ["load"])
    again = new("run-due", *NOON, "--run-log", f"sqlite://{tmp_path}/other.db", **shared)
    assert json.loads(again.out)["ran"][0]["recovered"] is True
    interval = ("--from", "2026-03-02T12:00:00Z", "--to", "2026-03-02T13:00:00Z")
    assert new("backfill", "load", *interval, *log, **shared).code == 0
    assert new.rows(shared["SHARED_TARGET"]) == 1


def test_a_folder_that_gets_a_name_goes_on_where_it_stood(a: ProjectFolder) -> None:
    assert ran(a("run-due", *NOON)) == ["load"]
    a.configure('[project]\nmodule = "flows"\nname = "shop"\n')
    assert ran(a("run-due", *NOON)) == []
    assert "loading a" in a("logs", "load").out


def test_staging_in_the_folder_of_production_takes_nothing_of_it(a: ProjectFolder) -> None:
    assert a("run", "load", FLOW_FAILPOINTS="commit.after_commit=kill").code == -9
    staging = {"EMATIX_FLOW_PROJECT": "staging", "SHARED_TARGET": "staging.db"}
    assert "takes it up" not in a("run", "load", **staging).err
    assert json.loads(a("run", "load").out)["recovered"] is True
    assert (a.rows(), a.rows("staging.db")) == (1, 1)


def test_a_worker_is_told_the_project_by_an_option_too(a: ProjectFolder) -> None:
    log = RunLog(ProjectBackend(sqlite_backend(a.folder / "log.db"), ProjectName("shop", explicit=True)))
    log.backend.ensure()
    token = log.claim("slow", "scheduler", 60).token
    assert token is not None
    log.change_state("slow", lambda state: replace(state, last_slot="2026-03-02T12:00:00Z", slot_status="running"))
    (a.folder / "go").touch()
    worker = ("run", "slow", "--claim-token", token, "--run-log", "sqlite://log.db")
    assert a(*worker).code == 1, "without it the worker is of another project"
    assert a(*worker, "--project", "shop").code == 0
    state = log.find(PipelineState, "slow")
    assert state is not None
    assert state.slot_status == "succeeded"
