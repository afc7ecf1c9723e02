"""`/metrics`: what is counted, and that no label is anybody's."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from bots.metrics import MOST_OPEN, Metrics
from core.errors import ConfigError
from core.events import emit, listening

KEY = "telegram-chat@support:-100777"
USED: Mapping[str, Any] = {
    "execution": "e1",
    "agent": "assistant",
    "model": "anthropic/claude-sonnet-5-5",
    "ms": 1500.0,
    "first_ms": 400.0,
    "stop": "end_turn",
    "calls": 0,
    "input": 10,
    "cached": 20,
    "cache_written": 30,
    "output": 40,
}


async def look() -> tuple[bool, dict[str, Any]]:
    return False, {
        "uptime_seconds": 60.0,
        "oldest_inbox_seconds": 7.5,
        "oldest_outbox_seconds": None,
        "adapters": {
            "telegram": {"state": "polling", "seconds_since_contact": 3.0},
            "telegram@support": {"state": "standing by", "seconds_since_contact": None},
        },
    }


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: 5, look, "USD", lambda: 0.5)


async def page(metrics: Metrics, accept: str = "") -> str:
    scope = {"type": "http", "headers": [(b"accept", accept.encode())]}
    response = await metrics.route().endpoint(Request(scope))
    assert response.headers["content-type"].startswith(accept or "text/plain")
    return bytes(response.body).decode()


async def samples(metrics: Metrics) -> dict[str, float]:
    """``name{label="value"}`` -> value, for ours that are not 0."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(await page(metrics)):
        for sample in family.samples:
            if sample.name.startswith("chinwag_") and sample.value:
                labels = [f" {label}={value}" for label, value in sorted(sample.labels.items())]
                found[sample.name + "".join(labels)] = sample.value
    return {name: value for name, value in found.items() if "_created" not in name}


async def test_what_can_be_seen_at_any_time(metrics: Metrics) -> None:
    assert await samples(metrics) == {
        "chinwag_queue_depth": 5,
        "chinwag_intake_slowed_seconds": 0.5,
        "chinwag_taking_in adapter=telegram": 1,
        "chinwag_oldest_seconds where=inbox": 7.5,
        "chinwag_seconds_since_contact adapter=telegram": 3.0,
        "chinwag_seconds_since_contact adapter=telegram@support": 60.0,
    }


async def test_a_message_from_hop_to_hop(metrics: Metrics) -> None:
    with listening(metrics):
        emit("accepted", KEY, id="1", kind="message", characters=5, ms=3.0)
        emit("duplicate", KEY, id="1", kind="message", characters=5, ms=1.0)
        emit("started", KEY, execution="e1", agent="assistant", attempt=1, messages=1)
        emit("answered", KEY, **USED)
        emit("spent", KEY, execution="e1", model=USED["model"], cost=2_500_000_000, estimated=False)
        emit("spent", KEY, execution="e1", model="unpriced", cost=None, estimated=False)
        emit("tool", KEY, execution="e1", agent="a", tool="clock", call="c", ms=9.0, ok=True)
        emit("tool", KEY, execution="e1", agent="a", tool="clock", call="d", ms=9.0, ok=False)
        emit("committed", KEY, execution="e1", outcome="answered", parts=1, characters=9)
        emit("ended", KEY, execution="e1")
        emit("send.later", KEY, part="p", seconds=2)
        emit("delivered", KEY, part="p", messages="1", ms=80.0)
        emit("model.again", KEY, execution="e2", attempt=1, error="overloaded")
    found = await samples(metrics)
    model = USED["model"]
    expected = {
        "chinwag_messages_total kind=message platform=telegram result=accepted": 1,
        "chinwag_messages_total kind=message platform=telegram result=duplicate": 1,
        "chinwag_turns_total outcome=answered": 1,
        f"chinwag_answers_total model={model} stop=end_turn": 1,
        "chinwag_model_retries_total": 1,
        f"chinwag_tokens_total model={model} type=input": 10,
        f"chinwag_tokens_total model={model} type=cached": 20,
        f"chinwag_tokens_total model={model} type=cache_written": 30,
        f"chinwag_tokens_total model={model} type=output": 40,
        f"chinwag_money_total model={model}": 0.0025,
        "chinwag_tool_calls_total result=ok tool=clock": 1,
        "chinwag_tool_calls_total result=error tool=clock": 1,
        "chinwag_sends_total outcome=later platform=telegram": 1,
        "chinwag_sends_total outcome=delivered platform=telegram": 1,
        "chinwag_hop_seconds_count hop=accept": 2,
        "chinwag_hop_seconds_count hop=model": 1,
        "chinwag_hop_seconds_count hop=first_text": 1,
        "chinwag_hop_seconds_count hop=tool": 2,
        "chinwag_hop_seconds_count hop=deliver": 1,
        "chinwag_hop_seconds_count hop=turn": 1,
        "chinwag_hop_seconds_sum hop=model": 1.5,
        "chinwag_hop_seconds_sum hop=deliver": 0.08,
    }
    assert {name: found.get(name) for name in expected} == expected


