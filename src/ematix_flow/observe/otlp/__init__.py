"""Metrics and traces by the OpenTelemetry protocol."""
