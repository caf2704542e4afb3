"""Checks that an Iceberg catalog answers, without Spark; it reads no table and changes nothing."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from ematix_flow.errors import MissingExtraError, RunError

if TYPE_CHECKING:
    from ematix_flow.declare.connection.registry import IcebergConnection

SECONDS = 3


def probe_database(connection: IcebergConnection) -> str:
    """Check for the database file, or connect to the server; drivers that only Java has cannot be used here."""
    kind, _, address = connection.uri.removeprefix("jdbc:").partition(":")
    if kind == "sqlite":
        file = Path(address.removeprefix("file:").partition("?")[0])
        return f"catalog {file}" if file.exists() else f"catalog {file} does not exist yet; the first load creates it"
    if kind != "postgresql":
        return f"a catalog at jdbc:{kind} is reached through Spark only, when a load needs it"
    psycopg = _installed("psycopg", "postgres")
    url = urlsplit(f"{kind}:{address}")
    server = {"host": url.hostname, "port": url.port, "dbname": url.path.strip("/")}
    login = {"user": connection.user, "password": connection.password}
    with psycopg.connect(**server, **login, connect_timeout=SECONDS) as opened:
        return f"catalog in PostgreSQL {opened.info.server_version // 10000} at {url.hostname}"


def probe_rest(connection: IcebergConnection) -> str:
    """Request the configuration of a REST catalog, which is what every client requests first."""
    uri = connection.uri.rstrip("/")
    if not uri.startswith(("http://", "https://")):
        message = "the uri of a REST catalog begins with http:// or https://"
        raise RunError(message)
    token = connection.token or (_token(connection, uri) if connection.password else "")
    parameters = f"?warehouse={quote(connection.warehouse, safe='')}" if connection.warehouse else ""
    _fetch_json(Request(f"{uri}/v1/config{parameters}", headers=_bearer(token)), uri)  # noqa: S310 - checked above
    return f"REST catalog at {uri}"


def probe_glue(connection: IcebergConnection) -> str:
    """Request the name of one database from Glue."""
    boto3, errors = _installed("boto3", "s3"), _installed("botocore.exceptions", "s3")
    config = _installed("botocore.config", "s3").Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={})
    try:
        session = boto3.Session(profile_name=connection.profile or None, region_name=connection.region or None)
        session.client("glue", endpoint_url=connection.uri or None, config=config).get_databases(MaxResults=1)
    except (errors.BotoCoreError, errors.ClientError) as error:
        message = f"the Glue catalog does not answer: {error}"
        raise RunError(message) from None
    return f"Glue catalog at {connection.uri or connection.region or 'Amazon'}"


def _token(connection: IcebergConnection, uri: str) -> str:
    """Return a token for the client's name and secret."""
    login = {"client_id": connection.user or "", "client_secret": connection.password or ""}
    form = urlencode({"grant_type": "client_credentials", "scope": "catalog", **login}).encode()
    return str(_fetch_json(Request(f"{uri}/v1/oauth/tokens", data=form), uri).get("access_token", ""))  # noqa: S310


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _fetch_json(request: Request, uri: str) -> dict[str, Any]:
    try:
        with urlopen(request, timeout=SECONDS) as response:  # noqa: S310 - the caller looked at the scheme
            document = json.load(response)
    except HTTPError as error:
        message = f"the REST catalog at {uri} answers {error.code} {error.reason}"
        raise RunError(message) from None
    except (OSError, ValueError) as error:
        message = f"no REST catalog answers at {uri}: {getattr(error, 'reason', error)}"
        raise RunError(message) from None
    return document if isinstance(document, dict) else {}


def _installed(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f"asking this catalog needs the package {error.name!r}, which is not installed"
        raise MissingExtraError(message, hint=f'pip install "ematix-flow-spark[{extra}]"') from None
