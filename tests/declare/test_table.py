# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
from __future__ import annotations

import sys
from typing import Annotated, ClassVar, Optional

import pytest

from ematix_flow import types as ft
from ematix_flow.declare.table.annotations import read_text
from ematix_flow.declare.table.class_body import snake_case
from ematix_flow.errors import DeclareError, DeclareTypeError, UnknownNameError
from ematix_flow.markers import natural_key, nullable, pk
from ematix_flow.normalize import default, derive, empty_to_null, lower, parse_timestamp, trim
from ematix_flow.table import Column, ManagedTable, Table, table, table_of
from ematix_flow.types import BigInt, Numeric, String, Text, TimestampTZ


def test_the_class_of_the_readme() -> None:
    class Events(ManagedTable):
        __schema__ = "analytics"
        __tablename__ = "events"

        event_id: Annotated[BigInt, pk()]
        name: Text | None
        received_at: TimestampTZ

    declared = table_of(Events)
    assert declared.qualified_name == "analytics.events"
    assert declared.primary_key == ("event_id",)
    assert [(c.name, c.type, c.nullable) for c in declared.columns] == [
        ("event_id", BigInt(), False),
        ("name", Text(), True),
        ("received_at", TimestampTZ(), False),
    ]
    assert declared.origin is not None
    assert declared.origin.file == __file__


def test_the_decorated_class_of_the_readme() -> None:
    @table(schema="analytics")
    class CustomerDim:
        customer_id: Annotated[BigInt, pk()]
        email: Annotated[String[256] | None, lower(), trim(), empty_to_null()]
        updated_at: Annotated[TimestampTZ, parse_timestamp("YYYY-MM-DD", on_failure="error")]

    assert issubclass(CustomerDim, ManagedTable)
    assert (CustomerDim.__schema__, CustomerDim.__tablename__) == ("analytics", "customer_dim")
    email = table_of(CustomerDim).column("email")
    assert email.normalizers == (lower(), trim(), empty_to_null())
    assert CustomerDim.__columns__ == table_of(CustomerDim).columns
    assert CustomerDim._to_spec()["columns"][1] == {  # type: ignore[index]
        "name": "email",
        "type": {"kind": "string", "length": 256},
        "nullable": True,
        "primary_key": False,
    }


def test_column_attributes_and_a_name_of_ones_own() -> None:
    class Orders(ManagedTable):
        __schema__ = "s"
        __tablename__ = "orders"
        id = Column(BigInt(), primary_key=True)
        note = Column(Text, name="remark")

    assert table_of(Orders).column("id").nullable is False
    assert table_of(Orders).column_names == ("id", "remark")


def test_local_names_attributes_and_quotes_are_found_without_evaluation() -> None:
    local_type = BigInt

    @table(schema="s", name="named")
    class Local:
        a: Annotated[local_type, pk()]
        b: ft.String[10] | None
        c: Optional[ft.Numeric[10, 2]]  # noqa: UP045 - users write it
        d: "Text"  # noqa: UP037 - users write it
        e: Annotated[Text, nullable(), default(-1)]
        f: ClassVar[int] = 3

    declared = table_of(Local)
    assert declared.name == "named"
    assert [str(c.type) for c in declared.columns] == ["BigInt", "String[10]", "Numeric[10, 2]", "Text", "Text"]
    assert [c.nullable for c in declared.columns] == [False, True, True, False, True]


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "(lambda: BigInt)()",
        "BigInt if True else Text",
        "[BigInt][0]",
        "open('x')",
        "BigInt.__class__",
        "Annotated[BigInt, print('x')]",
        "Annotated[BigInt, *[1]]",
        "BigInt +",
        "BigInt, Text",
        "Annotated[Text, default(**{'value': 1})]",
        "BigInt | 3",
    ],
)
def test_other_text_in_annotations_is_refused_and_shown(text: str) -> None:
    with pytest.raises(DeclareTypeError) as caught:
        read_text(text, [globals(), {"print": print, "open": open}])
    assert text in str(caught.value)


def test_a_misspelt_type_gets_the_nearest_name() -> None:
    with pytest.raises(DeclareTypeError, match="did you mean 'Text'"):
        read_text("Txet", [globals()])


def test_natural_keys_make_constraints_with_the_default_group_first() -> None:
    @table(schema="s")
    class Customer:
        id: Annotated[BigInt, pk()]
        z: Annotated[Text, natural_key("b")]
        a: Annotated[Text, natural_key()]
        c: Annotated[Text, natural_key("b")]

    declared = table_of(Customer)
    assert declared.unique_constraints == (("a",), ("z", "c"))
    assert declared.natural_keys == ("a",)


