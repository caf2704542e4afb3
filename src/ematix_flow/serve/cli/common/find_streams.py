"""Finds the streams that a command line names: by name in a module, as a file, or all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.stream.stream import Stream
from ematix_flow.errors import FlowError
from ematix_flow.serve.cli.common.errors import UsageRefusedError, as_usage_error
from ematix_flow.serve.cli.common.options import load, module_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ematix_flow.declare.stream.replication import Replication


def stream_named(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument and options that name one stream."""
    help_text = "File with the stream, where it is not in a module."
    command = click.option("--config", metavar="FILE", help=help_text)(module_option(command))
    return click.argument("name")(command)


def is_file(name: str) -> bool:
    """Return whether a name on the command line means a file with a stream."""
    return name.endswith(".toml")


def find_streams(
    names: Sequence[str],
    module: str | None,
    *,
    everything: bool = False,
    unknown: dict[str, FlowError] | None = None,
) -> list[Stream]:
    """Return the streams that are named; `everything` means all streams of the module.

    `unknown` gets the errors of replications whose source does not say which streams they have; without it they are raised.
    """
    if everything == bool(names):
        raise click.UsageError("which streams? Give names, files that end in .toml, or --all.")
    if everything or not all(is_file(name) for name in names):
        load(module)
    selected = list(names) or sorted([*PROJECT.streams, *PROJECT.replications])
    if not selected:
        raise click.UsageError("the module declares no streams.")
    streams: list[Stream] = []
    for name in selected:
        try:
            streams += _streams(name)
        except FlowError as error:
            if unknown is None:
                raise
            unknown[name] = error
    return streams


def find_stream(name: str, module: str | None, config: str | None = None) -> Stream:
    """Return one stream; `config` is a file that has it."""
    streams = find_named(name, module, config)
    if len(streams) > 1:
        known = ", ".join(stream.name for stream in streams)
        raise click.UsageError(f"{name!r} is a replication; which of its streams? It has: {known}.")
    return streams[0]


def find_named(name: str, module: str | None, config: str | None = None) -> list[Stream]:
    """Return the stream of a name, or all of a replication; `config` is a file that has it."""
    if config is None:
        return find_streams([name], module)
    declared = _in_file(config)
    streams = _streams_of(declared)
    chosen = streams if declared.name == name else [stream for stream in streams if stream.name == name]
    if not chosen:
        kind = "stream" if isinstance(declared, Stream) else "replication"
        raise click.UsageError(f"the {kind} in {config} is {declared.name!r}, not {name!r}.")
    return chosen


def _streams(name: str) -> list[Stream]:
    """Return the streams that a name means: one, or those of a replication; of which one can be named too."""
    if is_file(name):
        return _streams_of(_in_file(name))
    owner = name if name in PROJECT.replications else name.partition(".")[0]
    if name in PROJECT.streams or owner not in PROJECT.replications:
        with as_usage_error():
            return [PROJECT.stream(name)]
    streams = _streams_of(PROJECT.replications[owner])
    chosen = [stream for stream in streams if name in (owner, stream.name)]
    if not chosen:
        known = ", ".join(stream.name for stream in streams)
        raise click.UsageError(f"replication {owner!r} has no stream {name!r}; it has: {known}.")
    return chosen


def _streams_of(declared: Stream | Replication) -> list[Stream]:
    if isinstance(declared, Stream):
        return [declared]
    from ematix_flow.engine.stream.replication import streams_of

    return streams_of(declared)


def _in_file(name: str) -> Stream | Replication:
    from ematix_flow.declare.stream.replication_toml import load_declaration

    if not Path(name).is_file():
        raise click.UsageError(f"there is no file {name}.")
    try:
        return load_declaration(name)
    except FlowError as error:
        raise UsageRefusedError(error) from error
