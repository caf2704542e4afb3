"""Streams under their public names: declaring, finding, running and writing them as TOML; nothing is defined here."""

from __future__ import annotations

from ematix_flow.declare.pipeline.pipeline import Source
from ematix_flow.declare.pipeline.targets import Target
from ematix_flow.declare.stream.cdc import CDC
from ematix_flow.declare.stream.decorator import (
    get_streaming_pipeline,
    list_streaming_pipelines,
    register_streaming_pipeline,
    render_streaming_pipeline_toml,
    run_pipeline,
    run_streaming_pipeline,
)
from ematix_flow.declare.stream.options import Lookup, StateStore, Watermark
from ematix_flow.declare.stream.windows import Aggregation, Dedupe, Join, Window

__all__ = [
    "CDC",
    "Aggregation",
    "Dedupe",
    "Join",
    "Lookup",
    "Source",
    "StateStore",
    "Target",
    "Watermark",
    "Window",
    "get_streaming_pipeline",
    "list_streaming_pipelines",
    "register_streaming_pipeline",
    "render_streaming_pipeline_toml",
    "run_pipeline",
    "run_streaming_pipeline",
]
