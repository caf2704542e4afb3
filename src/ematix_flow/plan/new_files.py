"""Which files of a source were not loaded yet, and how to report those that changed; it lists and reads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.declare.pipeline.write import ERROR, FILES, IGNORE
from ematix_flow.errors import PlanError
from ematix_flow.plan.steps import FileChoice
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.records import FileScope, SourceFile

NAMED = 10
"""How many files a message names."""


def choose_files(
    scope: FileScope, policy: str, files: Iterable[SourceFile], loaded: Mapping[str, SourceFile]
) -> FileChoice:
    """Sort the files that were found into new, changed and known ones; `loaded` has the loaded ones by their ids."""
    new, replaced, known = [], [], 0
    for file in files:
        before = loaded.get(scope.id_of(file.key))
        if before is None:
            new.append(file)
        elif (before.etag, before.size) == (file.etag, file.size):
            known += 1
        else:
            replaced.append(file)
    return FileChoice(scope, policy, tuple(new), tuple(replaced), known)


def refused(choice: FileChoice) -> PlanError | None:
    """Return the error for files that changed under their names, where that is one."""
    if choice.policy != ERROR or not choice.replaced:
        return None
    message = f"{_changed(choice)}: {_named(choice.replaced)}"
    hint = 'nothing was loaded; on_replaced="load" loads what they hold now as new rows, "ignore" leaves them out.'
    return PlanError(message, hint=hint)


def warning(choice: FileChoice) -> str:
    """Return the report about files that are left out or gone, or an empty text."""
    if not (choice.new or choice.replaced or choice.known):
        return f"the source of {choice.scope.pipeline} has no file now; those that were loaded are gone"
    if choice.policy != IGNORE or not choice.replaced:
        return ""
    return f"{_changed(choice)} and {'is' if len(choice.replaced) == 1 else 'are'} left out: {_named(choice.replaced)}"


def _changed(choice: FileChoice) -> str:
    one = len(choice.replaced) == 1
    since = "has changed since it was loaded" if one else "have changed since they were loaded"
    return f"{quantity(len(choice.replaced), 'file')} of {choice.scope.pipeline} {since}"


def _named(files: Sequence[SourceFile]) -> str:
    more = len(files) - NAMED
    return ", ".join(file.key for file in files[:NAMED]) + (f" and {more} more" if more > 0 else "")


def check_source(write: Write, kind: str, sql: str) -> None:
    """Refuse a load of new files from a source that has no files, or whose files a query reads together."""
    if write.incremental != FILES:
        return
    if kind != "files":
        message = f'incremental="files" needs a source of files, and this one is {kind}'
        raise PlanError(message, hint="use incremental_column= for rows, or drop incremental=.")
    if sql:
        message = 'incremental="files" reads new files only, and a query may need those that were loaded before'
        hint = "return a path or a pattern; column_map= and transforms_pre= work on the rows of new files."
        raise PlanError(message, hint=hint)
