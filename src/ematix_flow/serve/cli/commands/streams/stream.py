"""`flow stream`: shows the position of a stream and moves it; the engine does the work, this command prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.serve.cli.commands.streams.redeploy import redeploy
from ematix_flow.serve.cli.commands.streams.state import state
from ematix_flow.serve.cli.common.errors import DONE, as_usage_error
from ematix_flow.serve.cli.common.find_streams import find_named, find_stream, stream_named
from ematix_flow.serve.cli.common.lazy import NearGroup
from ematix_flow.serve.cli.common.options import common_options, format_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.spark import stop_spark_at_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.stream.control import Moved, StreamStatus
    from ematix_flow.engine.stream.state.status import StateStatus

_WHERE = "earliest, latest, an instant, or a position as JSON"


def _moving(command: Callable[..., Any]) -> Callable[..., Any]:
    help_text = "Only this target; may be given several times."
    command = click.option("--target", "targets", multiple=True, metavar="TARGET", help=help_text)(command)
    help_text = "Agree that what a stream remembers between batches is forgotten."
    return click.option("--confirm-state-reset", "confirmed", is_flag=True, help=help_text)(command)


@click.group(cls=NearGroup)
def stream() -> None:
    """Show where a stream stands, or let it go on from somewhere else."""


@stream.command()
@stream_named
@format_option
@common_options
def status(name: str, module: str | None, config: str | None, form: str) -> int:
    """Show position and lag of every target; of a replication, those of every table."""
    declarations = find_named(name, module, config)
    stop_spark_at_end()
    from ematix_flow.engine.stream.control import stream_status
    from ematix_flow.engine.stream.options import StreamOptions

    statuses = [(declaration, stream_status(declaration, StreamOptions())) for declaration in declarations]
    if form == "json":
        documents = [_status_dict(declaration, one) for declaration, one in statuses]
        emit_json(documents[0] if len(documents) == 1 else {"streams": documents})
        return DONE
    for declaration, one in statuses:
        if len(statuses) > 1:
            emit(declaration.name)
        _print_status(one)
    return DONE


def _status_dict(declaration: Stream, statuses: list[StreamStatus]) -> dict[str, Any]:
    return {
        "stream": declaration.name,
        "source": ", ".join(source.id for source in declaration.sources),
        "targets": [one.to_dict() for one in statuses],
    }


def _print_status(statuses: list[StreamStatus]) -> None:
    emit(table(("TARGET", "WAITING", "POSITION"), [_status_row(one) for one in statuses]))
    details = next((one.source for one in statuses if one.source), {})
    if details:
        emit(table(("SOURCE", "VALUE"), [(key, "" if value is None else value) for key, value in details.items()]))
    states = [_state_row(one.target, one.state) for one in statuses if one.state is not None]
    if states:
        emit(table(("TARGET", "WATERMARK", "OPEN WINDOWS", "OLDEST", "STATE", "BATCH"), states))
    for one in statuses:
        if one.state is not None and one.state.changes:
            talk(f"{one.target}: the declaration has changed: {'; '.join(one.state.changes)}\n{one.state.remedy}")


stream.add_command(status, "show")
stream.add_command(state)
stream.add_command(redeploy)


@stream.command()
@stream_named
@click.option("--to", "where", required=True, metavar="WHERE", help=f"Where to go on: {_WHERE}.")
@_moving
@format_option
@common_options
def rewind(name: str, module: str | None, config: str | None, where: str, form: str, **options: Any) -> int:
    """Let a stream that has run go on from another position; a stream that runs meanwhile ends with an error."""
    return _move(find_stream(name, module, config), where, form, healthy=True, **options)


@stream.command()
@stream_named
@click.option("--from", "where", required=True, metavar="WHERE", help=f"Where to begin: ledger, {_WHERE}.")
@_moving
@format_option
@common_options
def reset(name: str, module: str | None, config: str | None, where: str, form: str, **options: Any) -> int:
    """Let a stream begin somewhere, whatever is known of it; ledger: where its targets say that they are."""
    return _move(find_stream(name, module, config), where, form, healthy=False, **options)


def _move(
    declaration: Stream, where: str, form: str, *, healthy: bool, targets: tuple[str, ...], confirmed: bool
) -> int:
    if declaration.is_stateful and not confirmed:
        raise click.UsageError(
            f"stream {declaration.name!r} remembers rows between batches; add --confirm-state-reset."
        )
    stop_spark_at_end()
    from ematix_flow.engine.stream.control import move_stream
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.errors import UnknownNameError

    try:
        moves = move_stream(declaration, where, StreamOptions(), targets, healthy=healthy)
    except UnknownNameError:
        with as_usage_error():
            raise
    if form == "json":
        entries = [{"target": one.target, "before": one.before, "after": one.after} for one in moves]
        emit_json({"stream": declaration.name, "targets": entries})
    else:
        emit(table(("TARGET", "BEFORE", "AFTER"), [_move_row(one) for one in moves]))
    talk("messages behind the new position are loaded again; a target with mode append gets their rows once more.")
    return DONE


def _state_row(target: str, state: StateStatus) -> tuple[object, ...]:
    watermark = "none yet" if state.watermark is None else f"{state.watermark:%Y-%m-%d %H:%M:%S}"
    oldest = "" if state.oldest is None else f"{state.oldest:%Y-%m-%d %H:%M:%S}"
    return target, watermark, state.windows, oldest, f"{state.bytes / 1e6:.1f} MB", state.batch


def _status_row(status: StreamStatus) -> tuple[object, ...]:
    where = status.problem or ("not begun" if status.position is None else json.dumps(status.position))
    return status.target, f"{status.lag:,}" if status.problem is None else "?", where


def _move_row(one: Moved) -> tuple[object, ...]:
    return one.target, "" if one.before is None else json.dumps(one.before), json.dumps(one.after)
