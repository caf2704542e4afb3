"""Pipelines between cloud warehouses under their public names; nothing is defined here."""

from __future__ import annotations

from ematix_flow.connect.warehouse.watermarks import FileWatermarkStore
from ematix_flow.declare.pipeline.warehouse import (
    WarehouseHandle,
    WarehouseLoad,
    WarehouseSource,
    WarehouseTarget,
    WatermarkStore,
    warehouse_pipeline,
)

__all__ = [
    "FileWatermarkStore",
    "WarehouseHandle",
    "WarehouseLoad",
    "WarehouseSource",
    "WarehouseTarget",
    "WatermarkStore",
    "warehouse_pipeline",
]
