from __future__ import annotations

from typing import Annotated, Any, Optional

import pytest

from ematix_flow.declare.table.types import ALL_TYPES, ColumnType, as_type, read_annotation, type_from_annotation
from ematix_flow.types import BigInt, Numeric, String, Text

KINDS = {
    "small_int", "integer", "big_int", "float", "double", "boolean", "text", "date", "timestamp", "timestamp_tz",
    "json", "jsonb", "uuid", "bytes", "string", "numeric",
}  # fmt: skip


def test_there_are_sixteen_types_with_their_kinds() -> None:
    assert {t.kind for t in ALL_TYPES} == KINDS
    assert len(ALL_TYPES) == 16


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (BigInt, (BigInt(), False)),
        (BigInt(), (BigInt(), False)),
        (BigInt | None, (BigInt(), True)),
        (None | BigInt, (BigInt(), True)),
        (BigInt() | None, (BigInt(), True)),
        (Optional[BigInt], (BigInt(), True)),  # noqa: UP045 - users write it
        (String[256], (String(256), False)),
        (String[256] | None, (String(256), True)),
        (None | String[256], (String(256), True)),
        (Optional[String[256]], (String(256), True)),  # noqa: UP045 - users write it
        (Numeric[10, 2], (Numeric(10, 2), False)),
        (Numeric(10, 2) | None, (Numeric(10, 2), True)),
        (Annotated[Text | None, "note"], (Text(), True)),
        (Optional[Annotated[Text, "note"]], (Text(), True)),  # noqa: UP045 - users write it
    ],
)
def test_annotations_give_a_type_and_nullability(annotation: object, expected: tuple[ColumnType, bool]) -> None:
    assert type_from_annotation(annotation) == expected


def test_markers_keep_their_order() -> None:
    assert read_annotation(Annotated[Annotated[Text, 1], 2, 3])[2] == (1, 2, 3)


@pytest.mark.parametrize("length", [0, -1])
def test_a_string_needs_a_length_above_zero(length: int) -> None:
    with pytest.raises(ValueError, match="length"):
        String[length]


@pytest.mark.parametrize("arguments", [(0, 0), (5, 6), (5, -1)])
def test_a_numeric_needs_fitting_digits(arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="precision"):
        Numeric[arguments]


@pytest.mark.parametrize("arguments", [10, (10,), (1, 2, 3), ("10", "2")])
def test_a_numeric_needs_two_numbers(arguments: Any) -> None:
    with pytest.raises(TypeError):
        Numeric[arguments]


@pytest.mark.parametrize("wrong", [String, Numeric, int, "text", None, ColumnType, BigInt | Text, list[int]])
def test_what_is_no_type_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError):
        type_from_annotation(wrong)


def test_bare_parametrised_types_ask_for_arguments() -> None:
    with pytest.raises(TypeError, match=r"String\[256\]"):
        as_type(String)


def test_types_are_values() -> None:
    assert String[5] == String(5) != String(6)
    assert len({BigInt(), BigInt(), Text()}) == 2
    assert str(Numeric[10, 2]) == "Numeric[10, 2]"
    assert str(BigInt()) == "BigInt"
    assert Numeric(10, 2).to_spec() == {"kind": "numeric", "precision": 10, "scale": 2}
