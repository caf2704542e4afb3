from __future__ import annotations

import pytest

from ematix_flow.declare.spark_settings import SparkSettings, settings_from
from ematix_flow.errors import DeclareError, DeclareTypeError


def test_nothing_written_means_a_local_spark_that_retries_tasks() -> None:
    settings = settings_from({}, {})
    assert settings == SparkSettings()
    assert settings.master == "local[*, 4]"
    assert settings.is_local


def test_table_and_environment_meet_and_the_environment_wins() -> None:
    table = {"master": "spark://a:7077", "packages": ["g:a:1", "g:b:2"], "profile": "long"}
    environ = {
        "EMATIX_FLOW_SPARK_MASTER": "local[2, 4]",
        "EMATIX_FLOW_SPARK_JARS": "/x.jar, /y.jar,",
        "EMATIX_FLOW_SPARK_REMOTE": "",
        "EMATIX_FLOW_CHECKPOINT_ROOT": "/checkpoints",
        "UNRELATED": "1",
    }
    settings = settings_from(table, environ)
    assert settings.master == "local[2, 4]"
    assert settings.packages == ("g:a:1", "g:b:2")
    assert settings.jars == ("/x.jar", "/y.jar")
    assert settings.profile == "long"
    assert settings.checkpoint_root == "/checkpoints"
    assert settings.remote is None


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.sql.shuffle.partitions": 7, "spark.x": True},
        {"spark": {"sql": {"shuffle": {"partitions": 7}}, "x": True}},
    ],
)
def test_conf_is_the_same_with_quoted_and_with_nested_keys(conf: dict[str, object]) -> None:
    assert settings_from({"conf": conf}, {}).conf == {"spark.sql.shuffle.partitions": "7", "spark.x": "true"}


def test_conf_from_the_environment_has_two_underscores_for_a_dot_and_keeps_small_letters() -> None:
    environ = {
        "EMATIX_FLOW_SPARK_CONF_SPARK__UI__ENABLED": "true",
        "EMATIX_FLOW_SPARK_CONF_spark__sql__maxPlanStringLength": "9",
    }
    settings = settings_from({"conf": {"spark.ui.enabled": False}}, environ)
    assert settings.conf == {"spark.ui.enabled": "true", "spark.sql.maxPlanStringLength": "9"}


@pytest.mark.parametrize(
    ("table", "environ", "message"),
    [
        ({"mastre": "local"}, {}, "did you mean 'master'"),
        ({}, {"EMATIX_FLOW_SPARK_PACKAGE": "x"}, "did you mean 'packages'"),
        ({"worker_imports": ["x"]}, {}, "not a Spark setting"),
        ({"master": 3}, {}, "takes text, not int"),
        ({"packages": 3}, {}, "takes a list"),
        ({"conf": "x"}, {}, "takes a table"),
        ({"conf": {"spark.x": [1]}}, {}, "a text, a number"),
    ],
)
def test_wrong_shapes_are_refused_with_the_nearest_name(
    table: dict[str, object], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(DeclareTypeError, match=message):
        settings_from(table, environ)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"profile": "fast"}, "auto, short, long"),
        ({"conf": {"sql.x": 1}}, "begin with `spark.`"),
        ({"master": "local", "remote": "sc://x"}, "both a `master` and a `remote`"),
    ],
)
def test_wrong_values_are_refused(table: dict[str, object], message: str) -> None:
    with pytest.raises(DeclareError, match=message):
        settings_from(table, {})


def test_a_repr_shows_no_token_of_the_server_address() -> None:
    settings = SparkSettings(remote="sc://host/;token=CANARY", conf={"spark.x": "CANARY"})
    assert "CANARY" not in repr(settings)


def test_settings_that_differ_in_preloaded_modules_only_can_share_a_session() -> None:
    assert SparkSettings(worker_imports=("pymysql",)) == SparkSettings()


def test_the_most_connections_are_a_number_or_asked_of_the_database() -> None:
    assert settings_from({}, {}).max_connections is None
    assert settings_from({"max_connections": 5}, {}).max_connections == 5
    assert settings_from({"max_connections": 5}, {"EMATIX_FLOW_SPARK_MAX_CONNECTIONS": "3"}).max_connections == 3
    assert settings_from({"max_connections": 5}, {}) == settings_from({}, {}), "no reason to replace a session"
    for wrong in (0, -1, "many", True, 10_001):
        with pytest.raises(DeclareError, match="max_connections"):
            settings_from({"max_connections": wrong}, {})
