from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from ematix_flow.declare.spark_settings import SparkSettings
from ematix_flow.errors import DeclareError, MissingExtraError
from ematix_flow.run.spark.class_archive import archive_for, options_to_use, publish, sole_builder
from ematix_flow.run.spark.conf import heap_bytes, local_cores, query_conf, secret_conf, session_conf
from ematix_flow.run.spark.java import Java, find_java
from ematix_flow.run.spark.java_process import memory_bytes
from ematix_flow.run.spark.packages.resolved import remember_jars, with_known_jars

if TYPE_CHECKING:
    from ematix_flow.run.spark.class_archive import Archive


def test_what_is_asked_for_beats_the_installation_and_that_beats_ours(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# note\nspark.ui.enabled true\nspark.driver.memory=3g\n")
    settings = SparkSettings(master="local[3, 4]", jars=("/a.jar", "/b.jar"), conf={"spark.driver.memory": "2g"})
    conf = session_conf(settings, tmp_path, {"SPARK_CONF_DIR": str(tmp_path)})
    assert conf["spark.driver.memory"] == "2g"
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.shuffle.partitions"] == "6"
    assert conf["spark.jars"] == "/a.jar,/b.jar"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_cluster_chooses_its_own_addresses_and_partitions(tmp_path: Path) -> None:
    conf = session_conf(SparkSettings(master="spark://h:7077"), tmp_path, {})
    assert conf["spark.master"] == "spark://h:7077"
    assert not {"spark.driver.host", "spark.local.dir", "spark.sql.shuffle.partitions"} & conf.keys()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.flow.conn.dsn", "CANARY"),
        ("spark.hadoop.fs.s3a.secret.key", "CANARY"),
        ("spark.hadoop.fs.s3a.access.key", "CANARY"),
        ("spark.ssl.keyStorePassword", "CANARY"),
        ("spark.kafka.ssl.keystore.key", "CANARY"),
        ("spark.executorEnv.WAREHOUSE", "postgresql://user:CANARY@host/db"),
        ("spark.driver.extraJavaOptions", "-Da=1 -Djdbc=x;password=CANARY"),
        ("spark.sql.catalog.c.uri", "https://:CANARY@host"),
    ],
)
@pytest.mark.parametrize("remote", [None, "sc://host"])
def test_secrets_are_refused_by_name_without_their_value(
    key: str, value: str, remote: str | None, tmp_path: Path
) -> None:
    settings = SparkSettings(conf={key: value}, remote=remote)
    with pytest.raises(DeclareError) as caught:
        query_conf(settings) if remote else session_conf(settings, tmp_path, {})
    assert key in str(caught.value)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.authenticate.secret.file", "/run/secret"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "org.example.Provider"),
        ("spark.hadoop.fs.s3a.secret.key", "${env.KEY}"),
        ("spark.sql.catalog.c.uri", "https://user@host/path"),
        ("spark.hadoop.fs.s3a.endpoint", "http://127.0.0.1:9000"),
    ],
)
def test_references_to_secrets_pass(key: str, value: str, tmp_path: Path) -> None:
    assert session_conf(SparkSettings(conf={key: value}), tmp_path, {})[key] == value


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[ 2 , 4 ]", 2), ("local[*, 4]", None)]
)
def test_cores_of_a_local_master(master: str, cores: int | None) -> None:
    assert local_cores(master) == (cores or os.cpu_count())


def test_a_misspelt_local_master_is_refused() -> None:
    with pytest.raises(DeclareError, match="local"):
        local_cores("local[two]")


@pytest.mark.parametrize(("text", "size"), [("512m", 512 << 20), ("4g", 4 << 30), ("1024", 1024), ("8K", 8192)])
def test_memory_sizes(text: str, size: int) -> None:
    assert memory_bytes(text) == size


