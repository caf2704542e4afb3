"""Iceberg's catalogs through pyiceberg, without Spark: which ones it can commit to, with deadlines; it knows no load.

A catalog in a folder is not among them (docs/decisions/iceberg-appends.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from requests.adapters import HTTPAdapter
from sqlalchemy import URL, NullPool, create_engine

from ematix_flow.connect.iceberg.catalog import database_address
from ematix_flow.connect.iceberg.file_io import StoreIO, TableStores, io_properties
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ematix_flow.declare.connection.registry import IcebergConnection

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
"""How long a catalog may take for one response; a commit without a response is searched for in the table."""


class _StoreCatalog:
    """What our catalogs do otherwise: files go through our stores, and a commit that was overtaken is not repeated.

    pyiceberg would commit it again on top of the commit that came first, and that may be the refusal of this very load.
    """

    stores: TableStores

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> StoreIO:
        # A property of a table could name another class.
        del properties, location
        return StoreIO(io_properties(self.stores))

    def commit_table(self, *arguments: Any, **named: Any) -> Any:
        try:
            return super().commit_table(*arguments, **named)  # type: ignore[misc]
        except CommitFailedException:
            message = "another program changed the Iceberg table first"
            raise TransientError(message, hint="it is tried again by itself, or run it again.") from None


class _Sql(_StoreCatalog, SqlCatalog):  # type: ignore[misc]
    engine: Any

    def __init__(self, name: str, url: URL, stores: TableStores) -> None:
        self.stores = stores
        super().__init__(name, uri=url, **io_properties(stores))
        self.engine.dispose()
        # A connection stays open no longer than a query: no caller closes this catalog.
        self.engine = create_engine(url, poolclass=NullPool)


class _Rest(_StoreCatalog, RestCatalog):  # type: ignore[misc]
    def __init__(self, name: str, stores: TableStores, **properties: str) -> None:
        self.stores = stores
        super().__init__(name, **properties, **io_properties(stores))

    def _config_headers(self, session: Any) -> None:
        # The first thing that is done to a session, before it requests a token.
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Deadline())
        super()._config_headers(session)
        # Files are read with the keys of the connection.
        session.headers["X-Iceberg-Access-Delegation"] = ""


class _Glue(_StoreCatalog, GlueCatalog):  # type: ignore[misc]
    def __init__(self, name: str, stores: TableStores, client: Any, **properties: str) -> None:
        self.stores = stores
        super().__init__(name, client, **properties, **io_properties(stores))


class _Deadline(HTTPAdapter):  # type: ignore[misc]
    def send(self, *arguments: Any, **named: Any) -> Any:
        named["timeout"] = named.get("timeout") or (CONNECT_SECONDS, ANSWER_SECONDS)
        return super().send(*arguments, **named)


def open_catalog(name: str, connection: IcebergConnection) -> tuple[Any, TableStores]:
    """Return the catalog, under the name that Spark has for it, and the stores of its tables."""
    stores = TableStores(connection)
    return _OPENERS[connection.catalog_type](name, connection, stores), stores


def _sql(name: str, connection: IcebergConnection, stores: TableStores) -> _Sql:
    options = dict(database_address(connection) or {})
    if options["drivername"] == "postgresql":
        limits = {"connect_timeout": str(CONNECT_SECONDS), "options": f"-c statement_timeout={ANSWER_SECONDS}s"}
        options |= {"drivername": "postgresql+psycopg", "query": {**options["query"], **limits}}
    return _Sql(name, URL.create(**options), stores)


def _rest(name: str, connection: IcebergConnection, stores: TableStores) -> _Rest:
    credential = f"{connection.user or ''}:{connection.password}" if connection.password else ""
    options = {
        "uri": connection.uri,
        "warehouse": connection.warehouse,
        "token": connection.token or "",
        "credential": "" if connection.token else credential.removeprefix(":"),
        "oauth2-server-uri": f"{connection.uri.rstrip('/')}/v1/oauth/tokens",
    }
    return _Rest(name, stores, **{key: value for key, value in options.items() if value})


def _glue(name: str, connection: IcebergConnection, stores: TableStores) -> _Glue:
    import boto3
    from botocore.config import Config

    deadlines = Config(connect_timeout=CONNECT_SECONDS, read_timeout=ANSWER_SECONDS, retries={"mode": "standard"})
    session = boto3.Session(profile_name=connection.profile or None, region_name=connection.region or None)
    client = session.client("glue", endpoint_url=connection.uri or None, config=deadlines)
    return _Glue(name, stores, client, warehouse=connection.warehouse)


_OPENERS: dict[str, Callable[[str, IcebergConnection, TableStores], Any]] = {
    "jdbc": _sql,
    "rest": _rest,
    "glue": _glue,
}