def test_the_class_dunders_are_carried_over_and_override_markers() -> None:
    @table(schema="s")
    class Customer:
        __merge_keys__ = ("a",)
        __unique_constraints__ = (("a", "b"),)
        __partition_columns__ = ("b",)
        a: Annotated[Text, natural_key()]
        b: Text

    declared = table_of(Customer)
    assert (declared.merge_keys, declared.unique_constraints, declared.partition_columns) == (
        ("a",),
        (("a", "b"),),
        ("b",),
    )
    assert declared.natural_keys == ("a",)
    assert declared.primary_key == ()


def test_abstract_bases_give_their_columns() -> None:
    class Base(ManagedTable):
        __abstract__ = True
        __schema__ = "s"
        id: Annotated[BigInt, pk()]

    class Child(Base):
        __tablename__ = "child"
        name: Text

    assert table_of(Child).column_names == ("id", "name")
    with pytest.raises(TypeError, match="not a table"):
        table_of(Base)


def test_snake_case() -> None:
    names = {
        "CustomerDim": "customer_dim",
        "HTTPServerLog": "http_server_log",
        "events": "events",
        "V2Orders": "v2_orders",
    }
    assert {name: snake_case(name) for name in names} == names


def test_rival_decorators_are_refused() -> None:
    from dataclasses import dataclass

    @dataclass
    class Rows:
        id: Annotated[BigInt, pk()]

    with pytest.raises(DeclareTypeError, match="@dataclass"):
        table(schema="s")(Rows)


def _declare(**body: object) -> Table:
    namespace = {"__module__": __name__, "__schema__": "s", "__tablename__": "t", **body}
    return table_of(type("Made", (ManagedTable,), namespace))


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ({"__annotations__": {"a": "int"}}, DeclareTypeError, "int"),
        ({"__annotations__": {"a": "String"}}, DeclareTypeError, "String needs arguments"),
        ({}, DeclareTypeError, "no column"),
        ({"__schema__": None, "a": Column(Text)}, DeclareTypeError, "__schema__"),
        ({"__tablename__": None, "a": Column(Text)}, DeclareTypeError, "__tablename__"),
        ({"__annotations__": {"a": "Text"}, "a": "x"}, DeclareTypeError, "default"),
        ({"__annotations__": {"a": "Annotated[Text, trim]"}}, DeclareTypeError, "without calling"),
        ({"a": Column(Text), "b": Column(Text, name="A")}, DeclareError, "2 times"),
        ({"_loaded_at": Column(Text)}, DeclareError, "_loaded_at"),
        ({"_Batch_ID": Column(Text)}, DeclareError, "every load adds"),
        ({"x" * 64: Column(Text)}, DeclareError, "63 bytes"),
        ({"ä" * 32: Column(Text)}, DeclareError, "63 bytes"),
        ({"a": Column(Text, name="a\0b")}, DeclareError, "NUL"),
        ({"a": Column(Text, name="_Flow_failed")}, DeclareError, "_Flow_failed.* of their own"),
        ({"__schema__": "", "a": Column(Text)}, DeclareError, "schema needs a name"),
        ({"a": Column(Text), "__merge_keys__": ("b",)}, UnknownNameError, "'b'"),
        ({"a": Column(Text), "__merge_keys__": 3}, DeclareTypeError, "column names"),
    ],
)
def test_impossible_tables_are_refused(body: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        _declare(**body)


def test_derive_comes_first_or_not_at_all() -> None:
    with pytest.raises(ValueError, match="first"):
        Column(Text, normalizers=(trim(), derive("a")))


def test_an_unknown_column_gets_the_nearest_name() -> None:
    declared = _declare(amount=Column(Numeric(10, 2)))
    with pytest.raises(KeyError, match="did you mean 'amount'"):
        declared.column("amuont")


def test_the_fingerprint_follows_the_shape() -> None:
    assert _declare(a=Column(Text)).fingerprint == _declare(a=Column(Text)).fingerprint
    assert _declare(a=Column(Text)).fingerprint != _declare(a=Column(BigInt)).fingerprint
    assert _declare(a=Column(Text)) == _declare(a=Column(Text))


def test_declaring_a_table_imports_only_the_standard_library() -> None:
    import subprocess

    code = "import sys, ematix_flow.declare.table.class_body; print([m for m in ('sqlglot', 'pyarrow', 'pyspark') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout.strip() == "[]"
