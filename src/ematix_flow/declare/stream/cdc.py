"""How change events of another database are read and applied, as a checked value; no event is read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ematix_flow.declare.values import filled_text, one_of, whole_number
from ematix_flow.errors import DeclareError, DeclareTypeError

ENVELOPES = ("debezium", "maxwell", "canal", "aws_dms", "custom")
OPERATIONS = ("create", "update", "delete", "read", "truncate")
TIME_UNITS = ("ms", "us", "ns")
TRANSACTION = "transaction"
_FIELDS = ("op_field", "before_field", "after_field", "key_field", "ts_field", "order_field")
_CUSTOM = ("op_field", "after_field", "key_field", "op_map")


@dataclass(frozen=True, slots=True)
class CDC:
    """The envelope of change events, and what deletes and new columns do to the target."""

    envelope: str = "debezium"
    op_field: str | None = None
    before_field: str | None = None
    after_field: str | None = None
    key_field: str | None = None
    """Where an event has its key, for rows that lack it."""
    ts_field: str | None = None
    op_map: Mapping[str, str] | None = None
    """The word of an event, as text, number or truth value -> create, update, delete, read or truncate; others are the envelope's."""
    delete_mode: str = "hard"
    soft_delete_column: str | None = None
    schema_evolution: str = "skip"
    """What becomes of a column that the table lacks: its values are left out, the event is refused, or it is added."""
    out_of_order_tolerance_ms: int = 5000
    """By how much a change may be older than what its key has before it counts as late; changes are put in order in any case."""
    order_field: str | None = None
    """Where an event has its place in the log of its database, if not as its envelope says: a whole number that only grows."""
    missing_columns: str = "keep"
    """What a column becomes that an event does not carry: it stays as it is, or is NULL."""
    missing_rows: str = "insert"
    """What an update does whose row is not there: it inserts it, or nothing."""
    on_truncate: str = "apply"
    """Whether a truncated table empties the target, or is left out."""
    time_unit: str | None = None
    """What numbers in columns of points in time count, where events have no schema: ms, us or ns since 1970."""
    atomic: str = "batch"
    """What the target commits at once: a batch, which may end anywhere, or batches of whole transactions of the source."""

    def __post_init__(self) -> None:
        one_of("envelope", self.envelope, ENVELOPES)
        one_of("delete_mode", self.delete_mode, ("hard", "soft"))
        one_of("schema_evolution", self.schema_evolution, ("skip", "fail", "evolve"))
        one_of("missing_columns", self.missing_columns, ("keep", "null"))
        one_of("missing_rows", self.missing_rows, ("insert", "ignore"))
        one_of("on_truncate", self.on_truncate, ("apply", "skip"))
        one_of("time_unit", self.time_unit, (None, *TIME_UNITS))
        one_of("atomic", self.atomic, ("batch", TRANSACTION))
        whole_number("out_of_order_tolerance_ms", self.out_of_order_tolerance_ms)
        for name in (*_FIELDS, "soft_delete_column"):
            if getattr(self, name) is not None:
                filled_text(name, getattr(self, name))
        if self.delete_mode == "soft" and self.soft_delete_column is None:
            message = 'delete_mode="soft" and soft_delete_column= belong together'
            raise DeclareError(message)
        self._check_operations()
        missing = [name for name in _CUSTOM if not getattr(self, name)]
        if self.envelope == "custom" and missing:
            message = f"a custom envelope needs {', '.join(f'{name}=' for name in missing)}"
            raise DeclareError(message)
        if self.envelope == "canal" and self.key_field is not None:
            message = "key_field= does not go with envelope='canal', whose messages have several rows"
            raise DeclareError(message, hint="leave it out: the rows have their keys.")

    @property
    def soft_column(self) -> str | None:
        """Return the column that tells which rows are deleted; None where those are removed, and the column is one like any other."""
        return self.soft_delete_column if self.delete_mode == "soft" else None

    def _check_operations(self) -> None:
        if self.op_map is None:
            return
        if not isinstance(self.op_map, Mapping):
            message = f"op_map= takes a table of words, not {type(self.op_map).__name__}"
            raise DeclareTypeError(message, hint='for example op_map={"I": "create", "D": "delete"}.')
        operations: dict[str, str] = {}
        for code, operation in self.op_map.items():
            one_of(f"op_map[{code!r}]", operation, OPERATIONS)
            token = _token_of(code)
            if operations.setdefault(token, operation) != operation:
                message = f"op_map= has {token!r} as text and as a number or truth value, with different meanings"
                raise DeclareError(message, hint="an event's number or truth value is read as its text.")
        object.__setattr__(self, "op_map", operations)


def _token_of(code: object) -> str:
    """Return the word of an operation; numbers and truth values are written as JSON writes them."""
    if isinstance(code, bool):
        return "true" if code else "false"
    if not isinstance(code, str | int):
        message = f"op_map= takes words of operations as text, whole numbers, true or false, not {type(code).__name__}"
        raise DeclareTypeError(message)
    return str(code)
