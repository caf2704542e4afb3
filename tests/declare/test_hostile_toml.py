"""Configurations that nobody writes in good faith: each is refused at once, with an error for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from ematix_flow.declare.stream.decorator import load_stream
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.toml import LARGEST, line_of
from ematix_flow.errors import DeclareError

# Whoever waits for minutes meets this instead; refusing takes milliseconds.
pytestmark = pytest.mark.timeout(30)

ENDPOINTS = """
[source]
kind = "kafka"
bootstrap_servers = "broker:9092"
[target]
kind = "sqlite"
path = "lite.db"
table = {schema = "main", name = "orders"}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("x = " + "[" * 50_000, "nested too deeply", id="arrays"),
        pytest.param("x = " + "{a=" * 50_000, "nested too deeply", id="inline tables"),
        pytest.param("a." * 20_000 + "b = 1", "more than 50 parts", id="dotted key"),
        pytest.param("[" + "a . " * 20_000 + "b]", "more than 50 parts", id="header"),
        pytest.param("x = {" + '"a".' * 20_000 + "b = 1}", "more than 50 parts", id="quoted key"),
        pytest.param("x = " + "9" * 5_000, "no valid TOML", id="digits"),
        pytest.param("x = '" + "a" * LARGEST + "'", "longer than 262,144 characters", id="long"),
        pytest.param('x = """' + 'a"' * (LARGEST // 3), "Unterminated string", id="open string"),
        pytest.param('x = "\0"', "Illegal character", id="NUL"),
        pytest.param("\N{ZERO WIDTH NO-BREAK SPACE}x = 1", "Invalid statement", id="byte order mark"),
        pytest.param('source = "x"\ntarget = 5\npipeline_name = "a"', r"\[source\] is no table", id="no table"),
        pytest.param(
            f'pipeline_name = "a"\nidle_pause_ms = inf\nsource_query = "t"{ENDPOINTS}', "idle_pause", id="inf"
        ),
        pytest.param(
            f'pipeline_name = "a"\nidle_pause_ms = -5\nsource_query = "t"{ENDPOINTS}', "idle_pause", id="minus"
        ),
        pytest.param(f'pipeline_name = ["a"]\nsource_query = "t"{ENDPOINTS}', "name", id="list as name"),
    ],
)
def test_what_cannot_be_a_stream_is_refused_at_once(text: str, message: str) -> None:
    with pytest.raises(DeclareError, match=message) as refused:
        stream_from_toml(text)
    assert len(str(refused.value)) < 1_000


@pytest.mark.slow
def test_many_tables_are_read_in_one_go() -> None:
    count = 3_500
    lookups = "".join(f'[transform.lookups.l{n}]\nkind = "sqlite"\npath = "x"\nquery = "q"\n' for n in range(count))
    stream = stream_from_toml(
        f'pipeline_name = "a"\nsource_query = "t"{ENDPOINTS}[transform]\nsql = "SELECT 1"\n{lookups}'
    )
    assert len(stream.lookups) == count
    assert line_of(lookups, ("transform", "lookups", f"l{count - 1}"), "path") == 4 * count - 1


def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    with pytest.raises(DeclareError, match="longer than"):
        load_stream("/dev/zero")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\x80\x04\x95."])
def test_a_file_that_is_no_text_is_refused(content: bytes) -> None:
    Path("stream.toml").write_bytes(content)
    with pytest.raises(DeclareError, match="cannot be read"):
        load_stream("stream.toml")
