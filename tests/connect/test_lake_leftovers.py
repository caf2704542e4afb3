"""What dead loads of a lake table left beside its books goes, and what the books still name stays; no Spark is needed."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, cast

import pytest

from ematix_flow.connect.lake import lock as lake_lock
from ematix_flow.connect.lake.leftovers import leftovers_task
from ematix_flow.connect.registry import target_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.connect.lake.transaction import LakeSession


def test_only_what_nobody_names_any_more_is_left_over(tmp_path: Path) -> None:
    home = tmp_path / "_ematix_flow" / "shop.things"
    with closing(opened(tmp_path)) as session:
        session.begin()
        session.remember("points", "_ematix_flow/shop.things/points/needed")
        session.commit()
        stay = ["points/needed/a.parquet", "points/young/a.parquet", "locks/1-a.dead"]
        go = ["points/old/a.parquet", "points/old/.b.draft", "locks/2-b.dead", "locks/.3-c.lock.draft"]
        for name in (*stay, *go):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_bytes(b"x")
            if name != stay[1]:
                os.utime(home / name, (1, 1))
        os.utime(home / stay[2])
        task = leftovers_task(session)
        assert task.preview() == {"removed": 4}
        assert task.work() == {"removed": 4}
    assert [name for name in stay if not (home / name).exists()] == []
    assert [name for name in go if (home / name).exists()] == []


def test_who_was_taken_for_dead_does_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(tmp_path)) as one, closing(opened(tmp_path)) as two:
        with pytest.raises(TransientError, match="another process holds the lock"):
            one.check_held()
        one.begin()
        one.check_held()
        monkeypatch.setattr(lake_lock, "DEAD_SECONDS", 0.0)
        two.begin()
        two.check_held()
        with pytest.raises(TransientError, match="another process holds the lock"):
            one.check_held()


def opened(folder: Path) -> LakeSession:
    connection = connection_from_fields("lake", {"kind": "delta_local", "path": str(folder)})
    return cast("LakeSession", target_of(connection, ("shop", "things")).session())
