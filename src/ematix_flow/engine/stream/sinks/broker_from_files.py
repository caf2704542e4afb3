"""Topics and queues as targets of streams of files: the rows of every file are sent once, and the position names the files."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.base.stream_source import EARLIEST, as_text
from ematix_flow.engine.batch.new_files import refuse_changed
from ematix_flow.engine.stream.sinks.broker import BrokerSink
from ematix_flow.engine.stream.sinks.shaped_files import some_of
from ematix_flow.errors import RunError
from ematix_flow.plan.new_files import choose_files, refused
from ematix_flow.records import Counts, FileScope
from ematix_flow.run.send.messages import Ids, Outgoing, encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.connect.files.stream_source import FileStream
    from ematix_flow.records import SourceFile

SENT = "sent"
"""In a position: what names the files that were sent, each by its key and by its content."""

MOST_FILES = 20_000
"""Files of a folder at most: the position is one message for brokers, and names all of them twice."""

_DIGEST_LENGTH = 10
"""Characters of a name, of 6 bits each."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The files of one batch."""

    files: tuple[SourceFile, ...]
    paths: Mapping[SourceFile, str]
    """Every file that is there."""
    sent: Mapping[str, str]
    all: bool
    """Whether these are all that were not sent yet."""


@dataclass
class FileBrokerSink(BrokerSink):
    """A topic or a queue that takes the rows of new files; ids are those of file and row, however files come together."""

    @staticmethod
    def start(source: StreamSource, begin: str) -> Position:
        """Return the position of a target that begins somewhere: at the end, every file that is there counts as sent."""
        position = source.start(begin)
        if begin == EARLIEST:
            return position
        there = cast("FileStream", source).list_files()
        everything = {short_digest(file.key): _content(file) for file in there}
        return {**position, SENT: _encode_sent(everything, source.query)}

    def load(self, end: Position) -> Counts:
        """Send the files that were not sent yet, some at a time; those that come meanwhile may be among them."""
        chosen = self._chosen()
        if not chosen.files:
            self.position = {**end, SENT: self.position.get(SENT, "")}
            return Counts()
        outgoing = self._outgoing(chosen)
        known = {**chosen.sent} | {short_digest(file.key): _content(file) for file in chosen.files}
        position = (
            end if chosen.all else self._source.position_of([f for f in chosen.paths if short_digest(f.key) in known])
        )
        return self.send(outgoing, {**position, SENT: _encode_sent(known, self._source.query)})

    def messages(self, end: Position) -> Outgoing:
        """Return what the files that were not sent yet become, as many as one batch has."""
        del end
        return self._outgoing(self._chosen())

    @property
    def _source(self) -> FileStream:
        return cast("FileStream", self.context.source)

    def _chosen(self) -> _Chosen:
        paths = {file: path for path, file in self._source.files.list_files(self._source.query)}
        sent = sent_among(self.position, paths)
        scope = FileScope(self.checkpoint_key.name, self.sink.address)
        choice = choose_files(scope, self.target.write.on_replaced, paths, _as_loaded(scope, sent, paths))
        error = refused(choice)
        if error is not None:
            raise error
        some = some_of(choice)
        return _Chosen(some.chosen, paths, sent, some == choice)

    def _outgoing(self, chosen: _Chosen) -> Outgoing:
        outgoing = [self._of_file(file, chosen.paths[file]) for file in chosen.files]
        rejects = [one.rejects for one in outgoing if one.rejects is not None]
        return Outgoing([message for one in outgoing for message in one.messages], _together(rejects))

    def _of_file(self, file: SourceFile, path: str) -> Outgoing:
        from ematix_flow.run.read.infer_files import file_rows

        source = self._source
        files = source.files.described((path,), {})
        rows = self.context.rows.transformed(file_rows(files, infer_values=True))
        refuse_changed(source.files, files.paths, (file,))
        ids = Ids(f"{self.checkpoint_key.name}\x1f{self.checkpoint_key.source}")
        return encoded(rows, self.encoder, self.target.message_key_column, ids, as_text(source.position_of([file])))


def displayed_position(position: Position) -> Position:
    """Return a position without the names of files, which mean nothing to a reader."""
    return {key: value for key, value in position.items() if key != SENT}


def sent_among(position: Mapping[str, Any], files: Iterable[SourceFile]) -> dict[str, str]:
    """Return the sent files that are still there: a digest of each key, with a digest of the content."""
    sent_text = position.get(SENT, "")
    pairs = (sent_text[at : at + 2 * _DIGEST_LENGTH] for at in range(0, len(sent_text), 2 * _DIGEST_LENGTH))
    sent = {pair[:_DIGEST_LENGTH]: pair[_DIGEST_LENGTH:] for pair in pairs}
    there = {short_digest(file.key) for file in files}
    return {key: content for key, content in sent.items() if key in there}


def short_digest(text: str) -> str:
    """Return a short digest of a text."""
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=15).digest())[:_DIGEST_LENGTH].decode()


def _together(rejects: list[pa.Table]) -> pa.Table | None:
    import pyarrow as pa

    return pa.concat_tables(rejects) if rejects else None


def _content(file: SourceFile) -> str:
    return short_digest(f"{file.etag}\t{file.size}")


def _as_loaded(scope: FileScope, sent: Mapping[str, str], files: Iterable[SourceFile]) -> dict[str, SourceFile]:
    """Return the sent files as the plan knows those of a target; of one that has changed only that is known."""
    digests = {file.key: short_digest(file.key) for file in files}
    return {
        scope.id_of(file.key): file if sent[digests[file.key]] == _content(file) else replace(file, etag="", size=-1)
        for file in files
        if digests[file.key] in sent
    }


def _encode_sent(sent: Mapping[str, str], query: str) -> str:
    if len(sent) > MOST_FILES:
        message = f"{query!r} has {len(sent)} files, and a broker remembers {MOST_FILES} at most"
        raise RunError(message, hint="move files away that were sent, or load them into a table.")
    return "".join(key + content for key, content in sorted(sent.items()))
