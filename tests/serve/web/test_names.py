"""Names with a slash in the addresses of pages and of the API: opened, steered, and told apart from the routes below a name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest
from starlette.routing import Match

from ematix_flow.declare.project import load_module
from ematix_flow.serve.web.api import pipelines, streams, workflows
from ematix_flow.serve.web.names import keep_slashes
from ematix_flow.serve.web.pages import routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.testclient import TestClient
    from starlette.types import Scope

NESTED = """
from ematix_flow import ematix
from flows import Copies


@ematix.pipeline(name="shop/orders é", target=Copies, target_connection="lite", mode="merge", schedule="0 * * * *")
def orders(conn):
    return "SELECT 1 AS id, 'a' AS name"


ematix.workflow(name="shop/nightly", jobs=["shop/orders é"], triggered_by=["copy"])
"""
ORDERS = "shop%2Forders%20%C3%A9"


@pytest.fixture
def nested(project: Path) -> None:
    Path("nested.py").write_text(NESTED, encoding="utf-8")
    load_module("nested")


@pytest.mark.slow
def test_what_has_a_slash_in_its_name_is_opened_and_steered(
    nested: None, run: Callable[..., int], page: Callable[..., TestClient]
) -> None:
    assert run("run", "shop/orders é", "-m", "nested") == 0
    api = page()
    assert f'href="/pipelines/{ORDERS}"' in api.get("/pipelines").text
    assert "shop/orders é" in api.get(f"/pipelines/{ORDERS}?x=%2F").text
    assert api.get(f"/api/pipelines/{ORDERS}").json()["name"] == "shop/orders é"
    for address in (f"pipelines/{ORDERS}/pause", f"pipelines/{ORDERS}/resume", f"jobs/{ORDERS}/run-now"):
        assert api.post(f"/api/{address}").status_code in (200, 202), address
    assert api.post("/api/workflows/shop%2Fnightly/run-now").status_code in (200, 202)
    (key,) = {
        one["key"]
        for one in api.get("/api/runs", params={"pipeline": "shop/orders é", "status": "succeeded"}).json()["runs"]
    }
    assert api.get(f"/api/runs/{key}").json()["pipeline"] == "shop/orders é"
    assert api.get("/api/pipelines/shop/orders%20%C3%A9").status_code == 404
    assert api.get("/api/plans/..%2F..%2Fetc").status_code == 404
    away = page(bearer_token="s3cr3t-t0ken").get(f"/pipelines/{ORDERS}")
    assert unquote(away.headers["location"]) == f"/login?next=/pipelines/{ORDERS}"


def sent(path: str, method: str) -> Scope:
    scope: Scope = {"type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(), "headers": []}
    keep_slashes(scope)
    return scope


def test_every_route_of_a_name_takes_one_with_slashes() -> None:
    checked = 0
    for router in (pipelines.router, streams.router, workflows.router, routes.router):
        for route in router.routes:
            if "{name" not in route.path:
                continue
            (method,) = route.methods
            address = route.path_format.replace("{name}", "a%2fdlq%2Fb%20c").replace("{record_id}", "1")
            matches = [(one.path, one.matches(sent(address, method))) for one in router.routes]
            full = {path: scope["path_params"]["name"] for path, (match, scope) in matches if match is Match.FULL}
            assert full == {route.path: "a/dlq/b c"}
            checked += 1
    assert checked == 16


def test_a_path_that_a_server_has_changed_stays_as_it_is() -> None:
    for raw in (b"", b"/other%2Fpath", b"/a/b"):
        scope: Scope = {"type": "http", "path": "/a/b", "raw_path": raw}
        keep_slashes(scope)
        assert scope["path"] == "/a/b"
