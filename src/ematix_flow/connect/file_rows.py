"""What the readers of text files share: rows with the bad ones told apart, and files that are opened as they are named."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

LONGEST_RECORD = 256 << 20
"""Bytes after which a record that does not end is refused; most often it is a quote that nobody closed."""

BOM = b"\xef\xbb\xbf"
NOT_UTF8 = "with bytes that are not UTF-8: "
COMPRESSED = (".gz", ".bz2", ".zst", ".zstd", ".lz4", ".br")


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a file: the good ones as columns of text, and the others as text with the fields that are known."""

    good: pa.Table
    bad: tuple[tuple[str, Mapping[str, str | None]], ...]


def open_bytes(path: str) -> IO[bytes]:
    """Open a file for reading, decompressed as its name says."""
    import pyarrow as pa

    with naming(path):
        return pa.input_stream(path, compression="detect")  # type: ignore[no-any-return]


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Name the file that cannot be read."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, str(error)) from None


def unreadable(path: str, reason: str) -> RunError:
    """Give the error for a file that is refused as a whole."""
    message = f"file {path} cannot be read: {reason}"
    return RunError(message, hint="a malformed file is refused as a whole; nothing was loaded.")
