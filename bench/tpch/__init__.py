"""The 22 queries of TPC-H and their data: the SQL that every engine here takes, and rows from tpchgen."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
_FOLDER = Path(__file__).parent / "queries"


def queries() -> dict[str, str]:
    """Return the queries by name, q01 to q22, with the parameters by which answers are validated."""
    return {file.stem: file.read_text().strip() for file in sorted(_FOLDER.glob("q*.sql"))}


def generate(folder: Path, scale: float) -> Path:
    """Make a folder of Parquet files for each table, unless it is there, and return the folder of them all."""
    target = folder / f"tpch-{scale:g}"
    if not target.exists():
        working = folder / f".tpch-{scale:g}"
        shutil.rmtree(working, ignore_errors=True)
        program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
        command = [program, "parquet", "-s", f"{scale:g}", "--parts=2", f"--output-dir={working}"]
        subprocess.run(command, check=True, capture_output=True)
        working.rename(target)
    return target


def as_delta(folder: Path, scale: float) -> Path:
    """Make a folder of Delta tables with the same rows, unless it is there, and return the folder of them all."""
    import pyarrow.dataset as ds
    from deltalake import write_deltalake

    target, source = folder / f"tpch-delta-{scale:g}", generate(folder, scale)
    if not target.exists():
        working = folder / f".tpch-delta-{scale:g}"
        shutil.rmtree(working, ignore_errors=True)
        for table in TABLES:
            rows = ds.dataset(source / table)
            write_deltalake(working / table, rows.scanner().to_reader())
        working.rename(target)
    return target
