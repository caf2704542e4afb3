"""Python functions and classes that the SQL of a stream can call, as declared values; nothing is called here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.values import filled_text
from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TYPE_NAMES = (
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64",
    "Float32", "Float64", "Boolean", "Utf8", "Binary",
)  # fmt: skip
"""The types that arguments, state and results may have."""

METHODS = ("update_batch", "merge_batch", "evaluate", "state")
"""What the class of an aggregate must have."""


@dataclass(frozen=True, slots=True)
class PythonScalarUdfHandle:
    """A function from Arrow arrays to one Arrow array of the same length."""

    name: str
    function: Callable[..., Any]
    args: tuple[str, ...]
    returns: str

    def __call__(self, *arrays: Any) -> Any:
        """Call the user's function as it is."""
        return self.function(*arrays)


@dataclass(frozen=True, slots=True)
class PythonAggregateUdfHandle:
    """A class of which each group gets an instance that takes arrays and returns one value."""

    name: str
    accumulator: type
    args: tuple[str, ...]
    state: tuple[str, ...]
    returns: str

    def __call__(self) -> Any:
        """Return a new instance of the user's class."""
        return self.accumulator()


def udf(
    *, args: Sequence[str], returns: str, name: str | None = None
) -> Callable[[Callable[..., Any]], PythonScalarUdfHandle]:
    """Return the decorator that makes a function callable from SQL."""
    arguments, result = _types("args", args), _type("returns", returns)

    def declare(function: Callable[..., Any]) -> PythonScalarUdfHandle:
        if isinstance(function, type) or not callable(function):
            message = "@udf takes a function"
            raise DeclareTypeError(message, hint="@udaf takes a class.")
        return PythonScalarUdfHandle(_name(name, function), function, arguments, result)

    return declare


def udaf(
    *, args: Sequence[str], state: Sequence[str], returns: str, name: str | None = None
) -> Callable[[type], PythonAggregateUdfHandle]:
    """Return the decorator that makes a class an aggregate of SQL."""
    arguments, state_types, result = _types("args", args), _types("state", state), _type("returns", returns)

    def declare(cls: type) -> PythonAggregateUdfHandle:
        if not isinstance(cls, type):
            message = "@udaf takes a class"
            raise DeclareTypeError(message, hint="@udf takes a function.")
        missing = [method for method in METHODS if not callable(getattr(cls, method, None))]
        if missing:
            message = f"aggregate {cls.__name__} has no {missing[0]}()"
            raise DeclareTypeError(message, hint=f"it needs {', '.join(METHODS)}.")
        return PythonAggregateUdfHandle(_name(name, cls), cls, arguments, state_types, result)

    return declare


def functions_of(option: str, value: Any, kind: type) -> tuple[Any, ...]:
    """Return the handles that a stream or pipeline was given, or refuse what is none."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        message = f"{option}= takes a list, not {type(value).__name__}"
        raise DeclareTypeError(message)
    for entry in value:
        if not isinstance(entry, kind):
            decorator = "udf" if kind is PythonScalarUdfHandle else "udaf"
            message = f"{option}= takes what @{decorator}(...) made, not {type(entry).__name__}"
            raise DeclareTypeError(message)
    return tuple(value)


def check_functions(functions: Sequence[Any]) -> None:
    """Refuse two functions of one name."""
    names = [one.name for one in functions]
    for name in names:
        if names.count(name) > 1:
            message = f"two functions are named {name!r}"
            raise DeclareError(message, hint="give one of them another name=.")


def _types(option: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        message = f"{option}= takes a list of types, not {type(value).__name__}"
        raise DeclareTypeError(message, hint=f'for example {option}=("Float64", "Utf8").')
    return tuple(_type(option, one) for one in value)


def _type(option: str, value: Any) -> str:
    if value not in TYPE_NAMES:
        message = f"{option}= names an unknown type {value!r}"
        raise DeclareError(message, hint=did_you_mean(str(value), TYPE_NAMES))
    return str(value)


def _name(name: str | None, declared: Any) -> str:
    chosen = filled_text("name", declared.__name__ if name is None else name)
    if not chosen.isidentifier():
        message = f"{chosen!r} cannot be called in SQL"
        raise DeclareError(message, hint="use letters, digits and underscores, for example name='vwap'.")
    return chosen
