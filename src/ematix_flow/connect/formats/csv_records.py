"""Finds the whole records of a CSV file, and where it can be cut between them; what is in a record is not its business.

One regular expression defines what a record is. Where quotes open and close fields and do nothing else, which takes no
more than an inspection of their neighbours, that is known without it.
"""

from __future__ import annotations

import re
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Protocol

from ematix_flow.connect.formats.text import (
    BOM,
    LONGEST_RECORD,
    StoredFile,
    naming,
    open_bytes,
    open_raw,
    size_of,
)
from ematix_flow.declare.connection.file_names import codec_from_path
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    import numpy as np
    import numpy.typing as npt

BLOCK = 8 << 20

AHEAD = 4
"""Blocks of a file in a store that are fetched at a time while its records are searched for."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    """The quote itself when quotes are doubled."""
    comment: str = ""
    header: bool = True
    null_regex: str = ""
    pads_short_rows: bool = False
    terminator: str = ""
    """The one character that ends a record; empty where lines do."""

    @property
    def ends(self) -> tuple[bytes, ...]:
        """Return what a record may end with."""
        return (self.terminator.encode(),) if self.terminator else (b"\n", b"\r")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes of a file between two records."""

    start: int = 0
    stop: int = -1
    """-1 for the end of the file."""
    line: int = 1
    """The number of its first line."""


WHOLE = ByteRange()


class Blocks(Protocol):
    """Returns bytes one after the other: some for as long as there are any, then none."""

    def read(self, size: int, /) -> bytes:
        """Return about so many bytes."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """How records are found: one of them, as many as there are, a comment and a field."""

    record: re.Pattern[bytes]
    records: re.Pattern[bytes]
    comment: re.Pattern[bytes] | None
    field: re.Pattern[bytes]


@lru_cache(maxsize=8)
def grammar_of(dialect: Dialect) -> Grammar:
    """Return the patterns of a dialect."""
    quote, escape, end = (re.escape(c.encode()) for c in (dialect.quote, dialect.escape, dialect.delimiter))
    ends = b"".join(re.escape(one) for one in dialect.ends)
    if dialect.escape == dialect.quote:
        inside = b"[^%b]*+(?:%b%b[^%b]*+)*+" % (quote, quote, quote, quote)
        plain = b"[^%b%b%b][^%b%b]*+" % (quote, end, ends, end, ends)
    else:
        inside = b"[^%b%b]*+(?:%b.[^%b%b]*+)*+" % (quote, escape, escape, quote, escape)
        plain = b"(?:[^%b%b%b%b]|%b.)(?:[^%b%b%b]|%b.)*+" % (
            quote, end, escape, ends, escape, end, escape, ends, escape,
        )  # fmt: skip
    field = b"(?:%b%b%b|%b)?+" % (quote, inside, quote, plain)
    line_end = ends if dialect.terminator else b"(?:\r\n|\n|\r)"
    record = b"%b(?:%b%b)*+%b" % (field, end, field, line_end)
    comment = b"%b[^%b]*+%b" % (re.escape(dialect.comment.encode()), ends, line_end) if dialect.comment else b""
    record = b"(?:%b|%b)" % (comment, record) if comment else record
    patterns = [re.compile(pattern, re.DOTALL) for pattern in (record, b"(?:%b)*+" % record, field)]
    return Grammar(patterns[0], patterns[1], re.compile(comment) if comment else None, patterns[2])


@lru_cache(maxsize=8)
def bare_escapes_of(dialect: Dialect) -> re.Pattern[bytes]:
    """Return the pattern of what is before an escape that is in no quotes, and of the rest of its field from there.

    A search goes on behind a field, so that a quote is behind an end only where it opens a field. The last rest is empty.
    """
    quote, escape = re.escape(dialect.quote.encode()), re.escape(dialect.escape.encode())
    ends = b"".join(re.escape(one) for one in (dialect.delimiter.encode(), *dialect.ends))
    run = b"[^%b%b]" % (quote, escape)
    quoted = b"(?<![^%b])%b%b*+(?:%b.%b*+)*+%b" % (ends, quote, run, escape, run, quote)
    rest = b"(?:%b.[^%b%b]*+)++" % (escape, ends, escape)
    return re.compile(b"((?:%b++|%b|%b)*+)(%b|)" % (run, quoted, quote, rest), re.DOTALL)


class _UnclosedError(Exception):
    """The record at a line does not end."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def records_of(path: str, dialect: Dialect, byte_range: ByteRange = WHOLE, size: int = BLOCK) -> Iterator[bytes]:
    """Return whole records of a file, many at a time, without the byte order mark, blank beginnings and comments."""
    with closing(_open_range(path, byte_range)) as stream:
        try:
            for whole, _, _ in _whole_records(stream, path, dialect, byte_range, size):
                if records := _without_blanks(whole, dialect):
                    yield records
        except _UnclosedError as error:
            message = f"file {path} cannot be read as csv: the quotes of the record at line {error.line} do not match"
            hint = "a quote inside a quoted field is written twice; nothing was loaded."
            raise RunError(message, hint=hint) from None


