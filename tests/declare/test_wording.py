"""Counts for people: one row, two rows, and no text of the product that says `1 rows`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ematix_flow.wording import quantity

SRC = Path(__file__).parents[2] / "src" / "ematix_flow"
COUNTED = re.compile(r"\{([^{}]+)\} (?:rows|files|slots|batches|entries|pipelines)\b")
PLURALS = ("MOST", "of {total", "seen {", "len(found) or", "file_format", "option_format", "read.format", "len(sent)")
"""Numbers that are never one, and words that are no numbers."""


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows"), (-1, "-1 rows")]
)
def test_a_count_has_the_form_of_its_word(number: int, text: str) -> None:
    assert quantity(number, "row") == text


def test_a_plural_without_a_plain_s_is_given() -> None:
    assert [quantity(n, "batch", "batches") for n in (1, 3)] == ["1 batch", "3 batches"]


def test_counts_in_texts_go_through_one_place() -> None:
    wrong = [
        f"{file.relative_to(SRC)}: {match.group()}"
        for file in SRC.rglob("*.py")
        for match in COUNTED.finditer(file.read_text(encoding="utf-8"))
        if not any(plural in match.group() for plural in PLURALS)
    ]
    assert wrong == []
