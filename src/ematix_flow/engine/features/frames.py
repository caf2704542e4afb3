"""A training set as the frame that the caller prefers; Arrow carries it there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.values import one_of
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.frames import convert
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa

FRAMES = ("auto", "polars", "pandas", "arrow", "spark")


def check_frame(prefer: str) -> str:
    """Return the library of a frame, `auto` resolved to the first one that is installed."""
    one_of("prefer", prefer, FRAMES)
    libraries = ("polars", "pandas") if prefer == "auto" else (prefer,)
    for library in libraries:
        if library in ("arrow", "spark") or find_spec(library) is not None:
            return library
    message = f"a training set needs {' or '.join(libraries)}, which is not installed"
    raise MissingExtraError(message, hint='pip install "ematix-flow-spark[df]", or request prefer="arrow".')


def frame_of(table: pa.Table, library: str) -> Any:
    """Return an Arrow table as a frame of a library."""
    return session_for(Options())().createDataFrame(table) if library == "spark" else convert.frame_of(table, library)
