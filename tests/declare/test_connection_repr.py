from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.declare.connection.registry import KINDS, KafkaConnection, PostgresConnection, SchemaRegistryConnection
from ematix_flow.declare.masking import is_secret_field, mask_text, secrets_in
from ematix_flow.errors import DeclareError
from tests.declare.test_connection import COMPLETE

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import Connection

CANARY = "c4n4ry-5ecret"
canaries = st.text(max_size=20).map(lambda middle: CANARY + middle + CANARY)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://u:pw@h/d", "postgres://u:<redacted>@h/d"),
        ("postgres://u@h:5432/d", "postgres://u@h:5432/d"),
        ("postgres://h:5432/d", "postgres://h:5432/d"),
        ("postgres://u:@h/d", "postgres://u:@h/d"),
        ("postgres://u:p@s/s@h/d", "postgres://u:<redacted>@h/d"),
        ("postgres://h/d?user=u&password=pw&a=1", "postgres://h/d?user=u&password=<redacted>&a=1"),
        ("host=h password='p w' user=u", "host=h password=<redacted> user=u"),
        ("${WAREHOUSE_DSN}", "${WAREHOUSE_DSN}"),
    ],
)
def test_repr_of_urls(url: str, shown: str) -> None:
    expected = f"PostgresConnection(name='w', kind='postgres', url={shown!r}, timezone=None)"
    assert repr(PostgresConnection("w", url)) == expected


def test_none_stays_none_and_nested_connections_hide_theirs() -> None:
    registry = SchemaRegistryConnection("sr", f"http://u:{CANARY}@sr", "u", CANARY)
    kafka = KafkaConnection("k", "h:1", schema_registry=registry, sasl_plain_username="u", sasl_plain_password=CANARY)
    assert "sasl_plain_password='<redacted>'" in repr(kafka)
    assert "sasl_scram_password=None" in repr(kafka)
    assert "basic_auth_password='<redacted>'" in repr(kafka)
    assert CANARY not in repr(kafka)


def test_running_text_is_masked() -> None:
    text = 'cannot reach postgres://u:pw1@h/d and {"token": "pw2"}, api_key=pw3 Password = pw4; s.token = t.token'
    masked = mask_text(text)
    assert not [part for part in ("pw1", "pw2", "pw3", "pw4") if part in masked]
    assert masked.endswith("s.token = t.token")
    assert secrets_in("postgres://u:pw1@h/d?sslpassword=pw2") == ["pw1", "pw2"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
@given(canary=canaries)
def test_no_secret_is_shown(kind: str, canary: str) -> None:
    connection = KINDS[kind]("c", **COMPLETE[kind])
    for field, value in connection.settings().items():
        planted = _planted(field, value, canary)
        if planted is not None:
            for shown in _shown(connection, field, planted):
                assert CANARY not in shown


def _planted(field: str, value: object, canary: str) -> str | None:
    if is_secret_field(field):
        return canary
    if isinstance(value, str) and "://" in value:
        return f"{value.partition('://')[0]}://u:{canary}@h/d"
    return None


def _shown(connection: Connection, field: str, planted: str) -> list[str]:
    try:
        changed = replace(connection, **{field: planted})
    except DeclareError as error:
        return [str(error), repr(error)]
    return [
        repr(changed),
        str(changed),
        f"{changed}",
        f"{changed!r:>10}",
        format(changed, "<300"),
        f"{[changed]}",
        str({"c": changed}),
    ]
