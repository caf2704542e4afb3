"""Queries the target for files that were loaded before, and the source for the others; the plan decides what is new."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.commit.ledger import Ledger
from ematix_flow.errors import RunError
from ematix_flow.plan.new_files import choose_files
from ematix_flow.records import FileScope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.connect.files.source import Files, FileSet
    from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
    from ematix_flow.engine.batch.inspect import Opener
    from ematix_flow.plan.source import SourceValue
    from ematix_flow.plan.steps import FileChoice
    from ematix_flow.records import SourceFile


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """The files that were loaded before, and what happens to those that have changed since."""

    scope: FileScope
    policy: str
    files: Mapping[str, SourceFile]
    """By their ids."""


def loaded_before(
    pipeline: Pipeline, target: TargetDeclaration, database: TargetSystem, opened: Opener
) -> LoadedFiles | None:
    """Return the files that this pipeline brought into this target; None where it does not go by files."""
    if target.write.incremental is None:
        return None
    known = LoadedFiles(FileScope(pipeline.name, target.table.qualified_name), target.write.on_replaced, {})
    if not database.exists():
        return known
    session = opened(database)
    try:
        return replace(known, files=Ledger(database).loaded_files(session, known.scope))
    finally:
        session.close()


def refuse_changed(files: Files, paths: Sequence[str], chosen: Sequence[SourceFile]) -> None:
    """Refuse rows of files that differ from what the metadata would record, half-written ones above all."""
    changed = files.changed(paths, chosen)
    if changed:
        message = f"file {changed[0]} changed while it was read"
        hint = "nothing was loaded; run again, and have files written under a name that begins with _ or a dot."
        raise RunError(message, hint=hint)


def new_files(files: Files, source: SourceValue, loaded: LoadedFiles) -> tuple[FileChoice, FileSet]:
    """Return the choice among the files of a source, and the set of those to read.

    That there is no file at all is an error only where none was ever loaded.
    """
    paths = {file: path for path, file in files.list_files(source.path)}
    if not paths and not loaded.files:
        raise files.nothing_like(source.path)
    choice = choose_files(loaded.scope, loaded.policy, paths, loaded.files)
    return choice, files.described(tuple(paths[file] for file in choice.chosen), source.options)
