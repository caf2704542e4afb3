"""The types of every executor, and how a worker is called; how a worker is started is each executor's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, urlsplit

from ematix_flow.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_LOG, ALERTERS, METRICS = "EMATIX_FLOW_RUN_LOG_URL", "EMATIX_FLOW_ALERTERS", "EMATIX_FLOW_METRICS_URL"
"""Variables that pass to a worker what its command line must not show."""

_SECRET_NAMES = ("password", "secret", "token", "key", "sas", "credential")


class DispatchError(RunError):
    """A slot could not be handed over; it stays as it was and is tried again."""

    transient = True


@dataclass(frozen=True, slots=True)
class DispatchSpec:
    """One slot for a worker: which pipeline of which module, and under which lease."""

    pipeline_name: str
    module: str
    claim_token: str
    lease_seconds: int
    run_log_url: str
    alerter_urls: tuple[str, ...] = ()
    metrics_url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DispatchHandle:
    """A worker that was requested, and its id where it runs."""

    pipeline_name: str
    backend: str
    ref: str


class Executor(Protocol):
    """Hands slots over to workers and does not wait for them."""

    def dispatch(self, spec: DispatchSpec) -> DispatchHandle:
        """Have a worker run a slot; DispatchError when it cannot be requested."""

    def cancel(self, handle: DispatchHandle) -> None:
        """Request that a worker stops; one that has ended is no error."""


def worker_arguments(spec: DispatchSpec) -> list[str]:
    """Return the arguments of `flow` for a worker; addresses with a secret in them are left to the environment."""
    arguments = ["run", "--module", spec.module, "--claim-token", spec.claim_token]
    arguments += ["--heartbeat-interval", str(max(1, spec.lease_seconds // 3))]
    arguments += ["--lease-seconds", str(spec.lease_seconds)]
    if not has_secret(spec.run_log_url):
        arguments += ["--run-log-url", spec.run_log_url]
    if not any(is_secret_alerter(url) for url in spec.alerter_urls):
        for url in spec.alerter_urls:
            arguments += ["--alerter", url]
    if spec.metrics_url and not is_secret_sink(spec.metrics_url):
        arguments += ["--metrics", spec.metrics_url]
    return [*arguments, spec.pipeline_name]


def worker_environment(spec: DispatchSpec) -> dict[str, str]:
    """Return the variables of a worker, with what its arguments must not show."""
    environment = dict(spec.env)
    if has_secret(spec.run_log_url):
        environment[RUN_LOG] = spec.run_log_url
    if any(is_secret_alerter(url) for url in spec.alerter_urls):
        environment[ALERTERS] = ",".join(spec.alerter_urls)
    if spec.metrics_url and is_secret_sink(spec.metrics_url):
        environment[METRICS] = spec.metrics_url
    return environment


def has_secret(url: str) -> bool:
    """Return whether the address of a run log holds a password or a key; the name of a user or a container is none."""
    parts = urlsplit(url)
    if parts.scheme in ("http", "https") or parts.password:
        return True
    return any(secret_name in name.lower() for name, _ in parse_qsl(parts.query) for secret_name in _SECRET_NAMES)


def is_secret_alerter(url: str) -> bool:
    """Return whether the address of an alerter is a secret: each service has its keys in another part of it."""
    return url.partition("://")[0] != "stdout" and not url.startswith("${")


def is_secret_sink(url: str) -> bool:
    """Return whether the address of metrics holds a secret; a name without a password may be a key."""
    return has_secret(url) or bool(urlsplit(url).username)
