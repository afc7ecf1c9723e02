"""Telemetry: the real exporters, over a real socket, to a collector that decodes what it gets."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bots.sections import TelemetrySection
from bots.telemetry import telemetry
from core.errors import ConfigError
from core.events import emit


class Collector:
    def __init__(self) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    raise AssertionError("not asked for")
                if self.path == "/v1/traces":
                    collector.traces.append(ExportTraceServiceRequest.FromString(body))
                elif self.path == "/v1/metrics":
                    collector.metrics.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    running = threading.Thread(target=collector.server.serve_forever)
    running.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    yield collector
    collector.server.shutdown()
    collector.server.server_close()
    running.join()


def a_turn() -> None:
    emit("started", "test:1", execution="e", agent="a", attempt=1, messages=1)
    emit("committed", "test:1", execution="e", outcome="answered")
    emit("ended", "test:1", execution="e")


def test_spans_and_metrics_arrive(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=here")
    with telemetry(TelemetrySection(otel=True)):
        a_turn()
    spans = [
        (resource.resource.attributes, span)
        for request in collector.traces
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    ((attributes, span),) = spans
    assert span.name == "invoke_agent a"
    told = {each.key: each.value.string_value for each in attributes}
    assert told["service.name"] == "chinwag"
    assert told["deployment.environment.name"] == "here"
    names = {
        metric.name
        for request in collector.metrics
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert "chinwag.turns" in names


def test_the_name_is_for_whoever_runs_it(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our-bot")
    with telemetry(TelemetrySection(otel=True)):
        a_turn()
    attributes = collector.traces[0].resource_spans[0].resource.attributes
    told = {each.key: each.value.string_value for each in attributes}
    assert told["service.name"] == "our-bot"


def test_off_nothing_is_sent(collector: Collector) -> None:
    with telemetry(TelemetrySection()):
        a_turn()
    assert (collector.traces, collector.metrics) == ([], [])


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("opentelemetry.exporter"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="opentelemetry.exporter")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    wanted = r"opentelemetry\.exporter is not installed: install chinwag\[otel\]"
    with pytest.raises(ConfigError, match=wanted), telemetry(TelemetrySection(otel=True)):
        pass
