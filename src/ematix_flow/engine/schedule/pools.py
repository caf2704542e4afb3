"""Pools: how many pipelines of a group run at the same time, counted by the leases that are held; sizes are declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.connect.config.sources import project_table
from ematix_flow.errors import DeclareError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.project import Project

ONE = 1
"""Size of a pool that is declared without one."""


def pool_sizes(project: Project) -> dict[str, int]:
    """Return the sizes of pools: those of the project file, replaced by those of the module."""
    sizes: dict[str, int] = {}
    for name, size in {**project_table("pools"), **project.pools}.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            message = f"pool {name!r} has the size {size!r}, which is no whole number of at least 1"
            raise DeclareError(message, hint="[pools] warehouse = 2.")
        sizes[name] = size
    return sizes


def full(pipeline: Pipeline, held: Mapping[str, str], project: Project, sizes: Mapping[str, int]) -> str:
    """Return the message that a pipeline's pool is full; empty when it is not, or when there is no pool."""
    if not pipeline.pool:
        return ""
    size = sizes.get(pipeline.pool, ONE)
    others = sorted(
        name
        for name in held
        if name != pipeline.name and name in project.pipelines and project.pipelines[name].pool == pipeline.pool
    )
    return f"pool {pipeline.pool} is full ({', '.join(others)})" if len(others) >= size else ""
