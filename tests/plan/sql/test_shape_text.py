from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ematix_flow import normalize as n
from ematix_flow.declare.table.class_body import Column, Table
from ematix_flow.plan.sql.shape.query import unsupported_on
from ematix_flow.types import JSON, BigInt, Boolean, String, Text
from tests.plan.sql.engines import duckdb_engine

if TYPE_CHECKING:
    from ematix_flow.declare.table.markers import Normalizer
    from tests.plan.sql.engines import Engine

TEXTS = [
    None, "", " ", "   ", "\t\n", " a ", "a", "A", "  Mixed Case ", "x@Y.Com ", "+49 (0)30-12 34", "tab\tin", "line\nend\n",
    "a.b.c", "aaa", "AbAb", "1", "0", "yes", "YES", "yes ", "No", "truE", "maybe", "100%", "back\\slash", "it's", "$1", "a1b22c333",
    "Straße", "\U0001f600b", "x" * 300, "null", "foo_bar-baz",
]  # fmt: skip

STEPS: dict[str, tuple[Normalizer, ...]] = {
    "trim": (n.trim(),),
    "lower_trim": (n.lower(), n.trim()),
    "upper": (n.replace("ß", "s"), n.upper()),
    "empty": (n.empty_to_null(),),
    "blank": (n.whitespace_to_null(),),
    "replace": (n.replace("a", "''"),),
    "backslash": (n.replace("\\", "/"),),
    "digits": (n.regex_replace(r"\d+", "#"),),
    "dot": (n.regex_replace(r"a.b", "-"),),
    "any": (n.regex_replace(r"n.e", "-"),),
    "end": (n.regex_replace(r"[a-z]$", "Z"),),
    "word": (n.regex_replace(r"[^\w]", "_"),),
    "space": (n.regex_replace(r"\s", ""),),
    "posix": (n.regex_replace("[[:alpha:]]+", "A"),),
    "case": (n.regex_replace("ab", "x", "gi"),),
    "newline": (n.regex_replace(r"\n", "|"),),
    "truncate": (n.truncate(3),),
    "email": (n.email_normalize(),),
    "phone": (n.phone_normalize(),),
    "default": (n.default("none"),),
    "nullif": (n.nullif("a"),),
    "chain": (n.trim(), n.empty_to_null(), n.not_null_or("?"), n.lower()),
}

EXPECTED: dict[str, dict[str | None, object]] = {
    "trim": {" a ": "a", "\t\n": "\t\n", "": "", None: None},
    "lower_trim": {"  Mixed Case ": "mixed case"},
    "empty": {"": None, " ": " ", "a": "a"},
    "blank": {"": None, "   ": None, "\t\n": None, " a ": "a"},
    "replace": {"aaa": "''''''", "A": "A"},
    "backslash": {"back\\slash": "back/slash"},
    "digits": {"a1b22c333": "a#b#c#"},
    "dot": {"a.b.c": "-.c"},
    "any": {"line\nend\n": "line\nend\n"},
    "end": {"line\nend\n": "line\nend\n", "aaa": "aaZ"},
    "case": {"AbAb": "xx"},
    "truncate": {"\U0001f600b": "\U0001f600b", "Straße": "Str"},
    "email": {"x@Y.Com ": "x@y.com"},
    "phone": {"+49 (0)30-12 34": "+490301234"},
    "default": {None: "none", "": ""},
    "nullif": {"a": None, "A": "A", "aaa": "aaa"},
    "chain": {None: "?", "   ": "?", "  Mixed Case ": "mixed case"},
}


def table_of_steps(steps: dict[str, tuple[Normalizer, ...]], declared: object = Text) -> Table:
    columns = tuple(Column(declared, name=name, normalizers=chain) for name, chain in steps.items())
    return Table("s", "t", (Column(BigInt, name="i", primary_key=True), *columns))


