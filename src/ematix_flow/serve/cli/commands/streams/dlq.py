"""`flow dlq`: messages that a stream could not load; the engine stores and replays them, this command prints."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.serve.cli.common.errors import DONE, FAILED, as_usage_error
from ematix_flow.serve.cli.common.find_streams import find_stream, stream_named
from ematix_flow.serve.cli.common.lazy import NearGroup
from ematix_flow.serve.cli.common.options import COUNT, common_options, engine_option, format_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.spark import stop_spark_at_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.rejects import Reject
    from ematix_flow.engine.stream.dead_letters import Selection

STATUSES = ("pending", "parked", "sent", "replayed", "all")


def _chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select dead letters."""
    command = click.option("--all", "everything", is_flag=True, help="All of them.")(command)
    command = click.option("--first", type=COUNT, metavar="N", help="The N oldest.")(command)
    help_text = "This one, or those that begin so; may be repeated."
    return click.option("--id", "ids", multiple=True, metavar="ID", help=help_text)(command)


@click.group(cls=NearGroup)
def dlq() -> None:
    """Count, show, replay, park or purge the dead letters of a stream."""


@dlq.command()
@stream_named
@format_option
@common_options
def stats(name: str, module: str | None, config: str | None, form: str) -> int:
    """Show how many dead letters there are."""
    stream = find_stream(name, module, config)
    from ematix_flow.engine.stream import dead_letters

    counts = dead_letters.stats(stream)
    if form == "json":
        emit_json(counts)
    else:
        emit(table(("STATUS", "MESSAGES"), [(status, f"{counts[status]:,}") for status in STATUSES[:-1]]))
    return DONE


@dlq.command("list")
@stream_named
@click.option("--status", type=click.Choice(STATUSES), default="pending", show_default=True)
@click.option("--limit", type=COUNT, default=100, show_default=True, help="At most so many, newest first.")
@format_option
@common_options
def list_(name: str, module: str | None, config: str | None, status: str, limit: int, form: str) -> int:
    """Show dead letters, newest first."""
    stream = find_stream(name, module, config)
    from ematix_flow.engine.stream import dead_letters

    entries = dead_letters.records(stream, status=None if status == "all" else status, limit=limit)
    if form == "json":
        emit_json([entry.to_dict() for entry in entries])
    elif entries:
        emit(table(("ID", "STATUS", "ATTEMPT", "POSITION", "REASON"), [_table_row(entry) for entry in entries]))
    else:
        talk(f"{name} has no {'' if status == 'all' else status + ' '}dead letters.")
    return DONE


@dlq.command()
@stream_named
@click.argument("dead_letter_id", metavar="ID")
@format_option
@common_options
def show(name: str, dead_letter_id: str, module: str | None, config: str | None, form: str) -> int:
    """Show one dead letter; the beginning of its id is enough."""
    stream = find_stream(name, module, config)
    from ematix_flow.engine.stream import dead_letters

    with as_usage_error():
        fields = dead_letters.record_by_id(stream, dead_letter_id).to_dict()
    if form == "json":
        emit_json(fields)
        return DONE
    fields |= {f"row.{column}": value for column, value in fields.pop("row").items()}
    fields.pop("row_json")
    widest = max(len(key) for key in fields)
    emit("\n".join(f"{key.ljust(widest)}  {value}" for key, value in fields.items()))
    return DONE


@dlq.command()
@stream_named
@_chosen
@engine_option
@common_options
def replay(name: str, module: str | None, config: str | None, **which: Any) -> int:
    """Send dead letters through the stream again and print what became of them; what fails again is kept."""
    stream = find_stream(name, module, config)
    chosen = _selection(**which)
    stop_spark_at_end()
    from ematix_flow.engine.stream import dead_letters

    with as_usage_error(), redirect_stdout(sys.stderr):
        result = dead_letters.replay(stream, chosen)
    emit_json(result)
    return FAILED if result["redeadlettered"] or result["parked"] else DONE


@dlq.command()
@stream_named
@_chosen
@common_options
def park(name: str, module: str | None, config: str | None, **which: Any) -> int:
    """Set dead letters aside: a replay of all leaves them."""
    return _apply_action("park", name, module, config, which)


@dlq.command()
@stream_named
@_chosen
@common_options
def purge(name: str, module: str | None, config: str | None, **which: Any) -> int:
    """Remove dead letters for good."""
    return _apply_action("purge", name, module, config, which)


def _apply_action(act: str, name: str, module: str | None, config: str | None, which: dict[str, Any]) -> int:
    stream = find_stream(name, module, config)
    chosen = _selection(**which)
    from ematix_flow.engine.stream import dead_letters

    with as_usage_error():
        count = getattr(dead_letters, act)(stream, chosen)
    emit_json({"pipeline": name, f"{act}d" if act.endswith("e") else f"{act}ed": count})
    return DONE


def _selection(ids: tuple[str, ...], first: int | None, everything: bool) -> Selection:
    from ematix_flow.engine.stream.dead_letters import Selection

    if sum((bool(ids), first is not None, everything)) != 1:
        raise click.UsageError("say which dead letters: --id ID, --first N or --all.")
    return Selection(ids or None, first)


def _table_row(reject: Reject) -> tuple[object, ...]:
    return reject.reject_id, reject.status, reject.attempt, reject.source_position, reject.reason[:80]
