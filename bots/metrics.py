"""`/metrics`: what the bot does in numbers, for Prometheus.

It listens to the events of `core.events` and counts; it adds nothing to them. Labels are platforms,
models, tools, outcomes and hops: never a key, a name or a text, so their number is bounded and the
page may be read by whoever watches the machine. Not pushed anywhere: that is what OpenTelemetry is
for (`bots.telemetry`). Everything begins at 0 with the process, as Prometheus wants it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bots.health import STANDING_BY
from core.errors import ConfigError
from core.keys import SessionKey
from core.messages import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

PATH: Final = "/metrics"
MOST_OPEN: Final = 10_000  # turns that may be under way; more have lost their end
# Seconds: an accept takes one of the first, a long answer one of the last.
BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600)

# What became of one try to send a part.
_SENDS: Final = {
    "delivered": "delivered",
    "send.later": "later",
    "send.held": "held",
    "send.unknown": "unknown",
    "send.gone": "gone",
    "send.failed": "failed",
}
_EXPIRED: Final = ("conversations", "messages", "usage", "aside", "blobs")
_ACCEPTED: Final = ("accepted", "duplicate", "refused")


class Metrics:
    """A `core.events.Listener`.

    :param depth: how many conversations wait or are worked on
    :param look: see `bots.health.Health.look`
    :param currency: of the prices
    :param slow: see `bots.pressure.Pressure.seconds`; 0.0 where nothing slows down
    :raises ConfigError: the package is not installed
    """

    wants_content = False

    def __init__(
        self,
        depth: Callable[[], int],
        look: Callable[[], Awaitable[tuple[bool, Mapping[str, Any]]]],
        currency: str,
        slow: Callable[[], float] = float,
    ) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
            from prometheus_client.platform_collector import PlatformCollector
            from prometheus_client.process_collector import ProcessCollector
        except ImportError as error:
            raise ConfigError(
                f"[http] metrics: {error.name} is not installed: install chinwag[metrics]"
            ) from None
        # One of our own: whatever else counts in this process has nothing to do with the bot.
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"chinwag_{name}", about, labels, registry=registry)

        def gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(f"chinwag_{name}", about, labels, registry=registry)

        self._messages = counter("messages", "Messages that came in.", "platform", "kind", "result")
        self._turns = counter("turns", "Turns that have ended.", "outcome")
        self._answers = counter(
            "answers", "Answers of a model, by why it stopped.", "model", "stop"
        )
        self._again = counter("model_retries", "Model calls that had to be made again.")
        self._tokens = counter("tokens", "Tokens of model calls.", "model", "type")
        self._money = counter("money", f"What model calls cost, in {currency}.", "model")
        self._tools = counter("tool_calls", "Calls of tools.", "tool", "result")
        self._sends = counter(
            "sends", "Tries to send a part of a reply, by what came of it.", "platform", "outcome"
        )
        self._seconds = Histogram(
            "chinwag_hop_seconds",
            "How long each step of a message took.",
            ("hop",),
            registry=registry,
            buckets=BUCKETS,
        )
        queue = gauge("queue_depth", "Conversations that wait or are worked on.")
        queue.set_function(depth)
        slowed = gauge("intake_slowed_seconds", "By which a message is taken in later, now.")
        slowed.set_function(slow)
        self._healthy = gauge("healthy", "1 while /healthz says 200.")
        self._oldest = gauge("oldest_seconds", "Age of what waits longest.", "where")
        self._contact = gauge(
            "seconds_since_contact", "Since a platform last answered us or came to us.", "adapter"
        )
        self._taking_in = gauge(
            "taking_in", "1 while this process takes in what a platform brings.", "adapter"
        )
        self._expired = counter("expired", "What went by its age or for want of room.", "what")
        self._stored = gauge("stored_bytes", "What is stored, where [retention] megabytes is set.")
        self._full = gauge("retention_full", "1 when no more can go, and it is still too much.")
        self._look = look
        # When each turn began, by its execution, and what has become of it so far.
        self._open: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def route(self) -> Route:
        return Route(PATH, self._answer, methods=["GET"])

    # ------------------------------------------------------------------ events

    def heard(self, name: str, key: str | None, fields: Mapping[str, Any]) -> None:
        if name in _ACCEPTED:
            self._messages.labels(_platform(key), str(fields.get("kind", "")), name).inc()
            self._took("accept", fields)
        elif name in _SENDS:
            self._sends.labels(_platform(key), _SENDS[name]).inc()
            self._took("deliver", fields)
        elif name == "answered":
            self._answered(fields)
        elif name == "spent":
            if fields["cost"] is not None:
                self._money.labels(fields["model"]).inc(fields["cost"] / 1e12)
        elif name == "tool":
            self._tools.labels(fields["tool"], "ok" if fields["ok"] else "error").inc()
            self._took("tool", fields)
        elif name == "model.again":
            self._again.inc()
        elif name == "retention":
            for what in _EXPIRED:
                self._expired.labels(what).inc(fields[what])
        elif name in ("retention.room", "retention.full"):
            self._stored.set(fields["bytes"])
            self._full.set(name == "retention.full")
        elif name == "started":
            self._open[str(fields["execution"])] = (time.monotonic(), "abandoned")
            if len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        elif name in ("committed", "apologised", "fenced", "suspended"):
            self._outcome(str(fields["execution"]), str(fields.get("outcome", name)))
        elif name == "ended":
            began, outcome = self._open.pop(str(fields["execution"]), (None, ""))
            if began is not None:
                self._turns.labels(outcome).inc()
                self._seconds.labels("turn").observe(time.monotonic() - began)

    def said(self, execution: str, asked: Sequence[Message], answered: Raw) -> None:
        """Never called: it wants no content."""

    def _answered(self, fields: Mapping[str, Any]) -> None:
        model = fields["model"]
        self._answers.labels(model, str(fields["stop"])).inc()
        for kind in ("input", "cached", "cache_written", "output"):
            self._tokens.labels(model, kind).inc(fields[kind])
        self._took("model", fields)
        if fields.get("first_ms") is not None:
            self._seconds.labels("first_text").observe(fields["first_ms"] / 1000)

    def _outcome(self, execution: str, outcome: str) -> None:
        found = self._open.get(execution)
        if found is not None:
            self._open[execution] = (found[0], outcome)

    def _took(self, hop: str, fields: Mapping[str, Any]) -> None:
        if fields.get("ms") is not None:
            self._seconds.labels(hop).observe(fields["ms"] / 1000)

    # ------------------------------------------------------------------ the page

    async def _answer(self, request: Request) -> Response:
        from prometheus_client.exposition import choose_encoder

        healthy, seen = await self._look()
        self._healthy.set(healthy)
        for where in ("inbox", "outbox"):
            self._oldest.labels(where).set(seen[f"oldest_{where}_seconds"] or 0)
        for name, adapter in seen["adapters"].items():
            contact = adapter["seconds_since_contact"]
            # Never yet is as long as we run.
            self._contact.labels(name).set(seen["uptime_seconds"] if contact is None else contact)
            self._taking_in.labels(name).set(adapter["state"] != STANDING_BY)
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        page = encode(self.registry)
        return Response(page, headers={"Content-Type": media_type, "Cache-Control": "no-store"})


def _platform(key: str | None) -> str:
    """``telegram`` of ``telegram-chat@support:1``: few, whatever people write from."""
    parsed = SessionKey.parse(key or "")
    return parsed.scope.partition("-")[0] if parsed else ""
