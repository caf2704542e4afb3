"""Which dead letters are selected: nothing but what was named, also where that is nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from ematix_flow.commit.rejects import Reject
from ematix_flow.engine.stream import operations, topic_replay
from ematix_flow.engine.stream.dead_letters import Selection
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.errors import RunError, UnknownNameError, UnsupportedError

if TYPE_CHECKING:
    from ematix_flow.declare.stream.stream import Stream


def _letter(reject_id: str, at: str = "2026-01-01") -> Reject:
    return Reject(reject_id, "shop:main.orders", "run", "bad", None, None, "{}", "pending", 1, at)


LETTERS = [_letter("a:10", "2026-01-03"), _letter("a:1", "2026-01-02"), _letter("b:1")]


def _ids(chosen: Selection) -> list[str]:
    return [letter.reject_id for letter in chosen.among(LETTERS)]


def test_all_the_first_so_many_or_those_that_are_named() -> None:
    assert _ids(Selection()) == _ids(Selection.of({"kind": "all"})) == ["b:1", "a:1", "a:10"]
    assert _ids(Selection.of({"kind": "first_n", "n": 2})) == ["b:1", "a:1"]
    assert _ids(Selection.of({"kind": "ids", "ids": ["a"]})) == ["a:1", "a:10"]


def test_no_ids_and_the_first_none_select_nothing() -> None:
    assert _ids(Selection(ids=())) == _ids(Selection.of({"kind": "ids", "ids": []})) == []
    assert _ids(Selection.of({"kind": "first_n", "n": 0})) == []


def test_a_whole_id_is_not_the_beginning_of_others() -> None:
    assert _ids(Selection(ids=("a:1",))) == ["a:1"]


@pytest.mark.parametrize("given", ["", "c"])
def test_an_empty_or_unknown_id_is_told(given: str) -> None:
    with pytest.raises(UnknownNameError, match="no dead letter has the id"):
        _ids(Selection(ids=("b:1", given)))


@pytest.mark.parametrize(
    "value",
    [{}, {"kind": "ids"}, {"kind": "ids", "ids": "a:1"}, {"kind": "first_n"}, {"kind": "first_n", "n": -1}],
)
def test_a_selection_that_says_nothing_clear_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(RunError):
        Selection.of(value)


def test_only_a_replay_that_says_nothing_at_all_is_one_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[Selection] = []
    monkeypatch.setattr(operations, "stream_of", lambda pipeline: pipeline)
    monkeypatch.setattr(operations.dead_letters, "replay", lambda _, chosen: replayed.append(chosen))
    operations.dlq_replay("orders")
    with pytest.raises(RunError, match="not known"):
        operations.dlq_replay("orders", {})
    assert replayed == [Selection()]


def test_a_topic_refuses_an_empty_list_of_ids_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_replay, "has_dead_letter_topic", lambda _: True)
    with pytest.raises(UnsupportedError, match="replayed in its order"):
        topic_replay.replay_topic(cast("Stream", Orders()), Selection(ids=()), StreamOptions(), 3)


class Orders:
    """A stream of which only the name matters."""

    name = "orders"
