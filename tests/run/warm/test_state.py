from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ematix_flow.declare.spark_settings import SparkSettings, settings_from
from ematix_flow.errors import DeclareError, RunError
from ematix_flow.run.warm.state import (
    FOLDER_VARIABLE,
    EngineState,
    Offer,
    alive_file,
    engine_folder,
    forget_state,
    is_alive,
    living_engines,
    locked,
    read_state,
    sweep,
    write_state,
)

if TYPE_CHECKING:
    from pathlib import Path

DELTA = Offer(packages=("io.delta:delta",), conf=(("spark.sql.extensions", "delta"),))
ICEBERG = Offer(packages=("iceberg",), jars=("a.jar",), conf=(("spark.sql.extensions", "iceberg"), ("spark.x", "1")))
STATE = EngineState("e1", 1, 2, 3, "secret", "2026-01-01T00:00:00+00:00", "0.1.0", "local[2, 4]", 900, DELTA)


def test_an_offer_covers_what_it_has_and_nothing_else() -> None:
    assert DELTA.covers(Offer())
    assert DELTA.covers(DELTA)
    assert not Offer().covers(DELTA)
    assert not DELTA.covers(ICEBERG)


def test_offers_add_up_and_extensions_are_joined() -> None:
    both = DELTA.merged(ICEBERG)
    assert both.covers(DELTA)
    assert both.covers(ICEBERG)
    assert dict(both.conf)["spark.sql.extensions"] == "delta,iceberg"
    assert both.merged(DELTA) == both


def test_a_setting_with_another_value_is_not_covered() -> None:
    assert not ICEBERG.covers(Offer(conf=(("spark.x", "2"),)))


def test_a_state_comes_back_as_it_was_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    assert read_state(tmp_path) == STATE
    (file,) = tmp_path.glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in repr(STATE)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": "e1"}', '{"offer": []}'])
def test_a_torn_state_is_none(tmp_path: Path, text: str) -> None:
    write_state(tmp_path, STATE)
    next(iter(tmp_path.glob("*.json"))).write_text(text)
    assert read_state(tmp_path) is None


def test_only_the_own_note_is_forgotten(tmp_path: Path) -> None:
    write_state(tmp_path, replace(STATE, id="newer"))
    forget_state(tmp_path, "e1")
    assert read_state(tmp_path) == replace(STATE, id="newer")
    forget_state(tmp_path, "newer")
    assert read_state(tmp_path) is None


def test_whoever_holds_the_lock_lives(tmp_path: Path) -> None:
    assert not is_alive(tmp_path, "e1")
    held = locked(tmp_path / "e1.alive", fcntl.LOCK_EX)
    assert held is not None
    assert is_alive(tmp_path, "e1")
    os.close(held)
    assert not is_alive(tmp_path, "e1")


def test_what_killed_engines_left_is_swept(tmp_path: Path) -> None:
    held = locked(alive_file(tmp_path, "lives"), fcntl.LOCK_EX)
    for name in ("dead.alive", "dead.in-use", "lives.in-use", "engine.log"):
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["engine.log", "lives.alive", "lives.in-use"]
    assert held is not None
    os.close(held)


def test_users_share_a_lock_that_keeps_the_server_from_ending(tmp_path: Path) -> None:
    file = tmp_path / "e1.in-use"
    users = [locked(file, fcntl.LOCK_SH) for _ in range(2)]
    assert locked(file, fcntl.LOCK_EX) is None
    for user in users:
        assert user is not None
        os.close(user)
    alone = locked(file, fcntl.LOCK_EX)
    assert alone is not None
    assert locked(file, fcntl.LOCK_SH) is None
    os.close(alone)


def test_an_engine_has_a_folder_per_master_and_environment(tmp_path: Path) -> None:
    environ = {FOLDER_VARIABLE: str(tmp_path)}
    first = engine_folder(SparkSettings(), environ)
    assert first == engine_folder(SparkSettings(packages=("x",)), environ)
    assert first != engine_folder(SparkSettings(master="local[1]"), environ)
    assert first == engine_folder(SparkSettings(), {**environ, "JAVA_HOME": "/there/is/none"})
    assert first.stat().st_mode & 0o777 == 0o700
    write_state(first, STATE)
    assert living_engines(environ) == []
    held = locked(alive_file(first, STATE.id), fcntl.LOCK_EX)
    assert living_engines(environ) == [(first, STATE)]
    assert held is not None
    os.close(held)


def test_an_engine_has_a_folder_per_java_however_it_is_named(tmp_path: Path) -> None:
    for version in ("17", "21"):
        home = tmp_path / version
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").touch(0o755)
        (home / "release").write_text(f'JAVA_VERSION="{version}.0.1"\n')
    environ = {FOLDER_VARIABLE: str(tmp_path / "engines"), "PATH": str(tmp_path / "17" / "bin")}
    by_path = engine_folder(SparkSettings(), environ)
    assert engine_folder(SparkSettings(), {**environ, "JAVA_HOME": str(tmp_path / "17")}) == by_path
    assert engine_folder(SparkSettings(), {**environ, "JAVA_HOME": str(tmp_path / "21")}) != by_path


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    environ = {FOLDER_VARIABLE: str(tmp_path)}
    engine_folder(SparkSettings(), environ).chmod(0o755)
    with pytest.raises(RunError, match="can be entered by other users"):
        engine_folder(SparkSettings(), environ)


def test_settings_of_the_warm_engine() -> None:
    settings = settings_from({"idle_minutes": 5}, {})
    assert settings.idle_minutes == 5
    assert not settings.uses_warm  # a program of its own has a session of its own
    assert replace(settings, shared=True).uses_warm
    assert not replace(settings_from({"warm": "off"}, {}), shared=True).uses_warm
    assert not replace(settings_from({"remote": "sc://host"}, {}), shared=True).uses_warm
    assert settings_from({}, {"EMATIX_FLOW_SPARK_IDLE_MINUTES": "7"}).idle_minutes == 7
    for wrong in ("0", "-1", "soon", "100000", True):
        with pytest.raises(DeclareError, match="idle_minutes"):
            settings_from({"idle_minutes": wrong}, {})
