"""What holds for every test: a developer's own settings and tokens never reach one."""

import logging
import os
from collections.abc import Iterator

import pytest

from tests import postgres, redis

# Read by python-telegram-bot when it is imported; without it reading a flood penalty warns.
os.environ["PTB_TIMEDELTA"] = "1"

_OURS = ("ANTHROPIC_", "CHINWAG_", "SLACK_", "TELEGRAM_")
_ASKED_OF_THE_SUITE = "CHINWAG_REQUIRE"  # the programs that must be there: no setting of a bot

for _name in [n for n in os.environ if n.startswith(_OURS) and n != _ASKED_OF_THE_SUITE]:
    del os.environ[_name]


@pytest.fixture(scope="session", autouse=True)
def _no_server_stays() -> Iterator[None]:
    yield
    postgres.stop()
    redis.stop()


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A test that runs a command in this process sets the levels of the log for all that follow,
    and leaves a handler at a stream that is closed by then."""
    root = logging.getLogger()
    known = [each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    levels = [(each, each.level) for each in (root, *known)]
    yield
    for each, level in levels:
        if each.level != level:
            each.setLevel(level)
    for handler in [each for each in root.handlers if type(each).__module__ == "bots.logs"]:
        root.removeHandler(handler)
