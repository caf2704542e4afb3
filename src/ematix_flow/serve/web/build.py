"""Builds the page from plain values, for programs and commands; packages of the extra are imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from ematix_flow.commit.runlog.log import RunLog
    from ematix_flow.serve.web.settings import Rbac


def create_app(  # noqa: PLR0913 - the keywords that programs know
    *,
    history: RunLog | str | None = None,
    ui_dist_dir: str | Path | None = None,
    bearer_token: str | None = None,
    datasources: Mapping[str, str] | None = None,
    analytics_store: str | Path | None = None,
    rbac: Rbac | Mapping[str, Any] | None = None,
    dlq_ops: Any = None,
    read_only: bool = False,
    hosts: Sequence[str] = (),
) -> FastAPI:
    """Return the page over a run log, the default one where none is given; declarations are those of this process.

    `hosts` are names under which the page is reached besides those of this machine.
    """
    try:
        from ematix_flow.serve.web.app import build_app
    except ModuleNotFoundError as error:
        message = f"the web page needs the package {error.name!r}, which is not installed"
        raise MissingExtraError(message, hint="pip install 'ematix-flow-spark[web]'.") from None
    from ematix_flow.commit.runlog.open import open_run_log
    from ematix_flow.serve.cli.common.state import user_name
    from ematix_flow.serve.web.settings import LOOPBACK, Rbac, WebSettings

    settings = WebSettings(
        log=open_run_log(history) if history is None or isinstance(history, str) else history,
        token=bearer_token or None,
        rbac=Rbac.of(rbac),
        read_only=read_only,
        hosts=(*LOOPBACK, *(host.lower() for host in hosts)),
        user=user_name("local"),
        datasources=dict(datasources or {}),
        analytics=None if analytics_store is None else Path(analytics_store),
        ui_folder=None if ui_dist_dir is None else Path(ui_dist_dir),
    )
    return build_app(settings, dlq_ops)
