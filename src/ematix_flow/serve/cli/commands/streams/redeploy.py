"""`flow stream redeploy`: builds the state of a stream anew for a changed declaration; the engine does it, this command prints."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.serve.cli.common.errors import DONE, as_usage_error
from ematix_flow.serve.cli.common.find_streams import find_stream, stream_named
from ematix_flow.serve.cli.common.options import common_options, format_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.spark import stop_spark_at_end
from ematix_flow.serve.cli.common.state import current

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.engine.stream.state.redeploy import Redeployment

_HEADERS = ("TARGET", "GIVEN OUT UNTIL", "EVENTS SINCE", "MESSAGES", "FROM", "TO")


@click.command()
@stream_named
@click.option(
    "--target", "targets", multiple=True, metavar="TARGET", help="Only this target; may be given several times."
)
@click.option("--dry-run", is_flag=True, help="Only show from where to where messages would be read again.")
@format_option
@common_options
def redeploy(
    name: str, module: str | None, config: str | None, form: str, targets: tuple[str, ...], dry_run: bool
) -> int:
    """Build the state of a stream anew, for a declaration that has changed.

    Messages are read again from before the oldest that is still open up to where the stream is; nothing that was given
    out is given out again. Stop the stream before. If this command is interrupted, the old state is still there, or the
    new one is; call it again.
    """
    current().when_stopped = "the old state is still there, or the new one is; call it again."
    declaration = find_stream(name, module, config)
    stop_spark_at_end()
    from ematix_flow.engine.stream.options import StreamOptions
    from ematix_flow.engine.stream.state.redeploy import redeploy_stream
    from ematix_flow.errors import UnknownNameError

    try:
        with redirect_stdout(sys.stderr):
            deployments = redeploy_stream(declaration, StreamOptions(), targets, dry_run=dry_run)
    except UnknownNameError:
        with as_usage_error():
            raise
    if form == "json":
        emit_json({"stream": declaration.name, "targets": [_as_dict(one) for one in deployments]})
        return DONE
    for one in deployments:
        if one.changes:
            talk(f"{one.target}: {'; '.join(one.changes)}")
    emit(table(_HEADERS, [_row(one) for one in deployments]))
    talk("nothing was changed." if dry_run else f"done; start the stream: flow consume {declaration.name}")
    return DONE


def _row(one: Redeployment) -> tuple[object, ...]:
    begin, end = (json.dumps(position.get("offsets", position)) for position in (one.begin, one.end))
    return one.target, _time(one.watermark), _time(one.oldest), f"{one.messages:,}", begin, end


def _time(instant: datetime | None) -> str:
    return "" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}"


def _as_dict(one: Redeployment) -> dict[str, Any]:
    return {
        "target": one.target,
        "changes": list(one.changes),
        "given_out_until": None if one.watermark is None else one.watermark.isoformat(),
        "events_since": None if one.oldest is None else one.oldest.isoformat(),
        "messages": one.messages,
        "from": one.begin,
        "to": one.end,
        "done": one.done,
    }
