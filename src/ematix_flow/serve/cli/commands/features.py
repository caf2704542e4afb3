"""`flow features`: the feature views of a module, how fresh they are, their online stores and training sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ematix_flow.serve.cli.common.errors import DONE, FAILED, as_usage_error
from ematix_flow.serve.cli.common.lazy import NearGroup
from ematix_flow.serve.cli.common.options import common_options, format_option, load, module_option
from ematix_flow.serve.cli.common.output import emit, emit_json, table, talk
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.engine.features.registry import Loaded


@click.group(cls=NearGroup)
def features() -> None:
    """Show feature views, check how fresh they are, build online stores and replay training sets."""


def _connection_option(command: Callable[..., Any]) -> Callable[..., Any]:
    help_text = "Look there instead of where the module's pipelines load to."
    return click.option("--connection", metavar="NAME", help=help_text)(command)


@features.command("list")
@module_option
@_connection_option
@format_option
@common_options
def list_(module: str | None, connection: str | None, form: str) -> int:
    """Show every feature view and when it was loaded last."""
    results = _loaded(module, None, connection)
    if form == "json":
        emit_json([one.to_dict() for one in results])
    elif results:
        rows = [_row(one) for one in results]
        emit(table(("VIEW", "KEYS", "ONLINE", "CONNECTION", "STATE", "LOADED"), rows))
    else:
        talk("the module declares no feature view.")
    return DONE


@features.command()
@click.argument("name")
@module_option
@_connection_option
@format_option
@common_options
def show(name: str, module: str | None, connection: str | None, form: str) -> int:
    """Show one feature view: SCHEMA.TABLE.VERSION, or its table."""
    results = _loaded(module, name, connection)
    if form == "json":
        emit_json([one.to_dict() for one in results])
        return DONE
    for one in results:
        emit(table(("FIELD", "VALUE"), [(key, _text(value)) for key, value in one.to_dict().items()]))
    return DONE


@features.command()
@click.argument("name")
@module_option
@_connection_option
@format_option
@common_options
def materialize(name: str, module: str | None, connection: str | None, form: str) -> int:
    """Build the online store of a view again from its versions; loads do so by themselves."""
    load(module)
    from ematix_flow.declare.project import PROJECT
    from ematix_flow.engine.features.registry import materialize_view

    with as_usage_error():
        PROJECT.feature_view(name)
    done = materialize_view(name, connection)
    if form == "json":
        emit_json({"view": name, "connections": done})
    else:
        emit(f"{name}: built in {', '.join(done)}")
    return DONE


@features.command()
@click.argument("name", required=False)
@module_option
@_connection_option
@format_option
@common_options
def check(name: str | None, module: str | None, connection: str | None, form: str) -> int:
    """Check the views with a freshness_sla=; exits 1 if any is too old, was never loaded or is out of reach."""
    results = [one for one in _loaded(module, name, connection) if one.to_dict()["freshness_sla_seconds"] is not None]
    if form == "json":
        emit_json([one.to_dict() for one in results])
    elif results:
        limits = [one.to_dict() for one in results]
        rows = [(d["name"], d["connection"], d["state"], d["age_seconds"], d["freshness_sla_seconds"]) for d in limits]
        emit(table(("VIEW", "CONNECTION", "STATE", "AGE (S)", "LIMIT (S)"), rows))
    else:
        talk("no feature view of the module has a freshness_sla=.")
    for one in results:
        if one.note:
            talk(f"{one.view.qualified_name}: {one.note}")
    return FAILED if any(one.failing for one in results) else DONE


@features.command()
@click.argument("manifest", type=click.Path(exists=True, dir_okay=False))
@module_option
@_connection_option
@format_option
@common_options
def replay(manifest: str, module: str | None, connection: str | None, form: str) -> int:
    """Build the training set of a MANIFEST again; exits 1 if its values are not the same."""
    load(module)
    from ematix_flow.engine.features import manifest as manifests

    result = manifests.replay(manifest, connection)
    if form == "json":
        emit_json(result)
    else:
        emit("\n".join(result["differences"]) or f"the same {quantity(result['rows'], 'row')}")
    return DONE if result["same"] else FAILED


def _loaded(module: str | None, name: str | None, connection: str | None) -> list[Loaded]:
    load(module)
    from ematix_flow.declare.project import PROJECT
    from ematix_flow.engine.features.registry import loaded_views

    if name is not None:
        with as_usage_error():
            PROJECT.feature_view(name)
    return loaded_views(name, connection)


def _row(one: Loaded) -> tuple[object, ...]:
    fields = one.to_dict()
    keys, online = ", ".join(fields["entity_keys"]), "yes" if fields["online"] else ""
    return fields["name"], keys, online, one.connection, one.state, fields["last_synced_at"] or ""


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