async def test_a_turn_without_an_outcome_was_abandoned(metrics: Metrics) -> None:
    with listening(metrics):
        emit("started", KEY, execution="e1", attempt=1)
        emit("ended", KEY, execution="e1")
        emit("ended", KEY, execution="never begun")
        emit("committed", KEY, execution="never begun", outcome="answered")
        emit("started", KEY, execution="e2", attempt=1)
        emit("apologised", KEY, execution="e2", why="attempts")
        emit("ended", KEY, execution="e2")
    found = await samples(metrics)
    turns = {name: value for name, value in found.items() if "turns_total" in name}
    assert turns == {
        "chinwag_turns_total outcome=abandoned": 1,
        "chinwag_turns_total outcome=apologised": 1,
    }


async def test_what_went_by_itself(metrics: Metrics) -> None:
    with listening(metrics):
        went = {"conversations": 3, "messages": 40, "usage": 5, "aside": 0, "blobs": 1}
        for _ in range(2):
            emit("retention", **went, unfinished=2, undelivered=0, unreadable=0, longest_ms=7)
        emit("retention.full", bytes=2_000_000, limit=1_000_000, before=3_000_000)
        full = await samples(metrics)
        emit("retention.room", bytes=900_000, limit=1_000_000, before=2_000_000)
        room = await samples(metrics)
    assert full["chinwag_expired_total what=conversations"] == 6
    assert full["chinwag_expired_total what=messages"] == 80
    assert full["chinwag_expired_total what=blobs"] == 2
    assert (full["chinwag_stored_bytes"], full["chinwag_retention_full"]) == (2_000_000, 1)
    assert room["chinwag_stored_bytes"] == 900_000 and "chinwag_retention_full" not in room


async def test_turns_that_lost_their_end_are_forgotten(metrics: Metrics) -> None:
    with listening(metrics):
        for number in range(MOST_OPEN + 5):
            emit("started", KEY, execution=f"e{number}", attempt=1)
        emit("ended", KEY, execution="e0")
        emit("ended", KEY, execution=f"e{MOST_OPEN}")
    assert (await samples(metrics))["chinwag_turns_total outcome=abandoned"] == 1
    assert len(metrics._open) == MOST_OPEN - 1


async def test_nobody_can_be_told_from_it(metrics: Metrics) -> None:
    with listening(metrics):
        emit("accepted", KEY, id="1", kind="message", characters=5, ms=3.0)
        emit("refused", KEY, why="stranger", sender="telegram:4242")
        emit("refused", "no key of ours", why="too fast", sender="telegram:4242")
    text = await page(metrics)
    assert "4242" not in text
    assert "777" not in text
    assert 'chinwag_messages_total{kind="",platform="",result="refused"} 1.0' in text


async def test_the_newer_form_for_who_asks_for_it(metrics: Metrics) -> None:
    assert (await page(metrics, "application/openmetrics-text")).endswith("# EOF\n")


def test_it_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"install chinwag\[metrics\]"):
        Metrics(lambda: 0, look, "USD")


async def test_the_dashboard_shows_what_there_is(metrics: Metrics) -> None:
    """Every metric of ours that it asks for exists, and each of ours is on it."""
    dashboard = (Path(__file__).parents[2] / "examples" / "grafana.json").read_text("utf-8")
    shown = {
        re.sub("_(total|bucket)$", "", name) for name in re.findall(r"chinwag_[a-z_]+", dashboard)
    }
    ours = {
        family.name
        for family in text_string_to_metric_families(await page(metrics))
        if family.name.startswith("chinwag_") and not family.name.endswith("_created")
    }
    assert shown <= ours
    # Why models stop, how often they are asked again and which tools fail is for a closer look.
    assert ours - shown == {"chinwag_answers", "chinwag_model_retries", "chinwag_tool_calls"}