def byte_ranges_of(path: str, dialect: Dialect, every: int) -> list[ByteRange]:
    """Return the parts of a file that can be read on their own, of about so many bytes; a compressed file is one.

    The records are searched for from the beginning, because no position in a file shows whether it is inside quotes.
    Behind a record that does not end nothing is cut, so that the reader of the last part finds it. The header is in the
    first part.
    """
    size = size_of(path)
    if codec_from_path(path) or size <= every:
        return [WHOLE]
    begins = [(0, 1)]
    try:
        for offset, line in _borders(path, dialect, min(BLOCK, every // 8 + 1)):
            if offset - begins[-1][0] >= every and size - offset >= every // 2:
                begins.append((offset, line))
    except _UnclosedError:
        pass
    stops = [offset for offset, _ in begins[1:]]
    return [ByteRange(start, stop, line) for (start, line), stop in zip(begins, [*stops, -1], strict=True)]


def _borders(path: str, dialect: Dialect, size: int) -> Iterator[tuple[int, int]]:
    """Return offsets between records with the number of the line that begins there, from behind the first record on."""
    started = False
    with closing(_Fetched(path, size) if isinstance(path, StoredFile) else open_raw(path)) as blocks:
        for whole, offset, line in _whole_records(blocks, path, dialect, WHOLE, size):
            started = started or bool(_without_blanks(whole, dialect))
            if started:
                yield offset, line


def _open_range(path: str, byte_range: ByteRange) -> _Limited | IO[bytes]:
    return open_bytes(path) if byte_range == WHOLE else _Limited(path, byte_range)


class _Limited:
    """A part of a file."""

    def __init__(self, path: str, byte_range: ByteRange) -> None:
        self._stream, self._left = (
            open_raw(path),
            (size_of(path) if byte_range.stop < 0 else byte_range.stop) - byte_range.start,
        )
        self._stream.seek(byte_range.start)

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, fewer at the end of the part."""
        got = self._stream.read(min(size, self._left))
        self._left -= len(got)
        return got

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()


class _Fetched:
    """A file in a store, of which some blocks are fetched before they are required: responses come over the network."""

    def __init__(self, path: StoredFile, size: int) -> None:
        self._path, self._size = path, max(size, len(BOM))
        self._starts = iter(range(0, size_of(path), self._size))
        self._pool = ThreadPoolExecutor(AHEAD, "flow-files")
        self._coming: deque[Future[bytes]] = deque()
        for _ in range(AHEAD):
            self._fetch_one()

    def read(self, size: int, /) -> bytes:
        """Return the next block, whatever its size."""
        del size
        if not self._coming:
            return b""
        block = self._coming.popleft().result()
        self._fetch_one()
        return block

    def close(self) -> None:
        """Fetch no more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _fetch_one(self) -> None:
        start = next(self._starts, None)
        if start is not None:
            self._coming.append(self._pool.submit(self._block, start))

    def _block(self, start: int) -> bytes:
        with naming(self._path), open_raw(self._path) as stream:
            stream.seek(start)
            return stream.read(self._size)


def _whole_records(
    blocks: Blocks, path: str, dialect: Dialect, byte_range: ByteRange, size: int
) -> Iterator[tuple[bytes, int, int]]:
    """Return whole records, many at a time, with the offset and the number of the line behind them."""
    remainder, offset, line, started = b"", byte_range.start, byte_range.line, byte_range.start > 0
    while True:
        with naming(path):
            block = blocks.read(max(size, len(remainder), len(BOM)))
            while block.endswith(b"\r") and (more := blocks.read(1)):
                block += more  # a line end of two characters is one
        data = remainder + block
        if not started:
            started, data = True, data.removeprefix(BOM)
            offset += len(block) - len(data)
        data = data if block else _finished(data, dialect)
        end = _end_of_records(data, dialect)
        whole, remainder = data[:end], data[end:]
        line += _lines(whole, dialect)
        offset += end
        if remainder and (not block or len(remainder) > LONGEST_RECORD):
            raise _UnclosedError(line)
        if whole:
            yield whole, offset, line
        if not block:
            return


def _without_blanks(whole: bytes, dialect: Dialect) -> bytes:
    """Return records without comments and blank beginnings."""
    grammar = grammar_of(dialect)
    if grammar.comment is not None:
        records = (match.group() for match in grammar.record.finditer(whole))
        whole = b"".join(record for record in records if not grammar.comment.fullmatch(record))
    return whole if dialect.terminator else whole.lstrip(b"\r\n")


def _finished(remainder: bytes, dialect: Dialect) -> bytes:
    """Return the end of a file with the end of its last record; the line end that editors put behind that is no record."""
    if dialect.terminator and not remainder.strip(b"\r\n"):
        return b""
    return remainder if not remainder or remainder.endswith(dialect.ends) else remainder + dialect.ends[0]


def _lines(whole: bytes, dialect: Dialect) -> int:
    if dialect.terminator:
        return whole.count(dialect.ends[0])
    return whole.count(b"\n") + (whole.count(b"\r") - whole.count(b"\r\n") if b"\r" in whole else 0)


def _end_of_records(data: bytes, dialect: Dialect) -> int:
    """Return where the whole records of some bytes end; without a quote every line is one."""
    quote, escape = dialect.quote.encode(), dialect.escape.encode()
    if quote not in data and escape not in data:
        return max(data.rfind(end) for end in dialect.ends) + 1
    if quote == escape and not dialect.comment:
        end = _end_between_quotes(data, dialect)
        if end is not None:
            return end
    return grammar_of(dialect).records.match(data).end()  # type: ignore[union-attr]


def _end_between_quotes(data: bytes, dialect: Dialect) -> int | None:
    """Return where whole records end if every quote begins a field, ends one or is doubled; None if one may be something else.

    Then every second quote opens: one behind a quote is the second of two inside a field, which closes and opens again.
    """
    import numpy as np

    characters = np.frombuffer(data, np.uint8)
    quote, around = ord(dialect.quote), np.zeros(256, bool)
    around[[ord(dialect.delimiter), *(end[0] for end in dialect.ends)]] = True
    quote_offsets = np.flatnonzero(characters == quote)
    opens, closes = quote_offsets[0::2], quote_offsets[1::2]
    begins = around[characters[opens - 1]]
    begins[0] = begins[0] if quote_offsets[0] else True
    begins[1:] |= opens[1:] == closes[: len(opens) - 1] + 1
    around[quote] = True
    inner = closes[closes + 1 < len(data)]
    if not begins.all() or not around[characters[inner + 1]].all():
        return None
    return _last_end(data, dialect, opens, closes)


def _last_end(data: bytes, dialect: Dialect, opens: npt.NDArray[np.intp], closes: npt.NDArray[np.intp]) -> int:
    """Return the position behind the last line end that is not inside quotes; 0 where there is none."""
    for number in range(len(closes), -1, -1):
        low = int(closes[number - 1]) + 1 if number else 0
        high = int(opens[number]) if number < len(opens) else len(data)
        offset = max(data.rfind(end, low, high) for end in dialect.ends)
        if offset >= 0:
            return offset + 1
    return 0
