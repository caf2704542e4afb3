"""`flow engine`: the Spark that stays warm between commands; start, show, stop it, read its log, pack for clusters."""

from __future__ import annotations

from pathlib import Path

import click

from ematix_flow.serve.cli.common.errors import DONE, FAILED, print_error_text
from ematix_flow.serve.cli.common.lazy import NearGroup
from ematix_flow.serve.cli.common.options import COUNT, common_options, format_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table


@click.group(cls=NearGroup)
def engine() -> None:
    """Start, see or stop the Spark that stays warm between commands."""


@engine.command()
@click.option("--ui", is_flag=True, help="With Spark's pages; an engine without them is replaced.")
@format_option
@common_options
def start(ui: bool, form: str) -> int:
    """Start the warm engine, unless it runs already."""
    from ematix_flow.engine.spark.warm import start_engine

    report = start_engine(ui=ui)
    if form == "json":
        emit_json(report.to_dict())
    else:
        emit(f"the warm engine runs in process {report.pid}; it ends after {report.idle_minutes} minutes without use.")
    return DONE


@engine.command()
@format_option
@common_options
def status(form: str) -> int:
    """Show the warm engines of this user; exit code 1 when none runs."""
    from ematix_flow.engine.spark.warm import engines

    reports = engines()
    if form == "json":
        emit_json([report.to_dict() for report in reports])
    elif reports:
        heads = ("ENGINE", "PROCESS", "STARTED", "VERSION", "MASTER", "IN USE", "MEMORY", "HEAP", "IDLE EXIT")
        rows = [
            (
                f"{report.id}{'' if report.current else ' (another environment)'}",
                report.pid,
                report.started_at,
                report.version,
                report.master,
                "yes" if report.in_use else "no",
                f"{report.memory_bytes >> 20} MiB",
                f"{report.heap_bytes >> 20} MiB",
                f"{report.idle_minutes} min",
            )
            for report in reports
        ]
        emit(table(heads, rows))
    else:
        print_error_text("no warm engine runs", "flow engine start starts one.")
    return DONE if reports else FAILED


@engine.command()
@click.option("--now", is_flag=True, help="Also while commands use it: their loads fail and can be run again.")
@click.option("--all", "every", is_flag=True, help="Those of other environments too.")
@format_option
@common_options
def stop(now: bool, every: bool, form: str) -> int:
    """Let the warm engine end as soon as no command uses it."""
    from ematix_flow.engine.spark.warm import stop_engines

    stopping = stop_engines(now=now, every=every)
    if form == "json":
        emit_json([report.to_dict() for report in stopping])
    elif not stopping:
        emit("no warm engine runs.")
    for report in stopping if form != "json" else ():
        waits = report.in_use and not now
        emit(f"engine {report.id} {'ends when the commands that use it have ended' if waits else 'ends'}.")
    return DONE


@engine.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False),
    default="environment.tar.gz",
    show_default=True,
    help="Where to write the archive.",
)
@format_option
@common_options
def pack(output: str, form: str) -> int:
    """Pack this Python with its packages for the executors of a cluster, and print the settings that use it."""
    from ematix_flow.engine.spark.pack import pack_environment

    packed = pack_environment(Path(output))
    if form == "json":
        emit_json(packed.to_dict())
        return DONE
    emit(f"{packed.file} has {packed.size_bytes >> 20} MiB. Executors use it with these lines of .ematix-flow.toml:\n")
    emit("[spark.conf]")
    for key, value in packed.settings.items():
        emit(f'"{key}" = "{value}"')
    return DONE


@engine.command()
@click.option("--open", "open_browser", is_flag=True, help="Open them in a browser too.")
@common_options
def ui(open_browser: bool) -> int:
    """Print the address of Spark's pages: its jobs, plans and settings."""
    from ematix_flow.engine.spark.warm import engines

    url = next((report.ui_url for report in engines() if report.current), None)
    if not url:
        problem = "no warm engine runs" if url is None else "the warm engine runs without Spark's pages"
        print_error_text(problem, "flow engine start --ui starts one with them.")
        return FAILED
    emit(url)
    if open_browser:
        import webbrowser

        webbrowser.open(url)
    return DONE


@engine.command()
@click.option("--tail", type=COUNT, default=100, show_default=True, help="Only the last N lines.")
@common_options
def logs(tail: int) -> int:
    """Show the log of the warm engine of this environment."""
    from ematix_flow.engine.spark.warm import engine_log

    file = engine_log()
    if not file.is_file():
        print_error_text(f"there is no log {file}", "the engine writes one when it starts.")
        return FAILED
    lines = file.read_text("utf-8", errors="replace").splitlines()
    emit("\n".join(lines[-tail:]))
    return DONE
