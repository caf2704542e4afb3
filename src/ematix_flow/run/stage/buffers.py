"""Arrow arrays that are made of bytes: to convert a Python list, pyarrow first loads all of pandas.

No other arrays are built here.
"""

from __future__ import annotations

from array import array

import pyarrow as pa

_WIDTH = 4


def numbers(count: int) -> pa.Array:
    """Return the numbers from zero, as 32-bit integers."""
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(_counted(count, 1))])


def repeated(text: str, count: int) -> pa.Array:
    """Return a text so many times."""
    data = text.encode()
    offsets = pa.py_buffer(_counted(count + 1, len(data)))
    return pa.StringArray.from_buffers(count, offsets, pa.py_buffer(data * count))


def _counted(count: int, step: int) -> bytes:
    values = array("i", range(0, count * step, step) if step else [0] * count)
    assert values.itemsize == _WIDTH  # noqa: S101 - what C calls an int on every machine that Spark runs on
    return values.tobytes()
