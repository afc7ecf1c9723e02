"""`bots.contracts.store`, by the name that it had."""

from bots.contracts.store import *  # noqa: F403
