"""Errors of drivers and engines as errors of this product, with the location of the declaration and without secrets."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.errors import NO_ROOM, FlowError, RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.errors import Origin

E = TypeVar("E", bound=BaseException)


@contextmanager
def translating_errors(origin: Origin | None) -> Iterator[None]:
    """Translate what goes wrong in this block."""
    try:
        yield
    except BaseException as error:
        raise translate_error(error, origin) from error


@contextmanager
def naming_target(pipeline: Pipeline, target: TargetDeclaration) -> Iterator[None]:
    """Have what goes wrong in this block say which target of a fan-out it was about."""
    try:
        with translating_errors(pipeline.origin):
            yield
    except Exception as error:
        if pipeline.fan_out:
            error.add_note(f"this is about {pipeline.key_of(target)}, one of {len(pipeline.targets)} targets.")
        raise


@contextmanager
def containing_exits() -> Iterator[None]:
    """Make a sys.exit() in code of the user the error of its run, so that other runs of this process go on."""
    try:
        yield
    except SystemExit as error:
        message = f"the code that was called ended itself with sys.exit({error.code!r})"
        hint = "return from the function, or raise an error: other pipelines may run in this process."
        raise RunError(message, hint=hint).with_traceback(error.__traceback__) from None


def translate_error(error: E, origin: Origin | None) -> E | FlowError:
    """Return the error with the location of the declaration; errors of drivers become ours, without secrets."""
    if isinstance(error, FlowError):
        return error.at(origin)
    module = type(error).__module__.split(".")[0]
    drivers = ("psycopg", "pymysql", "duckdb", "_duckdb", "sqlite3", "adbc_driver_manager", "pyspark", "py4j")
    if isinstance(error, EngineError) or module in drivers:
        return RunError(safe_text(error), origin=origin)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        hint = "nothing was changed; make room, or choose another place with TMPDIR."
        return TransientError(f"there is no room left: {error.strerror or error}", hint=hint, origin=origin)
    return error
