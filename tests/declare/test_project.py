"""The declarations of a process: unique names, known upstreams, an order, and modules that can be loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ematix_flow.declare.pipeline.pipeline import Pipeline, Transform
from ematix_flow.declare.project import Project, load_module
from ematix_flow.errors import DeclareError, Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

ORIGIN, THERE = Origin("flows.py", 3), Origin("flows.py", 9)


def _nothing() -> None:
    return None


def _pipeline(name: str, *upstreams: str, origin: Origin | None = ORIGIN) -> Pipeline:
    return Pipeline(name, _nothing, (), depends_on=upstreams, origin=origin)


@pytest.fixture
def project() -> Project:
    return Project()


def test_a_name_is_taken_once_and_the_error_names_both_places(project: Project) -> None:
    project.add_pipeline(_pipeline("ingest"))
    with pytest.raises(ValueError, match="a pipeline named 'ingest' is declared already") as caught:
        project.add_pipeline(_pipeline("ingest", origin=THERE))
    assert "flows.py:3" in str(caught.value)
    assert "flows.py:9" in str(caught.value)


def test_a_transform_name_is_taken_once_but_may_equal_a_pipeline(project: Project) -> None:
    project.add_pipeline(_pipeline("mart"))
    project.add_transform(Transform("mart", _nothing, origin=ORIGIN))
    with pytest.raises(ValueError, match="a transform named 'mart' is declared already") as caught:
        project.add_transform(Transform("mart", _nothing, origin=THERE))
    assert "flows.py:9" in str(caught.value)


def test_upstreams_come_first_and_the_nearest_name_is_offered(project: Project) -> None:
    project.add_pipeline(_pipeline("ingest_events"))
    with pytest.raises(ValueError, match="depends on 'ingest_event', which is not declared before it") as caught:
        project.add_pipeline(_pipeline("rollup", "ingest_event"))
    assert "did you mean 'ingest_events'?" in str(caught.value)
    assert "rollup" not in project.pipelines


def test_nothing_depends_on_itself(project: Project) -> None:
    with pytest.raises(ValueError, match="'loop' depends on itself"):
        project.add_pipeline(_pipeline("loop", "loop"))


@pytest.mark.parametrize(("what", "known"), [("pipeline", "ingest"), ("transform", "update_mart")])
def test_an_unknown_name_is_a_key_error_that_names_the_nearest(project: Project, what: str, known: str) -> None:
    project.add_pipeline(_pipeline("ingest"))
    project.add_transform(Transform("update_mart", _nothing))
    with pytest.raises(KeyError) as caught:
        getattr(project, what)(known[:-1])
    assert f"no {what} named {known[:-1]!r}" in str(caught.value)
    assert f"did you mean {known!r}?" in str(caught.value)


def test_the_order_puts_upstreams_first_and_keeps_the_rest(project: Project) -> None:
    for pipeline in (_pipeline("a"), _pipeline("b", "a"), _pipeline("c"), _pipeline("d", "b", "c")):
        project.add_pipeline(pipeline)
    order = project.order(["d", "c", "b", "a"])
    assert order.index("a") < order.index("b") < order.index("d")
    assert order.index("c") < order.index("d")
    assert project.order(["c", "a"]) == ["c", "a"]


def test_edges_that_leave_the_set_do_not_count(project: Project) -> None:
    project.add_pipeline(_pipeline("a"))
    project.add_pipeline(_pipeline("b", "a"))
    assert project.order(["b"]) == ["b"]


def test_a_circle_is_shown_as_a_path(project: Project) -> None:
    project.pipelines = {"a": _pipeline("a", "b"), "b": _pipeline("b", "a")}
    with pytest.raises(ValueError, match=r"in a circle: (a -> b -> a|b -> a -> b)"):
        project.order(["a", "b"])


@pytest.fixture
def own_path() -> Iterator[None]:
    before, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if name.startswith("flows_of_"):
            del sys.modules[name]


@pytest.mark.usefixtures("own_path")
def test_a_module_of_the_current_folder_is_loaded() -> None:
    Path("flows_of_today.py").write_text("answer = 42\n")
    assert load_module("flows_of_today").answer == 42


@pytest.mark.usefixtures("own_path")
@pytest.mark.parametrize("name", ["", "no such", "../flows", "flows.py:x", "a..b"])
def test_what_cannot_be_a_module_name_is_refused(name: str) -> None:
    with pytest.raises(DeclareError, match="is not the name of a Python module"):
        load_module(name)


@pytest.mark.usefixtures("own_path")
def test_a_missing_module_is_told_from_a_missing_import_inside_it() -> None:
    with pytest.raises(DeclareError, match="no module named 'flows_of_nowhere' can be imported"):
        load_module("flows_of_nowhere")
    Path("flows_of_trouble.py").write_text("import flows_of_nowhere\n")
    with pytest.raises(ModuleNotFoundError, match="flows_of_nowhere"):
        load_module("flows_of_trouble")


@pytest.mark.usefixtures("own_path")
def test_a_module_that_python_would_import_its_own_for_is_refused() -> None:
    Path("pipes.py").write_text("answer = 42\n")
    with pytest.raises(DeclareError, match=r"'pipes' is a module of Python itself.* instead of pipes\.py"):
        load_module("pipes")
    assert load_module("json").dumps


@pytest.mark.parametrize("name", ["", None, "_scheduler_singleton", "workflow:w"])
def test_a_name_that_is_empty_or_that_the_run_log_uses_itself_is_refused(project: Project, name: str) -> None:
    with pytest.raises(DeclareError) as caught:
        project.add_pipeline(_pipeline(name, origin=ORIGIN))
    assert repr(name) in str(caught.value)
    assert "flows.py:3" in str(caught.value)
    assert not project.pipelines
