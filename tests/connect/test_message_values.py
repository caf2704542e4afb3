from __future__ import annotations

import math
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from ematix_flow.connect.formats.schema_decoders import require_module
from ematix_flow.connect.formats.values import UnfitError, fitted, plain, text_of, tree
from ematix_flow.connect.schema_registry.confluent import ConfluentRegistry
from ematix_flow.connect.schema_registry.requests import Login
from ematix_flow.errors import MissingExtraError

INSTANT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
SOME_UUID = UUID("2b0e3c1a-7c55-4f0e-9c5e-00000000abcd")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (7, "big_int", "7"),
        (2**64 - 1, "numeric", "18446744073709551615"),
        (3.0, "integer", "3"),
        (3.5, "integer", "3.5"),
        (True, "big_int", "1"),
        (False, "boolean", "false"),
        (1.0, "boolean", "1"),
        (True, "text", "true"),
        (1e-7, "numeric", "0.0000001"),
        (Decimal("1.50"), "numeric", "1.50"),
        (Decimal("1E+3"), "big_int", "1000"),
        (INSTANT, "timestamp_tz", "2026-01-02T03:04:05.678901Z"),
        (INSTANT.astimezone(timezone(timedelta(hours=5))), "date", "2026-01-02"),
        (INSTANT.replace(tzinfo=None), "timestamp", "2026-01-02T03:04:05.678901"),
        (date(2026, 1, 2), "date", "2026-01-02"),
        (time(3, 4, 5, 6), "text", "03:04:05.000006"),
        (SOME_UUID, "uuid", str(SOME_UUID)),
        (SOME_UUID.bytes, "uuid", str(SOME_UUID)),
        ("as it is", "jsonb", "as it is"),
        (12, "json", "12"),
        ({"a": [1, None, Decimal("1.10")], "b": b"\0"}, "text", '{"a":[1,null,1.10],"b":"AA=="}'),
        (b"\0\xff", "bytes", b"\0\xff"),
        ("ä", "bytes", "ä".encode()),
        (Decimal("0.25"), "double", 0.25),
        ({"n": Decimal("1E+400")}, "jsonb", f'{{"n":1{"0" * 400}}}'),
        ("1e3", "double", 1000.0),
        (None, "double", None),
    ],
)
def test_a_value_is_put_as_its_column_takes_it(value: Any, kind: str, expected: Any) -> None:
    fitted_value = fitted(value, kind)
    assert fitted_value == expected
    assert type(fitted_value) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(b"abc", "text"), (b"abc", "uuid"), (7, "bytes"), ("abc", "double"), (10**400, "double"), ([1], "float")],
)
def test_a_value_that_has_no_place_is_refused(value: Any, kind: str) -> None:
    with pytest.raises(UnfitError):
        fitted(value, kind)


def test_numbers_without_a_value_stay_what_they_are() -> None:
    assert math.isnan(float(fitted(math.nan, "double") or 0))
    assert fitted(-math.inf, "float") == -math.inf
    assert tree({"n": math.nan, "i": [-math.inf]}) == {"n": "NaN", "i": ["-Infinity"]}


def test_json_keeps_every_digit() -> None:
    assert text_of({"n": 2**63, "d": Decimal("1.000"), "f": 0.1}) == '{"n":9223372036854775808,"d":1.000,"f":0.1}'


def test_frames_get_text_for_what_they_do_not_know() -> None:
    given = {"u": SOME_UUID, "l": [time(1, 2)], "d": Decimal("1.5")}
    assert plain(given) == {"u": str(SOME_UUID), "l": ["01:02:00"], "d": Decimal("1.5")}


def test_a_login_is_never_shown() -> None:
    login = Login("me", "canary-registry-2J9k")
    assert "canary" not in repr(login) + repr(ConfluentRegistry("http://localhost", login))


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingExtraError, match="'fastavro'") as caught:
        require_module("fastavro", "avro")
    assert caught.value.hint == 'pip install "ematix-flow-spark[avro]"'
