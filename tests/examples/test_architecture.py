"""Every function that the architecture page names stands where the page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
NAMED = re.findall(r"\[`([\w.]+)`\]\(\.\./(src/[\w/]+\.py)\)", PAGE.read_text(encoding="utf-8"))
STEPS = 12


@pytest.mark.parametrize(("name", "path"), sorted(set(NAMED)))
def test_what_is_named_is_there(name: str, path: str) -> None:
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    if name == Path(path).stem:
        return
    for part in name.split("."):
        nodes = [node for node in body if getattr(node, "name", "") == part]
        assert nodes, f"{path} has no {name}"
        body = getattr(nodes[0], "body", [])


def test_there_are_walks_that_can_be_followed() -> None:
    walks = re.findall(r"^## (.*?)\n(.*?)(?=^## )", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lengths = {title: len(re.findall(r"^\d+\. ", text, re.MULTILINE)) for title, text in walks}
    assert len(lengths) == 5
    assert all(0 < steps <= STEPS for steps in lengths.values()), lengths
