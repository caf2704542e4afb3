"""Whether the parts of a stream go together: rules that need no connection, and rules that need only its kind."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ematix_flow.declare.connection.base import Connection, is_open
from ematix_flow.declare.pipeline.file_options import READ_OPTIONS, check_read_options, check_written_as
from ematix_flow.declare.pipeline.write import CHANGES, ERROR
from ematix_flow.declare.stream.cdc import TRANSACTION
from ematix_flow.declare.stream.feature_windows import check_feature_windows
from ematix_flow.declare.stream.options import IN_MEMORY
from ematix_flow.declare.stream.udf import check_functions
from ematix_flow.declare.stream.windows import SESSION
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ematix_flow.declare.stream.stream import Stream, StreamTarget

    Known = Callable[[str | Connection], Connection | None]

DATABASES = ("postgres", "mysql", "sqlite", "duckdb")
LAKES = ("delta_local", "delta_s3", "iceberg")
WAREHOUSES = ("snowflake", "bigquery", "redshift")
FILES = "object_store_"
"""How the kinds of folders of files begin."""

_DESTINATION_OF_KIND = {
    **dict.fromkeys((*DATABASES, *LAKES, *WAREHOUSES), "table"),
    "kafka": "topic",
    "pubsub": "topic",
    "rabbitmq": "queue",
    "kinesis": "partition_key_prefix",
}
_DESTINATION_OPTIONS = ("table", "topic", "queue", "prefix", "partition_key_prefix")
_LOGS = ("postgres_cdc", "mysql_cdc")
_SOURCES = ("kafka", "rabbitmq", "pubsub", "kinesis", *_LOGS, *LAKES)


def inline_connection(reference: str | Connection) -> Connection | None:
    """Return a connection that was written out; what a name means is known when the stream is planned."""
    return reference if isinstance(reference, Connection) else None


def check_stream(stream: Stream, known: Known = inline_connection) -> None:
    """Refuse a stream that no run could do; `known` has the connections whose kind can be judged."""
    _refuse_duplicate_targets(stream)
    _check_sql(stream)
    _check_state(stream)
    _check_join(stream)
    check_feature_windows(stream)
    _check_dead_letters(stream, known)
    for source in stream.sources:
        _check_source(known(source.connection))
        _check_replaced(stream, known(source.connection))
    for target in stream.targets:
        _check_target(target, known(target.connection))
        _check_changes(stream, target)
    _check_atomic(stream, known)
    for name, lookup in stream.lookups.items():
        connection = known(lookup.connection)
        if connection is not None and connection.kind not in DATABASES:
            message = f"lookup {name!r} is on a {connection.kind} connection"
            raise DeclareError(message, hint=f"lookups are read from {_listed(DATABASES)}.")


def _check_changes(stream: Stream, target: StreamTarget) -> None:
    """Refuse changes for what cannot take them, and what only changes have for other streams."""
    if stream.cdc is None:
        if target.write.mode == CHANGES:
            message = f"mode={CHANGES!r} needs cdc=CDC(...), which says how the changes are written"
            raise DeclareError(message)
        return
    if target.table is None:
        message = f"cdc= changes and deletes rows, which {target.destination!r} of {target.connection_name!r} cannot"
        raise DeclareError(message, hint="write to a table of a database or a lake.")
    if target.write.mode != CHANGES and stream.cdc.delete_mode == "soft":
        message = f'delete_mode="soft" does not go with mode={target.write.spelled!r}, which keeps what was deleted'
        raise DeclareError(message, hint="leave delete_mode= and soft_delete_column= out.")
    if target.write.mode != CHANGES and stream.cdc.missing_rows == "ignore":
        message = (
            f'missing_rows="ignore" does not go with mode={target.write.spelled!r}, which has a row for every change'
        )
        raise DeclareError(message, hint="leave it out.")
    if target.write.mode == "scd2" and target.write.event_timestamp_column is not None:
        message = "event_timestamp_column= does not go with cdc=: the time of a change is that of its event"
        raise DeclareError(message)
    if target.write.mode == "merge":
        message = 'cdc= applies changes in their order, which mode="merge" would not'
        raise DeclareError(message, hint='leave mode= out; "scd2" makes a history of changes, "append" a log of them.')


def _check_atomic(stream: Stream, known: Known) -> None:
    """Refuse whole transactions where a batch may end within one, or rows of one may be left out."""
    if stream.cdc is None or stream.cdc.atomic != TRANSACTION:
        return
    for source in stream.sources:
        connection = known(source.connection)
        if connection is not None and connection.kind not in _LOGS:
            message = f'atomic="transaction" does not go with {connection.kind}: its messages do not say where transactions end'
            raise DeclareError(message, hint=f"read the log of the database itself: {_listed(_LOGS)}.")
    if stream.transform.on_error != "fail" or any(one.write.on_bad_row != "fail" for one in stream.targets):
        message = 'atomic="transaction" does not go with transform_on_error= and on_bad_row=, which leave out changes that do not fit'
        raise DeclareError(message, hint="leave them out: a change that does not fit fails its batch.")


def destination_option(kind: str) -> str | None:
    """Return the option that names where in a connection of this kind rows go; None where none can."""
    return "prefix" if kind.startswith(FILES) else _DESTINATION_OF_KIND.get(kind)


def _refuse_duplicate_targets(stream: Stream) -> None:
    """Refuse two targets with the same location."""
    destinations: set[tuple[str, str]] = set()
    for one in stream.targets:
        if (one.connection_name, one.destination) in destinations:
            message = f"two targets are {one.destination!r} of connection {one.connection_name!r}"
            raise DeclareError(message, hint="every row would be written twice.")
        destinations.add((one.connection_name, one.destination))


def _check_sql(stream: Stream) -> None:
    functions = (*stream.udfs, *stream.aggregate_udfs)
    check_functions(functions)
    used = {
        "lookups=": stream.lookups,
        "udfs= and aggregate_udfs=": functions,
        "optional_fields=": stream.transform.optional_fields,
    }
    unused = next((what for what, value in used.items() if value), "")
    if stream.transform.sql is None and unused:
        message = f"{unused} need transform_sql="
        raise DeclareError(message, hint="only SQL can use them.")
    following = stream.window or stream.join
    if stream.deduplicate is not None and following is not None:
        times = (stream.deduplicate.event_time_column, following.event_time_column)
        if times[0] != times[1]:
            message = f"deduplicate= goes by the time {times[0]!r}, and what follows it by {times[1]!r}"
            raise DeclareError(message, hint="a stream has one time: name the same event_time_column= in both.")
    if stream.cdc is not None and stream.is_stateful:
        message = "cdc= goes neither with window=, join= nor deduplicate="
        raise DeclareError(message)
    if stream.cdc is not None and stream.transform.sql is not None:
        message = "cdc= takes no transform_sql=: a change has to keep the key and the columns that its database wrote"
        raise DeclareError(message, hint="let a second pipeline read the mirrored table.")
    if stream.transform.engine == "distributed" and stream.is_stateful:
        message = 'engine = "distributed" goes neither with a window nor with a join'
        raise DeclareError(message, hint="leave engine out: Spark distributes the work.")
    if stream.transform.engine == "datafusion" and (stream.transform.peers or stream.transform.tls):
        message = 'peers and tls belong to engine = "distributed" or "auto"'
        raise DeclareError(message)


def _check_state(stream: Stream) -> None:
    store, window = stream.state_store, stream.window
    if stream.requires_state_store and store is None:
        message = f"a {'join' if stream.join is not None else 'session window'} needs state_store="
        raise DeclareError(message, hint='for example StateStore(kind="postgres", url="${STATE_DSN}").')
    if store is not None and window is not None and window.kind != SESSION:
        message = f"a {window.kind} window takes no state_store="
        raise DeclareError(message, hint="its state is kept with the stream's position.")
    if window is not None and window.kind == SESSION and any(one.is_approximate for one in window.aggregations):
        message = "the state of an approximate count_distinct cannot be kept in a state store"
        raise DeclareError(message, hint='use mode="exact" with max_distinct_values_per_group=.')
    if store is not None and store.kind == IN_MEMORY and stream.is_stateful:
        text = f"stream {stream.name!r} declares a state store in memory: Spark keeps the state below checkpoint_root all the same"
        warnings.warn(text, UserWarning, stacklevel=2)


def _check_join(stream: Stream) -> None:
    join = stream.join
    if join is None:
        return
    if stream.window is not None:
        message = "a stream has window= or join=, not both"
        raise DeclareError(message)
    if stream.transform.sql is not None:
        message = "a join takes no transform_sql=: it joins the sources as they are"
        raise DeclareError(message)
    queries, sides = [source.query for source in stream.sources], (join.left_source, join.right_source)
    if len(queries) > len(sides):
        message = f"a join has two sources, and stream {stream.name!r} has {len(queries)}: {_listed(queries)}"
        raise DeclareError(
            message, hint="leave the others out; a second stream can join the rows of this one with them."
        )
    if any(map(is_open, (*queries, *sides))):
        # What they are called is known when the stream runs, which checks it again.
        return
    for side in sides:
        if queries.count(side) != 1:
            message = f"{side!r} of the join is the query of {queries.count(side)} sources"
            raise DeclareError(message, hint=f"the sources read {_listed(queries)}.")


def _check_dead_letters(stream: Stream, known: Known) -> None:
    if stream.dlq_store != "topic":
        return
    if stream.dead_letter_topic is None:
        message = 'dlq_store="topic" needs dead_letter_topic='
        raise DeclareError(message)
    kinds = [None if one is None else one.kind for one in (known(source.connection) for source in stream.sources)]
    if "kafka" not in kinds and None not in kinds:
        message = 'dlq_store="topic" needs a Kafka source'
        raise DeclareError(message, hint='use dlq_store="table" or "auto".')


def _check_source(connection: Connection | None) -> None:
    if connection is None or connection.kind in _SOURCES or connection.kind.startswith(FILES):
        return
    message = f"a stream cannot read from {connection.kind} connection {connection.name!r}"
    hint = f"streams read from {_listed((*_SOURCES, FILES + '*'))}; @ematix.pipeline reads from databases."
    raise DeclareError(message, hint=hint)


def _check_replaced(stream: Stream, connection: Connection | None) -> None:
    if connection is None or connection.kind.startswith(FILES):
        return
    if any(target.write.on_replaced != ERROR for target in stream.targets):
        message = f"on_replaced= is about files, and stream {stream.name!r} reads from {connection.kind}"
        raise DeclareError(message)


def _check_target(target: StreamTarget, connection: Connection | None) -> None:
    specified = [name for name in _DESTINATION_OPTIONS if getattr(target, name) is not None]
    if connection is None:
        _check_single_destination(specified)
        return
    kind, destination = connection.kind, destination_option(connection.kind)
    if destination is None:
        message = f"a stream cannot write to {kind} connection {connection.name!r}"
        raise DeclareError(message)
    is_folder = destination == "prefix"
    allowed = (destination, "table") if is_folder and target.declared_table is not None else (destination,)
    for name in specified:
        if name not in allowed:
            message = f"{name}= does not go with {kind} connection {connection.name!r}"
            raise DeclareError(message, hint=f"it takes {destination}=.")
    if not specified:
        message = f"{kind} connection {connection.name!r} as a target needs {destination}="
        raise DeclareError(message, hint=f"say target_{destination}=, or {destination}= in Target(...).")
    _check_options(target, kind, destination)
    if is_folder:
        _check_format(target, getattr(connection, "format", ""))


def _check_single_destination(specified: list[str]) -> None:
    """Refuse what no kind of connection could take, where the kind is not known yet."""
    if not specified or (len(specified) > 1 and set(specified) != {"table", "prefix"}):
        message = f"a target says where rows go once, not {len(specified)} times"
        raise DeclareError(message, hint=f"with one of {_listed(f'{name}=' for name in _DESTINATION_OPTIONS)}.")


def _check_options(target: StreamTarget, kind: str, destination: str) -> None:
    foreign = {
        "primary_key": bool(target.primary_key) and destination != "table",
        "create_table": target.create_table and destination != "table",
        "message_key_column": target.message_key_column is not None and destination in ("table", "prefix"),
        **dict.fromkeys((*target.files.specified(), *target.read_options), destination != "prefix"),
    }
    for name, wrong in foreign.items():
        if wrong:
            message = f"{name}= does not go with a {kind} target"
            raise DeclareError(message)


def _check_format(target: StreamTarget, file_format: str) -> None:
    if is_open(file_format):
        return
    check_written_as(target.files, file_format)
    if any(READ_OPTIONS[name][0] == file_format for name in target.read_options):
        # A target may bring the options of both formats, of which those of its own count.
        return
    for name in READ_OPTIONS:
        check_read_options(name, target.read_options.get(name), file_format)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
