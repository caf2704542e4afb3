"""The public names of the web page: an application for any ASGI server, and a server for it."""

from __future__ import annotations

from ematix_flow.serve.web.build import create_app
from ematix_flow.serve.web.server import run_server
from ematix_flow.serve.web.settings import Rbac

__all__ = ["Rbac", "create_app", "run_server"]
