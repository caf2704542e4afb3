"""Archives on the module path of workers: their tables of contents are read once, and again if they change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from ematix_flow.run.spark.worker_daemon import Archive

if TYPE_CHECKING:
    from pathlib import Path


def _archive(path: Path, *names: str) -> str:
    with ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return str(path)


def test_a_jar_without_modules_is_not_on_the_path(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="no modules"):
        Archive(_archive(tmp_path / "a.jar", "org/spark/Main.class", "META-INF/notes"))


def test_a_jar_with_modules_is_imported_from_whatever_its_remark(tmp_path: Path) -> None:
    path = _archive(tmp_path / "a.jar", "org/Main.class", "graphs/__init__.py")
    with ZipFile(path, "a") as archive:
        archive.comment = b"PK" * 30_000
    assert Archive(path).find_spec("graphs") is not None


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06"])
def test_a_damaged_jar_is_refused_as_any_other(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jar").write_bytes(content)
    with pytest.raises(ImportError, match="Zip file"):
        Archive(str(tmp_path / "a.jar"))
    with pytest.raises(ImportError):
        Archive(str(tmp_path / "missing.jar"))


def test_what_is_on_the_path_is_read_again_only_if_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _archive(tmp_path / "a.zip", "first.py")
    finder = Archive(path)
    monkeypatch.setattr("zipimport._read_directory", lambda _: pytest.fail("was read again"))
    finder.invalidate_caches()
    assert finder.find_spec("first") is not None
    monkeypatch.undo()
    _archive(tmp_path / "a.zip", "first.py", "second.py")
    os.utime(path, ns=(1, 1))
    finder.invalidate_caches()
    assert finder.find_spec("second") is not None
