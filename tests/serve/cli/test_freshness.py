from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]

LIMIT = """
from ematix_flow.quality import register_freshness_sla
from flows import *
register_freshness_sla("copy", "6h")
"""


def test_what_is_too_old_exits_1_and_what_is_fresh_exits_0(flow: Flow, project: Path) -> None:
    Path("limited.py").write_text(LIMIT)
    result = flow("freshness-check", "-m", "limited")
    assert result.code == 1
    assert result.out.splitlines()[1].split() == ["copy", "breached", "never", "6h", "last", "success"]
    flow("run", "copy", "-m", "limited")
    result = flow("freshness-check", "-m", "limited", "--format", "json")
    assert result.code == 0
    (output,) = json.loads(result.out)
    assert (output["pipeline"], output["state"], output["sla_seconds"]) == ("copy", "healthy", 21_600)
    assert flow("freshness-check", "-m", "limited", "--now", "2999-01-01").code == 1


def test_without_limits_there_is_nothing_to_tell(flow: Flow, project: Path) -> None:
    result = flow("freshness-check", "-m", "flows")
    assert (result.code, result.out) == (0, "")
    assert "no pipeline of the module" in result.err


def test_wrong_usage_exits_2(flow: Flow, project: Path) -> None:
    assert flow("freshness-check", "-m", "flows", "--no-run-log").code == 2
    assert flow("freshness-check", "-m", "flows", "--run-log-path", "nowhere.db").code == 2
    assert flow("freshness-check", "-m", "flows", "--now", "soon").code == 2
