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

_WORD = 10
"""Letters of a name, of 6 bits each."""


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
        there = cast("FileStream", source).seen()
        everything = {word_of(file.key): _content(file) for file in there}
        return {**position, SENT: _told(everything, source.query)}

    def load(self, end: Position) -> Counts:
        """Send the files that were not sent yet, some at a time; those that come meanwhile may be among them."""
        chosen = self._chosen()
        if not chosen.files:
            self.position = {**end, SENT: self.position.get(SENT, "")}
            return Counts()
        made = self._made(chosen)
        known = {**chosen.sent} | {word_of(file.key): _content(file) for file in chosen.files}
        stands = end if chosen.all else self._source.look_at([f for f in chosen.paths if word_of(f.key) in known])
        return self.send(made, {**stands, SENT: _told(known, self._source.query)})

    def messages(self, end: Position) -> Outgoing:
        """Return what the files that were not sent yet become, as many as one batch has."""
        del end
        return self._made(self._chosen())

    @property
    def _source(self) -> FileStream:
        return cast("FileStream", self.context.source)

    def _chosen(self) -> _Chosen:
        paths = {file: path for path, file in self._source.files.seen(self._source.query)}
        sent = sent_among(self.position, paths)
        scope = FileScope(self.way.name, self.sink.place)
        choice = choose_files(scope, self.target.write.on_replaced, paths, _as_loaded(scope, sent, paths))
        error = refused(choice)
        if error is not None:
            raise error
        some = some_of(choice)
        return _Chosen(some.chosen, paths, sent, some == choice)

    def _made(self, chosen: _Chosen) -> Outgoing:
        made = [self._of_file(file, chosen.paths[file]) for file in chosen.files]
        rejects = [one.rejects for one in made if one.rejects is not None]
        return Outgoing([message for one in made for message in one.messages], _together(rejects))

    def _of_file(self, file: SourceFile, path: str) -> Outgoing:
        from ematix_flow.run.read.infer_files import file_rows

        source = self._source
        files = source.files.described((path,), {})
        found = self.context.rows.transformed(file_rows(files, shown=True))
        refuse_changed(source.files, files.paths, (file,))
        ids = Ids(f"{self.way.name}\x1f{self.way.source}")
        return encoded(found, self.encoder, self.target.message_key_column, ids, as_text(source.look_at([file])))


def shown(position: Position) -> Position:
    """Return a position without the names of files, which tell a reader nothing."""
    return {key: value for key, value in position.items() if key != SENT}


def sent_among(position: Mapping[str, Any], files: Iterable[SourceFile]) -> dict[str, str]:
    """Return the sent files that are still there: a word for each key, with a word for the content."""
    told = position.get(SENT, "")
    pairs = (told[at : at + 2 * _WORD] for at in range(0, len(told), 2 * _WORD))
    sent = {pair[:_WORD]: pair[_WORD:] for pair in pairs}
    there = {word_of(file.key) for file in files}
    return {key: content for key, content in sent.items() if key in there}


def word_of(text: str) -> str:
    """Return a short name for a text."""
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=15).digest())[:_WORD].decode()


def _together(rejects: list[pa.Table]) -> pa.Table | None:
    import pyarrow as pa

    return pa.concat_tables(rejects) if rejects else None


def _content(file: SourceFile) -> str:
    return word_of(f"{file.etag}\t{file.size}")


def _as_loaded(scope: FileScope, sent: Mapping[str, str], files: Iterable[SourceFile]) -> dict[str, SourceFile]:
    """Return the sent files as the plan knows those of a target; of one that has changed only that is known."""
    words = {file.key: word_of(file.key) for file in files}
    return {
        scope.id_of(file.key): file if sent[words[file.key]] == _content(file) else replace(file, etag="", size=-1)
        for file in files
        if words[file.key] in sent
    }


def _told(sent: Mapping[str, str], query: str) -> str:
    if len(sent) > MOST_FILES:
        message = f"{query!r} has {len(sent)} files, and a broker remembers {MOST_FILES} at most"
        raise RunError(message, hint="move files away that were sent, or load them into a table.")
    return "".join(key + content for key, content in sorted(sent.items()))
