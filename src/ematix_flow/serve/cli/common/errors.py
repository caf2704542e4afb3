"""Errors as the command line reports them: what, hint and location on stderr; exit codes are chosen here only."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.errors import FlowError, TransientError
from ematix_flow.serve.cli.common.output import paint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DONE = 0
FAILED = 1
USAGE = 2
"""Wrong options, or a name that nothing was declared under."""


class UsageRefusedError(Exception):
    """The user named something that does not exist; nothing was done."""

    def __init__(self, error: FlowError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def as_usage_error() -> Iterator[None]:
    """Turn errors of this block, which looks up a name of the user, into usage errors; what is away is none."""
    try:
        yield
    except TransientError:
        raise
    except FlowError as error:
        raise UsageRefusedError(error) from error


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as text, without secrets."""

    error: str
    error_type: str
    hint: str | None = None
    at: str | None = None


def requires_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line is one for JSON, and so its failure as JSON too; also one that cannot be understood."""
    options = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    chosen = [value for name, value in pairwise(options) if name == "--format"]
    return [*chosen, *(one.partition("=")[2] for one in options if one.startswith("--format="))][-1:] == ["json"]


def failure_of(error: BaseException) -> Failure:
    """Return what an exception means to the user."""
    import traceback

    from ematix_flow.connect.config.redact import redact

    if isinstance(error, FlowError):
        notes = getattr(error, "__notes__", ())
        what = "\n".join([error.what, *notes])
        hint = redact(error.hint) if error.hint else None
        location = str(error.origin) if error.origin else _location_of(error)
        return Failure(redact(what), type(error).__name__, hint, _short(location))
    text = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, SyntaxError):
        text = f"{type(error).__name__}: {error.msg}"
    return Failure(redact(text), type(error).__name__, None, _short(_location_of(error)))


def print_error(error: BaseException, *, with_traceback: bool = False) -> None:
    """Write an error to stderr."""
    if with_traceback:
        import traceback

        from ematix_flow.connect.config.redact import redact

        sys.stderr.write(redact("".join(traceback.format_exception(error))))
    failure = failure_of(error)
    print_error_text(failure.error, failure.hint, failure.at)


def print_error_text(what: str, hint: str | None = None, at: str | None = None) -> None:
    """Write an error that is text already to stderr."""
    lines = [paint("error: ", "red", sys.stderr) + what]
    lines += [paint("hint: ", "cyan", sys.stderr) + hint] if hint else []
    lines += [paint("at: ", "dim", sys.stderr) + at] if at else []
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stderr.flush()


def _location_of(error: BaseException) -> str | None:
    """Return the deepest line of the user's own files that an exception passed."""
    import sysconfig
    import traceback

    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    ours = str(Path(__file__).resolve().parents[3])
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith((ours, "<", *installed))]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def _short(location: str | None) -> str | None:
    """Return a location relative to the working folder where it is below that."""
    if location is None:
        return None
    try:
        return str(Path(location).relative_to(Path.cwd()))
    except ValueError:
        return location
