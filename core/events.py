"""The structured event of each hop: what happened, to which session, how long it took.

Never the text of a message, never a secret: fields are ids, counts, kinds and times. Events are
ordinary log records of the logger ``chinwag`` with the fields in ``record.event``; how they look
is decided where logging is set up. Whoever listens besides hears them whatever the log's level,
and, if it asks for that, what was said: that never reaches the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from msgspec import Raw

from core.messages import Message

logger: Final = logging.getLogger("chinwag")


class Listener(Protocol):
    """
    :param wants_content: whether `said` is called
    """

    wants_content: bool

    def heard(self, name: str, key: str | None, fields: Mapping[str, object]) -> None:
        """An event. It may not raise, nor take long: whoever it happened to waits."""
        ...

    def said(self, execution: str, asked: Sequence[Message], answered: Raw) -> None:
        """What went with the event ``answered`` that comes next: the messages that the model saw,
        and the blocks that it gave back."""
        ...


_listeners: Final[list[Listener]] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """It hears everything while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def emit(name: str, key: str | None = None, /, level: int = logging.INFO, **fields: object) -> None:
    """
    :param name: the hop or what went wrong in it: ``accepted``, ``committed``, ``send.later``
    :param key: text of the session key
    :param fields: ids, counts, kinds and times (`ms`); never text that a person or a model wrote
    """
    for listener in _listeners:
        listener.heard(name, key, fields)
    if logger.isEnabledFor(level):
        # Who calls us says nothing that the name does not: to look for it would cost a third.
        record = logger.makeRecord(logger.name, level, "", 0, name, (), None)
        record.event = {"key": key, **fields} if key is not None else fields
        logger.handle(record)


def trouble(name: str, key: str | None = None, /, **fields: object) -> None:
    """Somebody should look at this."""
    emit(name, key, level=logging.WARNING, **fields)


def said(execution: str, asked: Sequence[Message], answered: Raw) -> None:
    """What was said, for those who asked to hear it; the log never does."""
    for listener in _listeners:
        if listener.wants_content:
            listener.said(execution, asked, answered)
