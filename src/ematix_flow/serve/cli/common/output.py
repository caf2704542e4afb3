"""What commands show: JSON and tables on stdout, messages on stderr, and no secret on either; it decides nothing."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Any

from ematix_flow.declare.masking import REDACTED

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_NARROWEST = 12

_colours_enabled = True


def without_colours() -> None:
    """Show no colours from now on in this process."""
    global _colours_enabled  # noqa: PLW0603 - one terminal per process
    _colours_enabled = False


def with_colours() -> None:
    """Let the terminal and the environment decide about colours again."""
    global _colours_enabled  # noqa: PLW0603 - one terminal per process
    _colours_enabled = True


def has_colours(stream: IO[str]) -> bool:
    """Return whether a stream is a terminal that may be sent colours."""
    plain = not _colours_enabled or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and stream.isatty()


def paint(text: str, colour: str, stream: IO[str]) -> str:
    """Return the text in a colour, where the stream has any."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if text and has_colours(stream) else text


def emit(text: str) -> bool:
    """Write a result for people to stdout; False when its reader has gone."""
    if sys.stdout is None:  # closed by the process that started the command: it is not read
        return True
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        # Python must not fail on the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise
        return False
    return True


def emit_json(value: Any, placeholder: str = REDACTED) -> bool:
    """Write a result for programs to stdout, with `placeholder` in place of secrets; False when its reader has gone."""
    from ematix_flow.connect.config.redact import redacted_json

    return emit(redacted_json(value, placeholder, indent=2))


def talk(text: str, colour: str = "", screen: IO[str] | None = None) -> None:
    """Print something for the user on stderr, or on what was stderr before a log captured it."""
    from ematix_flow.connect.config.redact import redact

    line, screen = redact(text), screen or sys.stderr
    screen.write((paint(line, colour, screen) if colour else line) + "\n")
    screen.flush()


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows as aligned columns; on a terminal the last column is wrapped to fit, elsewhere nothing is cut."""
    import textwrap

    cells = [["" if value is None else str(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    before = sum(widths[:-1]) + 2 * (len(headers) - 1)
    room = max(_NARROWEST, _width() - before)
    lines = [paint(_line(headers, widths), "bold", sys.stdout)]
    for row in cells:
        wrapped = textwrap.wrap(row[-1], room, break_on_hyphens=False) if len(row[-1]) > room else [row[-1]]
        lines.append(_line([*row[:-1], wrapped[0] if wrapped else ""], widths))
        lines.extend(" " * before + more for more in wrapped[1:])
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 1 << 20
