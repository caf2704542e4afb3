"""`flow dag`: what waits for what, as a tree, for Mermaid or as JSON, with the status of each; it changes nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.declare.project import PROJECT
from ematix_flow.serve.cli.common.errors import DONE
from ematix_flow.serve.cli.common.options import common_options, load, module_option, read_log, run_log_options
from ematix_flow.serve.cli.common.output import emit, emit_json, paint, talk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.plan.schedule.graph import Edge, Graph, Node

    States = Mapping[Node, str]

_SHAPES = {"pipeline": ("[", "]"), "workflow": ("{{", "}}"), "stream": ("([", "])")}
_ARROWS = {"depends_on": "-->", "triggers": "-. sets off .->", "job": "-.->"}
_COLOURS = {"success": "green", "running": "cyan", "failure": "red", "gave_up": "red", "interrupted": "red"}
_FILLS = {"success": "#d3f9d8", "running": "#d0ebff", "failure": "#ffe3e3", "paused": "#fff3bf"}


@click.command()
@module_option
@run_log_options
@click.option(
    "--format", "form", type=click.Choice(["text", "mermaid", "json"]), default="text", show_default=True,
    help="A tree, a picture for Markdown, or for programs.",
)  # fmt: skip
@common_options
def dag(module: str | None, form: str, **location: Any) -> int:
    """Show what waits for what: depends_on= and workflows, each with how it stands."""
    load(module)
    from ematix_flow.plan.schedule.graph import graph_of

    graph = graph_of(PROJECT)
    if not graph.nodes:
        talk("the module declares no pipelines, workflows or streams.")
        return DONE
    states = _states(**location)
    if form == "json":
        from ematix_flow.engine.report.graph import graph_dict

        emit_json(graph_dict(graph, states))
    else:
        emit(_mermaid(graph, states) if form == "mermaid" else "\n".join(Tree(graph, states).lines()))
    return DONE


def _states(**location: Any) -> States:
    from ematix_flow.engine.report.graph import states_by_node
    from ematix_flow.engine.schedule.status import pipeline_statuses

    return states_by_node(pipeline_statuses(read_log(**location), SYSTEM_CLOCK.now()))


def _mermaid(graph: Graph, states: States) -> str:
    ids = {node: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node, name in ids.items():
        left, right = _SHAPES[node.kind]
        label = node.name.replace('"', "#quot;")
        lines.append(f'    {name}{left}"{label}<br/>{states[node]}"{right}')
    lines += [f"    {ids[one.first]} {_ARROWS[one.why]} {ids[one.second]}" for one in graph.edges]
    for state, fill in _FILLS.items():
        those = [name for node, name in ids.items() if states[node] == state]
        lines += [f"    style {name} fill:{fill}" for name in those]
    return "\n".join(lines)


class Tree:
    """The graph as lines; what several wait for is below the first of them in full, and below the others by name."""

    def __init__(self, graph: Graph, states: States) -> None:
        self._roots, self._after, self._states = graph.roots(), graph.after(), states
        self._visited: set[Node] = set()
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        """Return the lines of the tree."""
        for root in (*self._roots, *self._after):  # a circle of workflows has no root
            if root not in self._visited:
                self._add(root, "", "")
        return self._lines

    def _add(self, node: Node, lead: str, below: str) -> None:
        again = node in self._visited
        self._visited.add(node)
        edges = self._after[node]
        more = " (see above)" if again and edges else ""
        state = self._states[node]
        label = node.name if node.kind == "pipeline" else f"{node.kind} {node.name}"
        badge = paint(f"[{state}]", _COLOURS.get(state, "dim"), sys.stdout)
        self._lines.append(f"{lead}{label} {badge}{more}")
        if again:
            return
        for number, edge in enumerate(edges):
            last = number + 1 == len(edges)
            self._add(edge.second, f"{below}{_branch(edge, last=last)}", f"{below}{'    ' if last else '│   '}")


def _branch(edge: Edge, *, last: bool) -> str:
    line = "─" if edge.why == "depends_on" else "╌"
    return f"{'└' if last else '├'}{line}{line} "
