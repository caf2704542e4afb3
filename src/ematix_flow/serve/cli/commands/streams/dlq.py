"""`flow dlq`: messages that a stream could not load; the engine keeps and replays them, this door asks and prints."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.serve.cli.common.errors import DONE, FAILED, asked_for
from ematix_flow.serve.cli.common.find_streams import find_stream, stream_named
from ematix_flow.serve.cli.common.lazy import NearGroup
from ematix_flow.serve.cli.common.options import common_options, engine_option, format_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.spark import stop_spark_at_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.commit.rejects import Reject
    from ematix_flow.engine.stream.dead_letters import Selection

STATUSES = ("pending", "parked", "sent", "replayed", "all")


def _chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says which dead letters are meant."""
    command = click.option("--all", "everything", is_flag=True, help="All of them.")(command)
    command = click.option("--first", type=click.IntRange(1), metavar="N", help="The N oldest.")(command)
    words = "This one, or those that begin so; may be repeated."
    return click.option("--id", "ids", multiple=True, metavar="ID", help=words)(command)


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

    found = dead_letters.stats(stream)
    if form == "json":
        emit_json(found)
    else:
        emit(table(("STATUS", "MESSAGES"), [(word, f"{found[word]:,}") for word in STATUSES[:-1]]))
    return DONE


@dlq.command("list")
@stream_named
@click.option("--status", type=click.Choice(STATUSES), default="pending", show_default=True)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many, newest first.")
@format_option
@common_options
def list_(name: str, module: str | None, config: str | None, status: str, limit: int, form: str) -> int:
    """Show dead letters, newest first."""
    stream = find_stream(name, module, config)
    from ematix_flow.engine.stream import dead_letters

    found = dead_letters.records(stream, status=None if status == "all" else status, limit=limit)
    if form == "json":
        emit_json([letter.to_dict() for letter in found])
    elif found:
        emit(table(("ID", "STATUS", "ATTEMPT", "POSITION", "REASON"), [_row(letter) for letter in found]))
    else:
        talk(f"{name} has no {'' if status == 'all' else status + ' '}dead letters.")
    return DONE


@dlq.command()
@stream_named
@click.argument("letter")
@format_option
@common_options
def show(name: str, letter: str, module: str | None, config: str | None, form: str) -> int:
    """Show one dead letter; the beginning of its id is enough."""
    stream = find_stream(name, module, config)
    from ematix_flow.engine.stream import dead_letters

    with asked_for():
        found = dead_letters.record_by_id(stream, letter).to_dict()
    if form == "json":
        emit_json(found)
        return DONE
    found |= {f"row.{column}": value for column, value in found.pop("row").items()}
    found.pop("row_json")
    widest = max(len(key) for key in found)
    emit("\n".join(f"{key.ljust(widest)}  {value}" for key, value in found.items()))
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

    with asked_for(), redirect_stdout(sys.stderr):
        result = dead_letters.replay(stream, chosen)
    emit_json(result)
    return FAILED if result["redeadlettered"] or result["parked"] else DONE


@dlq.command()
@stream_named
@_chosen
@common_options
def park(name: str, module: str | None, config: str | None, **which: Any) -> int:
    """Set dead letters aside: a replay of all leaves them."""
    return _settle("park", name, module, config, which)


@dlq.command()
@stream_named
@_chosen
@common_options
def purge(name: str, module: str | None, config: str | None, **which: Any) -> int:
    """Remove dead letters for good."""
    return _settle("purge", name, module, config, which)


def _settle(act: str, name: str, module: str | None, config: str | None, which: dict[str, Any]) -> int:
    stream = find_stream(name, module, config)
    chosen = _selection(**which)
    from ematix_flow.engine.stream import dead_letters

    with asked_for():
        count = getattr(dead_letters, act)(stream, chosen)
    emit_json({"pipeline": name, f"{act}d" if act.endswith("e") else f"{act}ed": count})
    return DONE


def _selection(ids: tuple[str, ...], first: int | None, everything: bool) -> Selection:
    from ematix_flow.engine.stream.dead_letters import Selection

    if sum((bool(ids), first is not None, everything)) != 1:
        raise click.UsageError("say which dead letters: --id ID, --first N or --all.")
    return Selection(ids, first)


def _row(letter: Reject) -> tuple[object, ...]:
    return letter.reject_id, letter.status, letter.attempt, letter.source_position, letter.reason[:80]
