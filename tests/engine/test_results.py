"""Results as a run log keeps them: JSON without secrets, bounded, and again the result of its run."""

from __future__ import annotations

import json

import pytest

from ematix_flow.connect.config import secrets
from ematix_flow.engine.batch.result import MAX_RESULT_CHARACTERS, loaded_in, result_from_text, result_to_text

ONE = {"run_id": "r1", "status": "success", "path": "same_db", "rows_inserted": 1200, "rows_rejected": 0}
TWO = {"a.t": ONE, "a.u": {**ONE, "rows_inserted": 3}}


def test_a_kept_result_is_marked_as_that_of_an_earlier_run() -> None:
    assert result_from_text(result_to_text(ONE)) == {**ONE, "recovered": True}
    assert [one["recovered"] for one in result_from_text(result_to_text(TWO)).values()] == [True, True]
    assert result_from_text(result_to_text(None)) is None
    assert result_from_text(result_to_text({"rows": (1, 2)})) == {"rows": [1, 2]}


def test_of_a_long_result_the_counts_are_kept() -> None:
    long = {**ONE, "quality": {"checks": ["x" * 100] * 5000}}
    assert len(result_to_text(long)) < MAX_RESULT_CHARACTERS
    assert json.loads(result_to_text(long)) == ONE
    assert json.loads(result_to_text("x" * MAX_RESULT_CHARACTERS)) == {}


def test_what_is_no_json_is_kept_as_a_success() -> None:
    assert json.loads(result_to_text({(1, 2): "keys that are no text"})) == {}


def test_a_kept_result_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_PASSWORD", "hunter2hunter2")
    secret = secrets.expand("${CANARY_PASSWORD}")
    assert "hunter2" not in result_to_text({**ONE, "said": [f"logged in with {secret}"]})


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (ONE, "1,200 inserted"),
        (TWO, "a.t: 1,200 inserted; a.u: 3 inserted"),
        ({**ONE, "rows_inserted": 0}, "nothing to change"),
        (None, "nothing to change"),
    ],
)
def test_a_result_is_told_in_words(result: object, message: str) -> None:
    assert loaded_in(result) == message
