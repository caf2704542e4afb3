"""Streams in TOML: every key is read or refused with its line, secrets are warned of, and text and value agree."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ematix_flow import (
    CDC,
    DeltaS3Connection,
    GlueSchemaRegistryConnection,
    KafkaConnection,
    ObjectStoreS3Connection,
    PostgresConnection,
    SchemaRegistryConnection,
    Source,
    StateStore,
    Target,
    Watermark,
)
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.stream.toml_writer import toml_of
from ematix_flow.declare.toml import dumps
from ematix_flow.errors import DeclareError

HEAD = """pipeline_name = "s"
source_query = "events"
"""
SOURCE = """
[source]
connection = "kafka"
"""
TARGET = """
[target]
connection = "db"
table = { schema = "public", name = "events" }
"""
S3 = {
    "endpoint": "https://s3", "bucket": "b", "region": "r", "access_key_id": "${A}", "secret_access_key": "${B}",
}  # fmt: skip


def test_connections_may_be_named_instead_of_written_out() -> None:
    keywords = {"source": "kafka", "source_query": "events", "target": "db", "target_table": ("public", "events")}
    assert stream_from_toml(HEAD + SOURCE + TARGET) == stream_from_keywords({"name": "s", **keywords}, None)


@pytest.mark.parametrize(
    ("text", "table", "wrong", "near"),
    [
        (
            HEAD + SOURCE + TARGET + '[[transform.window.aggregations]]\nagg = "count"\nass = "n"\n',
            "[[transform.window.aggregations]]",
            "ass",
            "as",
        ),
        ('delivry = "auto"\n' + HEAD + SOURCE + TARGET, "s.toml", "delivry", "delivery"),
        (
            HEAD + '[source]\nkind = "kafka"\nboot_servers = "x"\n' + TARGET,
            "[source]",
            "boot_servers",
            "bootstrap_servers",
        ),
        (HEAD + SOURCE + TARGET + 'mdoe = "merge"\n', "[target]", "mdoe", "mode"),
        (HEAD + SOURCE + '[target]\nkind = "postgres"\nurl = "x"\nmdoe = "merge"\n', "[target]", "mdoe", "mode"),
        (
            HEAD + SOURCE + '[target]\nconnection = "db"\n[target.table]\nshema = "a"\n',
            "[target.table]",
            "shema",
            "schema",
        ),
        (HEAD + SOURCE + TARGET + '[transform]\nslq = "x"\n', "[transform]", "slq", "sql"),
        (HEAD + SOURCE + TARGET + "[watermark]\nlatness_ms = 1\n", "[watermark]", "latness_ms", "lateness_ms"),
        (HEAD + SOURCE + TARGET + '[transform.cdc]\nenvelop = "x"\n', "[transform.cdc]", "envelop ", "envelope"),
        (
            HEAD + SOURCE + '[[targets]]\nconnection = "a"\ntopic = "t"\n[[targets]]\nconnection = "b"\nquee = "q"\n',
            "[[targets]]",
            "quee",
            "queue",
        ),
        (
            HEAD + SOURCE + TARGET + '[transform.lookups.users]\nconnection = "db"\ntabel = "t"\n',
            "[transform.lookups.users]",
            "tabel",
            "table",
        ),
    ],
)
def test_an_unknown_key_is_refused_where_it_stands(text: str, table: str, wrong: str, near: str) -> None:
    with pytest.raises(DeclareError) as caught:
        stream_from_toml(text, "s.toml")
    assert caught.value.what == f"{table} has an unknown key {wrong.strip()!r}"
    assert f"did you mean {near!r}?" in str(caught.value)
    assert str(caught.value.origin) == f"s.toml:{text[: text.index(wrong)].count(chr(10)) + 1}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipeline_name = ", "is no valid TOML"),
        (SOURCE + TARGET, "has no pipeline_name"),
        ('pipeline_name = "s"\n' + SOURCE + TARGET, r"\[source\] has no source_query"),
        (HEAD + TARGET, r"exactly one of \[source\] and \[\[sources\]\]"),
        (HEAD + SOURCE, r"exactly one of \[target\] and \[\[targets\]\]"),
        (HEAD + SOURCE + TARGET + '[[targets]]\nconnection = "x"\n', r"exactly one of \[target\]"),
        ('pipeline_name = "s"\n[[sources]]\nconnection = "a"\n' + TARGET, r"\[\[sources\]\] has no query"),
        (HEAD + SOURCE + "query = 'x'\n" + TARGET, "source_query and query"),
        (HEAD + "source = 5\n" + TARGET, r"\[source\] is no table"),
        (HEAD + "sources = 5\n" + TARGET, "no list of tables"),
        (HEAD + '[source]\nkind = "kafak"\n' + TARGET, "unknown kind 'kafak'"),
        (HEAD + '[source]\nkind = "kafka"\n' + TARGET, "needs bootstrap_servers"),
        (
            HEAD + SOURCE + '[target]\nconnection = "db"\n[target.table]\nname = "x"\n',
            r"\[target.table\] has no schema",
        ),
        (HEAD + SOURCE + TARGET + 'mode = "upsert"\n', "unknown mode 'upsert'"),
        (HEAD + "idle_pause_ms = 'x'\n" + SOURCE + TARGET, "takes a whole number"),
        (HEAD + SOURCE + TARGET + '[transform]\nengine = "ballista"\n', "engine='ballista'"),
        (HEAD + SOURCE + TARGET + '[transform]\npeers = ["a:1"]\n', "peers and tls belong to"),
        (HEAD + SOURCE + TARGET + "[transform.cdc]\n", "has no envelope"),
        (HEAD + SOURCE + TARGET + '[transform.window]\nkind = "tumbling"\nduration_ms = 5\n', "max_groups_per_window"),
        (HEAD + SOURCE + TARGET + "[transform.window]\nmax_groups_per_window = 5\n", "has no kind"),
        (HEAD + SOURCE + TARGET + "[state_store]\n", r"\[state_store\] has no kind"),
    ],
)
def test_a_wrong_file_is_a_value_error_with_a_line(text: str, message: str) -> None:
    with pytest.raises(DeclareError, match=message) as caught:
        stream_from_toml(text, "s.toml")
    assert caught.value.origin is None or caught.value.origin.file == "s.toml"


def test_a_wrong_value_is_told_with_the_line_of_its_table() -> None:
    text = HEAD + SOURCE + '[[targets]]\nconnection = "a"\ntopic = "t"\n[[targets]]\nconnection = "b"\nmode = "x"\n'
    with pytest.raises(DeclareError, match="unknown mode 'x'") as caught:
        stream_from_toml(text, "s.toml")
    assert str(caught.value.origin) == f"s.toml:{text[: text.rindex('[[')].count(chr(10)) + 1}"


def test_older_words_for_distribution_are_kept_and_change_nothing() -> None:
    text = HEAD + SOURCE + TARGET + '[transform]\nsql = "x"\nengine = "distributed"\npeers = ["a:1"]\n'
    stream = stream_from_toml(text + '[transform.tls]\nca_path = "ca.pem"\n')
    assert (stream.transform.engine, stream.transform.peers) == ("distributed", ("a:1",))
    assert stream_from_toml(toml_of(stream)) == stream


KAFKA = 'kind = "kafka"\nbootstrap_servers = "h:1"\npayload_format = "avro"\n'


@pytest.mark.parametrize(
    ("keys", "registry"),
    [
        ('schema_registry_url = "http://r"', None),
        ('schema_registry = "named"', "named"),
        (
            (
                'schema_registry_url = "http://r"\nschema_registry_kind = "confluent"\n'
                'schema_registry_basic_auth_user = "u"\nschema_registry_basic_auth_password = "${P}"'
            ),
            SchemaRegistryConnection("schema_registry", "http://r", "u", "${P}"),
        ),
        (
            'schema_registry_kind = { kind = "glue", registry_name = "n", region = "r" }',
            GlueSchemaRegistryConnection("schema_registry", "n", "r"),
        ),
    ],
)
def test_a_schema_registry_has_several_spellings(keys: str, registry: Any) -> None:
    stream = stream_from_toml(HEAD + f"[source]\n{KAFKA}{keys}\n" + TARGET)
    connection = stream.sources[0].connection
    assert isinstance(connection, KafkaConnection)
    assert connection.schema_registry == registry
    assert stream_from_toml(toml_of(stream)) == stream


# Secrets


INLINE = HEAD + '[source]\nkind = "kafka"\nbootstrap_servers = "h:1"\nsasl_plain_username = "u"\n'


def test_secrets_in_the_file_are_warned_of_once_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        INLINE + 'sasl_plain_password = "hidden"\n' + '[target]\nkind = "postgres"\nurl = "postgres://u:hidden@h/d"\n'
    )
    text += 'table = "a.b"\n[state_store]\nkind = "postgres"\nurl = "postgres://u:hidden@h/d"\n'
    with pytest.warns(FutureWarning, match="s.toml holds secrets in plain text") as caught:
        stream = stream_from_toml(text, "s.toml")
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "sasl_plain_password of source, url of target, url of state_store" in message
    assert "hidden" not in message
    assert "hidden" not in repr(stream)
    monkeypatch.setenv("EMATIX_FLOW_NO_DEPRECATION", "1")
    assert stream_from_toml(text) == stream


def test_references_are_kept_as_they_are_and_need_no_warning() -> None:
    stream = stream_from_toml(INLINE + 'sasl_plain_password = "${NOT_SET_ANYWHERE}"\n' + TARGET)
    assert stream.sources[0].connection.sasl_plain_password == "${NOT_SET_ANYWHERE}"  # type: ignore[union-attr]
    assert "${NOT_SET_ANYWHERE}" in toml_of(stream)


# Text and value agree


def test_a_bucket_with_a_prefix_of_its_own_stands_in_a_table_of_its_own() -> None:
    bucket = ObjectStoreS3Connection("lake", **S3, format="csv", prefix="base", csv_read_options={"quote": "'"})
    target = Target(connection=bucket, prefix="events", csv_read_options={"has_header": True})
    stream = stream_from_keywords({"name": "s", "source": "k", "source_query": "q", "targets": [target]}, None)
    assert "[targets.connection]" in toml_of(stream)
    assert stream_from_toml(toml_of(stream)) == stream


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12).filter(lambda text: text.strip())
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
KEYS = st.lists(NAMES, min_size=1, max_size=3)
CONNECTIONS = {
    "db": st.one_of(st.just("db"), st.builds(PostgresConnection, NAMES, TEXTS.map(lambda text: "postgres://" + text))),
    "kafka": st.builds(KafkaConnection, NAMES, st.just("h:1"), group_id=st.none() | TEXTS),
    "delta": st.builds(DeltaS3Connection, NAMES, prefix=st.sampled_from(["", "a/b"]), **{k: st.just(v) for k, v in S3.items()}),
}  # fmt: skip
TARGETS = st.one_of(
    st.builds(Target, CONNECTIONS["kafka"], topic=TEXTS, message_key_column=st.none() | NAMES),
    st.builds(
        Target,
        st.one_of(CONNECTIONS["db"], CONNECTIONS["delta"]),
        st.tuples(NAMES, NAMES),
        mode=st.sampled_from(["merge", "scd1", "scd2"]),
        keys=st.none() | KEYS,
        primary_key=st.none() | KEYS,
        partition_by=st.none() | KEYS,
        create_table=st.none() | st.booleans(),
    ),
)
STREAMS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "sources": st.lists(st.builds(Source, CONNECTIONS["kafka"], TEXTS), min_size=1, max_size=2, unique_by=lambda s: s.query),
        "targets": st.lists(TARGETS, min_size=1, max_size=3, unique_by=lambda t: t.topic or t.table),
    },
    optional={
        "transform_sql": TEXTS,
        "transform_on_error": st.sampled_from(["fail", "drop", "dlq"]),
        "dialect": st.sampled_from(["datafusion", "spark", "duckdb", "postgres", "mysql"]),
        "late_horizon": st.sampled_from(["1d", 90, 0.5]),
        "on_bad_row": st.just("reject"),
        "idle_pause_ms": st.integers(0, 1000),
        "metrics_port": st.integers(0, 65_535),
        "max_rows_per_batch": st.integers(1, 10**9),
        "delivery": st.sampled_from(["auto", "at_least_once", "exactly_once"]),
        "dead_letter_topic": TEXTS,
        "watermark": st.builds(Watermark, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)),
        "state_store": st.builds(StateStore, st.just("postgres"), st.just("${URL}"), NAMES),
    },
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=80)
@given(STREAMS)
def test_any_stream_is_the_same_after_toml(keywords: dict[str, Any]) -> None:
    stream = stream_from_keywords(keywords, None)
    assert stream_from_toml(toml_of(stream)) == stream


@pytest.mark.parametrize("fields", [["nick", "a b"], {"nick": "STRING", "items": "ARRAY<STRING>"}])
def test_fields_that_messages_may_lack_survive_toml(fields: Any) -> None:
    keywords = {
        "source": "k",
        "source_query": "q",
        "target": "db",
        "target_table": ("a", "b"),
        "transform_sql": "SELECT 1",
    }
    stream = stream_from_keywords({"name": "s", **keywords, "optional_fields": fields}, None)
    assert list(stream.transform.optional_fields) == list(fields)
    assert stream_from_toml(toml_of(stream)) == stream


def test_change_events_and_odd_words_survive_toml() -> None:
    table = {"op_field": "o", "after_field": "a.b", "key_field": "k", "op_map": {"I U": "create", "D": "delete"}}
    cdc = CDC("custom", **table, delete_mode="soft", soft_delete_column="gone_at")  # type: ignore[arg-type]
    keywords = {"source": "k", "source_query": 'a"\\\n\x7f', "target": "db", "target_table": ("a", "b"), "cdc": cdc}
    stream = stream_from_keywords({"name": "s", **keywords}, None)
    assert stream.targets[0].write.mode == "cdc"
    assert stream_from_toml(toml_of(stream)) == stream
    log = stream_from_keywords({"name": "s", **keywords, "cdc": CDC(), "mode": "append"}, None)
    assert log.targets[0].write.mode == "append"
    assert stream_from_toml(toml_of(log)) == log


def test_the_mode_of_changes_needs_to_know_their_envelope() -> None:
    keywords = {"source": "k", "source_query": "t", "target": "db", "target_table": ("a", "b"), "mode": "cdc"}
    with pytest.raises(DeclareError, match="needs cdc="):
        stream_from_keywords({"name": "s", **keywords}, None)


@pytest.mark.slow
@given(st.dictionaries(TEXTS, st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS | st.lists(TEXTS, max_size=3),
    lambda inner: st.dictionaries(TEXTS, inner, min_size=1, max_size=3) | st.lists(st.dictionaries(TEXTS, inner), min_size=1, max_size=2),
    max_leaves=6,
), max_size=4))  # fmt: skip
@settings(max_examples=60)
def test_plain_values_are_the_same_after_toml(document: dict[str, Any]) -> None:
    assert tomllib.loads(dumps(document)) == document
