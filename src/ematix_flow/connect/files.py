"""Local files as a batch source: which files a path means and which columns they have; Spark reads the rows."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from ematix_flow.connect.base import SourceColumn
from ematix_flow.declare.connection import format_from_path
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.declare.connection import ObjectStoreLocalConnection

SAMPLE_LINES = 1000


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of one read, fixed before reading."""

    paths: tuple[str, ...]
    format: str
    columns: tuple[SourceColumn, ...]
    csv_options: Mapping[str, Any]


class Files:
    """A folder of files."""

    kind = "object_store_local"
    dialect = "spark"

    def __init__(self, connection: ObjectStoreLocalConnection) -> None:
        self.name = connection.name
        self.shown_path = connection.path
        # Spark may run in another folder than this process, so a relative path is settled here.
        self.root = Path(connection.path).absolute()
        self.format = connection.format
        self.csv_options: Mapping[str, Any] = dict(connection.csv_read_options or {})

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same folder."""
        return ("files", str(self.root.resolve()))

    def info(self) -> Mapping[str, object]:
        """Give the folder for people."""
        return {"host": None, "port": None, "dbname": self.shown_path, "user": None}

    def probe(self) -> str:
        """Say whether the folder is there."""
        if not self.root.is_dir():
            message = f"folder {self.root} does not exist"
            raise RunError(message)
        return f"folder {self.root}"

    def folders(self) -> tuple[str, ...]:
        """Give the names of the folders below the root; queries may use them as tables."""
        if not self.root.is_dir():
            return ()
        return tuple(sorted(p.name for p in self.root.iterdir() if p.is_dir() and not p.name.startswith(("_", "."))))

    def file_set(self, pattern: str, options: Mapping[str, Any]) -> FileSet:
        """Give the files that a path or glob below the root means, with their common columns."""
        paths = self._paths(pattern)
        if not paths:
            message = f"no files match {pattern or '*'!r} below {self.root}"
            raise RunError(message, hint="names that start with _ or . are not read.")
        file_format = str(options.get("format") or format_from_path(paths[0]) or self.format)
        csv_options = {**self.csv_options, **dict(options.get("csv_read_options") or {})}
        columns = _columns(paths[0], file_format, csv_options)
        return FileSet(paths, file_format, columns, csv_options)

    def _paths(self, pattern: str) -> tuple[str, ...]:
        base = self.root / pattern if pattern else self.root
        if base.is_file():
            return (str(base),)
        found = base.rglob("*") if base.is_dir() else self.root.glob(pattern)
        return tuple(sorted(str(path) for path in found if path.is_file() and not _hidden(path, self.root)))


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)


def _columns(path: str, file_format: str, csv_options: Mapping[str, Any]) -> tuple[SourceColumn, ...]:
    try:
        match file_format:
            case "csv":
                return _csv_columns(path, csv_options)
            case "json_lines":
                return _json_columns(path)
            case _:
                return _typed_columns(path, file_format)
    except (OSError, ValueError, EOFError) as error:
        message = f"file {path} cannot be read as {file_format}: {error}"
        raise RunError(message, hint="a malformed file is refused before anything is loaded.") from None


def open_text(path: str) -> IO[str]:
    """Open a text file, compressed or not."""
    if path.endswith(".gz"):
        return cast("IO[str]", gzip.open(path, "rt", encoding="utf-8", newline=""))
    if path.endswith(".bz2"):
        return cast("IO[str]", bz2.open(path, "rt", encoding="utf-8", newline=""))
    if path.endswith((".zst", ".zstd")):
        import zstandard

        return cast("IO[str]", zstandard.open(path, "rt", encoding="utf-8"))
    return Path(path).open(encoding="utf-8", newline="")


def _csv_columns(path: str, options: Mapping[str, Any]) -> tuple[SourceColumn, ...]:
    delimiter = str(options.get("delimiter") or ("\t" if ".tsv" in path else ","))
    with open_text(path) as handle:
        first = next(csv.reader(handle, delimiter=delimiter, quotechar=str(options.get("quote") or '"')), [])
    if options.get("has_header", True) is False:
        first = [f"_c{index}" for index in range(len(first))]
    names = [name.removeprefix("\ufeff") for name in first]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        message = f"the header has {', '.join(sorted(repeated))} twice"
        raise ValueError(message)
    return tuple(SourceColumn(name, "text", "string") for name in names)


def _json_columns(path: str) -> tuple[SourceColumn, ...]:
    names: dict[str, None] = {}
    with open_text(path) as handle:
        for number, line in enumerate(handle):
            if number >= SAMPLE_LINES:
                break
            try:
                row = json.loads(line)
            except ValueError:
                continue
            names.update(dict.fromkeys(row) if isinstance(row, dict) else {})
    return tuple(SourceColumn(name, "text", "string") for name in names)


def _typed_columns(path: str, file_format: str) -> tuple[SourceColumn, ...]:
    import pyarrow as pa

    from ematix_flow.connect.arrow import family_of

    try:
        if file_format == "orc":
            from pyarrow import orc

            schema = orc.ORCFile(path).schema
        else:
            import pyarrow.parquet as pq

            schema = pq.read_schema(path)
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from None
    return tuple(SourceColumn(f.name, family_of(f.type), str(f.type)) for f in schema)
