"""Topics and queues as targets of streams of files: the rows of every file are sent once, and the position names the files."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.connect.stream import EARLIEST, as_text
from ematix_flow.engine.broker_lanes import BrokerLane, rejected
from ematix_flow.engine.choosing import refuse_changed
from ematix_flow.engine.shaped_files import some_of
from ematix_flow.errors import RunError
from ematix_flow.plan.new_files import choose_files, refused
from ematix_flow.records import Counts, FileScope
from ematix_flow.run.outgoing import Ids, encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ematix_flow.connect.file_stream import FileStream
    from ematix_flow.connect.stream import Position, StreamSource
    from ematix_flow.records import SourceFile
    from ematix_flow.run.outgoing import Outgoing

SENT = "sent"
"""In a position: what names the files that were sent, each by its key and by its content."""

MOST_FILES = 20_000
"""Files of a folder at most: the position is one message for brokers, and names all of them twice."""

_WORD = 10
"""Letters of a name, of 6 bits each."""


@dataclass
class FileMessagesLane(BrokerLane):
    """A topic or a queue that takes the rows of new files; ids are those of file and row, however files come together."""

    @staticmethod
    def start(source: StreamSource, begin: str) -> Position:
        """Give the position of a target that begins somewhere: at the end, every file that is there counts as sent."""
        position = source.start(begin)
        if begin == EARLIEST:
            return position
        there = cast("FileStream", source).seen()
        everything = {word_of(file.key): _content(file) for file in there}
        return {**position, SENT: _told(everything, source.query)}

    def load(self, end: Position) -> Counts:
        """Send the files that were not sent yet, some at a time; those that come meanwhile may be among them."""
        source = cast("FileStream", self.road.source)
        paths = {file: path for path, file in source.files.seen(source.query)}
        sent = sent_among(self.position, paths)
        scope = FileScope(self.way.name, self.sink.place)
        choice = choose_files(scope, self.target.write.on_replaced, paths, _as_loaded(scope, sent, paths))
        error = refused(choice)
        if error is not None:
            raise error
        some = some_of(choice)
        if not some.chosen:
            self.position = {**end, SENT: self.position.get(SENT, "")}
            return Counts()
        made = [self._of_file(source, file, paths[file]) for file in some.chosen]
        for one in made:
            if one.rejects is not None:
                rejected(self.road, one.rejects)
        known = sent | {word_of(file.key): _content(file) for file in some.chosen}
        stands = end if some == choice else source.look_at([f for f in paths if word_of(f.key) in known])
        after = {**stands, SENT: _told(known, source.query)}
        messages = [message for one in made for message in one.messages]
        self.sink.write(self.way, self.position, after, messages)
        self.position = after
        rejects = sum(one.rejects.num_rows for one in made if one.rejects is not None)
        return Counts(staged=len(messages), inserted=len(messages), rejected=rejects)

    def _of_file(self, source: FileStream, file: SourceFile, path: str) -> Outgoing:
        from ematix_flow.run.typed_files import file_rows

        files = source.files.described((path,), {})
        found = self.road.rows.transformed(file_rows(files, shown=True))
        refuse_changed(source.files, files.paths, (file,))
        ids = Ids(f"{self.way.name}\x1f{self.way.source}")
        return encoded(found, self.encoder, self.target.message_key_column, ids, as_text(source.look_at([file])))


def shown(position: Position) -> Position:
    """Give a position without the names of files, which tell a reader nothing."""
    return {key: value for key, value in position.items() if key != SENT}


def sent_among(position: Mapping[str, Any], files: Iterable[SourceFile]) -> dict[str, str]:
    """Give the sent files that are still there: a word for each key, with a word for the content."""
    told = position.get(SENT, "")
    pairs = (told[at : at + 2 * _WORD] for at in range(0, len(told), 2 * _WORD))
    sent = {pair[:_WORD]: pair[_WORD:] for pair in pairs}
    there = {word_of(file.key) for file in files}
    return {key: content for key, content in sent.items() if key in there}


def word_of(text: str) -> str:
    """Give a short name for a text."""
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=15).digest())[:_WORD].decode()


def _content(file: SourceFile) -> str:
    return word_of(f"{file.etag}\t{file.size}")


def _as_loaded(scope: FileScope, sent: Mapping[str, str], files: Iterable[SourceFile]) -> dict[str, SourceFile]:
    """Give the sent files as the plan knows those of a target; of one that has changed only that is known."""
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
