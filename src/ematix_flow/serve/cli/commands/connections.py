"""`flow connections` and `flow secrets`: what names mean and whether they answer; secrets are shown on request only."""

from __future__ import annotations

import click

from ematix_flow.serve.cli.common.errors import DONE, FAILED, USAGE, as_usage_error, print_error_text
from ematix_flow.serve.cli.common.lazy import NearGroup
from ematix_flow.serve.cli.common.options import common_options, format_option, load, module_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk

_MIN_PARTIAL_LENGTH = 12
"""Shorter secrets would be half revealed by their first and last characters."""


@click.group(cls=NearGroup)
def connections() -> None:
    """List, check or set connections."""


@connections.command("list")
@module_option
@format_option
@common_options
def list_(module: str | None, form: str) -> int:
    """Show every connection that a name means, and where it is written."""
    load(module, required=False)
    from ematix_flow.connect.config.lookup import HIDDEN, list_connections

    listed = list_connections()
    if form == "json":
        entries = [
            {"name": n, "kind": c.kind, "place": c.config_source, "shown": c.display_text} for n, c in listed.items()
        ]
        emit_json(entries, HIDDEN)
    elif listed:
        emit(
            table(
                ("NAME", "KIND", "FROM", "SETTINGS"),
                [(n, c.kind, c.config_source, c.display_text) for n, c in listed.items()],
            )
        )
    else:
        talk("no connections are configured; flow connections set NAME=URL writes one.")
    return DONE


@connections.command()
@click.argument("name")
@module_option
@format_option
@common_options
def check(name: str, module: str | None, form: str) -> int:
    """Open a connection and say whether it answers."""
    load(module, required=False)
    from ematix_flow.connect.config.lookup import find_connection
    from ematix_flow.engine.doctor import check_health

    with as_usage_error():
        find_connection(name)
    report = check_health(name)
    if form == "json":
        emit_json(report.to_dict())
    elif report.status != "fail":
        emit(f"{name}: {report.status} ({report.detail}, {report.elapsed_ms} ms)")
    if report.status == "fail":
        print_error_text(report.detail if name in report.detail else f"connection {name!r}: {report.detail}")
        return USAGE
    return DONE


@connections.command("set")
@click.argument("arguments", nargs=-1, required=True, metavar="NAME=URL | NAME key=value ...")
@common_options
def set_(arguments: tuple[str, ...]) -> int:
    r"""Write a connection into your own file, ~/.ematix-flow/connections.toml.

    \b
    flow connections set warehouse=postgres://me@host/db
    flow connections set warehouse url=postgres://me@host/db
    flow connections set raw kind=files path=data format=csv
    """
    from ematix_flow.connect.config.lookup import set_connection

    name, fields = _fields(arguments)
    with as_usage_error():
        path = set_connection(name, fields)
    talk(f"connection {name!r} is written to {path}.")
    return DONE


def _fields(arguments: tuple[str, ...]) -> tuple[str, dict[str, object]]:
    """Return the name and the fields of the arguments."""
    first, *remaining = arguments
    if "=" in first:
        name, _, url = first.partition("=")
        pairs = [f"url={url}", *remaining]
    else:
        name, pairs = first, remaining
    fields = dict(pair.partition("=")[::2] for pair in pairs)
    if not name or not fields or not all("=" in pair and fields[pair.partition("=")[0]] for pair in pairs):
        raise click.UsageError("a connection is written as NAME=URL, or as NAME and key=value pairs.")
    return name, dict(fields)


@click.group(cls=NearGroup)
def secrets() -> None:
    """Try a reference to a secret."""


@secrets.command()
@click.argument("reference")
@click.option("--show", is_flag=True, help="Print the secret itself.")
@module_option
@common_options
def test(reference: str, show: bool, module: str | None) -> int:
    """Resolve NAME, prefix:reference or ${...} and say whether that works."""
    load(module, required=False)
    from ematix_flow.connect.config.secrets import expand
    from ematix_flow.errors import MissingSecretError

    try:
        value = expand(reference if "${" in reference else f"${{{reference}}}")
    except MissingSecretError as error:
        print_error_text(error.what, error.hint)
        return FAILED
    emit(value if show else _veiled(value))
    return DONE


def _veiled(value: str) -> str:
    ends = f"{value[:2]}...{value[-2:]}" if len(value) >= _MIN_PARTIAL_LENGTH else "***"
    return f"{ends} ({len(value)} chars)"
