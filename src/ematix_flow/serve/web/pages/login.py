"""The login: a browser shows the token once, and gets a cookie that scripts cannot read and other sites do not send."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ematix_flow.serve.web.answers import Shared
from ematix_flow.serve.web.identity import COOKIE, SESSION_SECONDS, is_token
from ematix_flow.serve.web.pages.render import render

router = APIRouter(include_in_schema=False)


@router.get("/login")
def login_page(request: Request) -> HTMLResponse:
    """Show the form of the token."""
    return render(request, "login.html", next=_own_path(request.query_params.get("next", "/")), problem="")


@router.post("/login")
async def login(request: Request, shared: Shared) -> Response:
    """Check the token and begin a login."""
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    target = _own_path(form.get("next", ["/"])[0])
    wait = shared.login_limit.wait_for(request.client.host if request.client else "")
    if wait:
        page = render(request, "login.html", http_status=429, next=target, problem="too many tries; wait a minute")
        page.headers["Retry-After"] = str(int(wait) + 1)
        return page
    if not is_token(shared.settings, form.get("token", [""])[0]):
        return render(request, "login.html", http_status=401, next=target, problem="this is not the token")
    response = RedirectResponse(target, status_code=303)
    response.set_cookie(
        COOKIE,
        shared.logins.begin(),
        max_age=int(SESSION_SECONDS),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.post("/logout")
def logout(request: Request, shared: Shared) -> Response:
    """End a login."""
    shared.logins.end(request.cookies.get(COOKIE, ""))
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(COOKIE)
    return response


def _own_path(path: str) -> str:
    """Return a path of this page; another site's address becomes the first page."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and "\\" not in path
    return path if safe and path.isprintable() else "/"
