"""What the start has made is looked through no more; what comes later still is."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from bots.garbage import NEW_OBJECTS, spare_what_stays


class Circle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_what_is_there_stays() -> None:
    before = Circle()

    spare_what_stays()

    assert gc.get_freeze_count() > 10_000
    assert not any(each is before for each in gc.get_objects())
    assert gc.get_threshold()[0] == NEW_OBJECTS


def test_what_refers_to_itself_later_goes() -> None:
    spare_what_stays()
    gone = weakref.ref(Circle())

    for _ in range(2 * NEW_OBJECTS):
        if gone() is None:
            break
        _keep.append([])
    _keep.clear()

    assert gone() is None


_keep: list[list[int]] = []
