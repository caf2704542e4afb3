"""An OTLP collector for tests that speaks gRPC; the one that speaks HTTP is any endpoint."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc

if TYPE_CHECKING:
    from pathlib import Path


class GrpcCollector(metrics_grpc.MetricsServiceServicer, traces_grpc.TraceServiceServicer):
    """Keeps every request with its metadata."""

    def __init__(self, certificates: Path | None = None) -> None:
        self.got: list[Any] = []
        self.metadata: list[dict[str, str]] = []
        self.server = grpc.server(ThreadPoolExecutor(2))
        metrics_grpc.add_MetricsServiceServicer_to_server(self, self.server)
        traces_grpc.add_TraceServiceServicer_to_server(self, self.server)
        if certificates is None:
            self.port = self.server.add_insecure_port("127.0.0.1:0")
        else:
            pair = (certificates / "server.key").read_bytes(), (certificates / "server.pem").read_bytes()
            self.port = self.server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        self.server.start()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the protocol
        self.got.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if isinstance(request, traces.ExportTraceServiceRequest):
            return traces.ExportTraceServiceResponse()
        return metrics.ExportMetricsServiceResponse()

    def close(self) -> None:
        self.server.stop(None).wait()
