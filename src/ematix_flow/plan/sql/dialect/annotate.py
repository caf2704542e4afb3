"""The types of all parts of a query in Spark SQL, for relations and functions whose types are known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from ematix_flow.plan.sql.dialect.once import value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot.optimizer.annotate_types import TypeAnnotator

_Tree = TypeVar("_Tree", bound=exp.Expr)
Types = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""The columns of each relation with their types in Spark SQL."""

UNRESOLVED = (SqlglotError, AssertionError)
"""What sqlglot raises where it cannot tell whose a column is: an assertion of its own for positions behind `doc.*`."""
CALL = "_flow_typed"
"""The function that stands for an expression until types are known."""
UNKNOWN = exp.DataType.build("UNKNOWN")
_NO_TYPE = re.compile(r"\bvoid\b")
_RETURNED = {
    "Int8": "TINYINT", "Int16": "SMALLINT", "Int32": "INT", "Int64": "BIGINT", "UInt8": "SMALLINT", "UInt16": "INT",
    "UInt32": "BIGINT", "UInt64": "DECIMAL", "Float32": "FLOAT", "Float64": "DOUBLE", "Boolean": "BOOLEAN",
    "Utf8": "STRING", "Binary": "BINARY",
}  # fmt: skip
"""What functions of the user return, in Spark SQL."""
_KNOWN_FUNCTIONS = {
    "RINT": "DOUBLE", "LOG10": "DOUBLE", "MEDIAN": "DOUBLE", "RAISE_ERROR": "DOUBLE", "UNIX_MICROS": "BIGINT",
    "ARRAY_POSITION": "BIGINT", "WIDTH_BUCKET": "BIGINT", "CRC32": "BIGINT", "DATEDIFF": "INT", "SIZE": "INT",
    "CARDINALITY": "INT", "OCTET_LENGTH": "INT", "SPLIT_PART": "STRING", "SUBSTRING_INDEX": "STRING", "CONV": "STRING",
    "DATE_FORMAT": "STRING", "FROM_UNIXTIME": "STRING", "UUID": "STRING", "TO_DATE": "DATE", "TO_TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_SECONDS": "TIMESTAMP", "REGEXP_SPLIT": "ARRAY<STRING>",
}  # fmt: skip
"""What functions of Spark return that sqlglot does not know, or that a translation has just written."""


def annotated(
    tree: exp.Expr, dialect: str, relations: Types, returned: Mapping[str, str], *, strictly: bool = False
) -> exp.Expr:
    """Return a copy of a query whose parts have the types that the dialect gives them, as far as they can be known.

    sqlglot takes a number of unknown type for a double once it is rounded, but not `strictly`.
    """
    schema: dict[str, object] = {name: {column: _type(kind) for column, kind in columns} for name, columns in relations}
    known = qualify(
        _with_decimals(tree), schema=schema, dialect="spark", validate_qualify_columns=False, quote_identifiers=False
    )
    rules = {
        **Spark.EXPRESSION_METADATA,
        exp.Round: {"annotator": _annotate_round if strictly else _annotate_any_round},
        exp.Floor: {"annotator": _annotate_whole_part},
        exp.Ceil: {"annotator": _annotate_whole_part},
        exp.Anonymous: {"annotator": _annotate_once},
    }
    known = annotate_types(_without_digits(known), schema=schema, expression_metadata=rules, dialect="spark")
    elements = _elements(known, returned)
    # sqlglot has no types for these, so what is known of them is written down as casts.
    for node in reversed(list(known.walk())):
        kind = _part_type(node, elements, returned)
        if dialect == "postgres" and _is_numeric(node):
            kind = exp.DataType.build("DECIMAL")  # so that a sum divided by a count is no whole number
        if (
            kind is not None
            and not isinstance(node.parent, exp.Dot | exp.Lateral)
            and not (isinstance(node.parent, exp.Bracket) and not _is_call(node.parent.parent))
            and not _is_call(node.parent)
        ):
            node.replace(exp.cast(node.copy(), kind, dialect="spark"))
    return annotate_types(known, schema=schema, expression_metadata=rules, dialect="spark")


def _annotate_whole_part(_: TypeAnnotator, node: exp.Expr) -> exp.Expr:
    """Give the whole part of a number the type of the number."""
    node.type = node.this.type or UNKNOWN
    return node


def _annotate_once(_: TypeAnnotator, node: exp.Expr) -> exp.Expr:
    """Give the whole part of a number that is written once the type of the number."""
    value = value_of(node)
    node.type = (value.type if value is not None else None) or UNKNOWN
    return node


def _annotate_round(_: TypeAnnotator, node: exp.Expr) -> exp.Expr:
    """Give a rounded number its type: that of a decimal, or a double."""
    kind = node.this.type or UNKNOWN
    node.type = kind if kind.is_type(exp.DType.DECIMAL, exp.DType.UNKNOWN) else exp.DType.DOUBLE
    return node


