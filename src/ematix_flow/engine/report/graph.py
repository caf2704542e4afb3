"""What waits for what, with how each stands: the graph of `flow dag` and of the pages; it changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.plan.schedule.graph import Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ematix_flow.engine.schedule.status import PipelineStatus
    from ematix_flow.plan.schedule.graph import Graph

_CALM = ("idle", "due", "waiting")


def states_by_node(statuses: Iterable[PipelineStatus]) -> dict[Node, str]:
    """Return the status of each as one word: what it does now, or else how its last run ended."""
    return {
        Node(one.name, one.kind): (one.outcome or "never ran") if one.state in _CALM else one.state for one in statuses
    }


def graph_dict(graph: Graph, states: Mapping[Node, str]) -> dict[str, Any]:
    """Return the graph as plain data."""
    return {
        "nodes": [{"name": node.name, "kind": node.kind, "state": states[node]} for node in graph.nodes],
        "edges": [
            {
                "from": edge.first.name,
                "from_kind": edge.first.kind,
                "to": edge.second.name,
                "to_kind": edge.second.kind,
                "why": edge.why,
            }
            for edge in graph.edges
        ],
    }
