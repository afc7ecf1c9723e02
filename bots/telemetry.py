"""Sends what `core.spans` makes of the events to a collector, by OTLP over HTTP.

Where the collector is, how often, and in what name is said by OpenTelemetry's own environment
variables; nothing is imported and nothing sent unless `[telemetry] otel` is on. A collector that
does not answer is its own affair: spans are dropped, the bot goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from bots.sections import TelemetrySection
from core.errors import ConfigError
from core.events import listening

SERVICE = "chinwag"


@contextmanager
def telemetry(section: TelemetrySection) -> Iterator[None]:
    """Spans and metrics of all that happens while the block runs; what waits is sent at its end.

    :raises ConfigError: the packages are not installed
    """
    if not section.otel:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"[telemetry] otel: {error.name} is not installed: install chinwag[otel]"
        ) from error
    from core.spans import Spans

    ours = {"service.name": SERVICE, "service.version": version("chinwag")}
    # What the environment says wins.
    resource = Resource.create(ours).merge(OTELResourceDetector().detect())
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)
    try:
        with listening(Spans(tracers, meters, content=section.content)):
            yield
    finally:
        tracers.shutdown()
        meters.shutdown()
