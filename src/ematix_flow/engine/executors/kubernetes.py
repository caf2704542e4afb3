"""Has slots run by jobs of a Kubernetes cluster, requested by its API with the account of this pod or of a proxy."""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ematix_flow.engine.executors.base import (
    DispatchError,
    DispatchHandle,
    worker_arguments,
    worker_environment,
)
from ematix_flow.errors import DeclareError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER_VARIABLE = "EMATIX_FLOW_KUBERNETES_API"
"""Address of the API where this process is not in the cluster, for example that of `kubectl proxy`."""

NAME_LENGTH = 63
LABEL_LENGTH = 63
SECONDS = 10.0
JOB_TTL_SECONDS = 3600
NOT_FOUND = 404


if TYPE_CHECKING:
    from ematix_flow.engine.executors.base import DispatchSpec


class KubernetesExecutor:
    """Creates a job for each slot."""

    backend = "k8s"

    def __init__(
        self, namespace: str, image: str, service_account: str | None = None, secret: str | None = None
    ) -> None:
        self._namespace, self._image = namespace, image
        self._account, self._secret = service_account, secret

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Create a job for a slot."""
        job = self.job(spec)
        self._request("POST", "", job)
        return DispatchHandle(spec.pipeline_name, self.backend, str(job["metadata"]["name"]))

    def cancel(self, handle: DispatchHandle) -> None:
        """Remove the job of a slot with its pod."""
        self._request("DELETE", f"/{quote(handle.ref)}", {"propagationPolicy": "Background"})

    def job(self, spec: DispatchSpec) -> dict[str, Any]:
        """Return the job: one attempt of one pod, since the run log counts attempts."""
        short = spec.claim_token[:8]
        labels = {"ematix-flow/pipeline": _label(spec.pipeline_name), "ematix-flow/claim-token-short": _label(short)}
        pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [self._container(spec)]}
        if self._account:
            pod["serviceAccountName"] = self._account
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": _name(spec.pipeline_name), "namespace": self._namespace, "labels": labels},
            "spec": {
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": JOB_TTL_SECONDS,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }

    def _container(self, spec: DispatchSpec) -> dict[str, Any]:
        container: dict[str, Any] = {
            "name": "flow",
            "image": self._image,
            "command": ["flow"],
            "args": worker_arguments(spec),
        }
        hidden = set(worker_environment(spec)) - set(spec.env)
        if hidden and not self._secret:
            message = f"{', '.join(sorted(hidden))} holds a secret, which no job may show"
            hint = "put it into a Secret of the namespace under this name, and add secret=NAME to the executor's URL."
            raise DispatchError(message, hint=hint)
        container["env"] = [{"name": name, "value": value} for name, value in spec.env.items()]
        container["env"] += [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": self._secret, "key": name}}}
            for name in sorted(hidden)
        ]
        return container

    def _request(self, method: str, suffix: str, body: dict[str, Any]) -> None:
        path = f"/apis/batch/v1/namespaces/{quote(self._namespace)}/jobs{suffix}"
        try:
            connection, headers = _connection()
            with closing(connection):
                connection.request(method, path, json.dumps(body), {"Content-Type": "application/json", **headers})
                answer = connection.getresponse()
                response_body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            message = f"the Kubernetes API does not answer: {error}"
            raise DispatchError(message) from None
        if method == "DELETE" and answer.status == NOT_FOUND:
            return
        if answer.status >= http.client.MULTIPLE_CHOICES:
            message = f"the Kubernetes API answered {answer.status}: {_reason(response_body)}"
            raise DispatchError(message)


def _connection() -> tuple[http.client.HTTPConnection, dict[str, str]]:
    """Return a connection to the API, and the headers that authenticate it."""
    server = os.environ.get(SERVER_VARIABLE)
    if server:
        parts = urlsplit(server)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=SECONDS), {}
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        token = (ACCOUNT / "token").read_text(encoding="utf-8").strip()
    except OSError:
        token = ""
    if not host or not token:
        message = "this process is not in a Kubernetes cluster"
        raise DispatchError(message, hint=f"run the scheduler in a pod, or set {SERVER_VARIABLE} to kubectl proxy's.")
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    return http.client.HTTPSConnection(host, int(port), timeout=SECONDS, context=trust), {
        "Authorization": f"Bearer {token}"
    }


def _reason(response_body: bytes) -> str:
    try:
        return str(json.loads(response_body).get("message", ""))[:300]
    except (ValueError, AttributeError):
        return "no JSON"


def _name(pipeline: str) -> str:
    """Return a name for a job that no other has; what Kubernetes does not take becomes a hyphen."""
    plain = re.sub(r"[^a-z0-9]+", "-", pipeline.lower()).strip("-") or "pipeline"
    suffix = uuid.uuid4().hex[:8]
    return f"flow-{plain[: NAME_LENGTH - len('flow--') - len(suffix)].strip('-')}-{suffix}"


def _label(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:LABEL_LENGTH].strip("-._")


def checked_image(image: str | None) -> str:
    """Refuse an executor without an image."""
    if not image:
        message = "k8s:// needs the image that workers run"
        raise DeclareError(message, hint="k8s://NAMESPACE?image=registry/name:tag.")
    return image
