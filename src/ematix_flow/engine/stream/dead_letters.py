"""Dead letters of a stream: what its tables hold as rejects; counted, shown, sent through the stream again, set aside, removed."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.rejects import resolve_rejects
from ematix_flow.connect.base.stream_source import keeps_payload, metadata_of, payload_of
from ematix_flow.connect.registry import open_target
from ematix_flow.engine.batch.load import SourceRows, load_target
from ematix_flow.engine.batch.planner import token_for
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.rejects import list_rejects, replay_slot
from ematix_flow.engine.stream.dead_letter_topic import SENT
from ematix_flow.engine.stream.names import filled_in
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.sinks.changes import ChangeTarget
from ematix_flow.engine.stream.sinks.table import (
    offset_store_of,
    pipeline_into,
    pipeline_of,
    requires_order,
    typed_declaration,
)
from ematix_flow.engine.stream.sinks.table_schema import name_of
from ematix_flow.engine.stream.sources import source_of
from ematix_flow.engine.stream.state.late_rows import refuse_topic, refuse_uncounted, replay_late
from ematix_flow.engine.stream.transform import StreamRows
from ematix_flow.errors import FlowError, RunError, UnknownNameError, UnsupportedError
from ematix_flow.plan.columns import POSITION
from ematix_flow.plan.source import SourceValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.commit.rejects import Reject
    from ematix_flow.connect.base.stream_source import StreamSource
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.declare.stream.stream import Stream, StreamTarget

ATTEMPTS = 3
"""How often a message is tried before it is parked, the first time included."""

EVERYTHING = 1_000_000

WAITING = ("pending", SENT)
"""Statuses of dead letters that may be tried again: those that a topic has a copy of are stored in the table too."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters are selected: some by id, the first so many, or all; an empty list of ids selects none."""

    ids: tuple[str, ...] | None = None
    first: int | None = None

    def __post_init__(self) -> None:
        if self.first is not None and self.first < 0:
            message = f"the first {self.first} dead letters are none that could be selected"
            raise RunError(message, hint="say how many, 0 or more.")

    @classmethod
    def of(cls, value: dict[str, Any]) -> Selection:
        """Return the selection of its plain form."""
        match value.get("kind"):
            case "all":
                return cls()
            case "first_n" if value.get("n") is not None:
                return cls(first=int(value["n"]))
            case "ids" if isinstance(value.get("ids"), list | tuple):
                return cls(ids=tuple(str(one) for one in value["ids"]))
            case "first_n" | "ids" as kind:
                message = f"a selection of kind {kind!r} has to say which"
                raise RunError(message, hint='{"kind": "first_n", "n": N} or {"kind": "ids", "ids": [...]}.')
            case other:
                message = f"a selection of kind {other!r} is not known"
                raise RunError(message, hint="all, first_n or ids.")

    def among(self, dead_letters: Sequence[Reject]) -> list[Reject]:
        """Return those that are selected, oldest first."""
        oldest = sorted(dead_letters, key=lambda dead_letter: (dead_letter.rejected_at, dead_letter.reject_id))
        if self.ids is None:
            return oldest[: self.first]
        known = [dead_letter.reject_id for dead_letter in oldest]
        chosen = {reject_id for one in self.ids for reject_id in _meant(one, known)}
        return [dead_letter for dead_letter in oldest if dead_letter.reject_id in chosen]


def _meant(given: str, known: Sequence[str]) -> list[str]:
    """Return the id that is given, or those that begin so where none is the same."""
    matching = [given] if given in known else [one for one in known if given and one.startswith(given)]
    if not matching:
        message = f"no dead letter has the id {given!r}"
        raise UnknownNameError(message, hint="flow dlq list shows the ids.")
    return matching


def stats(stream: Stream) -> dict[str, Any]:
    """Return how many dead letters there are, by status and by target."""
    dead_letters = records(stream, status=None, limit=EVERYTHING)
    by_status = Counter(dead_letter.status for dead_letter in dead_letters)
    by_target = Counter(dead_letter.target_name for dead_letter in dead_letters if dead_letter.status == "pending")
    counts = {status: by_status.get(status, 0) for status in ("pending", "parked", "sent", "replayed")}
    return {"pipeline": stream.name, **counts, "pending_by_target": dict(by_target)}


