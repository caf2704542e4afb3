"""Reads the annotations of a class body; text is parsed against an allow-list and never evaluated."""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import sys
import typing
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import ModuleType

from ematix_flow.declare.table.markers import Marker
from ematix_flow.declare.table.types import ColumnType
from ematix_flow.errors import DeclareTypeError, did_you_mean

if typing.TYPE_CHECKING:
    from types import FrameType

Scopes = Sequence[Mapping[str, object]]

_VALUE_CLASSES = (date, datetime, timedelta, timezone, Decimal)
_TYPING_FORMS = (typing.Optional, typing.Union)


def annotations_of(cls: type) -> dict[str, object]:
    """Return the class's own annotations as objects, without class variables and dunders."""
    result: dict[str, object] = {}
    scopes: Scopes | None = None
    for name, annotation in inspect.get_annotations(cls).items():
        if _is_dunder(name):
            continue
        text = _text_of(annotation)
        if text is not None:
            scopes = scopes if scopes is not None else _scopes(cls)
            annotation = read_text(text, scopes)  # noqa: PLW2901 - the text and the object are one annotation
        if typing.ClassVar not in {annotation, typing.get_origin(annotation)}:
            result[name] = annotation
    return result


def read_text(text: str, scopes: Scopes) -> object:
    """Return the object that the text of an annotation names."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise _refused(text, "is not an expression") from error
    return _AnnotationReader(text, scopes).read(tree)


class _AnnotationReader:
    """One annotation's text and the names it may use."""

    def __init__(self, text: str, scopes: Scopes) -> None:
        self.text = text
        self.scopes = scopes

    def read(self, node: ast.expr) -> object:
        """Return the object for one allowed node."""
        match node:
            case ast.Constant(value=str() | None as quoted):
                return None if quoted is None else read_text(quoted, self.scopes)
            case ast.Name(id=name):
                return self.resolve_name(name)
            case ast.Attribute(value=owner, attr=name):
                return self.attribute(self.read(owner), name)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self.join(self.read(left), self.read(right))
            case ast.Subscript(value=owner, slice=index):
                return self.subscript(self.read(owner), index)
            case ast.Call(func=function, args=args, keywords=keywords):
                return self.call(self.read(function), args, keywords)
        raise _refused(self.text, f"may not contain {ast.unparse(node)!r}")

    def resolve_name(self, name: str) -> object:
        for scope in self.scopes:
            if name in scope:
                return scope[name]
        usable = [n for scope in self.scopes for n, v in scope.items() if _is_ours(v)]
        raise _unknown(self.text, name, usable)

    def attribute(self, owner: object, name: str) -> object:
        if name.startswith("_") or not isinstance(owner, ModuleType | type):
            raise _refused(self.text, f"may not use the attribute {name!r}")
        if not hasattr(owner, name):
            raise _unknown(self.text, name, [n for n, v in vars(owner).items() if _is_ours(v)])
        return getattr(owner, name)

    def join(self, left: object, right: object) -> object:
        try:
            return operator.or_(left, right)
        except TypeError as error:
            raise _refused(self.text, "joins things that are not types") from error

    def subscript(self, owner: object, index: ast.expr) -> object:
        if owner is typing.ClassVar:
            return owner
        items = index.elts if isinstance(index, ast.Tuple) else [index]
        if isinstance(owner, type) and issubclass(owner, ColumnType):
            values = tuple(self.value(item) for item in items)
        elif owner is typing.Annotated:
            values = (self.read(items[0]), *(self.marker(item) for item in items[1:]))
        elif any(owner is form for form in _TYPING_FORMS):
            values = tuple(self.read(item) for item in items)
        else:
            raise _refused(self.text, f"may not subscript {owner!r}")
        return operator.getitem(typing.cast("typing.Any", owner), values if isinstance(index, ast.Tuple) else values[0])

    def marker(self, node: ast.expr) -> object:
        return node.value if isinstance(node, ast.Constant) else self.read(node)

    def call(self, function: object, args: list[ast.expr], keywords: list[ast.keyword]) -> object:
        allowed = isinstance(function, type) and issubclass(function, (Marker, ColumnType, *_VALUE_CLASSES))
        if not allowed:
            raise _refused(self.text, f"may not call {getattr(function, '__name__', function)!r}")
        named = {k.arg: self.value(k.value) for k in keywords if k.arg is not None}
        if len(named) != len(keywords):
            raise _refused(self.text, "may not unpack arguments")
        return typing.cast("typing.Any", function)(*(self.value(a) for a in args), **named)

    def value(self, node: ast.expr) -> object:
        """Return an argument: a literal, a name, or an allowed call."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
        return self.read(node)


def _text_of(annotation: object) -> str | None:
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else None


def _scopes(cls: type) -> Scopes:
    """Return the names the class body could see: its own, the functions around it, its module."""
    module = sys.modules.get(cls.__module__)
    scopes: list[Mapping[str, object]] = [vars(cls)]
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - local names exist only in frames
    while frame is not None:
        if frame.f_globals.get("__name__") == cls.__module__:
            scopes.append(frame.f_locals)
        frame = frame.f_back
    return [*scopes, vars(module) if module else {}, vars(builtins)]


def _is_ours(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, ColumnType | Marker)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _about(text: str, what: str) -> str:
    return f"the annotation {text!r} {what}"


def _unknown(text: str, name: str, usable: list[str]) -> DeclareTypeError:
    return DeclareTypeError(
        _about(text, f"names {name!r}, which is not known here"), hint=did_you_mean(name, set(usable))
    )


def _refused(text: str, what: str) -> DeclareTypeError:
    return DeclareTypeError(
        _about(text, what),
        hint="annotations may hold column types, `| None`, Annotated[...] and markers with literal arguments",
    )
