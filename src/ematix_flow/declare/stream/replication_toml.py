"""Reads a replication from TOML into the same value that Python declares; its keys are the keywords of `ematix.replicate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.stream.cdc import CDC
from ematix_flow.declare.stream.replication import Replication, default_name
from ematix_flow.declare.stream.toml_reader import (
    REPLICATE,
    REPLICATION_KEYS,
    section,
    stream_from_toml,
    warn_of_passwords,
)
from ematix_flow.declare.stream.toml_sections import Document, connection_in
from ematix_flow.declare.toml import parsed, read_text
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    import os

    from ematix_flow.declare.connection.base import Connection
    from ematix_flow.declare.stream.stream import Stream

_PATH = (REPLICATE,)
_REQUIRED = ("source", "tables", "into")


def load_declaration(file: str | os.PathLike[str]) -> Stream | Replication:
    """Return the stream or the replication of a TOML file."""
    text = read_text(file)
    is_replication = REPLICATE in parsed(text, str(file))
    return replication_from_toml(text, str(file)) if is_replication else stream_from_toml(text, str(file))


def replication_from_toml(text: str, file: str = "config_str") -> Replication:
    """Return the replication that a text declares; `file` is what errors call it."""
    tables, document = parsed(text, file), Document(text, file)
    document.refuse_unknown((), tables, _PATH)
    table = document.table(_PATH, tables.get(REPLICATE))
    document.refuse_unknown(_PATH, table, REPLICATION_KEYS)
    for key in _REQUIRED:
        if key not in table:
            raise DeclareError(f"{document.name(_PATH)} has no {key}", origin=document.origin(_PATH))
    source, into = (_connection(document, key, table[key]) for key in ("source", "into"))
    options = {key: value for key, value in table.items() if key in ("tables", "mode", "schema", "transform_on_error")}
    options["cdc"] = section(document, (*_PATH, "cdc"), table.get("cdc"), CDC) or CDC()
    with document.at(_PATH):
        replication = Replication(
            table.get("name", default_name(source, into)),
            source=source,
            into=into,
            origin=document.origin(_PATH),
            **options,
        )
    warn_of_passwords((source, into), file)
    return replication


def _connection(document: Document, role: str, written: Any) -> str | Connection:
    """Return a connection by its name, or as it is written out."""
    if isinstance(written, str) and written:
        return written
    path = (*_PATH, role)
    if not isinstance(written, Mapping):
        message = f"{role} of {document.name(_PATH)} is neither the name of a connection nor a table"
        raise DeclareError(message, origin=document.origin(_PATH, role))
    connection, _ = connection_in(document, path, written, role, ())
    return connection
