"""Writes bench/RESULTS.md from the kept measurements: medians, ratios and where the time goes; it measures nothing."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any

from environments import BENCH, PACKAGES, SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {
    "ours": "this product",
    "before": "this product before the rooms",
    "ematix": "ematix-flow 1.0.0",
    "spark": "plain PySpark",
    "dlt": "dlt",
    "copy": "COPY pipe",
    "psql": "SQL in psql",
    "pika": "bare consumer",
    "sink": "rows one by one, by hand",
    "cold": "this product, Spark started with the command",
    "local": 'this product, engine = "local"',
    "sail": "Sail",
    "duckdb": "DuckDB",
    "adbc": "ADBC",
    "connectorx": "connectorx",
    "feast": "Feast",
    "database": "this product, joined by the database",
    "append": "this product, a load of the same rows",
    "slots1": "1 slot",
    "slots2": "2 slots",
    "slots4": "4 slots",
}

_FIGURES = {
    "rows_per_second": "rows/s", "p50_ms": "p50 ms", "p95_ms": "p95 ms", "p99_ms": "p99 ms",
    "first_mib": "first fifth MiB", "last_mib": "last fifth MiB", "most_mib": "most MiB", "restart_s": "restart s",
    "trigger_ms": "batch ms", "p95_triggers": "p95 in batches",
    "watermark_p50_ms": "p50 ms behind the watermark", "watermark_p95_ms": "p95 ms behind the watermark",
    "watermark_p95_triggers": "that in batches",
}  # fmt: skip

PHASES = (
    ("start and plan", None, "ddl.after_expand"),
    ("Spark start", "ddl.after_expand", "stage.task_start"),
    ("read and stage", "stage.task_start", "stage.collected"),
    ("verify", "stage.collected", "commit.verified"),
    ("apply and commit", "commit.verified", "commit.after_commit"),
)


def render(results: Path) -> str:
    """Return the page: what people wrote about the figures, then the tables."""
    lines = results.read_text().splitlines() if results.exists() else []
    rows = [json.loads(line) for line in lines]
    notes = BENCH / "NOTES.md"
    parts = ["# Speed and memory", "", notes.read_text().strip() if notes.exists() else "", ""]
    if rows:
        slots = [row for row in rows if row["contender"].startswith("slots")]
        whole = [row for row in rows if not row.get("figures") and row not in slots]
        queries = [row for row in rows if row["case"].startswith("tpch")]
        reads = [row for row in rows if "reads_per_second" in row.get("figures", {})]
        streams = [row for row in rows if row.get("figures") and row not in queries and row not in reads]
        parts += [_machine(rows), "", _table(whole), "", _streams(streams), "", _slots(slots), "", _phases(whole), ""]
        parts += [_queries(queries), "", _reads(reads), "", _memory(whole)]
    return "\n".join(parts).rstrip() + "\n"


def _grouped(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, list[dict[str, Any]]]]:
    """Return the samples by case and contender; a case that was measured with several sizes appears once for each."""
    groups: dict[tuple[str, str, int], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["case"], row["title"], row["rows"]][row["contender"]].append(row)
    return groups


def _machine(rows: list[dict[str, Any]]) -> str:
    machine = rows[-1]["machine"]
    loads = [row["load"] for row in rows]
    counts = Counter(row["machine"]["processor"] for row in rows)
    processors = ", ".join(f"{name} ({many} samples)" for name, many in counts.items())
    settings = ", ".join(f"{key} = {value}" for key, value in SETTINGS.items())
    packages = "; ".join(", ".join(names) for names in PACKAGES.values())
    return "\n".join(
        [
            "## Where",
            "",
            f"- {machine['cores']} cores, {machine['memory']}; {machine['system']}; processors: {processors}",
            f"- Python {machine['python']}; {machine['java']}; {machine['postgres']}",
            f"- PostgreSQL on the same machine, durable (fsync on), {settings}, everything else as it comes",
            f"- contenders: {packages}; COPY pipe: two psql joined by a pipe; hand-written SQL: psql",
            f"- load average when a command began: {min(loads):.1f} to {max(loads):.1f} (median {median(loads):.1f})",
        ]
    )


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "## Figures",
        "",
        "Wall time of the whole command. Ratio: its time divided by ours, so above 1 this product is faster.",
        "",
        "| case | rows | contender | rounds | median s | ratio to ours | load |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for (_, title, size), by_name in _grouped(rows).items():
        ours = median(s["seconds"] for s in by_name["ours"]) if "ours" in by_name else None
        for name, samples in by_name.items():
            seconds = median(s["seconds"] for s in samples)
            ratio = f"{seconds / ours:.2f}" if ours else ""
            load = median(s["load"] for s in samples)
            shown = f"{size:,}" if size else ""
            lines.append(
                f"| {title} | {shown} | {NAMES[name]} | {len(samples)} | {seconds:.2f} | {ratio} | {load:.1f} |"
            )
    return "\n".join(lines)


def _streams(rows: list[dict[str, Any]]) -> str:
    """Return what was measured of streams beside the time of their commands."""
    if not rows:
        return ""
    lines = [
        "## Streams",
        "",
        "Rows a second: from the commit that brought the first tenth of the rows to the last one. Milliseconds: from the",
        "moment at which a record was sent until its row was seen. MiB: all processes of the command.",
        "",
        "| case | rows | contender | rounds | medians |",
        "|---|---:|---|---:|---|",
    ]
    for (_, title, size), by_name in _grouped(rows).items():
        for name, samples in by_name.items():
            medians = {figure: median(s["figures"][figure] for s in samples) for figure in samples[0]["figures"]}
            figures_text = ", ".join(
                f"{_FIGURES.get(figure, figure)} {value:,.0f}" for figure, value in medians.items()
            )
            lines.append(f"| {title} | {size:,} | {NAMES[name]} | {len(samples)} | {figures_text} |")
    return "\n".join(lines)


def _reads(rows: list[dict[str, Any]]) -> str:
    """Return how fast values of one key are served; the ratio is of reads a second."""
    if not rows:
        return ""
    lines = [
        "## Online reads",
        "",
        "One key at a time by one caller that stays connected. Ratio: our reads a second divided by its own.",
        "",
        "| case | reads | contender | rounds | reads/s | p50 µs | p99 µs | ratio to ours |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for (_, title, size), by_name in _grouped(rows).items():
        medians = {
            name: [median(s["figures"][figure] for s in samples) for figure in ("reads_per_second", "p50_us", "p99_us")]
            for name, samples in by_name.items()
        }
        for name, (speed, half, most) in medians.items():
            ratio = f"{medians['ours'][0] / speed:.2f}" if "ours" in medians else ""
            figures = f"{len(by_name[name])} | {speed:,.0f} | {half:,.0f} | {most:,.0f} | {ratio}"
            lines.append(f"| {title} | {size:,} | {NAMES[name]} | {figures} |")
    return "\n".join(lines)


def _slots(rows: list[dict[str, Any]]) -> str:
    """Return how the same load does with more task slots."""
    if not rows:
        return ""
    lines = [
        "## Task slots",
        "",
        "Rows a second of a load on `local[n, 4]`: while tasks read, shape and stage them, and of the whole command, in which Spark",
        "starts and the target commits.",
        "",
        "| case | rows | slots | rounds | rows/s staged | rows/s whole | median s |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for (_, title, size), by_name in _grouped(rows).items():
        for name, samples in sorted(by_name.items()):
            staged = median(size / max(0.001, _span(s, "stage.task_start", "stage.collected")) for s in samples)
            seconds = median(s["seconds"] for s in samples)
            figures = f"{len(samples)} | {staged:,.0f} | {size / seconds:,.0f} | {seconds:.2f}"
            lines.append(f"| {title} | {size:,} | {NAMES[name]} | {figures} |")
    return "\n".join(lines)


def _queries(rows: list[dict[str, Any]]) -> str:
    """Return how long the queries of TPC-H took; ratios are of the warm pass."""
    if not rows:
        return ""
    lines = [
        "## SQL: TPC-H",
        "",
        "Seconds of all 22 queries in one process, medians. Ratio: of the warm pass, divided by ours.",
        "",
        "| tables | scale | engine | rounds | first pass | warm pass | ratio to ours |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for (case, _, size), by_name in _grouped(rows).items():
        warm = {name: median(s["figures"]["warm_seconds"] for s in samples) for name, samples in by_name.items()}
        for name, samples in by_name.items():
            first = median(s["figures"]["first_seconds"] for s in samples)
            ratio = f"{warm[name] / warm['ours']:.2f}" if "ours" in warm else ""
            kind = "Delta" if case == "tpch-delta" else "Parquet"
            lines.append(
                f"| {kind} | {size / 1000:g} | {NAMES[name]} | {len(samples)} | {first:.1f} | {warm[name]:.1f} | {ratio} |"
            )
    return "\n".join(lines)


def _phases(rows: list[dict[str, Any]]) -> str:
    lines = [
        "## Where our time goes",
        "",
        "Medians in seconds. Spark starts while the plan is made; what is left of its start after that is counted here.",
        "",
        f"| case | rows | {' | '.join(name for name, _, _ in PHASES)} | clean up and end | whole |",
        f"|---|---:|{'---:|' * (len(PHASES) + 2)}",
    ]
    for (_, title, size), by_name in _grouped(rows).items():
        samples = [s for s in by_name.get("ours", []) if "commit.after_commit" in s["moments"]]
        if not samples:
            continue
        spans = [median(_span(s, begin, end) for s in samples) for _, begin, end in PHASES]
        rest = median(s["seconds"] - s["moments"]["commit.after_commit"] for s in samples)
        whole = median(s["seconds"] for s in samples)
        lines.append(
            f"| {title} | {size:,} | {' | '.join(f'{span:.1f}' for span in spans)} | {rest:.1f} | {whole:.1f} |"
        )
    return "\n".join(lines)


def _span(sample: dict[str, Any], begin: str | None, end: str) -> float:
    """Return the seconds between two moments; a load without Spark has no moments in between."""
    times = sample["moments"]
    first = times.get(begin, times["ddl.after_expand"]) if begin else 0.0
    return max(0.0, float(times.get(end, first)) - float(first))


def _memory(rows: list[dict[str, Any]]) -> str:
    watched = [row for row in rows if row["python_mib"]]
    if not watched:
        return ""
    lines = [
        "## Memory",
        "",
        "The most that the processes of a command and of the warm engine had at any moment (proportional shares of what they",
        "share): those of Python, those of Java, and all of them together.",
        "",
        "| case | rows | Python MiB | Java MiB | together MiB | s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in watched:
        memory = f"{row['python_mib']} | {row['java_mib']} | {row['total_mib']}"
        lines.append(f"| {row['title']} | {row['rows']:,} | {memory} | {row['seconds']:.0f} |")
    return "\n".join(lines)