@pytest.mark.slow
def test_text_normalisers_give_the_same_text_everywhere(engine: Engine) -> None:
    table = table_of_steps(STEPS)
    rows = list(enumerate(TEXTS))
    shaped_rows = engine.shape(table, {"i": "integer", "c": "text"}, rows, column_map=dict.fromkeys(STEPS, "c"))
    by_text = {text: shaped_rows[i] for i, text in rows}
    for name, pairs in EXPECTED.items():
        for text, expected in pairs.items():
            assert by_text[text][name] == expected, (name, text)
    options = {"column_map": dict.fromkeys(STEPS, "c")}
    assert shaped_rows == duckdb_engine().shape(table, {"i": "integer", "c": "text"}, rows, **options)


@pytest.mark.parametrize(
    ("pattern", "replacement", "flags", "text", "expected"),
    [
        (r"(\w)(\d)", r"\2\1", "g", "a1b2", "1a2b"),
        (r"(\w)(\d)", r"\2\1", "", "a1b2", "1ab2"),
        (r"[0-9]", r"<\&>", "", "a1b2", "a<1>b2"),
        (r"b", "$1", "g", "abc", "a$1c"),
        (r"b", "\\\\", "g", "abc", "a\\c"),
        (r"^a", "", "", "aab", "ab"),
        (r"\bcat\b", "dog", "g", "cat concat cat", "dog concat dog"),
        (r"B", "x", "i", "abb", "axb"),
    ],
)
def test_regex_groups_and_first_matches(
    engine: Engine, pattern: str, replacement: str, flags: str, text: str, expected: str
) -> None:
    table = table_of_steps({"c": (n.regex_replace(pattern, replacement, flags),)})
    if unsupported_on(table, engine.dialect):
        assert engine.dialect == "mysql"
        return
    [row] = engine.shape(table, {"i": "integer", "c": "text"}, [(1, text)])
    assert row["c"] == expected


def test_words_become_booleans(engine: Engine) -> None:
    steps = {"usual": (n.parse_bool(),), "own": (n.parse_bool(truthy=("Maybe",), falsy=("a",)),)}
    table = table_of_steps(steps, Boolean)
    rows = list(enumerate(TEXTS))
    shaped_rows = engine.shape(table, {"i": "integer", "c": "text"}, rows, column_map=dict.fromkeys(steps, "c"))
    usual = {text: shaped_rows[i]["usual"] for i, text in rows}
    assert {w for w, v in usual.items() if v is True} == {"1", "yes", "YES", "truE"}
    assert {w for w, v in usual.items() if v is False} == {"0", "No"}
    assert {w: shaped_rows[i]["own"] for i, w in rows if shaped_rows[i]["own"] is not None} == {
        "maybe": True,
        "a": False,
        "A": False,
    }


def test_text_too_long_for_its_column_is_a_failure_unless_it_is_truncated(engine: Engine) -> None:
    table = table_of_steps({"c": (), "cut": (n.truncate(3),)}, String[3])
    rows: list[tuple[int, str | None]] = [(0, "abc"), (1, "abcd"), (2, None)]
    options = {"column_map": {"cut": "c"}}
    shaped_rows = engine.shape(table, {"i": "integer", "c": "text"}, rows, **options)
    assert [row["cut"] for row in shaped_rows] == ["abc", "abc", None]
    assert engine.failures(table, {"i": "integer", "c": "text"}, rows, **options) == [[], ["c"], []]


DOCUMENTS = {
    '["a","b"]': True, '[1,"t"]': True, '{"a":["b",""],"c":"d"}': True, r'["\",]"," nan"]': True, '[",]"]': True, "[]": True,
    '["a",]': False, '{"a":"b",}': False, "[1,]": False, '["a",NaN]': False, "[-Infinity]": False, '["a"': False,
}  # fmt: skip


def test_documents_are_told_from_what_only_duckdb_takes_for_one() -> None:
    table = Table("s", "t", (Column(BigInt, name="i", primary_key=True), Column(JSON, name="c")))
    rows = [(number, document) for number, document in enumerate(DOCUMENTS)]
    failures = duckdb_engine().failures(table, {"i": "integer", "c": "text"}, rows)
    assert [not failed for failed in failures] == list(DOCUMENTS.values())
