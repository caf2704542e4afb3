"""How the modules of the product depend on each other, how large they are, and which of them know our metadata tables."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.plan.metadata_tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

pytestmark = pytest.mark.xdist_group("architecture")  # one process reads all modules

SOURCE = Path(__file__).parents[1] / "src"

LAZY_API = {
    "ematix_flow.connect": {"ematix_flow.engine.api.references"},
    "ematix_flow.declare.connection.frame_methods": {"ematix_flow.engine.frames.interop"},
    "ematix_flow.declare.decorators": {"ematix_flow.engine.frames.dataset", "ematix_flow.engine.spark.warm"},
    "ematix_flow.declare.pipeline.handle": {"ematix_flow.engine"},
    "ematix_flow.declare.stream.handle": {"ematix_flow.engine.review.stream", "ematix_flow.engine.stream.run"},
    "ematix_flow.declare.table.class_body": {"ematix_flow.engine"},
    "ematix_flow.engine.connection": {"ematix_flow.engine"},
}
"""What users hold and call names what runs it, which is above it, and loads that at the call; nothing else may."""


@cache
def _modules() -> dict[str, ast.Module]:
    """Return every module of the product by its name."""
    imports = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        imports[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text("utf-8"))
    return imports


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs: all nodes but those for type checkers, and the name of a program that a command line starts."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.List) and any(isinstance(one, ast.Constant) and one.value == "-m" for one in node.elts):
            continue
        yield node
        left.extend(ast.iter_child_nodes(node))


def _imported(module: ast.Module, known: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the modules that a module imports, at its top or in a function, and those that it names in a text.

    What is named may be imported by `importlib`, alone or as `module:Class`.
    """
    imported, named = set(), set()
    for node in _nodes(module):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            imported.update(whole.intersection(known) or {str(node.module)})
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named.add(node.value.partition(":")[0])
    return imported.intersection(known), named.intersection(known)


def _cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, the first one again at the end."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])[::-1]
    return []


@pytest.mark.slow
def test_no_module_imports_itself_over_others() -> None:
    graph, unused = {}, {}
    for name, module in _modules().items():
        imported, named = _imported(module, _modules())
        above = LAZY_API.get(name, set())
        graph[name], unused[name] = imported | named - above - {name}, above - named
    assert _cycle(graph) == []
    assert not any(unused.values())


def test_a_circle_through_a_function_is_found_and_one_for_type_checkers_is_none() -> None:
    lazy = {"a": "import b", "b": "def f():\n    from a import g"}
    typed = {"a": "import b", "b": "if TYPE_CHECKING:\n    from a import g"}
    named = {"a": "import b", "b": "importlib.import_module('a')"}
    for sources, circle in ((lazy, True), (typed, False), (named, True)):
        graph = {name: set().union(*_imported(ast.parse(text), sources)) for name, text in sources.items()}
        assert bool(_cycle(graph)) is circle


_STATEMENT = re.compile(rf"\b(?:FROM|INTO|UPDATE|TABLE|JOIN|EXISTS)\s+(?:ematix_flow[._])?(?:{'|'.join(TABLES)})\b")
"""SQL with the name of a metadata table in it."""

_NAMING = ("metadata_table", "name")
"""Methods that return the name of a metadata table in SQL."""


def _metadata_sql(module: ast.Module) -> list[int]:
    """Return the lines in which a module names a metadata table for a statement."""
    lines = []
    for node in _nodes(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _STATEMENT.search(node.value):
            lines.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _NAMING:
            lines += [one.lineno for one in node.args if isinstance(one, ast.Constant) and one.value in TABLES]
    return lines


@pytest.mark.slow
def test_rooms_modules_and_functions_stay_small() -> None:
    # The root is not a room: its modules are the names that users import, and the lowest layer.
    folders = Counter(path.parent for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    assert {
        folder.name: count for folder, count in folders.items() if count > 22 and folder.name != "ematix_flow"
    } == {}
    lengths = {str(path): len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert {path: lines for path, lines in lengths.items() if lines > 400} == {}
    functions = {
        f"{name}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, module in _modules().items()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in functions.items() if lines > 60} == {}


@pytest.mark.slow
def test_only_commit_has_sql_about_our_metadata_tables() -> None:
    others = {
        name: lines
        for name, module in _modules().items()
        if not name.startswith("ematix_flow.commit.")
        and name != "ematix_flow.plan.metadata_tables"
        and (lines := _metadata_sql(module))
    }
    assert others == {}


def test_sql_about_metadata_tables_is_found_however_it_is_written() -> None:
    for text in (
        """f"SELECT slot FROM {ledger.name('ledger')} WHERE slot = ?\"""",
        '"DELETE FROM ematix_flow_rejects"',
        '"UPDATE ematix_flow.watermarks SET last_value = ?"',
        'native_name(database.metadata_table("run_history"), "duckdb")',
    ):
        assert _metadata_sql(ast.parse(text)) == [1], text
    assert _metadata_sql(ast.parse('"SELECT 1 FROM orders", declared.name("x")')) == []
