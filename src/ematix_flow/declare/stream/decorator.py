"""Declares streams and finds them again: the decorator, the functions that run one at once, and the names of all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.origin import caller_origin
from ematix_flow.declare.pipeline.pipeline import arguments_of
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.declare.stream.handle import StreamHandle, run
from ematix_flow.declare.stream.toml_reader import stream_from_toml
from ematix_flow.declare.stream.toml_writer import toml_of
from ematix_flow.declare.toml import read_text
from ematix_flow.errors import DeclareError, DeclareTypeError, FlowError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from ematix_flow.declare.stream.stream import Stream


def streaming_pipeline(**keywords: Any) -> Callable[[Callable[[], Any]], StreamHandle]:
    """Declare a stream under a function's name; the keywords declare everything, so the function's body is not used."""
    origin = caller_origin()

    def declare(function: Callable[[], Any]) -> StreamHandle:
        try:
            if arguments_of(function):
                message = f"{function.__name__}() takes arguments, which no run could fill"
                raise DeclareTypeError(message, hint="a streaming pipeline is a function without arguments.")
            stream = stream_from_keywords({"name": function.__name__, **keywords}, origin)
            PROJECT.add_stream(stream)
        except FlowError as error:
            raise error.at(origin) from None
        return StreamHandle(stream, function)

    return declare


def run_streaming_pipeline(**keywords: Any) -> dict[str, Any]:
    """Run a stream that is declared by these keywords, until it is stopped, and return the counts."""
    origin = caller_origin()
    try:
        stream = stream_from_keywords(keywords, origin)
    except FlowError as error:
        raise error.at(origin) from None
    return run(stream)


def run_pipeline(
    *,
    config: str | os.PathLike[str] | None = None,
    config_str: str | None = None,
    metrics_port: int | None = None,
    pipeline_name: str | None = None,
    run_log_url: str | None = None,
) -> dict[str, Any]:
    """Run the stream of a TOML file or text, until it is stopped, and return the counts."""
    stream = load_stream(config, config_str)
    if pipeline_name not in (None, stream.name):
        message = f"the configuration is of stream {stream.name!r}, not {pipeline_name!r}"
        raise DeclareError(
            message, hint="a stream's position is remembered under its name; change pipeline_name there."
        )
    options = {} if run_log_url is None else {"run_log_url": run_log_url}
    return run(stream, metrics_port=metrics_port, **options)


def load_stream(config: str | os.PathLike[str] | None = None, config_str: str | None = None) -> Stream:
    """Return the stream of a TOML file or text."""
    if (config is None) == (config_str is None):
        message = "a stream is read from exactly one of config= and config_str="
        raise DeclareError(message)
    if config is None:
        return stream_from_toml(config_str or "")
    return stream_from_toml(read_text(config), str(Path(config)))


def register_streaming_pipeline(name: str, captured: Mapping[str, Any]) -> StreamHandle:
    """Declare a stream without a function: its name and its keywords."""
    origin = caller_origin()
    try:
        stream = stream_from_keywords({**captured, "name": name}, origin)
        PROJECT.add_stream(stream)
    except FlowError as error:
        raise error.at(origin) from None
    return StreamHandle(stream)


def get_streaming_pipeline(name: str) -> StreamHandle:
    """Return a declared stream, ready to be called."""
    return StreamHandle(PROJECT.stream(name))


def list_streaming_pipelines() -> list[str]:
    """Return the names of the declared streams, sorted."""
    return sorted(PROJECT.streams)


def render_streaming_pipeline_toml(name: str) -> str:
    """Return a declared stream as the TOML that declares the same; what was written as `${...}` stays so."""
    return toml_of(PROJECT.stream(name))
