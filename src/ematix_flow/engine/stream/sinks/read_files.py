"""Which files of a folder a stream has read, as a short text: a digest of the key and one of the content of each."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.connect.base.stream_source import EARLIEST, as_text
from ematix_flow.connect.files.stream_source import FileStream
from ematix_flow.engine.batch.new_files import refuse_changed
from ematix_flow.engine.stream.sinks.shaped_files import some_of
from ematix_flow.errors import RunError
from ematix_flow.plan.new_files import choose_files, refused
from ematix_flow.records import FileScope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.engine.stream.sinks.base import StreamContext
    from ematix_flow.records import SourceFile

_DIGEST_LENGTH = 10
"""Characters of a name, of 6 bits each."""


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The files of one batch."""

    files: tuple[SourceFile, ...]
    paths: Mapping[SourceFile, str]
    """Every file that is there."""
    digests: Mapping[str, str]
    """Those that are there and were read before: a digest of each key, with a digest of the content."""
    all: bool
    """Whether these are all that were not read yet."""

    @property
    def digests_then(self) -> dict[str, str]:
        """Return the files that were read once these were, too."""
        return {**self.digests} | {short_digest(file.key): content_digest(file) for file in self.files}

    @property
    def files_then(self) -> list[SourceFile]:
        """Return the files that are there and were read once these were, too."""
        known = self.digests_then
        return [file for file in self.paths if short_digest(file.key) in known]


def new_files_of(source: FileStream, digests: str, scope: FileScope, policy: str) -> NewFiles:
    """Return the files of a folder that were not read yet, as many as one batch has; changed ones by the policy."""
    paths = {file: path for path, file in source.files.list_files(source.query)}
    known = digests_among(digests, paths)
    choice = choose_files(scope, policy, paths, _as_loaded(scope, known, paths))
    error = refused(choice)
    if error is not None:
        raise error
    some = some_of(choice)
    return NewFiles(some.chosen, paths, known, some == choice)


def digests_among(text: str, files: Iterable[SourceFile]) -> dict[str, str]:
    """Return the files that were read and are still there: a digest of each key, with a digest of the content."""
    pairs = (text[at : at + 2 * _DIGEST_LENGTH] for at in range(0, len(text), 2 * _DIGEST_LENGTH))
    digests = {pair[:_DIGEST_LENGTH]: pair[_DIGEST_LENGTH:] for pair in pairs}
    there = {short_digest(file.key) for file in files}
    return {key: content for key, content in digests.items() if key in there}


def as_digests(digests: Mapping[str, str]) -> str:
    """Return files that were read as one text."""
    return "".join(key + content for key, content in sorted(digests.items()))


def short_digest(text: str) -> str:
    """Return a short digest of a text."""
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=15).digest())[:_DIGEST_LENGTH].decode()


def content_digest(file: SourceFile) -> str:
    """Return a short digest of what a file holds."""
    return short_digest(f"{file.etag}\t{file.size}")


def _as_loaded(scope: FileScope, known: Mapping[str, str], files: Iterable[SourceFile]) -> dict[str, SourceFile]:
    """Return the files that were read as the plan knows those of a target; of one that has changed only that is known."""
    digests = {file.key: short_digest(file.key) for file in files}
    return {
        scope.id_of(file.key): file
        if known[digests[file.key]] == content_digest(file)
        else replace(file, etag="", size=-1)
        for file in files
        if digests[file.key] in known
    }


def files_of_range(
    context: StreamContext, begin: Position, end: Position, digests: Mapping[str, str] | None
) -> dict[str, NewFiles]:
    """Return the files that a range reads of every source that is a folder; `digests` are those of earlier ranges."""
    chosen: dict[str, NewFiles] = {}
    for part in context.source.parts:
        at, to = (context.source.part_position(one, part) for one in (begin, end))
        if not isinstance(part, FileStream) or as_text(at) == as_text(to):
            continue
        if digests is None and part.distance(part.start(EARLIEST), at):
            message = f"a stream with state cannot begin behind files of {part.query!r} that it has not read"
            raise RunError(message, hint="it begins with all files that are there.")
        scope = FileScope(context.name, part.source_id)
        policy = context.stream.targets[0].write.on_replaced
        chosen[part.full_id] = new_files_of(part, (digests or {}).get(part.full_id, ""), scope, policy)
    return chosen


def end_with(context: StreamContext, end: Position, files: Mapping[str, NewFiles]) -> Position:
    """Return the end of a range that reads some files: another one where there are more than one batch reads."""
    for part in context.source.parts:
        if isinstance(part, FileStream) and part.full_id in files and not files[part.full_id].all:
            end = context.source.with_part_position(end, part, part.position_of(files[part.full_id].files_then))
    return end


def has_rows(part: StreamSource, files: Mapping[str, NewFiles]) -> bool:
    """Return whether there is something to read of a source: a folder may only have lost files."""
    return not isinstance(part, FileStream) or bool(files[part.full_id].files)


def refuse_changed_files(parts: Iterable[StreamSource], files: Mapping[str, NewFiles]) -> None:
    """Refuse files of sources that have changed while they were read."""
    for part in parts:
        chosen = files.get(part.full_id)
        if isinstance(part, FileStream) and chosen is not None:
            refuse_changed(part.files, tuple(chosen.paths[file] for file in chosen.files), chosen.files)
