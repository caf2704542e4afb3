"""Fills `${...}` into the names of a stream for a run or an inspection; declarations stay as written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.connect.config.secrets import expand_name
from ematix_flow.declare.table.schema import Table, check_name
from ematix_flow.errors import DeclareError, FlowError

if TYPE_CHECKING:
    from ematix_flow.declare.stream.stream import Stream, StreamSourceDeclaration, StreamTarget
    from ematix_flow.declare.stream.windows import Join


def filled_in(stream: Stream) -> Stream:
    """Return the stream with every reference in a name filled in; a variable that is missing or empty is refused."""
    try:
        return replace(
            stream,
            sources=tuple(_source(one) for one in stream.sources),
            targets=tuple(_target(one) for one in stream.targets),
            join=None if stream.join is None else _join(stream.join),
            dead_letter_topic=_optional("dead_letter_topic", stream.dead_letter_topic),
        )
    except FlowError as error:
        raise error.at(stream.origin) from None


def _source(source: StreamSourceDeclaration) -> StreamSourceDeclaration:
    query = _filled("source_query", source.query)
    return source if query == source.query else replace(source, query=query, id=source.id.replace(source.query, query))


def _join(join: Join) -> Join:
    left, right = _filled("left_source", join.left_source), _filled("right_source", join.right_source)
    return replace(join, left_source=left, right_source=right)


def _target(target: StreamTarget) -> StreamTarget:
    return replace(
        target,
        table=_table(target.table),
        topic=_optional("topic", target.topic),
        queue=_optional("queue", target.queue),
        partition_key_prefix=_optional("partition_key_prefix", target.partition_key_prefix),
        files=replace(target.files, prefix=_optional("prefix", target.files.prefix)),
    )


def _table(table: Table | tuple[str, str] | None) -> Table | tuple[str, str] | None:
    if table is None:
        return None
    schema, name = (table.schema, table.name) if isinstance(table, Table) else table
    filled = _name("schema", schema), _name("table", name)
    if filled == (schema, name):
        return table
    return replace(table, schema=filled[0], name=filled[1]) if isinstance(table, Table) else filled


def _name(what: str, written: str) -> str:
    filled = _filled(what, written)
    if filled != written:
        check_name(what, filled, None)
    return filled


def _optional(what: str, written: str | None) -> str | None:
    return None if written is None else _filled(what, written)


def _filled(what: str, written: str) -> str:
    filled = expand_name(written)
    if filled != written and not filled.strip():
        raise DeclareError(f"{what} {written!r} is empty when it is filled in")
    return filled
