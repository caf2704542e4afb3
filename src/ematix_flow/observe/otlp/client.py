"""Sends numbers and spans to an OTLP collector by HTTP or gRPC; `metrics` and `traces` build them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from ematix_flow.connect.config.secrets import expand, remember
from ematix_flow.errors import DeclareError, MissingExtraError, TransientError, did_you_mean
from ematix_flow.observe.http.client import CLIENT, post, within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ematix_flow.observe.http.client import HttpClient
    from ematix_flow.observe.http.host_guard import Reachable

HTTP, GRPC = 4318, 4317
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
_METHODS = {
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
}


@dataclass(frozen=True, slots=True)
class Collector:
    """Where an OTLP collector listens."""

    host: str
    port: int
    path: str = ""
    grpc: bool = False
    tls: bool = False
    """True: also where the operator named the host, to which plain text may go."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    client: HttpClient = field(default=CLIENT, repr=False)

    def send(self, signal: str, payload: bytes) -> None:
        """Send a request of a signal, metrics or traces."""
        endpoint = within(self.client.seconds, lambda _: self.client.find(self.host, self.port), self.host)
        secure = self.tls or not endpoint.listed
        if self.grpc:
            _call(endpoint, _METHODS[signal], payload, self, secure=secure)
            return
        host = f"[{self.host}]" if ":" in self.host else self.host
        url = f"http{'s' if secure else ''}://{host}:{self.port}{self.path}/v1/{signal}"
        post(url, payload, {"Content-Type": "application/x-protobuf", **self.headers}, self.client)


def collector(url: str, *, grpc: bool, client: HttpClient = CLIENT) -> Collector:
    """Return the collector of a URL; whatever its scheme, what follows is host[:port][/path][?tls=1]."""
    try:
        parts = urlsplit(expand(url))
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if not parts.hostname:
        raise DeclareError("an address of a collector needs a host", hint="write scheme://host:port.")
    for name in dict(parse_qsl(parts.query, keep_blank_values=True)):
        if name != "tls":
            raise DeclareError(f"an address of a collector takes no {name!r}", hint=did_you_mean(name, ["tls"]))
    tls = dict(parse_qsl(parts.query)).get("tls", "0") not in ("0", "false", "no")
    default = GRPC if grpc else HTTP
    return Collector(parts.hostname, port or default, parts.path.rstrip("/"), grpc, tls, _headers(), client)


def _headers() -> dict[str, str]:
    """Return the headers that the environment names for collectors; their values are keys to it."""
    pairs = [pair.partition("=") for pair in os.environ.get(HEADERS, "").split(",") if "=" in pair]
    headers = {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
    for value in headers.values():
        remember(value)
    return headers


def _call(endpoint: Reachable, method: str, payload: bytes, to: Collector, *, secure: bool) -> None:
    """Call a method of gRPC at exactly the address that was checked."""
    import grpc

    address = endpoint.addresses[0]
    target = f"ipv6:[{address}]:{endpoint.port}" if ":" in address else f"ipv4:{address}:{endpoint.port}"
    options = [("grpc.default_authority", endpoint.host), ("grpc.enable_http_proxy", 0)]
    if secure:
        options.append(("grpc.ssl_target_name_override", endpoint.host))
        channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(_authorities()), options)
    else:
        channel = grpc.insecure_channel(target, options)
    try:
        channel.unary_unary(method)(payload, timeout=to.client.seconds, metadata=tuple(to.headers.items()))
    except grpc.RpcError as error:
        raise TransientError(f"{endpoint.host} answers {error.code().name}") from None
    finally:
        channel.close()


def _authorities() -> bytes | None:
    """Return the certificates that the environment trusts; None for those of gRPC."""
    path = os.environ.get("SSL_CERT_FILE")
    return Path(path).read_bytes() if path else None


def missing(error: ImportError) -> MissingExtraError:
    """Return the error for a package of OpenTelemetry that is not installed."""
    message = f"OpenTelemetry needs the package {error.name!r}, which is not installed"
    return MissingExtraError(message, hint='pip install "ematix-flow-spark[otel]"')
