"""`bots.contracts.adapter`, by the name that it had."""

from bots.contracts.adapter import *  # noqa: F403
