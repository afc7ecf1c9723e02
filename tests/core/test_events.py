"""An event is a log record with fields."""

from __future__ import annotations

import logging

import pytest

from core.events import emit, logger, trouble


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, object]]:
    return [
        (record.levelno, record.getMessage(), getattr(record, "event", None))
        for record in caplog.records
    ]


def test_an_event_has_a_name_a_key_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger.name)
    emit("accepted", "telegram-chat:1", id="7", ms=0.5)
    emit("ready")
    assert events(caplog) == [
        (logging.INFO, "accepted", {"key": "telegram-chat:1", "id": "7", "ms": 0.5}),
        (logging.INFO, "ready", {}),
    ]
    assert {record.name for record in caplog.records} == {"chinwag"}


def test_trouble_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger.name)
    trouble("send.held", "telegram-chat:1", part="x.0")
    assert events(caplog) == [
        (logging.WARNING, "send.held", {"key": "telegram-chat:1", "part": "x.0"})
    ]


def test_an_event_that_nobody_asked_for_is_not_made(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger.name)
    emit("accepted", "telegram-chat:1")
    trouble("send.held")
    assert [name for _, name, _ in events(caplog)] == ["send.held"]


def test_a_percent_sign_in_a_name_is_no_format(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger.name)
    emit("100 %s")
    assert [name for _, name, _ in events(caplog)] == ["100 %s"]