def records(stream: Stream, *, status: str | None = "pending", limit: int = 100) -> list[Reject]:
    """Return the dead letters of all tables that a stream writes to, newest first."""
    stream = filled_in(stream)
    rejects: list[Reject] = []
    for target in _tables(stream):
        rejects += list_rejects(pipeline_into(stream, target, stream.name), status=status, limit=limit)
    return sorted(rejects, key=lambda dead_letter: (dead_letter.rejected_at, dead_letter.reject_id), reverse=True)[
        :limit
    ]


def record_by_id(stream: Stream, dead_letter_id: str) -> Reject:
    """Return one dead letter by its id or a beginning of it."""
    matching = Selection(ids=(dead_letter_id,)).among(records(stream, status=None, limit=EVERYTHING))
    if len(matching) > 1:
        message = f"{len(matching)} dead letters begin with {dead_letter_id!r}"
        raise UnknownNameError(message)
    return matching[0]


def park(stream: Stream, chosen: Selection) -> int:
    """Set dead letters aside, so that a replay of all leaves them; return how many there were."""
    return _update_status(stream, chosen.among(waiting(stream)), "parked")


def purge(stream: Stream, chosen: Selection) -> int:
    """Remove dead letters, those that are parked or were replayed too; return how many there were."""
    return _update_status(stream, chosen.among(records(stream, status=None, limit=EVERYTHING)), None)


def replay(stream: Stream, chosen: Selection, options: StreamOptions | None = None) -> dict[str, Any]:
    """Send dead letters through the stream again, each in a load that also marks them: a crash doubles nothing.

    What fails again is a new dead letter with one attempt more, and is parked when that was the last.
    """
    options, stream = options or StreamOptions(), filled_in(stream)
    started = options.clock.now()
    done = _replayed(stream, chosen, options)
    return {
        "taken": done["taken"],
        "succeeded": done["succeeded"],
        "redeadlettered": done["redeadlettered"],
        "parked": done["parked"],
        "started_at_ms": int(started.timestamp() * 1000),
        "finished_at_ms": int(options.clock.now().timestamp() * 1000),
    }


def _replayed(stream: Stream, chosen: Selection, options: StreamOptions) -> Counter[str]:
    if not any(map(_is_table, stream.targets)):
        from ematix_flow.engine.stream.topic_replay import replay_topic

        refuse_topic(stream)
        return Counter(replay_topic(stream, chosen, options, stream.dlq_max_attempts or ATTEMPTS))
    dead_letters = chosen.among(waiting(stream))
    refuse_uncounted(stream, dead_letters)
    done, lost = Counter({"taken": len(dead_letters)}), list[FlowError]()
    for target in _tables(stream):
        late = [one for one in _of_target(dead_letters, stream, target) if one.is_late]
        if late:
            counted, refused = replay_late(stream, target, late, options)
            done["succeeded"] += counted
            lost += [] if refused is None else [refused]
    dead_letters = [dead_letter for dead_letter in dead_letters if not dead_letter.is_late]
    with ExitStack() as resources:
        source = resources.enter_context(closing(source_of(stream, options)))
        replayer = _Replay(stream, source, StreamRows(stream, source, options, resources), options)
        for target in _tables(stream):
            for group in _groups(_of_target(dead_letters, stream, target)):
                done.update(replayer.load(target, group))
    if lost:
        raise lost[0]  # after the others, which it does not concern
    return done


