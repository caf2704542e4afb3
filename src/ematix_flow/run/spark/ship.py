"""Lets code travel to executors of other machines: this product and the modules of the user, as zip files that tasks import.

It knows nothing of packages from PyPI: those have to be where tasks run, or come in an archive of the whole environment.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import os
import site
import sys
import sysconfig
import tempfile
import threading
import time
import zipfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ematix_flow.connect.staging.parquet import process_folder
from ematix_flow.declare.project import PROJECT
from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from pyspark.sql import SparkSession

PRODUCT = "ematix_flow"
MAIN = "__main__"
_NEVER = frozenset({PRODUCT, "pyspark", "py4j"})
_NEIGHBOUR_BYTES = 32 << 20
"""How much code that is not imported yet travels: modules next to the user's, for later imports."""

_DATE = (1980, 1, 1, 0, 0, 0)
_UNCHECKED = (0b01).to_bytes(4, "little")
_RETAIN_SECONDS = 30 * 24 * 3600
_lock = threading.Lock()
_SENT: WeakKeyDictionary[Any, _Sent] = WeakKeyDictionary()


@dataclass(slots=True)
class _Sent:
    """What a session has been given: files by their names, and the modules that were known then."""

    names: set[str] = field(default_factory=set)
    modules: frozenset[str] = frozenset()


def send_code(session: SparkSession, cache: Path | None) -> None:
    """Let the tasks of a session find this product and the modules of the user that are known by now."""
    with _lock:
        sent = _SENT.setdefault(session, _Sent())
        modules = frozenset(sys.modules)
        if modules == sent.modules:
            return
        own = process_folder()
        if not sent.names:
            _send(session, sent, "product", _product_files(), cache or own)
        _send(session, sent, "user", user_files(), own)
        _by_value()
        sent.modules = modules


def _by_value() -> None:
    """Let functions out of modules with declarations travel as they are: tasks need not, and often cannot, run these modules."""
    from pyspark import cloudpickle

    declared: tuple[Any, ...] = (*PROJECT.pipelines.values(), *PROJECT.streams.values())
    declaring_files = {os.path.realpath(one.origin.file) for one in declared if one.origin}
    register: Any = cloudpickle.register_pickle_by_value
    for name, module in list(sys.modules.items()):
        source_file = _source_file(module)
        if source_file is not None and str(source_file) in declaring_files and name != MAIN:
            register(module)


def _send(session: SparkSession, sent: _Sent, purpose: str, files: Mapping[str, Path], folder: Path) -> None:
    archive_name = f"{purpose}-{_fingerprint(files)}"
    if files and archive_name not in sent.names:
        _add(session, _named_by_content(_zip(folder / f"ematix-flow-{archive_name}.zip", files)))
        sent.names.add(archive_name)


def _named_by_content(file: Path) -> Path:
    """Return the file under the hash of its bytes: sessions of one server share names, and the same code is not always the same bytes."""
    content = file.read_bytes()
    target = process_folder() / f"ematix-flow-{hashlib.sha256(content).hexdigest()[:24]}.zip"
    if not target.exists():
        target.write_bytes(content)
    return target


def user_files() -> dict[str, Path]:
    """Return the user's modules by their names in an archive: what this process has imported, and its neighbours."""
    installed = _installed_folders()
    imported: dict[str, Path] = {}
    roots: set[Path] = set()
    for known, module in list(sys.modules.items()):
        source_file, name = _source_file(module), _name(known, module)
        if source_file is None or name.partition(".")[0] in _NEVER or _is_below(source_file, installed):
            continue
        root, top = _root(name, source_file)
        roots.add(root)
        if name != MAIN:
            imported |= _module_files(top, root)
    return _neighbour_modules(roots, installed) | imported


def _product_files() -> dict[str, Path]:
    package = Path(__file__).resolve().parents[2]
    files = package.rglob("*.py")
    return {f"{PRODUCT}/{file.relative_to(package).as_posix()}": file for file in files}


def _source_file(module: ModuleType) -> Path | None:
    """Return the source file of a module; none for what is built in or has no text."""
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) and file.endswith(".py") and os.path.exists(file) else None  # noqa: PTH110


