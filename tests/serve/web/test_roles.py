"""Who may do what: the token, logins, roles by headers on every route of the schema, and requests of other sites."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from ematix_flow.errors import DeclareError
from ematix_flow.serve.web.guard import HEADERS
from ematix_flow.serve.web.settings import PERMISSIONS, Rbac

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROLES = {"identity_header": "X-User", "groups_header": "X-Groups", "default_role": None,
         "group_roles": {"readers": "viewer", "writers": "editor"}, "admins": ["root"]}  # fmt: skip
AS = {"viewer": {"X-User": "vera", "X-Groups": "readers"}, "editor": {"X-User": "eddy", "X-Groups": "readers,writers"},
      "admin": {"X-User": "root"}}  # fmt: skip
OPEN = {"/api/health", "/api/me"}


def routes(api: TestClient) -> Iterator[tuple[str, str, dict[str, Any]]]:
    schema = api.get("/api/openapi.json", headers=AS["admin"]).json()
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_route_says_which_permission_it_needs_and_asks_for_it(page: Callable[..., TestClient]) -> None:
    api = page(rbac=ROLES)
    tried = 0
    for method, path, operation in routes(api):
        if path in OPEN:
            continue
        permission = operation["x-permission"]
        assert (permission == "read") == (method == "GET"), path
        address = re.sub(r"{\w+}", "nothing", path)
        assert api.request(method, address).status_code == 401, path
        for role, headers in AS.items():
            if permission in PERMISSIONS[role]:
                continue
            refused = api.request(method, address, headers=headers)
            assert (refused.status_code, permission in refused.json()["detail"]) == (403, True), (role, method, path)
            tried += 1
    assert tried > 10


def test_a_role_may_do_what_it_has_the_permission_for(page: Callable[..., TestClient]) -> None:
    api = page(rbac=ROLES)
    assert api.get("/api/runs", headers=AS["viewer"]).status_code == 200
    assert api.post("/api/jobs/never/run-now", headers=AS["editor"]).status_code == 200
    assert api.get("/api/actions", headers=AS["admin"]).json()["actions"][0]["asked_by"] == "eddy"
    me = api.get("/api/me", headers=AS["editor"]).json()
    assert (me["identity"], me["role"], me["rbac_enabled"], me["authenticated"]) == ("eddy", "editor", True, True)
    anonymous = api.get("/api/me").json()
    assert (anonymous["identity"], anonymous["permissions"], anonymous["authenticated"]) == (None, [], False)


def test_roles_are_admins_then_the_strongest_group_then_the_default() -> None:
    rbac = Rbac(group_roles={"a": "viewer", "b": "editor"}, admins=("root",), default_role="viewer")
    assert rbac.role_of("root", ()) == "admin"
    assert rbac.role_of("x", ("a", "b")) == "editor"
    assert rbac.role_of("x", ("c",)) == "viewer"
    with pytest.raises(DeclareError, match="no role 'king'"):
        Rbac(default_role="king")


def test_a_token_is_needed_everywhere_but_for_health(page: Callable[..., TestClient]) -> None:
    api = page(bearer_token="s3cr3t-t0ken")
    assert api.get("/api/health").status_code == 200
    for path in ("/api/me", "/api/runs", "/api/openapi.json"):
        assert api.get(path).status_code == 401, path
    for wrong in ("Bearer nope", "Basic s3cr3t-t0ken", "s3cr3t-t0ken"):
        assert api.get("/api/runs", headers={"Authorization": wrong}).status_code == 401
    assert api.get("/api/runs", params={"token": "s3cr3t-t0ken"}).status_code == 401
    right = api.get("/api/me", headers={"Authorization": "Bearer s3cr3t-t0ken"})
    assert (right.status_code, right.json()["authenticated"]) == (200, True)


def test_a_page_that_is_read_only_changes_nothing(page: Callable[..., TestClient]) -> None:
    api = page(read_only=True)
    assert api.get("/api/runs").status_code == 200
    assert api.post("/api/jobs/never/run-now").status_code == 403
    assert api.get("/api/me").json()["permissions"] == ["read"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ],
)
def test_another_site_changes_nothing(api: TestClient, headers: dict[str, str]) -> None:
    assert api.post("/api/jobs/never/run-now", headers=headers).status_code == 403
    assert api.get("/api/actions").json()["actions"] == []
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert api.post("/api/jobs/never/run-now", headers=own).status_code == 200


def test_a_name_of_another_site_that_leads_here_gets_nothing(api: TestClient) -> None:
    assert api.get("/api/runs", headers={"Host": "evil.example"}).status_code == 400
    assert api.get("/api/runs", headers={"Host": "127.0.0.1:8080"}).status_code == 200


def test_large_bodies_are_refused_before_they_are_read(api: TestClient) -> None:
    large = b"{" + b" " * (2 << 20) + b"}"
    assert api.post("/api/jobs/never/run-now", content=large).status_code == 413

    def chunks() -> Iterator[bytes]:
        yield from (large[at : at + 65536] for at in range(0, len(large), 65536))

    assert api.post("/api/jobs/never/run-now", content=chunks()).status_code == 413


def test_every_response_has_the_headers_that_keep_scripts_of_others_out(api: TestClient) -> None:
    headers = api.get("/api/health").headers
    policy = headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_a_failure_of_the_page_has_these_headers_too(
    page: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("ematix_flow.serve.web.pages.routes.overview_facts", fail)
    monkeypatch.setattr("ematix_flow.serve.web.api.runs.run_page", fail)
    client = TestClient(page().app, base_url="http://localhost", raise_server_exceptions=False)
    for address in ("/", "/api/runs"):
        failed = client.get(address)
        assert failed.status_code == 500
        assert {name: failed.headers.get(name) for name in HEADERS} == HEADERS
        assert failed.headers["cache-control"] == "no-store"
