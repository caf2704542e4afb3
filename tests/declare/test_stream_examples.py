"""The documented streams: each is accepted as it stands, and TOML and Python give one value."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.stream.toml_writer import toml_of
from ematix_flow.declare.table.class_body import table_of

if TYPE_CHECKING:
    from ematix_flow.declare.stream.stream import Stream
    from tests.declare.conftest import StreamRequests

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "readme" / "streams"
PAIRS = sorted(path.stem for path in FOLDER.glob("*.toml") if path.stem != "seed")
ONLY_PYTHON = {
    "option-chain-with-greeks": "functions of Python",
    "vwap-per-minute": "functions of Python",
    "mirror_customers": "a table class",
}


def test_every_documented_stream_is_accepted(documented: dict[str, Stream], requests: StreamRequests) -> None:
    assert sorted(documented) == sorted([*PAIRS, *ONLY_PYTHON])
    assert len(requests.streams) == 11
    assert all(options == {} for options in requests.options)


@pytest.mark.parametrize("name", PAIRS)
def test_toml_and_python_declare_the_same_stream(name: str, documented: dict[str, Stream]) -> None:
    text = (FOLDER / f"{name}.toml").read_text()
    assert stream_from_toml(text) == documented[name]


@pytest.mark.parametrize("name", PAIRS)
def test_a_stream_written_as_toml_is_the_same_stream(name: str, documented: dict[str, Stream]) -> None:
    text = toml_of(documented[name])
    assert stream_from_toml(text) == documented[name]
    assert toml_of(stream_from_toml(text)) == text


@pytest.mark.parametrize(("name", "message"), ONLY_PYTHON.items())
def test_what_only_python_can_say_has_no_toml(name: str, message: str, documented: dict[str, Stream]) -> None:
    with pytest.raises(ValueError, match=message):
        toml_of(documented[name])


def test_the_first_document_names_its_connections_by_their_place() -> None:
    stream = stream_from_toml((FOLDER / "seed.toml").read_text(), "pipeline.toml")
    assert (stream.name, stream.sources[0].query, stream.idle_pause_ms) == ("events-to-pg", "events", 500)
    assert (stream.sources[0].connection_name, stream.targets[0].connection_name) == ("source", "target")
    assert stream.targets[0].table_name == ("public", "events")
    assert str(stream.origin) == "pipeline.toml:2"


def test_a_table_class_as_target_has_its_connection_beside_it(documented: dict[str, Stream]) -> None:
    target = documented["mirror_customers"].targets[0]
    assert target.connection_name == "warehouse"
    assert target.declared_table is not None
    assert target.declared_table.primary_key == ("customer_id",)
    assert target.destination == "public.customer_mirror"
    assert table_of(target.table) is target.table
