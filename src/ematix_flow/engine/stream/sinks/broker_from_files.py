"""Topics and queues as targets of streams of files: the rows of every file are sent once, and the position names the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ematix_flow.connect.base.stream_source import EARLIEST, as_text
from ematix_flow.engine.batch.new_files import refuse_changed
from ematix_flow.engine.stream.sinks.broker import BrokerSink
from ematix_flow.engine.stream.sinks.read_files import as_digests, content_digest, new_files_of, short_digest
from ematix_flow.errors import RunError
from ematix_flow.records import Counts, FileScope
from ematix_flow.run.send.messages import Ids, Outgoing, encoded

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from ematix_flow.connect.base.stream_source import Position, StreamSource
    from ematix_flow.connect.files.stream_source import FileStream
    from ematix_flow.engine.stream.sinks.read_files import NewFiles
    from ematix_flow.records import SourceFile

SENT = "sent"
"""In a position: what names the files that were sent, each by its key and by its content."""

MOST_FILES = 20_000
"""Files of a folder at most: the position is one message for brokers, and names all of them twice."""


@dataclass
class FileBrokerSink(BrokerSink):
    """A topic or a queue that takes the rows of new files; ids are those of file and row, however files come together."""

    @staticmethod
    def start(source: StreamSource, begin: str, *, read_only: bool) -> Position:
        """Return the position of a target that begins somewhere: at the end, every file that is there counts as sent."""
        del read_only
        position = source.start(begin)
        if begin == EARLIEST:
            return position
        there = cast("FileStream", source).list_files()
        everything = {short_digest(file.key): content_digest(file) for file in there}
        return {**position, SENT: _encode_sent(everything, source.query)}

    def load(self, end: Position) -> Counts:
        """Send the files that were not sent yet, some at a time; those that come meanwhile may be among them."""
        chosen = self._chosen()
        if not chosen.files:
            self.position = {**end, SENT: self.position.get(SENT, "")}
            return Counts()
        outgoing = self._outgoing(chosen)
        position = end if chosen.all else self._source.position_of(chosen.files_then)
        return self.send(outgoing, {**position, SENT: _encode_sent(chosen.digests_then, self._source.query)})

    def messages(self, end: Position) -> Outgoing:
        """Return what the files that were not sent yet become, as many as one batch has."""
        del end
        return self._outgoing(self._chosen())

    @property
    def _source(self) -> FileStream:
        return cast("FileStream", self.context.source)

    def _chosen(self) -> NewFiles:
        scope = FileScope(self.checkpoint_key.name, self.sink.address)
        return new_files_of(self._source, self.position.get(SENT, ""), scope, self.target.write.on_replaced)

    def _outgoing(self, chosen: NewFiles) -> Outgoing:
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


def _together(rejects: list[pa.Table]) -> pa.Table | None:
    import pyarrow as pa

    return pa.concat_tables(rejects) if rejects else None


def _encode_sent(sent: Mapping[str, str], query: str) -> str:
    if len(sent) > MOST_FILES:
        message = f"{query!r} has {len(sent)} files, and a broker remembers {MOST_FILES} at most"
        raise RunError(message, hint="move files away that were sent, or load them into a table.")
    return as_digests(sent)
