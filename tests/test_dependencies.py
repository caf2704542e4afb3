"""What is installed with the product is what it imports."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOT_IMPORTED = {"tzdata"}
"""Zone files for machines without them."""

NOT_INSTALLED = {"google_cloud_bigquery": {"google"}, "snowflake_connector_python": {"snowflake"}}
"""The modules of packages that the tests do without."""


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("-", "_")


def _mentioned() -> set[str]:
    """Return the names of all modules that a source imports, or names in a text, as what is optional is imported by name."""
    imported: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 80:
                imported.add(node.value)
    return imported


@pytest.mark.slow
def test_every_dependency_is_imported_or_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name: needed for name, needed in project["optional-dependencies"].items() if name != "dev"}
    named = {_name(one) for one in [*project["dependencies"], *(one for some in extras.values() for one in some)]}
    modules: dict[str, set[str]] = dict(NOT_INSTALLED)
    for module, owners in packages_distributions().items():
        for owner in owners:
            modules.setdefault(_name(owner), set()).add(module)
    mentioned = {name.partition(".")[0] for name in _mentioned()}
    unused = {name for name in named - {"ematix_flow_spark"} if not modules.get(name, {name}) & mentioned}
    assert unused == NOT_IMPORTED
