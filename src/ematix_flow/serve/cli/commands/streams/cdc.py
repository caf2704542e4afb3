"""`flow cdc status`: how far streams of changes are behind their databases; it reads, and runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ematix_flow.serve.cli.common.errors import DONE, FAILED
from ematix_flow.serve.cli.common.find_streams import find_streams
from ematix_flow.serve.cli.common.lazy import NearGroup
from ematix_flow.serve.cli.common.options import (
    common_options,
    format_option,
    module_option,
    read_log,
    run_log_options,
)
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.spark import stop_spark_at_end

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.engine.stream.change_lag import ChangeLag
    from ematix_flow.errors import FlowError


@click.group(cls=NearGroup)
def cdc() -> None:
    """Show streams that apply the changes of a database."""


@cdc.command()
@click.argument("names", nargs=-1, metavar="[NAME | FILE.toml]...")
@module_option
@run_log_options
@format_option
@common_options
def status(names: tuple[str, ...], module: str | None, form: str, **location: Any) -> int:
    """Show how far streams are behind, and what they have done; exits 1 if one is beyond a limit or cannot go on.

    Without names, all streams of the module that read the log of a database or have cdc=.
    """
    unknown: dict[str, FlowError] = {}
    streams = find_streams(names, module, everything=not names, unknown=unknown)
    stop_spark_at_end()
    from ematix_flow.engine.stream.change_lag import applied_changes, change_lags, unknown_lag

    log = read_log(**location)
    shown = [
        (stream.name, lags, applied_changes(log, stream.name))
        for stream in streams
        if (lags := change_lags(stream)) or stream.cdc is not None
    ]
    shown += [(name, [unknown_lag(name, error)], applied_changes(log, name)) for name, error in unknown.items()]
    if form == "json":
        emit_json({"streams": [_entry(*entry) for entry in shown]})
    elif shown:
        _print(shown)
    else:
        talk("no stream reads changes of a database.")
    return FAILED if any(one.is_bad for _, lags, _ in shown for one in lags) else DONE


def _entry(name: str, lags: Sequence[ChangeLag], applied: Mapping[str, Any]) -> dict[str, Any]:
    return {"stream": name, "targets": [one.to_dict() for one in lags], **applied}


def _print(shown: Sequence[tuple[str, Sequence[ChangeLag], Mapping[str, Any]]]) -> None:
    lags = [one for _, each, _ in shown for one in each]
    if lags:
        heads = ("STREAM", "TARGET", "STATE", "LAG BYTES", "LAG SECONDS", "KEPT BYTES")
        emit(table(heads, [_row(one) for one in lags]))
    counted = [(name, *_counters(applied["changes"])) for name, _, applied in shown if applied["changes"]]
    if counted:
        emit(table(("STREAM", "CREATES", "UPDATES", "DELETES", "OLD", "LATE", "LEFT OUT"), counted))
    for one in lags:
        if one.problem:
            talk(f"{one.stream} ({one.target}): {one.state}: {one.problem}", "yellow")
    for name, _, applied in shown:
        for warning in applied["warnings"]:
            talk(f"{name}: warning: {warning}", "yellow")


def _row(one: ChangeLag) -> tuple[object, ...]:
    seconds = "?" if one.lag.seconds is None else f"{one.lag.seconds:,.1f}"
    return one.stream, one.target, one.state, _number(one.lag.bytes), seconds, _number(one.lag.retained_bytes)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _counters(changes: Mapping[str, int]) -> tuple[str, ...]:
    names = ("creates", "updates", "deletes", "idempotent_skipped", "late", "left_out")
    return tuple(f"{changes.get(name, 0):,}" for name in names)
