"""The process that Spark forks Python workers from: imports once what every worker needs; runs no task itself."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys

SYS_PATH_VARIABLE = "EMATIX_FLOW_WORKER_PATH"
"""The driver's module path, as JSON. PYTHONPATH would put the user's folder before the standard library."""

IMPORTS_VARIABLE = "EMATIX_FLOW_WORKER_IMPORTS"
"""Names of further modules to import before the first fork, as JSON."""

_ALWAYS = ("pyspark.worker", "pyarrow", "pandas")
"""What every worker loads anyway; Arrow looks for pandas when it first makes a column of Python's values."""


def main() -> None:
    """Take over the driver's module path, import, then serve forks until Spark closes the pipe."""
    sys.path[:] = json.loads(os.environ.get(SYS_PATH_VARIABLE, "null")) or sys.path
    # Spark's own path has archives. Every task has their tables of contents read again, also where nothing comes from them.
    for path in sys.path_importer_cache.keys() - {*sys.path}:
        del sys.path_importer_cache[path]
    for name in (*_ALWAYS, *json.loads(os.environ.get(IMPORTS_VARIABLE, "[]"))):
        with contextlib.suppress(ImportError):  # the task that needs it raises a better error
            importlib.import_module(name)
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