def _name(known: str, module: ModuleType) -> str:
    """Return the name by which a module is imported; a program that was started by its name has another one too."""
    spec = getattr(module, "__spec__", None)
    return spec.name if known == MAIN and spec is not None else known


def _root(name: str, source_file: Path) -> tuple[Path, str]:
    """Return the folder from which a module is imported, and the name of its outermost package."""
    depth = name.count(".") + (source_file.name == "__init__.py")
    return source_file.parents[depth], name.partition(".")[0]


def _module_files(top: str, root: Path) -> dict[str, Path]:
    """Return the files of a module or of a whole package, with the data in it."""
    single = root / f"{top}.py"
    if single.is_file():
        return {single.name: single}
    return {file.relative_to(root).as_posix(): file for file in _package_files(root / top, data=True)}


def _neighbour_modules(roots: set[Path], installed: tuple[Path, ...]) -> dict[str, Path]:
    """Return the modules and packages in the folders of the user's modules, as far as they are not large."""
    modules: dict[str, Path] = {}
    size = 0
    for root in sorted(roots):
        for entry in sorted(root.iterdir()):
            # What is sent is imported before the standard library.
            if _is_below(entry, installed) or entry.stem in _NEVER or entry.stem in sys.stdlib_module_names:
                continue
            single = [entry] if entry.suffix == ".py" and entry.is_file() else []
            package = _package_files(entry, data=False) if (entry / "__init__.py").is_file() else ()
            for file in (*single, *package):
                size += file.stat().st_size
                if size > _NEIGHBOUR_BYTES:
                    return modules
                modules[file.relative_to(root).as_posix()] = file
    return modules


def _package_files(folder: Path, *, data: bool) -> Iterator[Path]:
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        for name in names:
            if name.endswith(".py") or (data and not name.startswith(".")):
                yield Path(base, name)


def _installed_folders() -> tuple[Path, ...]:
    """Return where packages, the standard library and programs of this Python are."""
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    known = {sysconfig.get_path(name) for name in names} | set(site.getsitepackages()) | {site.getusersitepackages()}
    base = {str(Path(os.__file__).parent), str(Path(sys.executable).parent)}
    return tuple(Path(folder).resolve() for folder in known | base)


def _is_below(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _fingerprint(files: Mapping[str, Path]) -> str:
    """Return a text that is another one when a file is: by content, since a zip of the same content can be used again."""
    digest = hashlib.sha256(sys.implementation.cache_tag.encode() if sys.implementation.cache_tag else b"")
    for name in sorted(files):
        content = files[name].read_bytes()
        digest.update(f"{name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _zip(target: Path, files: Mapping[str, Path]) -> Path:
    """Write the files and, for a quick import, their byte code; a zip that is there already has the same content."""
    if target.exists():
        with suppress(OSError):
            os.utime(target)
        return target
    _sweep(target)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            content = files[name].read_bytes()
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
            if name.endswith(".py") and (code := _byte_code(name, content)) is not None:
                archive.writestr(zipfile.ZipInfo(f"{name}c", _DATE), code, zipfile.ZIP_DEFLATED)
    handle, written = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(buffer.getvalue())
    Path(written).replace(target)
    return target


def _sweep(target: Path) -> None:
    """Remove zips of other versions that were not used for long."""
    for file in target.parent.glob("ematix-flow-*.zip"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > _RETAIN_SECONDS:
                file.unlink()


def _byte_code(name: str, content: bytes) -> bytes | None:
    """Return what Python would keep of a module; none for a text that it cannot compile, which only matters if it is imported."""
    try:
        code = compile(content, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    # Zip files have no times: the byte code is flagged as not to be compared with the text.
    header = importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(content)
    return header + marshal.dumps(code)


def _add(session: SparkSession, file: Path) -> None:
    from pyspark.errors import UnsupportedOperationException

    before = list(sys.path)
    try:
        if type(session).__module__.startswith("pyspark.sql.connect"):
            # A server that takes no code, as Sail, has what its own Python has; what is missing there is named by the task.
            with suppress(UnsupportedOperationException):
                session.addArtifacts(str(file), pyfile=True)
        else:
            session.sparkContext.addPyFile(str(file))
    except OSError as error:
        raise RunError(f"the code of this load cannot be sent to executors: {error}") from error
    finally:
        sys.path[:] = before  # this process has the modules themselves