@dataclass(frozen=True, slots=True)
class _Replay:
    stream: Stream
    source: StreamSource
    rows: StreamRows
    options: StreamOptions

    def load(self, target: StreamTarget, dead_letters: Sequence[Reject]) -> dict[str, int]:
        """Load the dead letters of one target that have the same attempts and come from the same stage."""
        attempt = (dead_letters[0].attempt or 1) + 1
        last = attempt >= (self.stream.dlq_max_attempts or ATTEMPTS)
        payloads = [
            (payload_of(dead_letter.row_json), dead_letter.source_position or "") for dead_letter in dead_letters
        ]
        declared, source = (
            self._changes(target, payloads) if self.stream.cdc else self._rows(target, payloads, dead_letters)
        )
        declared = replace(declared, write=replace(declared.write, on_bad_row="reject"))
        ids = tuple(dead_letter.reject_id for dead_letter in dead_letters)
        load_options = replace(self.options.load, replays=ids, attempt=attempt, last_attempt=last)
        pipeline = pipeline_of(self.stream, declared, self.stream.name)
        counts = load_target(
            pipeline, declared, SourceRows(source, replay_slot(dead_letters)), load_options
        ).committed.counts
        failed = counts.rejected
        return {
            "succeeded": len(dead_letters) - failed,
            "redeadlettered": 0 if last else failed,
            "parked": failed if last else 0,
        }

    def _rows(
        self, target: StreamTarget, payloads: Sequence[tuple[bytes, str]], dead_letters: Sequence[Reject]
    ) -> tuple[TargetDeclaration, OpenSource]:
        one = dead_letters[0]
        typed = self.rows.of_payloads(
            payloads,
            transform=one.is_message,
            are_rows=not keeps_payload(one.row_json),
            metadata=[metadata_of(letter.row_json) for letter in dead_letters],
        )
        declared, rows = typed_declaration(self.stream, target, typed.rows, refuse=False)
        rows = typed.positioned(rows)
        value = SourceValue(self.stream.sources[0].connection, frame=rows, shaped=one.is_shaped)
        opened = OpenSource(value, "dead letters", rejects=typed.rejects, ordered=requires_order(target))
        return declared, replace(opened, positioned=POSITION in rows.column_names)

    def _changes(
        self, target: StreamTarget, payloads: Sequence[tuple[bytes, str]]
    ) -> tuple[TargetDeclaration, OpenSource]:
        database = offset_store_of(self.stream, target, self.options, self.stream.name).database
        return ChangeTarget(self.stream, target, database).replayed(self.source, payloads)


def _groups(dead_letters: Sequence[Reject]) -> list[list[Reject]]:
    groups: dict[tuple[int, bool, bool, bool], list[Reject]] = {}
    for dead_letter in dead_letters:
        as_it_came = keeps_payload(dead_letter.row_json)
        alike = (dead_letter.attempt or 1, dead_letter.is_message, as_it_came, dead_letter.is_shaped)
        groups.setdefault(alike, []).append(dead_letter)
    return list(groups.values())


def waiting(stream: Stream) -> list[Reject]:
    """Return the dead letters that may be tried again."""
    return [dead_letter for status in WAITING for dead_letter in records(stream, status=status, limit=EVERYTHING)]


def _update_status(stream: Stream, dead_letters: Sequence[Reject], status: str | None) -> int:
    stream, changed = filled_in(stream), 0
    for target in _tables(stream):
        mine = [dead_letter.reject_id for dead_letter in _of_target(dead_letters, stream, target)]
        if mine:
            changed += resolve_rejects(open_target(target.connection, name_of(target)), mine, status)
    return changed


def _of_target(dead_letters: Sequence[Reject], stream: Stream, target: StreamTarget) -> list[Reject]:
    """Return the dead letters of one target: those under its name, or its table's under one that no target has any more."""
    own, names = _stored_name(stream, target), {_stored_name(stream, one) for one in _tables(stream)}
    table = own.partition(":")[2]
    return [
        dead_letter
        for dead_letter in dead_letters
        if dead_letter.target_name == own
        or (dead_letter.target_name not in names and dead_letter.target_name.endswith(f":{table}"))
    ]


def _stored_name(stream: Stream, target: StreamTarget) -> str:
    """Return the name under which loads of a target keep what they reject."""
    pipeline = pipeline_into(stream, target, stream.name)
    return token_for(pipeline, pipeline.targets[0], "").target


def _tables(stream: Stream) -> list[StreamTarget]:
    tables = [target for target in stream.targets if _is_table(target)]
    if not tables:
        message = f"stream {stream.name!r} writes to no table, so its dead letters are in its dead-letter topic"
        raise UnsupportedError(message)
    return tables


def _is_table(target: StreamTarget) -> bool:
    return target.table is not None or target.prefix is not None
