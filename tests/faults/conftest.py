"""Thousands of runs: what they log is made, and goes nowhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    logger = logging.getLogger("chinwag")
    level, logger.propagate = logger.level, False
    handler = logging.NullHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.CRITICAL)
    yield
    logger.removeHandler(handler)
    logger.setLevel(level)
    logger.propagate = True
