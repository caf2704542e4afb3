"""Where data lives: one file per system; the package itself can be called, because `ematix_flow.connect(...)` is public."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Connect(ModuleType):
    """The package under its name, which is also the name of the public function that opens a connection."""

    def __call__(self, name: str = "default", *, url: str | None = None, **fields: Any) -> Any:
        """Return a handle on one database: by its name, or by a URL or fields given here."""
        # Looked up at the call: the engine is far above this package.
        return importlib.import_module("ematix_flow.engine.api.references").connect(name, url=url, **fields)


sys.modules[__name__].__class__ = _Connect
