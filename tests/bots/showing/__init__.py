"""`bots.contracts.showing`, by the name that it had."""

from bots.contracts.showing import *  # noqa: F403
