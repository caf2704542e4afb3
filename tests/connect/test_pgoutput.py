"""The decoder of pgoutput on bytes that PostgreSQL 15 wrote, and on bytes that nobody wrote."""

from __future__ import annotations

import pytest

from ematix_flow.connect.postgres.cdc.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Relation,
    RelationColumn,
    RowChange,
    Truncated,
    decode,
    format_lsn,
    parse_lsn,
)
from ematix_flow.connect.postgres.cdc.values import Types
from ematix_flow.errors import RunError


def relation(identity: str, *, whole: bool) -> Relation:
    """Return the table of the messages, whose old rows have its key or are whole."""
    columns = (("id", 23, True), ("what", 25, whole), ("big", 25, whole))
    return Relation(16384, "public", "t", identity, tuple(RelationColumn(*one) for one in columns))


WRITTEN = [
    "42000000000150732800030372ce2130f6000002d8",
    "52000040007075626c69630074006400030169640000000017ffffffff00776861740000000019ffffffff006269670000000019ffffffff",
    "49000040004e00037400000001326e7400000000",
    "43000000000001507328000000000150735800030372ce2130f6",
    "55000040004e000374000000013174000000016275",
    "55000040004b00037400000001326e6e4e00037400000001336e7400000000",
    "52000040007075626c69630074006600030169640000000017ffffffff01776861740000000019ffffffff016269670000000019ffffffff",
    "55000040004f00037400000001336e74000000004e000374000000013374000000017a7400000000",
    "44000040004f000374000000013374000000017a7400000000",
    "52000040007075626c69630074006600030169640000000017ffffffff01776861740000000019ffffffff016269670000000019ffffffff",
    "54000000010000004000",
]
EXPECTED = [
    Begin(commit_lsn=22049576, at_us=1794901349568758, xid=728),
    relation("d", whole=False),
    RowChange(operation="I", relation=16384, old=None, old_kind="", new=("2", None, "")),
    Commit(commit_lsn=22049576, end_lsn=22049624, at_us=1794901349568758),
    RowChange(operation="U", relation=16384, old=None, old_kind="", new=("1", "b", UNCHANGED)),
    RowChange(operation="U", relation=16384, old=("2", None, None), old_kind="K", new=("3", None, "")),
    relation("f", whole=True),
    RowChange(operation="U", relation=16384, old=("3", None, ""), old_kind="O", new=("3", "z", "")),
    RowChange(operation="D", relation=16384, old=("3", "z", ""), old_kind="O", new=None),
    relation("f", whole=True),
    Truncated(relations=(16384,)),
]


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_what_a_server_wrote_is_read(number: int) -> None:
    assert decode(bytes.fromhex(WRITTEN[number])) == EXPECTED[number]


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_a_message_that_is_cut_is_refused_and_never_half_read(number: int) -> None:
    data = bytes.fromhex(WRITTEN[number])
    for length in range(len(data)):
        with pytest.raises(RunError, match="cannot be read"):
            decode(data[:length])


def test_a_message_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RunError, match="no kind of message"):
        decode(b"S\0\0\0\1")
    assert decode(b"Y\0\0\0\1public\0mood\0") is None


@pytest.mark.parametrize("text", ["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"])
def test_positions_are_written_as_the_server_does(text: str) -> None:
    assert format_lsn(parse_lsn(text)) == text


@pytest.mark.parametrize(
    ("oid", "text", "expected"),
    [
        (1700, "1.10", "1.10"),
        (1700, "-NaN", '"-NaN"'),
        (701, "1e+20", "1e+20"),
        (701, "Infinity", '"Infinity"'),
        (16, "f", "false"),
        (17, "\\x", '""'),
        (1184, "2026-01-02 03:04:05.6+00", '"2026-01-02T03:04:05.6Z"'),
        (1184, "infinity", '"infinity"'),
        (1114, "0001-01-01 00:00:00 BC", '"0001-01-01 00:00:00 BC"'),
        (1009, '{a,"b,c",NULL,"NULL","\\"\\\\{}"}', '["a","b,c",null,"NULL","\\"\\\\{}"]'),
        (1007, "[-1:0]={1,2}", "[1,2]"),
        (1231, "{{1,2},{3,NaN}}", '[[1,2],[3,"NaN"]]'),
        (1000, "{t,f,NULL}", "[true,false,null]"),
        (99999, 'any "text"', '"any \\"text\\""'),
    ],
)
def test_values_become_json(oid: int, text: str, expected: str) -> None:
    assert Types().converter(oid)(text) == expected


def test_domains_and_arrays_of_users_count_as_what_they_are_made_of() -> None:
    types = Types({70000: (23, 0), 70001: (0, 70000), 70002: (70001, 0)})
    assert types.converter(70002)("{1,2}") == "[1,2]"
