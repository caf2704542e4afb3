"""How rows are written to files and read from them, checked as far as the options alone allow."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

READ_OPTIONS = {
    "csv_read_options": (
        "csv",
        (
            "has_header", "delimiter", "quote", "escape", "terminator", "comment", "null_regex", "truncated_rows_ok",
            "schema_infer_max_records",
        ),
    ),
    "json_read_options": ("json_lines", ("schema_infer_max_records", "batch_size")),
}  # fmt: skip
"""How files of a format are read: the name of the option, the format, and its allowed values."""

COMPRESSIONS = ("uncompressed", "snappy", "gzip", "zstd")


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Where below a connection files go, and how they are written; None means "as usual"."""

    prefix: str | None = None
    parquet_compression: str | None = None
    csv_delimiter: str | None = None
    csv_header: bool | None = None
    csv_quote: str | None = None
    csv_escape: str | None = None
    csv_null_value: str | None = None

    def specified(self) -> dict[str, Any]:
        """Return the options that were set."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


FILE_OPTIONS = tuple(field.name for field in fields(FileOptions))


def file_options(**options: Any) -> FileOptions:
    """Return the checked options."""
    result = FileOptions(**options)
    if result.parquet_compression not in (None, *COMPRESSIONS):
        message = f"parquet_compression={result.parquet_compression!r} is not known"
        raise DeclareError(message, hint=did_you_mean(str(result.parquet_compression), COMPRESSIONS))
    for name in ("csv_delimiter", "csv_quote", "csv_escape"):
        _check_character(name, getattr(result, name))
    _check_csv(result)
    if result.prefix is not None:
        _check_prefix(result.prefix)
    return result


def check_read_options(name: str, options: Mapping[str, Any] | None, file_format: object = None) -> None:
    """Refuse words that do not belong there, and options of another format than the files have, where that is known."""
    if options is None:
        return
    option_format, known = READ_OPTIONS[name]
    if file_format is not None and file_format != option_format:
        message = f"{name}= is for {option_format} files, and these are {file_format}"
        raise DeclareError(message)
    for key in options:
        if key not in known:
            raise DeclareError(f"{name}= has an unknown key {key!r}", hint=did_you_mean(key, known))


def check_written_as(options: FileOptions, file_format: str) -> None:
    """Refuse options of another format than the files are written in."""
    for name in options.specified():
        option_format = name.partition("_")[0]
        if option_format in ("parquet", "csv") and option_format != file_format:
            message = f"{name}= is for {option_format} files, and these are {file_format}"
            raise DeclareError(message)


def _check_csv(options: FileOptions) -> None:
    """Refuse characters that could be taken for each other."""
    delimiter, quote = options.csv_delimiter or ",", options.csv_quote or '"'
    for name, other in (("csv_quote", quote), ("csv_escape", options.csv_escape)):
        if delimiter == other:
            message = f"csv_delimiter= and {name}= are the same character {delimiter!r}"
            raise DeclareError(message)
    null = options.csv_null_value
    if null is not None and (not isinstance(null, str) or {"\r", "\n", delimiter, quote} & set(null)):
        message = f"csv_null_value={null!r} is not a text without line ends, delimiters and quotes"
        raise DeclareError(message)
    if null and options.csv_escape and null.endswith(options.csv_escape):
        message = f"csv_null_value={null!r} ends with csv_escape=, which means the character behind it"
        raise DeclareError(message)


def _check_character(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
        message = f"{name}={value!r} is not one ASCII character"
        raise DeclareError(message)


def _check_prefix(prefix: Any) -> None:
    if not isinstance(prefix, str):
        message = f"prefix= takes a folder's name, not {type(prefix).__name__}"
        raise DeclareTypeError(message)
    segments = prefix.strip("/").split("/")
    if any(not segment or segment.startswith(("_", ".")) or "\0" in segment for segment in segments):
        message = f"prefix={prefix!r} is not a folder that readers shall see"
        raise DeclareError(message, hint="name a folder below the connection; no part of it begins with _ or a dot.")
