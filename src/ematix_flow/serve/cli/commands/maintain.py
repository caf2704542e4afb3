"""`flow maintain`: maintains targets, now or when they are due; the engine does the work, this command prints."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from ematix_flow.serve.cli.common.errors import DONE, FAILED, as_usage_error, print_error_text
from ematix_flow.serve.cli.common.options import common_options, format_option, load, module_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.serve.cli.common.run_progress import progress_subscriber
from ematix_flow.serve.cli.common.spark import stop_spark_at_end
from ematix_flow.serve.cli.common.state import current

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ematix_flow.engine.maintenance import Maintained

_STATUS_TEXT = {
    "done": "done",
    "would_do": "would do",
    "not_due": "not due",
    "empty": "nothing there yet",
    "failed": "failed",
}


@click.command()
@click.argument("name", required=False)
@module_option
@click.option("--all", "everything", is_flag=True, help="Every target of every pipeline.")
@click.option("--due", is_flag=True, help="Only what was not maintained for as long as its table says.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@format_option
@common_options
def maintain(name: str | None, module: str | None, everything: bool, due: bool, dry_run: bool, form: str) -> int:
    """Compact files, expire old versions and clear leftovers of a pipeline's targets, or of a SCHEMA.TABLE."""
    if (name is None) != everything:
        raise click.UsageError("which targets? Give the name of a pipeline or a SCHEMA.TABLE, or --all.")
    load(module)
    stop_spark_at_end()
    current().when_stopped = "what was finished stays done; running it again does the rest."
    from ematix_flow.engine.batch.options import Options
    from ematix_flow.engine.maintenance import maintain as work
    from ematix_flow.engine.maintenance import targets_named

    with as_usage_error():
        targets_named(name)
    options = Options()
    with progress_subscriber() as subscriber, redirect_stdout(sys.stderr):
        options.bus.subscribe(subscriber)
        results = work(name, options, due=due, dry_run=dry_run)
    _show(results, form)
    for result in results:
        if result.error is not None:
            print_error_text(f"{result.target}: {result.error}")
    return FAILED if any(result.status == "failed" for result in results) else DONE


def _show(results: list[Maintained], form: str) -> None:
    if form == "json":
        emit_json([result.to_dict() for result in results])
    elif results:
        emit(table(("TARGET", "STATUS", "STEP", "NUMBERS"), [row for result in results for row in _rows(result)]))
    else:
        talk("there is nothing to maintain.")


def _rows(result: Maintained) -> Iterator[tuple[object, ...]]:
    if not result.steps:
        yield result.target, _STATUS_TEXT[result.status], "", ""
    for name, numbers in result.steps.items():
        yield result.target, _STATUS_TEXT[result.status], name, counted(numbers)


def counted(numbers: Mapping[str, int | str]) -> str:
    """Return what a step counted, as text."""
    formatted = {name.replace("_", " "): f"{n:,}" if isinstance(n, int) else n for name, n in numbers.items()}
    return ", ".join(f"{name} {value}" for name, value in formatted.items())
