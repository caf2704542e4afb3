"""Pipelines, workflows and streams as a graph: what waits for what; it knows nothing of how their runs went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ematix_flow.declare.project import Project
    from ematix_flow.declare.schedule.workflow import Workflow

PIPELINE, WORKFLOW, STREAM = "pipeline", "workflow", "stream"
DEPENDS_ON, TRIGGERS, JOB = "depends_on", "triggers", "job"


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """Something that runs; a pipeline and a workflow may share a name."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Edge:
    """The second waits for the first, for one of three reasons."""

    first: Node
    second: Node
    why: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything that a project declares to run, in the order it was declared, workflows after their jobs."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def roots(self) -> list[Node]:
        """Return what waits for nothing."""
        waiting = {edge.second for edge in self.edges}
        return [node for node in self.nodes if node not in waiting]

    def after(self) -> dict[Node, list[Edge]]:
        """Return the edges that leave each node."""
        outgoing: dict[Node, list[Edge]] = {node: [] for node in self.nodes}
        for edge in self.edges:
            outgoing[edge.first].append(edge)
        return outgoing


def graph_of(project: Project) -> Graph:
    """Return the graph of a project."""
    nodes = [Node(name, PIPELINE) for name in project.pipelines]
    nodes += [Node(name, STREAM) for name in project.streams]
    nodes += [Node(name, WORKFLOW) for name in project.workflows]
    edges = [
        Edge(Node(upstream, PIPELINE), Node(pipeline.name, PIPELINE), DEPENDS_ON)
        for pipeline in project.pipelines.values()
        for upstream in pipeline.depends_on
    ]
    for workflow in project.workflows.values():
        edges += _around(workflow, project)
    return Graph(tuple(nodes), tuple(edges))


def _around(workflow: Workflow, project: Project) -> list[Edge]:
    """Return what sets a workflow off, and the jobs that it sets off; a job behind another one waits for that one only."""
    own_node = Node(workflow.name, WORKFLOW)
    edges = []
    for name in workflow.triggered_by.leaves() if workflow.triggered_by else ():
        kind = WORKFLOW if name in project.workflows else PIPELINE
        edges.append(Edge(Node(name, kind), own_node, TRIGGERS))
    own = {name for name in workflow.jobs if project.jobs.get(name) is workflow}
    for name in workflow.jobs:
        if name in project.streams:
            edges.append(Edge(own_node, Node(name, STREAM), JOB))
        elif name in own and own.isdisjoint(project.pipelines[name].depends_on):
            edges.append(Edge(own_node, Node(name, PIPELINE), JOB))
    return edges
