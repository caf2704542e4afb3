"""Writes lists, structs and maps of Arrow as JSON with every digit; how is decided once for a column, not for each of its values.

Lists of texts and numbers are left to the encoder of Python, which is C; what it would write otherwise, it does not get.
"""

from __future__ import annotations

from dataclasses import dataclass
from json.encoder import JSONEncoder, encode_basestring
from math import isfinite
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.connect.formats.json_lines import written
from ematix_flow.connect.formats.values import text_of, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_in_c = JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode


@dataclass(frozen=True, slots=True)
class _Writer:
    write: Callable[[Any], str]
    """Returns a value that is not NULL as JSON."""
    plain: bool = False
    """Whether the encoder of Python writes the same, or refuses the value."""

    def item(self, value: Any) -> str:
        """Return a value of a list or a map as JSON."""
        return "null" if value is None else self.write(value)


def documents(column: pa.Array) -> pa.Array:
    """Return nested values as JSON: maps as objects, bytes as hexadecimal digits; a NULL in a struct has no field."""
    write = _writer(column.type).write
    return pa.array([None if value is None else write(value) for value in column.to_pylist()], pa.string())


def _writer(kind: pa.DataType) -> _Writer:
    if pa.types.is_map(kind):
        return _Writer(_map(_writer(kind.item_type)))
    if pa.types.is_struct(kind):
        return _Writer(_struct([(field.name, _writer(field.type)) for field in kind]))
    if pa.types.is_nested(kind):
        items = _writer(kind.value_type)
        return _Writer(_list(items), items.plain)
    return next((writer for fits, writer in _VALUES if fits(kind)), _OTHER)


def _map(items: _Writer) -> Callable[[Sequence[tuple[Any, Any]]], str]:
    def write(value: Sequence[tuple[Any, Any]]) -> str:
        return f"{{{', '.join([f'{encode_basestring(_key(key))}: {items.item(one)}' for key, one in value])}}}"

    return write


def _key(key: Any) -> str:
    return key.hex() if isinstance(key, bytes) else text_of(key)


def _struct(fields: Sequence[tuple[str, _Writer]]) -> Callable[[dict[str, Any]], str]:
    known = [(name, f"{encode_basestring(name)}: ", writer.write) for name, writer in fields]

    def write(value: dict[str, Any]) -> str:
        pairs = [key + of_field(one) for name, key, of_field in known if (one := value[name]) is not None]
        return f"{{{', '.join(pairs)}}}"

    return write


def _list(items: _Writer) -> Callable[[Sequence[Any]], str]:
    def write(value: Sequence[Any]) -> str:
        if items.plain:
            try:
                return _in_c(value)
            except ValueError:  # NaN or Infinity
                pass
        return f"[{', '.join(map(items.item, value))}]"

    return write


def _float(value: float) -> str:
    return repr(value) if isfinite(value) else _other(value)


def _other(value: Any) -> str:
    return str(written(tree(value.hex() if isinstance(value, bytes) else value)))


_VALUES = (
    (pa.types.is_string, _Writer(encode_basestring, plain=True)),
    (pa.types.is_large_string, _Writer(encode_basestring, plain=True)),
    (pa.types.is_boolean, _Writer(lambda value: "true" if value else "false", plain=True)),
    (pa.types.is_integer, _Writer(str, plain=True)),
    (pa.types.is_float32, _Writer(_float, plain=True)),
    (pa.types.is_float64, _Writer(_float, plain=True)),
)
_OTHER = _Writer(_other)
