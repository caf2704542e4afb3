"""The part of a Kubernetes API and of Lambda that executors talk to: it keeps what it got and refuses what the real one would."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jsonschema

NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
LABELS = {
    "type": "object",
    "propertyNames": {"pattern": r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"},
    "additionalProperties": {
        "type": "string",
        "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        "maxLength": 63,
    },
}


def _strict(required: list[str], **fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": fields, "additionalProperties": False}


_ENV = {
    "type": "array",
    "items": _strict(
        ["name"],
        name={"type": "string", "minLength": 1},
        value={"type": "string"},
        valueFrom=_strict(["secretKeyRef"], secretKeyRef=_strict(["name", "key"], name=NAME, key={"type": "string"})),
    ),
}
_CONTAINER = _strict(
    ["name", "image"],
    name=NAME,
    image={"type": "string", "minLength": 1},
    command={"type": "array", "items": {"type": "string"}},
    args={"type": "array", "items": {"type": "string"}},
    env=_ENV,
)
_POD = _strict(
    ["containers", "restartPolicy"],
    containers={"type": "array", "minItems": 1, "items": _CONTAINER},
    restartPolicy={"enum": ["Never", "OnFailure"]},  # a job takes no Always
    serviceAccountName={"type": "string"},
)
JOB = _strict(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "batch/v1"},
    kind={"const": "Job"},
    metadata=_strict(["name"], name=NAME, namespace=NAME, labels=LABELS),
    spec=_strict(
        ["template"],
        backoffLimit={"type": "integer", "minimum": 0},
        ttlSecondsAfterFinished={"type": "integer", "minimum": 0},
        template=_strict(["spec"], metadata=_strict([], labels=LABELS), spec=_POD),
    ),
)


class Cluster(ThreadingHTTPServer):
    """Listens on a free port; `status` is what it answers with, None for nothing before the test ends."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status: int | None = 0
        self.answer: bytes | None = None
        self.got: list[tuple[str, str, dict[str, str], Any]] = []
        self.jobs: dict[str, Any] = {}
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def end(self) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Cluster

    def do_POST(self) -> None:
        body = self._body()
        if "/functions/" in self.path:
            self._respond(202, b"")
            return
        try:
            jsonschema.validate(body, JOB)
        except jsonschema.ValidationError as error:
            self._respond(422, json.dumps({"message": error.message}).encode())
            return
        if not self.server.status:
            self.server.jobs[body["metadata"]["name"]] = body
        self._respond(201, json.dumps(body).encode())

    def do_DELETE(self) -> None:
        self._body()
        gone = self.server.jobs.pop(self.path.rpartition("/")[2], None)
        self._respond(200 if gone else 404, b"{}")

    def _body(self) -> Any:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(data)
        self.server.got.append((self.command, self.path, dict(self.headers), body))
        return body

    def _respond(self, status: int, body: bytes) -> None:
        status_code = self.server.status
        if status_code is None:
            self.server.over.wait(30)
            return
        if status_code:
            body = json.dumps({"kind": "Status", "message": f"told to answer {status_code}"}).encode()
        if self.server.answer is not None:
            body = self.server.answer
        self.send_response(status_code or status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-amzn-RequestId", "request-1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name of the base class
        """Say nothing."""
