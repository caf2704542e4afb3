"""Opens Delta tables with deltalake, on a copy of the newest part of their log; only the store knows the location.

Why a copy: docs/decisions/delta-log.md.
"""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.scratch import scratch_folder
from ematix_flow.connect.delta.log import LOG, commit_key
from ematix_flow.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltalake import DeltaTable

    from ematix_flow.connect.storage.base import Store

LAST_CHECKPOINT = "_last_checkpoint"
SIDECARS = "_sidecars/"
"""Where checkpoints of the second version keep their file entries."""

PLAIN = frozenset({"appendOnly", "invariants", "timestampNtz"})
"""Features of tables that files can be added to without knowing more."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the log records of a table at its newest version, besides its files."""

    version: int
    id: str
    schema: str
    """The columns, as the log writes them."""
    partitions: tuple[str, ...]
    configuration: Mapping[str, str]
    protocol: tuple[int, int]
    """The versions that readers and writers need."""
    features: frozenset[str] = frozenset()

    @property
    def columns(self) -> list[tuple[str, str, bool]]:
        """Return name, type and nullability of the columns."""
        return [(field["name"], _type_name(field["type"]), field["nullable"]) for field in self._fields()]

    @property
    def takes_files(self) -> bool:
        """Return whether a writer who knows the columns can add files: nothing of the table requires more."""
        plain = self.protocol == (1, 2) or (self.protocol == (3, 7) and self.features <= PLAIN)
        # Spark keeps the length of a VARCHAR there, and Delta generated columns and conditions.
        described = all(set(field["metadata"]) <= {"comment"} for field in self._fields())
        return plain and described and not self.partitions

    def _fields(self) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = json.loads(self.schema)["fields"]
        return fields


def snapshot(store: Store, folder: str) -> Snapshot | None:
    """Return the newest state of a table, or None where there is no table."""
    with log_copy(store, folder) as copy:
        table = open_copy(copy, store.address(folder))
        return None if table is None else snapshot_of(table)


def snapshot_of(table: DeltaTable) -> Snapshot:
    """Return the state of an opened table."""
    metadata, protocol = table.metadata(), table.protocol()
    return Snapshot(
        table.version(),
        str(metadata.id),
        table.schema().to_json(),
        tuple(metadata.partition_columns),
        dict(metadata.configuration),
        (protocol.min_reader_version, protocol.min_writer_version),
        frozenset((*(protocol.reader_features or ()), *(protocol.writer_features or ()))),
    )


def open_copy(copy: Path, address: str) -> DeltaTable | None:
    """Open a copied log, or return None where it is empty; `address` is the table's own location, for errors."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with translated_errors(copy, address):
        try:
            return DeltaTable(copy)
        except TableNotFoundError:
            return None


@contextmanager
def translated_errors(copy: Path, address: str) -> Iterator[None]:
    """Raise what the library refuses as an error for people, who do not know of the copy."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except DeltaError as error:
        error_text = str(error).partition("\n")[0].replace(str(copy), address)
        message = f"the Delta table at {address} has a log that is not understood here: {error_text}"
        raise UnsupportedError(
            message, hint="if it is a feature of the table, ALTER TABLE ... DROP FEATURE takes it away."
        ) from None


@contextmanager
def log_copy(store: Store, folder: str) -> Iterator[Path]:
    """Copy the newest checkpoint of a log and the commits after it to a folder of their own."""
    with scratch_folder("delta") as scratch:
        copy, noted = Path(scratch), _last_checkpoint(store, folder)
        _copy_from(store, folder, copy, noted)
        # Commits are removed from a log after a newer checkpoint is noted: a gap would look like the end of the log.
        while (now := _last_checkpoint(store, folder)) != noted:
            noted = now
            shutil.rmtree(copy / LOG)
            _copy_from(store, folder, copy, noted)
        yield copy


def _last_checkpoint(store: Store, folder: str) -> int:
    """Return the version of the checkpoint that the log notes as its newest; -1 where it notes none."""
    noted = store.read(f"{folder}{LOG}{LAST_CHECKPOINT}")
    try:
        return -1 if noted is None else int(json.loads(noted)["version"])
    except (ValueError, KeyError):
        return -1  # half written; the log says the same without it


def _copy_from(store: Store, folder: str, copy: Path, checkpoint: int) -> None:
    """Copy a checkpoint and what comes after it; the whole log where the checkpoint is not there and the first commit neither."""
    (copy / LOG).mkdir()
    is_copied = checkpoint >= 0 and _copy_checkpoint(store, folder, copy, checkpoint)
    # The library does not go on from a checkpoint whose own commit is not next to it.
    last = checkpoint if is_copied else -1
    _copy_keys(store, folder, copy, [commit_key(folder, last)] if is_copied else [])
    while _copy_keys(store, folder, copy, [commit_key(folder, last + 1)]):
        last += 1
    if last < 0:
        _copy_keys(store, folder, copy, [listed.key for listed in store.listed(f"{folder}{LOG}")])


def _copy_checkpoint(store: Store, folder: str, copy: Path, version: int) -> bool:
    """Copy a checkpoint of one file, of several, or of the second version with its sidecars; False where there is none."""
    one = checkpoint_key(folder, version)
    if _copy_keys(store, folder, copy, [one]):
        return True
    prefix = one.removesuffix("parquet")
    listed = [file.key for file in store.listed(f"{folder}{LOG}")]
    checkpoint_keys = [key for key in listed if key.startswith((prefix, f"{folder}{LOG}{SIDECARS}"))]
    return any(key.startswith(prefix) for key in _copy_keys(store, folder, copy, checkpoint_keys))


def checkpoint_key(folder: str, version: int) -> str:
    """Return the key of a checkpoint that is one file."""
    return f"{folder}{LOG}{version:020}.checkpoint.parquet"


def _copy_keys(store: Store, folder: str, copy: Path, keys: list[str]) -> list[str]:
    """Copy files of a log, and return the keys of those that were there."""
    copied = []
    for key in keys:
        # A note about a checkpoint that is not copied would lead astray.
        data = None if key.endswith(LAST_CHECKPOINT) else store.read(key)
        if data is not None:
            target = copy / key.removeprefix(folder)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
            copied.append(key)
    return copied


def _type_name(field_type: str | dict[str, Any]) -> str:
    return field_type if isinstance(field_type, str) else str(field_type.get("type"))
