"""Values of types and charsets of MariaDB: in the log they are the same as in a query."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from ematix_flow.connect.mysql.cdc.logged_values import clock
from ematix_flow.connect.mysql.cdc.values import DATE, TIMESTAMP, fragment
from ematix_flow.errors import RunError, StreamLostError
from tests.connect.change_messages import drained
from tests.connect.test_mysql_cdc import opened, run  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.connect.mysql.cdc.source import MySQLChanges
    from tests.connect.test_mysql_cdc import Statement

TEXTS = {
    "latin1": "x'c381'", "ucs2": "'aé'", "utf16": "'aé\U0001f600'", "utf16le": "'aé'", "utf32": "'aé'", "swe7": "'aé'",
    "dec8": "'aé'", "hp8": "'é'", "koi8r": "'ж'", "sjis": "'日'", "eucjpms": "'日'", "macce": "'é'", "keybcs2": "'č'",
    "geostd8": "'ა'", "armscii8": "'Ա'", "utf8mb4": "'\U0001f600'", "binary": "x'ff00'",
}  # fmt: skip
OTHERS = {
    "ti3": ("time(3)", "'-00:00:01.005'", "-00:00:01.005000"),
    "ti6": ("time(6)", "'-12:34:59.999999'", "-12:34:59.999999"),
    "ti1": ("time(1)", "'-00:00:59.2'", "-00:00:59.200000"),
    "ti": ("time", "'838:59:59'", "838:59:59"),
    "none": ("timestamp(3) NULL", "0", None),
    "epoch": ("datetime", "'1970-01-01 00:00:00'", "1970-01-01T00:00:00"),
    "epoch6": ("datetime(6)", "'1970-01-01 00:00:00'", "1970-01-01T00:00:00"),
    "epochday": ("date", "'1970-01-01'", "1970-01-01"),
    "nowhen": ("datetime", "0", None),
    "en": ("enum('x', 'é') CHARACTER SET latin1", "'é'", "é"),
    "se": ("set('b', 'é', 'c') CHARACTER SET latin1", "'é,c'", "é,c"),
    "lon": (f"enum('x', '{'l' * 200}')", f"'{'l' * 200}'", "l" * 200),
    "col": ("varchar(9) CHARACTER SET ucs2 COLLATE ucs2_uca1400_ai_ci", "'é'", "é"),
    "日" * 50: ("int", "7", 7),
    "u": ("uuid", "'123e4567-e89b-12d3-a456-426655440000'", "123e4567-e89b-12d3-a456-426655440000"),
    "i6": ("inet6", "'2001:db8::1:0:0:0'", None),
    "i60": ("inet6", "'::'", "::"),
    "i64": ("inet6", "'::ffff:10.0.0.32'", "::ffff:10.0.0.32"),
    "i4": ("inet4", "'10.1.2.0'", "10.1.2.0"),
    "b16": ("binary(16)", "'a'", "YQAAAAAAAAAAAAAAAAAAAA=="),
}


@pytest.mark.service
def test_texts_of_every_charset_and_rare_types_are_the_same_in_the_log(
    run: Statement,  # noqa: F811
    opened: Callable[..., MySQLChanges],  # noqa: F811
) -> None:
    run("SET time_zone = '+00:00', sql_mode = ''")
    run("SET NAMES utf8mb4")
    texts = {f"{name}_text": (f"varchar(20) CHARACTER SET {name}", value, "") for name, value in TEXTS.items()}
    columns = texts | OTHERS
    run(
        f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(f'`{name}` {kind}' for name, (kind, _, _) in columns.items())})"
    )
    row = f"INSERT INTO t VALUES (1, {', '.join(value for _, value, _ in columns.values())})"
    run(row)
    source = opened("t")
    rows, position = drained(source, source.start("earliest"))
    run("DELETE FROM t")
    run(row)
    changes, _ = drained(source, position)
    (read,), logged = rows, changes[-1]["after"]
    assert logged == read["after"]
    assert {name: logged[name] for name, (_, _, wanted) in OTHERS.items() if wanted is not None} == {
        name: wanted for name, (_, _, wanted) in OTHERS.items() if wanted is not None
    }
    assert (logged["none"], logged["latin1_text"], logged["utf16_text"]) == (None, "Ã\x81", "aé\U0001f600")
    assert logged["nowhen"] is None
    assert changes[0]["before"] == logged


@pytest.mark.parametrize(
    ("packed", "digits", "time"),
    [
        (0x800000, 0, timedelta()),
        (0x7FFFFE_FFCE, 4, -timedelta(seconds=1, milliseconds=5)),
        (0x7FFFFE_CE, 2, -timedelta(seconds=1, milliseconds=500)),
        (0x800001_07A120, 6, timedelta(seconds=1, milliseconds=500)),
        (0x4B9105, 0, -timedelta(hours=838, minutes=59, seconds=59)),
    ],
)
def test_times_are_read_from_their_bytes(packed: int, digits: int, time: timedelta) -> None:
    assert clock(packed, digits) == time


def test_the_instant_that_is_none_is_null() -> None:
    assert fragment(datetime(1970, 1, 1), TIMESTAMP) == "null"  # noqa: DTZ001
    assert fragment(datetime(1970, 1, 1), DATE) == '"1970-01-01T00:00:00"'  # noqa: DTZ001
    assert fragment("0000-00-00", DATE) == "null"
    assert fragment(datetime(1970, 1, 1, 0, 0, 1), TIMESTAMP) == '"1970-01-01T00:00:01Z"'  # noqa: DTZ001


@pytest.mark.service
def test_what_the_log_has_otherwise_is_said(
    run: Statement,  # noqa: F811
    opened: Callable[..., MySQLChanges],  # noqa: F811
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY, what text)")
    run("CREATE TABLE packed (id int PRIMARY KEY, what varchar(1000) COMPRESSED)")
    source, other = opened("t"), opened("packed")
    (_, position), (_, behind) = drained(source, source.start("earliest")), drained(other, other.start("earliest"))
    run("INSERT INTO packed VALUES (1, 'a')")
    with pytest.raises(RunError, match="cannot be read behind bin") as unknown:
        other.ahead(behind, 1)
    assert "COMPRESSED" in str(unknown.value.hint)
    run("SET GLOBAL log_bin_compress = 1")
    try:
        run("INSERT INTO t VALUES (1, repeat('a', 2000))")
    finally:
        run("SET GLOBAL log_bin_compress = 0")
    run("INSERT INTO t VALUES (2, 'b')")
    with pytest.raises(StreamLostError, match="compressed changes"):
        source.ahead(position, 1)
