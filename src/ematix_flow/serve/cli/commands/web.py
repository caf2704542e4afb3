"""`flow web`: serves the page with runs, pipelines and streams until stopped; it runs nothing that is due by itself."""

from __future__ import annotations

import os
from typing import Any

import click

from ematix_flow.errors import DeclareError
from ematix_flow.serve.cli.common.errors import DONE, UsageRefusedError
from ematix_flow.serve.cli.common.options import (
    MODULE_VARIABLE,
    common_options,
    engine_option,
    load,
    open_log,
    run_log_location_options,
)
from ematix_flow.serve.cli.common.output import talk
from ematix_flow.serve.cli.common.spark import stop_spark_at_end

TOKEN_VARIABLE = "EMATIX_FLOW_WEB_TOKEN"  # noqa: S105 - the name of a variable
ANALYTICS_VARIABLE = "EMATIX_FLOW_ANALYTICS_DB"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--bind",), {"default": "127.0.0.1", "show_default": True, "help": "Address to listen on."}),
    (("--port",), {"type": click.IntRange(0, 65535), "default": 8080, "show_default": True, "help": "Port to listen on."}),
    (("--host", "hosts"), {"multiple": True, "metavar": "NAME", "help": "Another name under which the page is reached."}),
    (("--log-level",), {"default": "warning", "show_default": True, "help": "How much the server reports."}),
    (("--token",), {"metavar": "TOKEN", "help": f"Token that a login needs; better in {TOKEN_VARIABLE}."}),
    (("--datasource", "datasources"), {"multiple": True, "metavar": "NAME=URL", "help": "What can be queried; a connection's name is enough."}),
    (("--analytics-db",), {"metavar": "FILE", "help": f"File of saved queries and dashboards [env var: {ANALYTICS_VARIABLE}]."}),
    (("--auth-header",), {"metavar": "HEADER", "help": "Header in which a trusted proxy names the user."}),
    (("--auth-groups-header",), {"metavar": "HEADER", "help": "Header in which it names their groups."}),
    (("--auth-group-role", "group_roles"), {"multiple": True, "metavar": "GROUP=ROLE", "help": "Role of a group: viewer, editor or admin."}),
    (("--auth-admin", "admins"), {"multiple": True, "metavar": "USER", "help": "A user who is admin."}),
    (("--auth-default-role",), {"metavar": "ROLE", "help": "Role of everybody else [default: viewer]."}),
    (("--read-only",), {"is_flag": True, "help": "Show everything, change nothing."}),
)  # fmt: skip


def _options(command: Any) -> Any:
    for names, settings in reversed(_OPTIONS):
        command = click.option(*names, **settings)(command)
    return command


@click.command()
@click.option("-m", "--module", "modules", multiple=True, envvar=MODULE_VARIABLE, show_envvar=True, metavar="MODULE",
              help="Module with your declarations; may be repeated.")  # fmt: skip
@_options
@run_log_location_options
@engine_option
@common_options
def web(modules: tuple[str, ...], **options: Any) -> int:
    """Serve a page with runs, pipelines, streams and plans, until stopped.

    Without a token it listens on this machine only.
    """
    for module in modules or (None,):
        load(module, required=False)
    token = options["token"] or os.environ.get(TOKEN_VARIABLE)
    rbac = _rbac(options)
    if options["bind"] not in _LOOPBACK and not token and rbac is None:
        message = f"on {options['bind']} the page could be used by everybody who reaches this machine"
        hint = f"set {TOKEN_VARIABLE}, or name the header of a trusted proxy with --auth-header."
        raise UsageRefusedError(DeclareError(message, hint=hint))
    log = open_log(options["run_log_url"], options["run_log_path"], no_run_log=False)
    stop_spark_at_end()
    serve(
        log,
        options["bind"],
        options["port"],
        options["log_level"],
        bearer_token=token,
        rbac=rbac,
        read_only=options["read_only"],
        hosts=options["hosts"],
        datasources=_pairs("--datasource", options["datasources"], bare=True),
        analytics_store=options["analytics_db"] or os.environ.get(ANALYTICS_VARIABLE),
    )
    return DONE


def serve(log: Any, bind: str, port: int, log_level: str, **options: Any) -> None:
    """Serve the page over a run log, and say where it is once it can be opened."""
    from ematix_flow.serve.web.build import create_app
    from ematix_flow.serve.web.server import run_app

    app = create_app(history=log, **{**options, "hosts": (*options.get("hosts", ()), bind)})
    run_app(app, bind, port, log_level, lambda url: talk(f"{url} (Ctrl-C ends it)"))


def _rbac(options: dict[str, Any]) -> dict[str, Any] | None:
    if not options["auth_header"]:
        others = [
            name for name in ("auth_groups_header", "group_roles", "admins", "auth_default_role") if options[name]
        ]
        if others:
            raise click.UsageError("roles need --auth-header, the header in which a trusted proxy names the user.")
        return None
    return {
        "identity_header": options["auth_header"],
        "groups_header": options["auth_groups_header"] or "",
        "group_roles": _pairs("--auth-group-role", options["group_roles"]),
        "admins": options["admins"],
        "default_role": options["auth_default_role"] or "viewer",
    }


def _pairs(option: str, values: tuple[str, ...], *, bare: bool = False) -> dict[str, str]:
    pairs = {}
    for value in values:
        name, separator, given = value.partition("=")
        if not name or not (given if separator else bare):
            raise click.UsageError(f"{option} is written as NAME=VALUE, not {value!r}.")
        pairs[name] = given or name
    return pairs
