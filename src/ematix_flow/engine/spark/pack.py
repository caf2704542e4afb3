"""Packs this Python with its packages into one archive that executors of a cluster can unpack anywhere; it installs nothing."""

from __future__ import annotations

import io
import os
import sys
import sysconfig
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "environment"
"""The folder that Spark unpacks the archive to, below the working folder of an executor."""

_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_UNUSED_LIBRARY = frozenset({"site-packages", "dist-packages", "test", "idlelib", "turtledemo", "ensurepip", "lib2to3"})
_UNUSED_PACKAGES = ("ematix_flow", "_editable_impl_", "__editable__", "pip", "_virtualenv")
"""The product travels with every job; what is installed as a link to a folder travels with the user's modules."""

_UNUSED_PATHS = frozenset({"pyspark/jars", "pyspark/examples", "pyspark/data", "pyspark/licenses"})

# An interpreter that is linked with a library of its own searches it where it was installed.
_START = f"""#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH="$here/../lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "$here/{_VERSION}" "$@"
"""

# Some distributions search packages under other names than site-packages.
_SITE = f"""import os, site, sys
site.addsitedir(os.path.join(sys.prefix, "lib", "{_VERSION}", "site-packages"))
"""


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive of an environment and the settings that use it."""

    file: Path
    size_bytes: int

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of Spark with which tasks run in the archive."""
        return {
            "spark.archives": f"{self.file}#{FOLDER}",
            "spark.pyspark.python": f"./{FOLDER}/bin/python",
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the archive as plain data."""
        return {"file": str(self.file), "size_bytes": self.size_bytes, "conf": self.settings}


def pack_environment(output: Path) -> Packed:
    """Write the interpreter, its library and the packages of this environment to an archive."""
    if not output.name.endswith((".tar.gz", ".tgz")):
        raise RunError(
            f"{output} is no name for an archive", hint="end it with .tar.gz, by which Spark knows what it is."
        )
    target = output.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, written = tempfile.mkstemp(dir=target.parent, suffix=".part")
    except OSError as error:
        raise RunError(f"{target} cannot be written: {error.strerror}") from error
    try:
        # Most of it are compiled libraries, which further work makes little smaller.
        with (
            os.fdopen(handle, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz", compresslevel=1, dereference=True) as archive,
        ):
            _fill(archive)
        Path(written).replace(target)
    except BaseException:
        Path(written).unlink(missing_ok=True)
        raise
    return Packed(target, target.stat().st_size)


def _fill(archive: tarfile.TarFile) -> None:
    _add_text(archive, "bin/python", _START, 0o755)
    _add_text(archive, f"lib/{_VERSION}/sitecustomize.py", _SITE, 0o644)
    archive.add(_interpreter(), f"bin/{_VERSION}")
    for library in _shared_libraries():
        archive.add(library, f"lib/{library.name}")
    added: set[str] = set()
    for archive_path, file in (*_standard_library(), *_packages()):
        if archive_path not in added:
            added.add(archive_path)
            archive.add(file, f"lib/{_VERSION}/{archive_path}", recursive=False)


def _interpreter() -> Path:
    return Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()


def _shared_libraries() -> list[Path]:
    """Return the interpreter's own library, where it has one."""
    names = {sysconfig.get_config_var(name) for name in ("INSTSONAME", "LDLIBRARY")}
    folder = Path(str(sysconfig.get_config_var("LIBDIR")))
    return [folder / name for name in sorted(filter(None, names)) if ".so" in name and (folder / name).is_file()]


def _standard_library() -> Iterator[tuple[str, Path]]:
    for folder in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        if (Path(folder) / "os.py").is_file():
            for archive_path, file in _files(Path(folder), _UNUSED_LIBRARY):
                if archive_path != "sitecustomize.py" and not archive_path.startswith("config-"):
                    yield archive_path, file


def _packages() -> Iterator[tuple[str, Path]]:
    for folder in dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))):
        for archive_path, file in _files(Path(folder), frozenset()):
            unused = any(archive_path.startswith(f"{path}/") for path in _UNUSED_PATHS)
            if not unused and not archive_path.startswith(_UNUSED_PACKAGES):
                yield f"site-packages/{archive_path}", file


def _files(root: Path, unused: frozenset[str]) -> Iterator[tuple[str, Path]]:
    """Return the files below a folder with their paths in it; folders of packages may be links."""
    for base, folders, names in os.walk(root, followlinks=True):
        at_root = Path(base) == root
        folders[:] = [n for n in folders if n != "__pycache__" and not (at_root and n in unused)]
        for name in names:
            file = Path(base, name)
            if file.is_file():
                yield file.relative_to(root).as_posix(), file


def _add_text(archive: tarfile.TarFile, name: str, text: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), mode
    archive.addfile(entry, io.BytesIO(text.encode()))
