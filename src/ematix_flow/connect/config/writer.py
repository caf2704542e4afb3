"""Writes one connection into a TOML file; it keeps every other line and judges none."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tomlkit import TOMLDocument


def write_entry(path: Path, name: str, fields: Mapping[str, object]) -> None:
    """Replace the entry of a connection in a file, or add it; only the owner may read the file afterwards."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    document = _document(path)
    _put(document, name, fields)
    _write_privately(path, document.as_string())


def _document(path: Path) -> TOMLDocument:
    import tomlkit
    from tomlkit.exceptions import ParseError

    try:
        return tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    except ParseError as error:
        # The parser's own text quotes the line, which may hold a password.
        raise DeclareError(f"{path} is no valid TOML: line {error.line}", hint="fix it first.") from None


def _put(document: TOMLDocument, name: str, fields: Mapping[str, object]) -> None:
    import tomlkit

    for block in document.get("connection", []):
        if block.get("name") == name:
            for key in [key for key in block if key != "name"]:
                del block[key]
            block.update(fields)
            return
    table = tomlkit.table()
    table.update(fields)
    if "connections" not in document:
        document["connections"] = tomlkit.table(is_super_table=True)
    document["connections"][name] = table


def _write_privately(path: Path, text: str) -> None:
    """Replace a file at once, readable by its owner alone from the first byte on."""
    target = path.resolve()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