def _annotate_any_round(annotator: TypeAnnotator, node: exp.Expr) -> exp.Expr:
    """Give a rounded number its type; what is not known is a double, as for sqlglot."""
    if _annotate_round(annotator, node).is_type(exp.DType.UNKNOWN):
        node.type = exp.DType.DOUBLE
    return node


def _is_call(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == CALL


def _is_numeric(node: exp.Expr) -> bool:
    """Return whether PostgreSQL has a numeric for what Spark has as a whole number."""
    return isinstance(node, exp.Extract | exp.Factorial) or (
        isinstance(node, exp.Sum) and node.this.is_type(exp.DType.BIGINT)
    )


def _type(text: str) -> exp.DataType:
    """Return a type of a column; one that sqlglot does not know makes nothing else unknown."""
    try:
        # A column without any value has no type, and NULL whatever is done with it.
        return _without_digits(exp.DataType.build(_NO_TYPE.sub("bigint", text), dialect="spark"))
    except (SqlglotError, ValueError):
        return UNKNOWN


def _without_digits(tree: _Tree) -> _Tree:
    """Return a tree whose decimals have no digits; with them sqlglot takes a decimal and a double for a decimal."""
    for kind in tree.find_all(exp.DataType):
        if kind.this is exp.DType.DECIMAL:
            kind.set("expressions", [])
    return tree


def _with_decimals(tree: exp.Expr) -> exp.Expr:
    """Return a copy in which literals with a point are decimals, as for Spark; sqlglot takes them for doubles."""
    exact = tree.copy()
    for literal in list(exact.find_all(exp.Literal)):
        if literal.is_number and "." in literal.name and "e" not in literal.name.lower():
            literal.replace(exp.cast(literal.copy(), "DECIMAL"))
    return exact


def _elements(tree: exp.Expr, returned: Mapping[str, str]) -> dict[tuple[str, str], exp.DataType]:
    """Return the types of columns that LATERAL VIEW EXPLODE makes of lists, by the names of view and column."""
    elements = {}
    for lateral in tree.find_all(exp.Lateral):
        alias = lateral.args.get("alias")
        values = lateral.this.this if isinstance(lateral.this, exp.Explode) else None
        element = _element_type(_type_of(values, {}, returned)) if values is not None else None
        if alias is not None and element is not None and len(alias.columns) == 1:
            elements[alias.name.lower(), alias.columns[0].name.lower()] = element
    return elements


def _element_type(kind: exp.DataType | None) -> exp.DataType | None:
    """Return the type of the elements of a list or of the values of a map."""
    if kind is None or kind.this not in (exp.DType.ARRAY, exp.DType.MAP) or not kind.expressions:
        return None
    element = kind.expressions[-1]
    return element if isinstance(element, exp.DataType) else None


def _part_type(
    node: exp.Expr, elements: Mapping[tuple[str, str], exp.DataType], returned: Mapping[str, str]
) -> exp.DataType | None:
    """Return the type of a part that sqlglot does not type: an element, a field, or what a function of the user returns."""
    match node:
        case exp.Column():
            return elements.get((node.table.lower(), node.name.lower()))
        case exp.Func() if _returned_by(node, returned):
            return exp.DataType.build(_returned_by(node, returned), dialect="spark")
        case exp.Mode() | exp.ArgMax() | exp.ArgMin() if node.this is not None:
            return _type_of(node.this, elements, returned)
        case exp.Anonymous() if str(node.this).lower() == "get":
            return _element_type(_type_of(node.expressions[0], elements, returned))
        case exp.Bracket():
            return _member_type(node, _type_of(node.this, elements, returned))
        case exp.Dot():
            return _field_type(_type_of(node.this, elements, returned), node.expression.name)
    return None


def _returned_by(node: exp.Func, returned: Mapping[str, str]) -> str:
    """Return the type that a function is known to return, or an empty text."""
    name = str(node.this) if isinstance(node, exp.Anonymous) else node.sql_name()
    kind = returned.get(name.lower(), "") if isinstance(node, exp.Anonymous) else ""
    return _RETURNED.get(kind, kind) or _KNOWN_FUNCTIONS.get(name.upper(), "")


def _type_of(
    node: exp.Expr, elements: Mapping[tuple[str, str], exp.DataType], returned: Mapping[str, str]
) -> exp.DataType | None:
    return _part_type(node, elements, returned) or node.type


def _member_type(node: exp.Bracket, kind: exp.DataType | None) -> exp.DataType | None:
    index = node.expressions[0]
    if kind is not None and kind.this is exp.DType.STRUCT and index.is_string:
        return _field_type(kind, index.name)
    return _element_type(kind)


def _field_type(kind: exp.DataType | None, name: str) -> exp.DataType | None:
    """Return the type of a field of a struct."""
    for field in kind.expressions if kind is not None and kind.this is exp.DType.STRUCT else ():
        kind_of_field = field.args.get("kind")
        if field.name.lower() == name.lower() and isinstance(kind_of_field, exp.DataType):
            return kind_of_field
    return None
