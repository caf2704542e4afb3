"""Streams under their public names: declaring, finding, running and writing them as TOML; nothing is defined here."""

from __future__ import annotations

from ematix_flow.declare.cdc import CDC
from ematix_flow.declare.pipeline import Source
from ematix_flow.declare.stateful import Aggregation, Join, Window
from ematix_flow.declare.stream_options import Lookup, StateStore, Watermark
from ematix_flow.declare.streaming import (
    get_streaming_pipeline,
    list_streaming_pipelines,
    register_streaming_pipeline,
    render_streaming_pipeline_toml,
    run_pipeline,
    run_streaming_pipeline,
)
from ematix_flow.declare.target import Target

__all__ = [
    "CDC",
    "Aggregation",
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
