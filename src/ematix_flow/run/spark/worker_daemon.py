"""The process that Spark forks Python workers from: imports once what every worker needs; runs no task itself."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
from functools import cache
from pathlib import Path
from zipimport import zipimporter

SYS_PATH_VARIABLE = "EMATIX_FLOW_WORKER_PATH"
"""The driver's module path, as JSON. PYTHONPATH would put the user's folder before the standard library."""

IMPORTS_VARIABLE = "EMATIX_FLOW_WORKER_IMPORTS"
"""Names of further modules to import before the first fork, as JSON."""

_ALWAYS = ("pyspark.worker", "pyarrow", "pandas")
"""What every worker loads anyway; Arrow looks for pandas when it first makes a column of Python's values."""

_END = b"PK\x05\x06"
_END_LENGTH = 22
_LONGEST_END = _END_LENGTH + (1 << 16)
"""The last record of an archive, which has a remark of up to 64 KiB, says where the table of contents is."""


class Archive(zipimporter):
    """An archive of the module path whose table of contents is read once, and again only if its file has changed.

    Spark puts the jars of packages on the path of its workers and, before every task, has all archives there read again.
    """

    def __init__(self, path: str) -> None:
        if path.endswith(".jar") and not has_modules(path):
            raise ImportError(f"{path} has no modules of Python")
        super().__init__(path)
        self._read = _version(self.archive)

    def invalidate_caches(self) -> None:
        """Read the table of contents again if the file has changed."""
        if self._read != (version := _version(self.archive)):
            super().invalidate_caches()
            self._read = version


def _version(path: str) -> tuple[int, int] | None:
    try:
        file = Path(path).stat()
    except OSError:
        return None
    return file.st_mtime_ns, file.st_size


def has_modules(path: str) -> bool:
    """Return whether an archive has modules of Python; a damaged one and one that is not there may have some."""
    version = _version(path)
    return version is None or _names_modules(path, version)


@cache
def _names_modules(path: str, version: tuple[int, int]) -> bool:
    """Return whether the table of contents at the end of an archive names a module."""
    with Path(path).open("rb") as file:
        file.seek(-min(version[1], _LONGEST_END), os.SEEK_END)
        end = file.read()
        record = end[end.rfind(_END) :]
        if len(record) < _END_LENGTH:
            return True
        file.seek(int.from_bytes(record[16:20], "little"))
        return b".py" in file.read(int.from_bytes(record[12:16], "little"))


def main() -> None:
    """Take over the driver's module path, import, then serve forks until Spark closes the pipe."""
    sys.path[:] = json.loads(os.environ.get(SYS_PATH_VARIABLE, "null")) or sys.path
    sys.path_hooks[:] = [Archive if hook is zipimporter else hook for hook in sys.path_hooks]
    sys.path_importer_cache.clear()
    for name in (*_ALWAYS, *json.loads(os.environ.get(IMPORTS_VARIABLE, "[]"))):
        with contextlib.suppress(ImportError):  # the task that needs it raises a better error
            importlib.import_module(name)
    from pyspark.daemon import manager

    # Workers collect after every task; what is imported here stays, and need not be looked at each time.
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
