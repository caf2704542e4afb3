"""Local files as a batch source: which files a path means and which columns they have; run.read reads the rows."""

from __future__ import annotations

import os
import re
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.columns import SourceColumn
from ematix_flow.connect.base.source import SourceSystem
from ematix_flow.connect.files.transaction import FileSession
from ematix_flow.connect.formats.csv import dialect_of, header_of
from ematix_flow.connect.formats.json_lines import keys_of, lines_of
from ematix_flow.connect.formats.text import for_arrow, side_by_side, translating_read_errors, unreadable
from ematix_flow.connect.metadata.session import COMMITS, HOME
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.declare.connection.file_names import format_from_path
from ematix_flow.errors import RunError
from ematix_flow.records import SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.declare.connection.registry import ObjectStoreLocalConnection

ALL_FILES = "source"
"""What a query calls all files of a connection together; a folder of this name is only a part of them."""

SAMPLE_LINES = 10_000
"""Lines of all JSON files together that are searched for keys, unless `schema_infer_max_records` is set."""

_UNREADABLE = ("time32", "time64", "duration", "halffloat", "decimal256", "month_day_nano_interval")
"""Types that Arrow writes and Spark cannot read."""


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files of one read, fixed before reading."""

    paths: tuple[str, ...]
    format: str
    columns: tuple[SourceColumn, ...]
    csv_options: Mapping[str, Any]
    groups: tuple[tuple[str, ...], ...] = ()
    """The files by equal layout, for formats that know their types; Spark reads each group with its own."""
    batch_lines: int = 0
    """Lines of JSON that are read at a time; as many as fit a measure of bytes when it is 0."""


class Files(SourceSystem):
    """A folder of files."""

    kind = "object_store_local"
    dialect = "spark"

    def __init__(self, connection: ObjectStoreLocalConnection) -> None:
        self.name = connection.name
        self.display_path = connection.path
        # Spark may run in another folder than this process, so a relative path is resolved here.
        self.root = Path(connection.path).absolute()
        self.format = connection.format
        self.csv_options: Mapping[str, Any] = dict(connection.csv_read_options or {})
        self.json_options: Mapping[str, Any] = dict(connection.json_read_options or {})

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when they name the same folder."""
        return ("files", str(self.root.resolve()))

    def info(self) -> Mapping[str, object]:
        """Return the folder for people."""
        return {"host": None, "port": None, "dbname": self.display_path, "user": None}

    def probe(self) -> str:
        """Return whether the folder is there."""
        return LocalStore(str(self.root)).probe()

    @property
    def read_paths(self) -> tuple[str, ...]:
        """Return what of this machine's disk a task needs that reads from here."""
        return (str(self.root),)

    @property
    def display_address(self) -> str:
        """Return the location for people."""
        return str(self.root)

    def folders(self) -> tuple[str, ...]:
        """Return the names of the folders below the root that queries may use as tables."""
        if not self.root.is_dir():
            return ()
        names = [p.name for p in self.root.iterdir() if p.is_dir() and not p.name.startswith(("_", "."))]
        return tuple(sorted(name for name in names if name.lower() != ALL_FILES))

    def file_set(self, pattern: str, options: Mapping[str, Any], *, for_sql: bool = True) -> FileSet:
        """Return the files that a path or glob below the root means, with their common columns; SQL needs some."""
        paths = self._paths(pattern)
        if not paths:
            raise self.nothing_like(pattern)
        files = self.described(paths, options)
        if for_sql and not files.columns:
            raise unreadable(paths[0], "it has no line, so that SQL has no columns to read")
        return files

    def nothing_like(self, pattern: str) -> RunError:
        """Return the error for a path that means no file."""
        message = f"no files match {pattern or '*'!r} below {self.display_address}"
        return RunError(message, hint="names that start with _ or . are not read.")

    def list_files(self, pattern: str) -> Iterator[tuple[str, SourceFile]]:
        """Return the files that a path or glob means, each with what distinguishes its content from another one."""
        for path in self._paths(pattern):
            # One that is gone again was never there for this load.
            with suppress(FileNotFoundError):
                yield path, self.stat_file(path)

    def stat_file(self, path: str) -> SourceFile:
        """Return a file by its key below the root, with what changes whenever its content may have.

        That is its size, its time to the nanosecond and, since a copy may keep both, the number of its inode.
        """
        there = Path(path).stat()
        key = Path(os.path.relpath(path, self.root)).as_posix()
        return SourceFile(key, f"{there.st_mtime_ns:x}-{there.st_ino:x}", there.st_size)

    def changed(self, paths: Sequence[str], before: Sequence[SourceFile]) -> list[str]:
        """Return those files that are no longer as they were seen."""
        changed_paths = []
        for path, file in zip(paths, before, strict=True):
            try:
                same = self.stat_file(path) == file
            except FileNotFoundError:
                same = False
            changed_paths += [] if same else [path]
        return changed_paths

    def described(self, paths: tuple[str, ...], options: Mapping[str, Any]) -> FileSet:
        """Return files as a set with their common columns."""
        named = format_from_path(paths[0]) if paths else None
        file_format = str(options.get("format") or named or self.format)
        csv_options = {**self.csv_options, **dict(options.get("csv_read_options") or {})}
        json_options = {**self.json_options, **dict(options.get("json_read_options") or {})}
        match file_format:
            case _ if not paths:
                return FileSet((), file_format, (), csv_options)
            case "csv":
                return FileSet(paths, file_format, _csv_columns(paths, csv_options), csv_options)
            case "json_lines":
                lines = int(json_options.get("schema_infer_max_records") or SAMPLE_LINES)
                at_once = int(json_options.get("batch_size") or 0)
                return FileSet(paths, file_format, _json_columns(paths, lines), csv_options, batch_lines=at_once)
            case _:
                typed = side_by_side(lambda path: _typed_columns(path, file_format), paths)
                layouts = dict(zip(paths, typed, strict=True))
                return FileSet(paths, file_format, _common(layouts), csv_options, _groups(layouts))

    def _paths(self, pattern: str) -> tuple[str, ...]:
        # Loads may have brought files to this folder or to one above, of which this is a part.
        home = next((folder for folder in (self.root, *self.root.parents) if (folder / HOME / COMMITS).is_dir()), None)
        if home is None:
            return self._matching(pattern)
        # Files that loads brought here have their names, and those they replaced are gone, whatever died.
        with closing(FileSession(LocalStore(str(home)))) as session:
            return session.undisturbed(lambda: self._matching(pattern))

    def _matching(self, pattern: str) -> tuple[str, ...]:
        base = self.root / pattern if pattern else self.root
        if base.is_file():
            return (str(base),)
        if not base.is_relative_to(self.root):
            message = f"path {pattern!r} is not below {self.display_address}"
            raise RunError(message, hint="paths and patterns begin at the folder of the connection.")
        below = _glob(base.relative_to(self.root))
        matches = base.rglob("*") if base.is_dir() else self.root.glob(below) if below else ()
        paths = sorted(str(path) for path in matches if path.is_file() and not _hidden(path, self.root))
        for path in paths:
            _refuse_other_names(path)
        return tuple(paths)


