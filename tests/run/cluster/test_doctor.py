"""`flow doctor --spark`: what executors say of themselves, compared with this machine."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from tests.services.standalone import executor_python

if TYPE_CHECKING:
    from tests.run.cluster.conftest import Project
    from tests.services.standalone import Standalone

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(600),
]


def test_executors_say_what_they_lack_and_what_they_cannot_reach(cluster: Standalone, project: Project) -> None:
    bare = cluster.home / "bare" / "bin" / "python"
    if not bare.exists():
        executor_python(bare.parents[1], ("psycopg", "adbc_driver"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"postgresql://someone:canary-9s@127.0.0.1:{closed.getsockname()[1]}/shop"
        project.connections["shut"] = {"kind": "postgres", "url": url}
        settings = cluster.settings() | {"PYSPARK_PYTHON": str(bare)}
        done = project.flow(settings, "doctor", "--spark", "--module", "shop", "--format", "json")
    assert done.returncode == 1, done.stderr
    assert "canary-9s" not in done.stdout + done.stderr
    reports = {report["name"]: report for report in json.loads(done.stdout)}
    assert reports["executors"]["detail"] == f"2 answered on {cluster.url}"
    executors = [report for report in reports.values() if report["kind"] == "executor"]
    assert len(executors) == 2
    for report in executors:
        assert report["status"] == "fail"
        assert "package psycopg is missing" in report["detail"]
        assert "connection shut is out of reach (127.0.0.1:" in report["detail"]
        assert "connection source is" not in report["detail"]
        assert report["extras"]["packages"]["pyarrow"]
        assert report["extras"]["skew"] < 2
