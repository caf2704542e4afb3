"""Writes the generated pages of docs/: guarantees, types, the reference and pictures; with --check it only compares."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docs_pictures
import docs_types

import ematix_flow
from ematix_flow.connect.base.capabilities import ALL_MODES
from ematix_flow.connect.base.catalog import Catalog
from ematix_flow.connect.registry import DATABASES, FILES, LAKES, STREAMS, SYSTEMS
from ematix_flow.declare.connection import registry as connection
from ematix_flow.declare.pipeline import keywords, normalize, transforms
from ematix_flow.declare.pipeline import warehouse as warehouses
from ematix_flow.declare.spark_settings import PREFIX, SETTINGS
from ematix_flow.declare.stream import keywords as stream_keywords
from ematix_flow.declare.stream import toml_reader as stream_toml
from ematix_flow.failpoints import ADDING_NAMES, LAKE_NAMES, NAMES, SINK_NAMES, SLOT_NAMES, STORE_NAMES
from ematix_flow.plan.explain.guarantees import QUEUES, SOURCES, TARGETS, guarantee_of
from ematix_flow.plan.metadata_tables import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

DOCS = Path(__file__).resolve().parents[1] / "docs"
NOTE = "<!-- Made by `make docs` from the code. -->"
PROMISE = (
    "A load is applied once or not at all. That holds when a task, the driver, Spark's JVM or the database is killed at"
    " any moment, when the answer to COMMIT is lost, and when two runs of one pipeline overlap. It rests on one"
    " transaction of the target, which holds the rows, the watermark and the load's token."
)
TRIED = (
    "Each of these places in the code can be made to kill the process; the tests do so for every mode on every database,"
    " run the load again and compare. Besides, a process that makes load after load is killed at random moments: by"
    " `make test-all` sixty times for each database, forty times each for folders of files, for Delta and for Iceberg, by"
    " `make test` less often. Executors, masters and warm engines are killed as well. The Spark that changes"
    " a lake table outlives the process there, so that its last statement comes late; it is killed itself as well."
    " A stream from one Kafka topic to another is killed at every place of `sink.` and at random, and a plain"
    " reader of committed messages counts what arrived; a run that slept through the take-over by another one sends nothing."
)
STAGING = {
    "postgres": "unlogged table per load, filled by COPY",
    "mysql": "InnoDB table per load, filled by LOAD DATA",
    "sqlite": "Parquet parts, loaded by the driver",
    "duckdb": "Parquet parts, read by the driver",
    "object_store_local": "files of the final format, out of sight until their record is written",
    "object_store_s3": "files below `_ematix_flow/stage/`, uploaded in parts",
    "object_store_gcs": "files below `_ematix_flow/stage/`, uploaded in parts",
    "object_store_azure": "files below `_ematix_flow/stage/`, uploaded in blocks",
    "delta_local": "Parquet parts below `_ematix_flow/`, read by Spark or placed in the table",
    "delta_s3": "Parquet parts below `_ematix_flow/`, uploaded by tasks and read by Spark or placed in the table",
    "iceberg": "Parquet parts below `_ematix_flow/` of the warehouse, read by Spark or placed in the table",
}
FOLDERS = (
    "A folder of files has no transaction; its commit is a numbered record that only one writer can create (see"
    " [Files](files.md)). Readers who follow the records see the old rows or the new ones. Readers of the folder see"
    " whole files, each once; for the moment in which files get their names after a record, or replaced ones go, they"
    " may see a part of that load, and the next process that opens the folder finishes it."
)

ABILITIES = ("keeps keys unique", "evolve widens types", "partitions", "older versions", "needs Spark")
ABOUT = (
    "Incremental loads, rejects and their replay, drift (error, warn, evolve with new columns), fan-out, previews, dry runs"
    " and recovery work with every target. Files and frames need Spark only where SQL of the user or a nested column has to"
    " be evaluated; `flow preview` says so."
)
HELD_TO = (
    "One suite of tests holds all of them to it: databases, files in folders and in buckets, Delta and Iceberg tables in"
    " folders and in buckets. What a kind of target cannot do is listed there with the reason: files take no merge and"
    " no scd2, neither files nor lakes have constraints, and Delta alters no column and takes fewer names."
)

LAKE_TABLES = (
    "A lake table changes by one commit of its own per load, which carries the load's name; the metadata tables (ledger,"
    " watermark, history, rejects) follow it as a numbered record. After a crash the next writer reads from the table"
    " whether the change was committed; it then completes the metadata tables, or makes sure that the change can never be"
    " committed (see [Lake tables](lakes.md)). Other programs may write to the same table; scd2 assumes that none does so"
    " between the read of the versions and the commit."
    " In a bucket a commit of Delta is written on the condition that there is none with its number, so that of two drivers"
    " one wins; other programs that write to the same Delta table must do the same."
)

STREAM_PROMISE = (
    "A stream remembers how far it has come in each of its targets. What a reader of a target sees of each message, with"
    " `delivery=` left out:"
)
POSITIONS_OF_STREAMS = (
    "`delivery='exactly_once'` is refused where the table says at least once. Positions of streams into Kafka stand in the"
    " compacted topic `ematix-flow-positions` of the same cluster, in the transaction of the messages; a newer run of a"
    " stream shuts the older one out. Readers that do not set `isolation.level=read_committed` see messages of"
    " transactions that were never committed as well. For the other brokers positions stand in `positions.db` below"
    " `~/.ematix-flow/state` (or `EMATIX_FLOW_STATE_DIR`), so keep that folder. Ids are made of the stream's name and the"
    " message's place in its source; after `transform_sql=` of the batch and the row's number in it, so that there a"
    " second copy may have another id when batches are cut elsewhere."
)

STREAM_VALUES = (
    "Source",
    "Target",
    "Lookup",
    "Watermark",
    "StateStore",
    "Window",
    "Aggregation",
    "Join",
    "Dedupe",
    "CDC",
)
STREAM_FILE = (
    '`run_pipeline(config=...)` reads it. A connection is named (`connection = "warehouse"`) or written out with its'
    " `kind` and settings, `${VAR}` included; `[[sources]]` and `[[targets]]` hold several. A key that nothing reads is"
    " refused with its line."
)


def systems() -> dict[str, Any]:
    """Return the class of every target by kind."""
    return {kind: record.load(record.target) for kind, record in SYSTEMS.items() if record.target}


def table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table."""
    names = list(headings)
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def guarantees() -> str:
    """Return the page about what each system promises."""
    all_systems = systems()
    rows = [(kind, system.capabilities.guarantee, STAGING[kind]) for kind, system in all_systems.items()]
    return "\n\n".join(
        [
            "# What is guaranteed",
            NOTE,
            PROMISE,
            table(("target", "guarantee", "staging"), rows),
            FOLDERS,
            LAKE_TABLES,
            "Files and frames as sources: a file is read once per run, and a broken line is a reject or refuses the load.",
            "## Streams",
            STREAM_PROMISE,
            table(("from", *(f"to {target}" for target in TARGETS)), [_promised(source) for source in SOURCES]),
            "\n".join(f"- {what}: {reason}." for what, reason in _reasons().items()),
            POSITIONS_OF_STREAMS,
            "## What each system can do",
            table(("kind", "source", *ALL_MODES, *ABILITIES), [_abilities(*one) for one in all_systems.items()]),
            ABOUT,
            HELD_TO,
            "## Where a crash is tried",
            TRIED,
            ", ".join(
                f"`{name}`"
                for name in dict.fromkeys((*NAMES, *STORE_NAMES, *LAKE_NAMES, *ADDING_NAMES, *SINK_NAMES, *SLOT_NAMES))
            ),
            "How each system stores a declared type: [types](types.md).",
        ]
    )


