"""The demo: three days of a small shop through Spark into DuckDB, and a load that is killed and run again."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = Path.cwd() / "demo-output"
PIPELINES = ("load_events", "load_customers", "load_prices")


def main() -> int:
    """Run the demo and say whether the target holds exactly what the source has."""
    from rich.console import Console

    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    os.environ["SHOP_FOLDER"] = str(FOLDER)
    os.environ["EMATIX_FLOW_RUN_LOG_PATH"] = str(FOLDER / "run_log.db")
    sys.path.insert(0, str(HERE))
    from shop_data import Shop

    out = Console(highlight=False, width=max(100, Console().width))
    shop = Shop(FOLDER)
    out.print("[bold]Three days of files[/bold] (CSV events, JSON-lines customers, Parquet prices)")
    if os.environ.get("EMATIX_FLOW_ENGINE") == "local":
        out.print("  Threads of this process move the rows: EMATIX_FLOW_ENGINE says local.")
    else:
        out.print("  Spark starts once; the first start also prepares its classes, later ones are faster.")
    for day in (1, 2, 3):
        shop.write_day(day)
        load_day(out, day)
    out.print("[bold]The fourth load is killed[/bold] with SIGKILL inside its transaction, then run again")
    shop.write_day(4)
    kill_and_repeat(out)
    load_rest(out)
    show_runs(out)
    show_versions(out)
    code = check(out, shop)
    show_page(out)
    return code


def load_day(out: object, day: int) -> None:
    """Run every pipeline for one more day of files."""
    import shop

    for name in PIPELINES:
        started = time.monotonic()
        result = getattr(shop, name)()
        out.print(f"  day {day}  {name:<15} {told(result)}  ({time.monotonic() - started:.1f} s)")


def told(result: dict[str, object]) -> str:
    """Give a result as one line."""
    words = ("inserted", "updated", "unchanged", "closed", "deleted", "rejected")
    counts = [(word, result.get(f"rows_{word}")) for word in words]
    return ", ".join(f"{count} {word}" for word, count in counts if count) or "nothing new"


def kill_and_repeat(out: object) -> None:
    """Start the load in a process of its own, kill it in the middle, and start it again."""
    command = [sys.executable, "-m", "ematix_flow", "run", "load_events", "--module", "shop"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    armed = {**environment, "FLOW_FAILPOINTS": "commit.applied=kill"}
    killed = subprocess.run(command, env=armed, cwd=HERE, capture_output=True, text=True, check=False)
    died = killed.returncode == -signal.SIGKILL
    out.print(f"  {'killed' if died else 'NOT KILLED'}: all rows were written, nothing was committed")
    again = subprocess.run(command, env=environment, cwd=HERE, capture_output=True, text=True, check=False)
    if again.returncode != 0 or not died:
        sys.stderr.write(killed.stderr + again.stderr)
        raise SystemExit(1)
    out.print("  run again: the same request was resumed and committed once")


def load_rest(out: object) -> None:
    """Load what the killed run did not touch."""
    import shop

    for name in PIPELINES[1:]:
        out.print(f"  day 4  {name:<15} {told(getattr(shop, name)())}")


def show_runs(out: object) -> None:
    """Print the runs as the target remembers them."""
    from rich.table import Table

    table = Table(title="Runs in the target (ematix_flow.run_history)", title_justify="left")
    for heading in ("pipeline", "mode", "status", "inserted", "updated", "unchanged", "rejected"):
        table.add_column(heading, justify="left" if heading in ("pipeline", "mode", "status") else "right")
    rows = query(
        "SELECT pipeline_name, mode, status, rows_inserted, rows_updated, rows_unchanged, rows_rejected "
        "FROM ematix_flow.run_history ORDER BY started_at"
    )
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    out.print(table)


def show_versions(out: object) -> None:
    """Print the price versions that scd2 keeps."""
    from rich.table import Table

    table = Table(title="Versions of two prices (shop.prices)", title_justify="left")
    for heading in ("sku", "price", "valid_from", "valid_to", "is_current"):
        table.add_column(heading)
    for row in query(
        "SELECT sku, CAST(price AS VARCHAR), strftime(valid_from, '%Y-%m-%d'), strftime(valid_to, '%Y-%m-%d'), "
        "is_current FROM shop.prices WHERE sku IN ('SKU-1', 'SKU-2') ORDER BY sku, valid_from"
    ):
        table.add_row(*("" if value is None else str(value) for value in row))
    out.print(table)


def check(out: object, shop: object) -> int:
    """Compare the target with what was written to the files."""
    facts = {
        "events": (query("SELECT COUNT(*), COUNT(DISTINCT event_id) FROM shop.events")[0], (len(shop.events),) * 2),
        "customers": (query("SELECT COUNT(*) FROM shop.customers")[0][0], len(shop.customers)),
        "price versions": (
            query("SELECT COUNT(*) FROM shop.prices")[0][0],
            sum(len(history) for history in shop.price_changes.values()),
        ),
        "rejects": (query("SELECT COUNT(DISTINCT row_json) FROM ematix_flow.rejects")[0][0], shop.bad_rows),
    }
    good = all(found == expected for found, expected in facts.values())
    for name, (found, expected) in facts.items():
        out.print(f"  {name}: {found} in the target, {expected} in the source")
    out.print("[green]Counts match the source.[/green]" if good else "[red]Counts differ from the source.[/red]")
    return 0 if good else 1


def show_page(out: object) -> None:
    """Print the command that opens the page on these runs."""
    settings = {"PYTHONPATH": HERE, "SHOP_FOLDER": FOLDER}
    command = [Path(sys.executable).parent / "flow", "web", "-m", "shop", "--run-log-path", FOLDER / "run_log.db"]
    words = [f"{name}={shlex.quote(str(value))}" for name, value in settings.items()]
    out.print("[bold]The same runs in a browser[/bold], until Ctrl-C:")
    out.print("  " + " ".join([*words, *(shlex.quote(str(word)) for word in command)]), soft_wrap=True, markup=False)


def query(sql: str) -> list[tuple]:
    """Ask the demo's DuckDB file."""
    import duckdb

    with duckdb.connect(str(FOLDER / "warehouse.duckdb")) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(sql).fetchall()


if __name__ == "__main__":
    raise SystemExit(main())
