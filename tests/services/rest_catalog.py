"""A REST catalog for tests: HTTP here, answers by Iceberg's own handlers over a catalog in SQLite, in a Spark that runs.

It lets in who has the token, which it gives for one client id and secret; it has no views.
"""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CLIENT = "lake"
CLIENT_SECRET = "canary-rest-5Kd2"
TOKEN = "canary-token-9Qx7"

REFUSALS = {
    "NoSuchNamespaceException": HTTPStatus.NOT_FOUND,
    "NoSuchTableException": HTTPStatus.NOT_FOUND,
    "AlreadyExistsException": HTTPStatus.CONFLICT,
    "CommitFailedException": HTTPStatus.CONFLICT,
    "NamespaceNotEmptyException": HTTPStatus.CONFLICT,
    "ValidationException": HTTPStatus.BAD_REQUEST,
    "IllegalArgumentException": HTTPStatus.BAD_REQUEST,
}
"""How the service answers what Iceberg throws."""

Answer = tuple[int, str]
NOTHING: Answer = (HTTPStatus.NO_CONTENT, "")


class RestCatalog(HTTPServer):
    """Listens on a free port; one request after the other, so that a commit is decided before the next is looked at."""

    def __init__(self, spark: Any, folder: Path, warehouse: str, bucket: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._iceberg = _Iceberg(spark, folder / "rest.db", warehouse, bucket)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """End the service."""
        self.shutdown()
        self.server_close()

    def answer(self, method: str, path: str, token: str, body: str) -> Answer:
        """Return status and text for a request."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[1:] == ["oauth", "tokens"]:
            return _login(body)
        if token != f"Bearer {TOKEN}":
            return _refusal(HTTPStatus.UNAUTHORIZED, "NotAuthorizedException", "who are you?")
        if parts[1:] == ["config"]:
            return HTTPStatus.OK, '{"defaults": {}, "overrides": {}}'
        try:
            return self._iceberg.answer(method, parts[2:], body)
        except Py4JJavaError as error:
            thrown = error.java_exception
            name = str(thrown.getClass().getSimpleName())
            status = REFUSALS.get(name, HTTPStatus.INTERNAL_SERVER_ERROR)
            return _refusal(status, name, str(thrown.getMessage()))


class _Iceberg:
    """Iceberg's handlers, asked through the connection that Spark's Python has to its Java."""

    def __init__(self, spark: Any, database: Path, warehouse: str, bucket: Mapping[str, str]) -> None:
        self._gateway = spark.sparkContext._gateway
        self._java = self._gateway.jvm
        self._rest = self._java.org.apache.iceberg.rest
        hadoop = self._java.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        for name, value in {"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem", **bucket}.items():
            hadoop.set(name, value)
        settings = self._java.java.util.HashMap()
        for name, value in {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{database}",
            "jdbc.schema-version": "V1",
            "warehouse": warehouse,
            "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        }.items():
            settings.put(name, value)
        self._catalog = self._java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog("rest", settings, hadoop)
        self._json = self._mapper()

    def answer(self, method: str, parts: list[str], body: str) -> Answer:
        """Return status and text for a request below `v1/namespaces`."""
        handlers, catalog = self._rest.CatalogHandlers, self._catalog
        namespace = self._namespace(parts[0]) if parts else self._namespace()
        match method, parts[1:]:
            case "GET", [] if not parts:
                return self._response(handlers.listNamespaces(catalog, namespace))
            case "POST", [] if not parts:
                return self._response(handlers.createNamespace(catalog, self._read(body, "CreateNamespaceRequest")))
            case "GET" | "HEAD", []:
                return self._response(handlers.loadNamespace(catalog, namespace))
            case "GET", ["tables"]:
                return self._response(handlers.listTables(catalog, namespace))
            case "POST", ["tables"]:
                return self._create(namespace, self._read(body, "CreateTableRequest"))
            case "POST", ["tables", _, "metrics"]:
                return NOTHING
            case _, ["tables", table]:
                return self._table(
                    method, self._java.org.apache.iceberg.catalog.TableIdentifier.of(namespace, table), body
                )
        return _refusal(HTTPStatus.NOT_FOUND, "RESTException", f"{method} of {parts} is not served")

    def _create(self, namespace: Any, request: Any) -> Answer:
        handlers = self._rest.CatalogHandlers
        create = handlers.stageTableCreate if request.stageCreate() else handlers.createTable
        return self._response(create(self._catalog, namespace, request))

    def _table(self, method: str, table: Any, body: str) -> Answer:
        handlers, catalog = self._rest.CatalogHandlers, self._catalog
        if method == "POST":
            return self._response(handlers.updateTable(catalog, table, self._read(body, "UpdateTableRequest")))
        if method == "DELETE":
            handlers.dropTable(catalog, table)
            return NOTHING
        return self._response(handlers.loadTable(catalog, table, self._rest.RESTCatalogProperties.SnapshotMode.ALL))

    def _namespace(self, *levels: str) -> Any:
        given = self._gateway.new_array(self._java.java.lang.String, len(levels))
        for number, level in enumerate(levels):
            given[number] = level
        return self._java.org.apache.iceberg.catalog.Namespace.of(given)

    def _read(self, body: str, name: str) -> Any:
        loader = self._java.java.lang.Thread.currentThread().getContextClassLoader()
        return self._json.readValue(body, loader.loadClass(f"org.apache.iceberg.rest.requests.{name}"))

    def _response(self, answer: Any) -> Answer:
        return HTTPStatus.OK, str(self._json.writeValueAsString(answer))

    def _mapper(self) -> Any:
        """Return what reads and writes the messages as Iceberg's own clients do."""
        jackson = self._java.org.apache.iceberg.shaded.com.fasterxml.jackson
        mapper = jackson.databind.ObjectMapper()
        mapper.setVisibility(
            jackson.annotation.PropertyAccessor.FIELD, jackson.annotation.JsonAutoDetect.Visibility.ANY
        )
        mapper.configure(jackson.databind.DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, False)
        mapper.setPropertyNamingStrategy(jackson.databind.PropertyNamingStrategies.KEBAB_CASE)
        self._rest.RESTSerializers.registerAll(mapper)
        return mapper


def _login(body: str) -> Answer:
    given = {name: values[0] for name, values in parse_qs(body).items()}
    if (given.get("client_id"), given.get("client_secret")) != (CLIENT, CLIENT_SECRET):
        return _refusal(HTTPStatus.UNAUTHORIZED, "NotAuthorizedException", "wrong client id or secret")
    return HTTPStatus.OK, json.dumps({"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600})


def _refusal(status: int, name: str, message: str) -> Answer:
    return status, json.dumps({"error": {"message": message, "type": name, "code": int(status)}})


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        server = cast("RestCatalog", self.server)
        path = urlsplit(self.path).path
        status, text = server.answer(self.command, path, self.headers.get("Authorization", ""), body)
        self.send_response(status)
        if text:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    do_GET = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815 - names of the standard library
