"""Killed anywhere around its commit, a load of new files has each of them once, and those that came meanwhile too."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.conftest import on
from tests.engine.inboxes import Inbox

if TYPE_CHECKING:
    from tests.crash.journey import CrashTarget
    from tests.crash.nursery import Nursery

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

POINTS = (
    "plan.after_bounds",
    "stage.collected",
    "commit.watermark",
    "commit.applied",
    "commit.before_commit",
    "commit.commit_sent",
    "gc.before_drop",
    "runlog.before_success",
)
FURTHER = ("store.before_record@2", "store.after_record@2", "store.mid_settle")
"""Those of folders; the second record is the one with the rows."""


@on("postgres", "files")
def test_a_load_of_new_files_that_is_killed_anywhere_has_each_file_once(nursery: Nursery, target: CrashTarget) -> None:
    root = Path(target.run_log).parent
    target_fields = {"kind": target.kind, **target.fields}
    inbox = Inbox(str(root), target_fields, target.run_log, {"on_bad_row": "reject"}, target.schema)
    numbers = count(1)

    def put(name: str) -> None:
        inbox.put(name, next(numbers), next(numbers))

    put("first.csv")
    assert nursery.run("inbox", target, inbox).error == ""
    loaded = [1, 2]
    for number, point in enumerate((*POINTS, *(FURTHER if target.is_folder else ()))):
        put(f"{number}.csv")
        name, _, passing = point.partition("@")
        ending = nursery.run("inbox", target, inbox, failpoints=f"{name}=kill@{passing or 1}")
        assert ending.died, f"{point}: {ending}"
        # A lower key than any other, after the files of the killed load were chosen.
        put(f"-{number}.csv")
        for _ in range(2):
            again = nursery.run("inbox", target, inbox)
            assert again.error == "", f"{point}: {again.error}"
        loaded += range(loaded[-1] + 1, loaded[-1] + 5)
        assert inbox.ids() == loaded, point
    assert len(inbox.remembered()) == len(loaded) / 2
