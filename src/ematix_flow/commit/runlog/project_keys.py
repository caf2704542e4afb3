"""Keys of a run log with the project in them: `<name> #<digest>`; a key without a digest belongs to no project."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.runlog.records import key_of

if TYPE_CHECKING:
    from ematix_flow.commit.runlog.records import R, Record
    from ematix_flow.records import RunRecord

_MARKED = re.compile(r"(.*) #([0-9a-f]{12})", re.DOTALL)


def scoped(name: str, digest: str) -> str:
    """Return a name with the digest of a project."""
    return f"{name} #{digest}" if digest and name else name


def digest_in(name: str) -> str:
    """Return the digest that a name has; empty for none."""
    match = _MARKED.fullmatch(name)
    return match[2] if match else ""


def unscoped(name: str) -> str:
    """Return a name without the digest of its project."""
    match = _MARKED.fullmatch(name)
    return match[1] if match else name


def pipeline_field(kind: type[Record]) -> str | None:
    """Return the field of a kind that names a pipeline; None for what belongs to the run log as a whole."""
    names = kind.__dataclass_fields__
    return next((name for name in ("pipeline", "pipeline_name") if name in names), None)


def is_keyed(kind: type[Record]) -> bool:
    """Return whether records of a kind are found by the name of a pipeline, and not by an id of their own."""
    return pipeline_field(kind) in kind.key


def scoped_key(kind: type[Record], key: tuple[str, ...], digest: str) -> tuple[str, ...]:
    """Return a key with the digest of a project."""
    own = pipeline_field(kind)
    return tuple(scoped(value, digest) if name == own else value for name, value in zip(kind.key, key, strict=True))


def digest_of_record(record: Record) -> str:
    """Return the digest of the project that a record belongs to."""
    return digest_in(str(getattr(record, pipeline_field(type(record)) or "", "")))


def scoped_record(record: R, digest: str) -> R:
    """Return a record as it is stored for a project."""
    return _renamed(record, lambda name: scoped(name, digest))


def unscoped_record(record: R) -> R:
    """Return a record with the plain name of its pipeline."""
    return _renamed(record, unscoped)


def unscoped_run(run: RunRecord) -> RunRecord:
    """Return a run with its plain ids."""
    return replace(run, run_id=unscoped(run.run_id), request_id=unscoped(run.request_id))


def adoption_key(record: Record) -> str:
    """Return the key of the adoption of a record; of one size, since keys may be as long as a database takes."""
    digest = hashlib.sha256("\x1f".join(key_of(record)).encode(errors="surrogatepass")).hexdigest()[:32]
    return f"{type(record).table}/{digest}"


def _renamed(record: R, change: Any) -> R:
    field = pipeline_field(type(record))
    return record if field is None else replace(record, **{field: change(getattr(record, field))})
