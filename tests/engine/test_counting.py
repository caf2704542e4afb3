from __future__ import annotations

import threading
from pathlib import Path

from ematix_flow.engine.batch.progress import counting


def test_rows_are_reported_while_tasks_are_at_work() -> None:
    heard: list[tuple[int, int]] = []
    both = threading.Event()

    def report(rows: int, parts: int) -> None:
        heard.append((rows, parts))
        both.set()

    with counting(report) as folder:
        Path(folder, "0-0").write_text("30")
        Path(folder, "1-1").write_text("12")
        assert both.wait(30)
    assert heard[-1] in {(42, 2), (30, 1)}
    assert not Path(folder).exists()


def test_nobody_listening_costs_nothing() -> None:
    with counting(None) as folder:
        assert folder == ""