def _glob(pattern: Path) -> str:
    """Return a pattern as pathlib reads it and objects in buckets are matched: two stars at the end mean all files below."""
    segments = [part if part == "**" else re.sub(r"\*\*+", "*", part) for part in pattern.parts]
    return "/".join([*segments, "*"] if segments[-1:] == ["**"] else segments)


def _hidden(path: Path, root: Path) -> bool:
    return any(segment.startswith(("_", ".")) for segment in path.relative_to(root).parts)


def _refuse_other_names(path: str) -> None:
    """Refuse a name that no text is: neither rows nor metadata could say where they are from."""
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise unreadable(shown, "its name is not UTF-8") from None


def _csv_columns(paths: tuple[str, ...], options: Mapping[str, Any]) -> tuple[SourceColumn, ...]:
    results = side_by_side(lambda path: header_of(path, dialect_of(path, options)), paths)
    headers = dict(zip(paths, results, strict=True))
    layouts = {
        path: tuple(SourceColumn(name, "text", "string") for name in names)
        for path, names in headers.items()
        if names is not None
    }
    if not layouts:
        message = f"file {paths[0]} is empty: it has no header"
        raise RunError(message, hint="a file without rows still needs the line with the names of its columns.")
    return _common(layouts)


def _json_columns(paths: tuple[str, ...], lines: int) -> tuple[SourceColumn, ...]:
    """Return every key that the first lines of the files have, of which a line may lack any; none where there is no line."""
    each = max(lines // len(paths), 10)
    first_lines = side_by_side(lambda path: [keys_of(line) for line in islice(lines_of(path), each)], paths)
    names = dict.fromkeys(chain(*chain(*first_lines)))
    if not names:
        with_lines = next((path for path, keys in zip(paths, first_lines, strict=True) if keys), None)
        if with_lines is None:
            return ()
        raise unreadable(with_lines, "no line is a JSON object")
    columns = tuple(SourceColumn(name, "text", "string") for name in names)
    _refuse_repeated(paths[0], columns)
    return columns


def _typed_columns(path: str, file_format: str) -> tuple[SourceColumn, ...]:
    import pyarrow as pa

    try:
        with translating_read_errors():
            schema = schema_of(path, file_format)
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        raise unreadable(path, f"it is no {file_format} file, or a part of one: {error}") from None
    return tuple(_typed_column(path, field) for field in schema)


def schema_of(path: str, file_format: str) -> pa.Schema:
    """Return the columns of a typed file as Arrow knows them."""
    if file_format == "orc":
        from pyarrow import orc

        return orc.ORCFile(for_arrow(path)).schema
    import pyarrow.parquet as pq

    return pq.read_schema(for_arrow(path))


def _typed_column(path: str, field: pa.Field) -> SourceColumn:
    import pyarrow as pa

    from ematix_flow.connect.types.arrow import family_of

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if str(kind).startswith(_UNREADABLE):
        raise unreadable(path, f"column {field.name!r} has the type {kind}")
    return SourceColumn(field.name, family_of(kind), str(kind))


def _groups(layouts: Mapping[str, tuple[SourceColumn, ...]]) -> tuple[tuple[str, ...], ...]:
    groups: dict[tuple[SourceColumn, ...], list[str]] = {}
    for path, columns in layouts.items():
        groups.setdefault(columns, []).append(path)
    return tuple(tuple(paths) for paths in groups.values())


def _common(layouts: Mapping[str, tuple[SourceColumn, ...]]) -> tuple[SourceColumn, ...]:
    """Return the columns of the first file, which all others must have too, in any order."""
    first, columns = next(iter(layouts.items()))
    _refuse_repeated(first, columns)
    for path, others in layouts.items():
        _refuse_repeated(path, others)
        mine, theirs = ({c.name: c for c in one} for one in (columns, others))
        differing = sorted(mine.keys() ^ theirs.keys())
        differing = differing or [name for name, column in mine.items() if not _alike(column, theirs[name])]
        if differing:
            message = f"file {path} has other columns than {first}: {', '.join(map(repr, differing))} differ"
            raise RunError(message, hint="columns are matched by name; read files of different layout one by one.")
    return columns


def _alike(one: SourceColumn, other: SourceColumn) -> bool:
    """Return whether the values of two columns can be put into one without a change."""
    if one.family in ("json", "decimal", "other"):
        return one.native == other.native
    return one.family == other.family


def _refuse_repeated(path: str, columns: Iterable[SourceColumn]) -> None:
    known: set[str] = set()
    for name in (column.name for column in columns):
        if name.lower() in known:
            raise unreadable(path, f"it has the column {name!r} twice (case does not count)")
        known.add(name.lower())