def _promised(source: str) -> tuple[str, ...]:
    """Return what streams from a source promise, target by target."""
    return (source, *(guarantee_of(source, target).level.replace("_", " ") for target in TARGETS))


def _reasons() -> dict[str, str]:
    """Return why, for each target from a source that can be read again, and for the sources that cannot."""
    reasons = {f"to {target}": guarantee_of("kafka", target).reason for target in TARGETS}
    reasons["to kafka, `delivery='at_least_once'`"] = guarantee_of("kafka", "kafka", "at_least_once").reason
    return reasons | {f"from {source}": guarantee_of(source, "table").reason for source in QUEUES}


def _abilities(kind: str, system: Any) -> tuple[str, ...]:
    """Return what a kind of system can do, asked of its class."""
    can = system.capabilities
    able = (
        can.source,
        *(mode in can.modes for mode in ALL_MODES),
        can.constraints and can.answers_sql,
        system.widening is not Catalog.widening,
        kind in LAKES,
        kind in LAKES,
        kind in LAKES,
    )
    return (kind, *("yes" if one else "-" for one in able))


FRAMES = """Each of them that batch pipelines can use has the methods of [frames](frames.md): `read_df(sql, prefer="auto")`, `scan_df(sql)`,
`read_batches(sql)`, `write_df(df, "schema.table", mode="append", target=None, keys=None, update_columns=None, compare_columns=None,
event_timestamp_column=None)`, `read_spark_df(spark, sql)` and `write_spark_df(df, "schema.table", ...)`."""


