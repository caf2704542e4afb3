"""What the name of a file tells: its format, and how it is compressed; no file is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

CODECS = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
    ".br": "brotli",
    ".snappy": "snappy",
}
"""The suffixes of compressed files, and what they are compressed with."""

TABS = ".tsv"
_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    TABS: "csv",
    ".csv": "csv",
    ".ndjson": "json_lines",
    ".jsonl": "json_lines",
    ".json": "json_lines",
    ".orc": "orc",
}


def format_from_path(path: str) -> str | None:
    """Return the file format that a path's ending names, under at most one compression suffix."""
    return _FORMATS.get(_suffix(_unpacked(path), _FORMATS))


def codec_from_path(path: str) -> str | None:
    """Return what a file is compressed with, as far as its name tells."""
    return CODECS.get(_suffix(str(path).lower(), CODECS))


def has_tabs(path: str) -> bool:
    """Return whether the fields of a file are between tabs, as its name tells."""
    return _unpacked(path).endswith(TABS)


def _unpacked(path: str) -> str:
    """Return a path in small letters, without a compression suffix."""
    lowered = str(path).lower()
    return lowered.removesuffix(_suffix(lowered, CODECS))


def _suffix(text: str, suffixes: Iterable[str]) -> str:
    return next((suffix for suffix in suffixes if text.endswith(suffix)), "")