def _java_home(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return folder


def test_the_first_java_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    old, new = _java_home(tmp_path / "old", "1.8.0_302"), _java_home(tmp_path / "new", "21.0.2")
    java = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (java.major, java.command) == (21, str(new / "bin" / "java"))


def test_without_java_the_error_names_one_command(tmp_path: Path) -> None:
    old = _java_home(tmp_path / "old", "11.0.1")
    with pytest.raises(MissingExtraError, match=r"Java 17 or newer; found only Java 11 at .*\n.*install it with: "):
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    with pytest.raises(MissingExtraError, match="found none"):
        find_java({"PATH": str(tmp_path)})


@pytest.fixture
def jar(tmp_path: Path) -> str:
    return _jar(tmp_path, "a", "a/Main.class")


def _jar(folder: Path, name: str, content: str) -> str:
    with ZipFile(folder / f"{name}.jar", "w") as archive:
        archive.writestr(content, "")
    return str(folder / f"{name}.jar")


def _archive(tmp_path: Path, jar: str, build: str = "17") -> Archive:
    archive = archive_for(Java("/java", 17, build), [jar], {"XDG_CACHE_HOME": str(tmp_path)})
    assert archive is not None
    return archive


def test_an_archive_is_used_only_as_it_was_published(tmp_path: Path, jar: str) -> None:
    archive = _archive(tmp_path, jar)
    assert options_to_use(archive) == ()
    recorded = archive.file.with_suffix(".1.part")
    recorded.write_bytes(b"classes")
    publish(archive, recorded)
    assert f"-XX:SharedArchiveFile={archive.file}" in options_to_use(archive)
    archive.file.write_bytes(b"clAsses")
    os.utime(archive.file, ns=(0, 0))
    assert options_to_use(archive) == ()


def test_another_java_or_another_jar_means_another_archive(tmp_path: Path, jar: str) -> None:
    first = _archive(tmp_path, jar)
    assert _archive(tmp_path, jar) == first
    assert _archive(tmp_path, jar, build="21") != first
    Path(jar).write_bytes(b"22")
    assert _archive(tmp_path, jar) != first


def test_a_cache_that_others_can_write_is_not_trusted(tmp_path: Path, jar: str) -> None:
    (tmp_path / "ematix-flow").mkdir()
    (tmp_path / "ematix-flow").chmod(0o777)
    assert archive_for(Java("/java", 17, "17"), [jar], {"XDG_CACHE_HOME": str(tmp_path)}) is None
    assert archive_for(Java("/java", 17, "17"), [jar], {}) is None
    assert archive_for(Java("/java", 17, "17"), [jar], {"XDG_CACHE_HOME": jar}) is None


def test_one_archive_has_one_builder_at_a_time(tmp_path: Path, jar: str) -> None:
    archive = _archive(tmp_path, jar)
    with sole_builder(archive) as first, sole_builder(archive) as second:
        assert (first, second) == (True, False)
    with sole_builder(archive) as third:
        assert third


def test_packages_are_resolved_once_and_again_when_a_jar_is_gone(tmp_path: Path, jar: str) -> None:
    given = {"spark.jars.packages": "g:a:1", "spark.x": "1"}
    assert with_known_jars(given, tmp_path) == given
    remember_jars(given, f"file://{jar}", tmp_path)
    assert with_known_jars(given, tmp_path) == {"spark.jars": jar, "spark.x": "1"}
    assert with_known_jars(given | {"spark.jars.excludes": "g:b"}, tmp_path)["spark.jars.packages"] == "g:a:1"
    Path(jar).unlink()
    assert with_known_jars(given, tmp_path) == given


def test_a_package_with_modules_is_on_pythons_path_each_time(tmp_path: Path) -> None:
    jars = [_jar(tmp_path, "a", "a/Main.class"), _jar(tmp_path, "graphs", "graphs/__init__.py")]
    given = {"spark.jars.packages": "g:a:1", "spark.submit.pyFiles": "/mine.zip"}
    remember_jars(given, ",".join(jars), tmp_path)
    known = with_known_jars(given, tmp_path)
    assert known == {"spark.jars": ",".join(jars), "spark.submit.pyFiles": f"/mine.zip,{jars[1]}"}


def test_versions_that_move_are_asked_for_every_time(tmp_path: Path, jar: str) -> None:
    given = {"spark.jars.packages": "g:a:1-SNAPSHOT"}
    remember_jars(given, jar, tmp_path)
    assert with_known_jars(given, tmp_path) == given


def test_a_damaged_note_about_packages_is_ignored(tmp_path: Path, jar: str) -> None:
    given = {"spark.jars.packages": "g:a:1"}
    remember_jars(given, jar, tmp_path)
    (note,) = tmp_path.glob("jars-*.json")
    for text in ("{", json.dumps({"a": 1}), json.dumps([1])):
        note.write_text(text)
        assert with_known_jars(given, tmp_path) == given


@pytest.mark.parametrize(("memory", "heap"), [(0, 1), (2, 1), (8, 2), (64, 4)])
def test_long_work_has_a_quarter_of_the_memory_of_its_machine_within_limits(memory: int, heap: int) -> None:
    assert heap_bytes(SparkSettings(profile="long"), memory << 30) == heap << 30
    assert heap_bytes(SparkSettings(), memory << 30) == 1 << 30
    assert heap_bytes(SparkSettings(profile="long", master="spark://a:7077"), memory << 30) == 1 << 30


def test_the_secret_of_a_cluster_comes_from_a_file_or_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("CANARY\n")
    key = "spark.authenticate.secret"
    settings = SparkSettings(master="spark://h:7077", conf={f"{key}.file": str(file), "spark.authenticate": "true"})
    conf = session_conf(settings, tmp_path, {})
    assert "CANARY" not in str(conf)
    assert secret_conf(conf, {}) == {key: "CANARY"}
    assert secret_conf({key: "${env:CLUSTER}"}, {"CLUSTER": "CANARY"}) == {key: "CANARY"}
    assert secret_conf({}, {}) == {}
    with pytest.raises(DeclareError, match=r"'CLUSTER', which .* names, is not set"):
        secret_conf({key: "${CLUSTER}"}, {})
    with pytest.raises(DeclareError, match="cannot be read"):
        secret_conf({f"{key}.file": str(tmp_path / "none")}, {})