def reference() -> str:
    """Return the page of every keyword, marker, connection and table."""
    spellings = [(f"`{alias}`", f"`{name}`") for alias, name in keywords.ALIASES.items()]
    spellings += [
        ("`incremental=True, watermark_column=`", "`incremental_column=`"),
        ("`ttl_seconds=`", "`ttl=`"),
    ]
    return "\n\n".join(
        [
            "# Reference",
            NOTE,
            "## Keywords of `@ematix.pipeline`",
            table(("keyword", "meaning"), ((f"`{k}`", v) for k, v in keywords.PIPELINE_KEYWORDS.items())),
            "Other spellings that mean the same:",
            table(("spelling", "keyword"), spellings),
            f"`ematix.target(Table, ...)` takes {', '.join(f'`{k}`' for k in keywords.WRITE_KEYWORDS)}.",
            "## Keywords of `@ematix.streaming_pipeline`",
            "`run_streaming_pipeline(...)` takes the same ones.",
            table(("keyword", "meaning"), ((f"`{k}`", v) for k, v in stream_keywords.STREAM_KEYWORDS.items())),
            "Other spellings that mean the same:",
            table(("spelling", "keyword"), ((f"`{k}`", f"`{v}`") for k, v in stream_keywords.STREAM_ALIASES.items())),
            table(("value", "what it is"), _values(STREAM_VALUES)),
            "## A stream in TOML",
            STREAM_FILE,
            table(("table", "keys"), ((f"`{name}`", _code_list(keys)) for name, keys in stream_toml.keys().items())),
            "## Keywords of `@ematix.warehouse_pipeline`",
            f"{_code_list(inspect.signature(warehouses.warehouse_pipeline).parameters)}; see [warehouses](warehouses.md).",
            table(
                ("value", "what it is"),
                [_described(cls) for cls in (warehouses.WarehouseSource, warehouses.WarehouseTarget)],
            ),
            "## Normalisers",
            "Markers in `Annotated[...]`, applied from left to right.",
            table(("marker", "what it gives"), _markers(normalize, normalize.Normalizer)),
            "## Pre-load transforms",
            table(("transform", "what it gives"), _markers(transforms, object)),
            "## Connections",
            table(("kind", "class", "settings"), _connections()),
            FRAMES,
            "## Tables in the target",
            table(("table", "columns"), ((n, ", ".join(f"`{c}`" for c in columns)) for n, columns in COLUMNS.items())),
            "## Spark",
            f"The `[spark]` table of `.ematix-flow.toml`, each also as `{PREFIX}<NAME>`: "
            + ", ".join(f"`{name}`" for name in SETTINGS)
            + ".",
        ]
    )


def _markers(module: Any, base: type) -> list[tuple[str, str]]:
    """Return the public names of a marker module with their arguments and first sentences."""
    rows = []
    facade = importlib.import_module(f"ematix_flow.{module.__name__.rpartition('.')[2]}")
    for name in sorted(facade.__all__):
        value = getattr(facade, name)
        if not callable(value) or name[0].isupper():
            continue
        cls = value if inspect.isclass(value) else None
        if cls is not None and not issubclass(cls, base):
            continue
        arguments = ", ".join(p for p in inspect.signature(value).parameters)
        rows.append((f"`{name}({arguments})`", (inspect.getdoc(value) or "").split("\n")[0]))
    return rows


def _values(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return public classes with their fields and first sentences."""
    return [_described(getattr(ematix_flow, name)) for name in names]


def _described(cls: type) -> tuple[str, str]:
    """Return a class with its fields and its first sentence."""
    arguments = ", ".join(inspect.signature(cls).parameters)
    return f"`{cls.__name__}({arguments})`", (inspect.getdoc(cls) or "").split("\n")[0]


def _code_list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _connections() -> list[tuple[str, str, str]]:
    usable = (*DATABASES, *FILES, *LAKES, *STREAMS)
    notes = dict.fromkeys(usable, "") | dict.fromkeys(warehouses.WAREHOUSES, " ([warehouses](warehouses.md))")
    return [
        (
            kind + notes.get(kind, " (declared only)"),
            cls.__name__,
            ", ".join(f"`{n}`" for n in connection.setting_names(cls)),
        )
        for kind, cls in connection.KINDS.items()
    ]


PAGES = {
    "guarantees.md": guarantees,
    "reference.md": reference,
    "types.md": docs_types.page,
    "pictures/windows-tumbling.svg": docs_pictures.tumbling,
    "pictures/windows-hopping.svg": docs_pictures.hopping,
    "pictures/windows-sessions.svg": docs_pictures.sessions,
}


def main() -> int:
    """Write the pages, or say which ones are old."""
    check = "--check" in sys.argv[1:]
    old = []
    for name, page in PAGES.items():
        text, path = page() + "\n", DOCS / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            old.append(name)
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print(f"{'old' if check else 'written'}: {', '.join(old) or 'none'}")
    return 1 if check and old else 0


if __name__ == "__main__":
    raise SystemExit(main())
