"""Finds the user's line that made a declaration."""

from __future__ import annotations

import sys
from pathlib import Path

from ematix_flow.errors import Origin

_PACKAGE = str(Path(__file__).resolve().parent.parent)


def caller_origin() -> Origin | None:
    """Return the innermost frame outside this package, if it is the user's."""
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to a caller's line without building a traceback
    while frame is not None:
        name = frame.f_code.co_filename
        # By module too: the __init__ that dataclasses generate for our classes has no file.
        ours = name.startswith(_PACKAGE) or frame.f_globals.get("__name__", "").split(".")[0] == "ematix_flow"
        if not ours and not name.startswith("<frozen"):
            # The command line called us itself: no line of the user's code is behind this.
            return None if frame.f_globals.get("__name__", "").startswith("click.") else Origin(name, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None
