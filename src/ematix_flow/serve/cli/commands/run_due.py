"""`flow run-due` and `flow backfill`: slots of now and of the past, once; the engine decides and runs."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.schedule.schedule import CATCHUPS
from ematix_flow.serve.cli.common.errors import DONE, FAILED, as_usage_error
from ematix_flow.serve.cli.common.find_streams import find_stream, is_file
from ematix_flow.serve.cli.common.options import (
    COUNT,
    common_options,
    engine_option,
    find_pipeline,
    format_option,
    load,
    module_option,
    observer_options,
    run_log_options,
)
from ematix_flow.serve.cli.common.output import emit, emit_json, talk
from ematix_flow.serve.cli.common.slot_runner import YEAR_SECONDS, Amount, InstantType, chosen_log, slot_runner_for
from ematix_flow.serve.cli.common.spark import stop_spark_at_end
from ematix_flow.serve.cli.common.state import current
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from datetime import datetime

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.stream.stream import Stream
    from ematix_flow.engine.schedule.run_due import RunDueResult

_COLOURS = {"firing": "cyan", "failed": "red", "skipping": "dim"}


@click.command("run-due")
@module_option
@click.option("--now", type=InstantType(), help="Decide as if it were this instant.")
@click.option(
    "--interval", type=Amount(1, YEAR_SECONDS), default=60.0, show_default=True, help="Seconds of the window."
)
@click.option("--catchup", type=click.Choice(CATCHUPS), help="Which missed slots run, whatever pipelines say.")
@run_log_options
@observer_options
@engine_option
@common_options
def run_due(module: str | None, now: datetime | None, interval: float, catchup: str | None, **options: Any) -> int:
    """Run every pipeline that is due, each slot once, and print what happened as JSON.

    Call it every minute, from as many machines as you like.
    """
    load(module)
    from ematix_flow.engine.schedule import run_due as due
    from ematix_flow.observe.bus import Bus

    current().when_stopped = "the next flow run-due takes up what was interrupted."
    stop_spark_at_end()
    runner = slot_runner_for(chosen_log(options), options, Bus(), "run-due", now)
    with redirect_stdout(sys.stderr):
        result = due.run_due(runner, window=timedelta(seconds=interval), catchup=catchup, report=_print_step)
    emit_json(as_json(result))
    return FAILED if result.failed else DONE


def _print_step(what: str, name: str, more: str) -> None:
    talk(f"{what}: {name} ({more})", _COLOURS[what])


def as_json(result: RunDueResult) -> dict[str, Any]:
    """Return what happened for programs."""
    return {
        "ran": [_ran(event.name, event.result) for event in result.fired],
        "failed": [
            {
                "pipeline": event.name,
                "error": event.error_message,
                "error_type": event.error_type,
                "attempt_count": event.attempt_count,
                "gave_up": event.gave_up,
            }
            for event in result.failed
        ],
        "skipped": [{"pipeline": event.name, "reason": event.reason} for event in result.skipped],
    }


def _ran(name: str, result: Any) -> dict[str, Any]:
    return {**(result if isinstance(result, dict) else {"result": result}), "_pipeline": name}


@click.command()
@click.argument("name", metavar="NAME | FILE.toml")
@module_option
@click.option("--from", "first", type=InstantType(), required=True, help="The first instant, which is included.")
@click.option("--to", "last", type=InstantType(), required=True, help="The last instant, which is not.")
@click.option("--again", is_flag=True, help="Load slots that have run before once more.")
@click.option("--dry-run", is_flag=True, help="Only show the slots.")
@click.option("--limit", type=COUNT, default=100, show_default=True, help="Show at most so many slots.")
@run_log_options
@observer_options
@format_option
@engine_option
@common_options
def backfill(name: str, module: str | None, first: datetime, last: datetime, **options: Any) -> int:
    """Run the slots of a past interval that have not run; calling it again continues where it stopped.

    Of a stream, what begins in the interval is computed again from its messages, and written over what is there.
    """
    if is_file(name):
        return _backfill_stream(find_stream(name, module), first, last, options)
    load(module)
    if name in PROJECT.streams:
        return _backfill_stream(PROJECT.stream(name), first, last, options)
    return _backfill_pipeline(find_pipeline(module, name), first, last, options)


def _backfill_stream(stream: Stream, first: datetime, last: datetime, options: dict[str, Any]) -> int:
    from ematix_flow.serve.cli.commands.streams.backfill import backfill_of_stream

    return backfill_of_stream(stream, first, last, options["form"], dry_run=options["dry_run"])


def _backfill_pipeline(pipeline: Pipeline, first: datetime, last: datetime, options: dict[str, Any]) -> int:
    from ematix_flow.engine.schedule import backfill as backfilling
    from ematix_flow.observe.bus import Bus

    current().when_stopped = "the same command goes on where it stopped."
    log, name = chosen_log(options), pipeline.name
    with as_usage_error():
        job, resumed = backfilling.open_backfill(log, pipeline, first, last, again=options["again"])
    total = backfilling.slot_count(pipeline, job)
    if options["dry_run"]:
        if not resumed:  # what an interrupted one has done must stay recorded
            log.drop(job)
        slots = list(islice(backfilling.slots_of(pipeline, job), options["limit"]))
        _show_slots(name, slots, total, options["form"])
        return DONE
    talk(f"{job.id}: {quantity(total, 'slot')} of {name}" + (", going on where it stopped" if resumed else ""))
    stop_spark_at_end()
    runner = slot_runner_for(log, options, Bus(), "backfill")
    done = []
    with redirect_stdout(sys.stderr):
        for one in backfilling.run_backfill(pipeline, job, runner):
            done.append(one)
            talk(
                f"{one.number}/{one.of} {one.slot}: {one.error or _result_text(one.result)}", "red" if one.error else ""
            )
    failed = [one for one in done if one.error]
    before = [one for one in done if _had_run(one.result)]
    if options["form"] == "json":
        ran = [
            {"slot": one.slot, "result": one.result, "error": one.error or None} for one in done if one not in before
        ]
        known = {"backfill": job.id, "pipeline": name, "slots": total}
        emit_json({**known, "ran": ran, "had_run": [one.slot for one in before]})
    else:
        newly_run, had = len(done) - len(failed) - len(before), f"{len(before)} had run already, " if before else ""
        emit(f"{name}: {quantity(newly_run, 'slot')} ran, {had}{len(failed)} failed, {total} in all")
    return FAILED if failed else DONE


def _show_slots(name: str, slots: list[str], total: int, form: str) -> None:
    if form == "json":
        emit_json({"pipeline": name, "slots": slots, "total": total})
        return
    emit("\n".join(slots))
    if total > len(slots):
        talk(f"these are the first {len(slots)} of {quantity(total, 'slot')}; --limit shows more.")


def _had_run(result: Any) -> bool:
    """Return whether a slot was found done, so that nothing ran now."""
    each = (
        result.values()
        if isinstance(result, dict) and "status" not in result and "recovered" not in result
        else [result]
    )
    return bool(each) and all(isinstance(one, dict) and bool(one.get("recovered")) for one in each)


def _result_text(result: Any) -> str:
    if not isinstance(result, dict):
        return "done"
    if _had_run(result):
        return "had run already"
    return ", ".join(f"{v:,} {k.removeprefix('rows_')}" for k, v in result.items() if k.startswith("rows_")) or "done"
