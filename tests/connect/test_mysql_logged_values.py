"""Values of the binary log that the library leaves as bytes: what a server says of charsets is queried once."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from pymysqlreplication.constants import FIELD_TYPE

from ematix_flow.connect.change_log.tables import TableId
from ematix_flow.connect.mysql.cdc.binlog import LogReader
from ematix_flow.connect.mysql.cdc.columns import leave_bytes
from ematix_flow.connect.mysql.cdc.logged_values import ColumnReader

ITEMS = TableId("shop", "items")
_CONVERT = re.compile(r"SELECT CONVERT\(_(\w+) X'([0-9a-f]*)'")
_CODECS = {"latin1": "latin-1", "eucjpms": "euc_jp", "sjis": "cp932"}


class Server:
    """A server that converts texts, and the queries that it was sent."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def session(self) -> Any:
        self.queries.append("connect")
        return SimpleNamespace(query=self.query, close=lambda: None)

    def query(self, sql: str, parameters: tuple[str, ...]) -> list[tuple[Any, ...]]:
        self.queries.append(sql)
        convert = _CONVERT.match(sql)
        if convert is not None:
            return [(bytes.fromhex(convert[2]).decode(_CODECS[convert[1]]),)]
        return [(int(parameters[0] == "latin1"),)] if "maxlen" in sql else [("id", "uuid", None)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(LogReader, "session", lambda _: server.session())
    return server


def reader(url: str) -> ColumnReader:
    return ColumnReader(LogReader(SimpleNamespace(name="my", url=url)))  # type: ignore[arg-type]


def column(kind: int, **more: Any) -> Any:
    return SimpleNamespace(name="id", type=kind, collation_name=None, set_values=None, **more)


def test_every_byte_of_a_charset_is_its_character(server: Server) -> None:
    first = reader("mysql://h/bytes")
    assert first.text(bytes(range(256)), "latin1") == bytes(range(256)).decode("latin-1")
    assert first.text(b"", "latin1") == ""


def test_a_charset_is_queried_once_by_all_that_read_from_a_server(server: Server) -> None:
    assert reader("mysql://h/once").text(b"\xe9", "latin1") == "é"
    before = len(server.queries)
    assert reader("mysql://h/once").text(b"\xe8\xe9", "latin1") == "èé"
    assert len(server.queries) == before
    assert reader("mysql://other/once").text(b"\xe9", "latin1") == "é"
    assert len(server.queries) == 2 * before


def test_a_value_that_only_the_server_can_convert_is_queried_once(server: Server) -> None:
    japanese = reader("mysql://h/values")
    assert {japanese.text("日".encode("euc_jp"), "eucjpms") for _ in range(9)} == {"日"}
    assert {japanese.text(b"\x87\x40", "sjis") for _ in range(9)} == {"①"}, "which Python's codec does not have"
    assert sum(one.startswith("SELECT CONVERT") for one in server.queries) == 2


def test_members_are_read_once_for_a_column(server: Server) -> None:
    one, chosen = reader("mysql://h/members"), column(FIELD_TYPE.SET)
    leave_bytes([chosen], own_types=False)
    chosen.charset, chosen.set_values = "latin1", ["b", "\udce9"]
    members = one.members(ITEMS, chosen)
    assert members == ("b", "é")
    assert one.members(ITEMS, chosen) is members
    assert one.members(ITEMS, column(FIELD_TYPE.SET)) == ()


@pytest.mark.parametrize("own_types", [True, False])
def test_only_a_server_with_types_of_its_own_is_queried_for_them(server: Server, own_types: bool) -> None:
    one, chosen = reader("mysql://h/types"), column(FIELD_TYPE.STRING, max_length=16)
    leave_bytes([chosen], own_types=own_types)
    chosen.charset = "binary"
    expected = "00000000-0000-0000-0000-000000000000" if own_types else b""
    assert one.value(ITEMS, chosen, b"") == expected
    assert bool(server.queries) == own_types
