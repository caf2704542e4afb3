"""Executors under their public names: where a scheduler has slots run; nothing is defined here."""

from __future__ import annotations

from ematix_flow.engine.executors.aws_lambda import LambdaExecutor
from ematix_flow.engine.executors.base import DispatchError, DispatchHandle, DispatchSpec, Executor
from ematix_flow.engine.executors.kubernetes import KubernetesExecutor
from ematix_flow.engine.executors.open import from_url
from ematix_flow.engine.executors.processes import SubprocessExecutor

__all__ = [
    "DispatchError",
    "DispatchHandle",
    "DispatchSpec",
    "Executor",
    "KubernetesExecutor",
    "LambdaExecutor",
    "SubprocessExecutor",
    "from_url",
]
