"""The structured event of each hop: what happened, to which session, how long it took.

Never the text of a message, never a secret: fields are ids, counts, kinds and times. Events are
ordinary log records of the logger ``chinwag`` with the fields in ``record.event``; how they look
is decided where logging is set up.
"""

from __future__ import annotations

import logging
from typing import Final

logger: Final = logging.getLogger("chinwag")


def emit(name: str, key: str | None = None, /, level: int = logging.INFO, **fields: object) -> None:
    """
    :param name: the hop or what went wrong in it: ``accepted``, ``committed``, ``send.later``
    :param key: text of the session key
    :param fields: ids, counts, kinds and times (`ms`); never text that a person or a model wrote
    """
    if logger.isEnabledFor(level):
        event = {"key": key, **fields} if key is not None else fields
        logger.log(level, name, extra={"event": event})


def trouble(name: str, key: str | None = None, /, **fields: object) -> None:
    """Somebody should look at this."""
    emit(name, key, level=logging.WARNING, **fields)
