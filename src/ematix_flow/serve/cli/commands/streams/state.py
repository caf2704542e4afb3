"""`flow stream state`: shows what a stream remembers, row by row; the engine reads it, this command prints."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.plan.stream.state import instant_of
from ematix_flow.serve.cli.common.errors import DONE, as_usage_error
from ematix_flow.serve.cli.common.find_streams import find_stream, stream_named
from ematix_flow.serve.cli.common.options import COUNT, common_options, format_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.spark import stop_spark_at_end
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from ematix_flow.engine.stream.state.contents import StateContents
    from ematix_flow.run.streams.remembered import Remembered

_HEADERS = ("KIND", "STATUS", "BEGINS", "ENDS", "AGE", "ROWS", "BYTES", "VALUES")


@click.command()
@stream_named
@click.option("--limit", type=COUNT, default=100, show_default=True, help="Show at most so many rows.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Only rows with this value; may be given several times.",
)
@format_option
@common_options
def state(name: str, module: str | None, config: str | None, form: str, limit: int, keys: tuple[str, ...]) -> int:
    """Show what a stream remembers: open windows and sessions, rows of joins, keys.

    Nothing is changed; the stream may run meanwhile. AGE is by the time of events: the watermark less the beginning.
    """
    chosen = dict(_pair(key) for key in keys)
    declaration = find_stream(name, module, config)
    stop_spark_at_end()
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.state.contents import state_contents
    from ematix_flow.errors import UnknownNameError

    try:
        contents = state_contents(declaration, StreamOptions(), limit, chosen)
    except UnknownNameError:
        with as_usage_error():
            raise
    if form == "json":
        emit_json({"stream": declaration.name, "targets": [_as_dict(one) for one in contents]})
    else:
        for one in contents:
            _print(one)
    return DONE


def _pair(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not column or not equals:
        raise click.UsageError(f"--key {text!r} is not COLUMN=VALUE.")
    return column, value


def _print(contents: StateContents) -> None:
    if contents.batch is None or contents.oldest is None:
        emit(f"{contents.target}: nothing is remembered yet")
        return
    oldest = contents.oldest
    watermark = "none yet" if contents.watermark is None else _time(contents.watermark)
    size = f"{quantity(oldest.total, 'row')}, {oldest.bytes:,} bytes"
    emit(f"{contents.target}: {size}, watermark {watermark}, batch {contents.batch}")
    if oldest.rows:
        emit(table(_HEADERS, [_row(one, contents.watermark) for one in oldest.rows]))
    if oldest.total > len(oldest.rows):
        talk(f"these are the oldest {len(oldest.rows)} of {oldest.total:,}; --limit shows more.")


def _row(one: Remembered, watermark: int | None) -> tuple[object, ...]:
    values = json.dumps(one.columns, ensure_ascii=False, default=str)
    times = _time(one.begin), _time(one.end), _age(one, watermark)
    return (one.kind, one.status, *times, f"{one.rows:,}", f"{one.bytes:,}", values)


def _age(one: Remembered, watermark: int | None) -> str:
    """Return how long ago something began, by the time of events."""
    if watermark is None or watermark < one.begin:
        return ""
    return str(timedelta(seconds=(watermark - one.begin) // 1_000_000))


def _time(micros: int) -> str:
    return f"{instant_of(micros):%Y-%m-%d %H:%M:%S}"


def _as_dict(contents: StateContents) -> dict[str, Any]:
    watermark, oldest = contents.watermark, contents.oldest
    return {
        "target": contents.target,
        "watermark": None if watermark is None else instant_of(watermark).isoformat(),
        "batch": contents.batch,
        "total": 0 if oldest is None else oldest.total,
        "bytes": 0 if oldest is None else oldest.bytes,
        "rows": [] if oldest is None else [_row_dict(one, watermark) for one in oldest.rows],
    }


def _row_dict(one: Remembered, watermark: int | None) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "status": one.status,
        "begins": instant_of(one.begin).isoformat(),
        "ends": instant_of(one.end).isoformat(),
        "age_seconds": None if watermark is None else (watermark - one.begin) / 1e6,
        "rows": one.rows,
        "bytes": one.bytes,
        "values": dict(one.columns),
    }
