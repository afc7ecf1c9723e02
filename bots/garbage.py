"""How often Python looks for garbage while the program runs.

Not a limit for anything, and no memory is given back earlier or later than by reference counts:
what is looked for is only what refers to itself in a circle.
"""

from __future__ import annotations

import gc
from typing import Final

# Objects that were made and not yet freed, until the newest are looked through. With Python's own
# 700 a turn meets it several times, and nothing that a turn makes refers to itself.
NEW_OBJECTS: Final = 20_000


def spare_what_stays() -> None:
    """What the start has made (modules, settings, SDKs) stays to the end: it is looked through once
    more, and then never again. Once, when all of it is there; it takes some 0.1 s."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 10, 10)
