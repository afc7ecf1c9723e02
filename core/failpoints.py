"""The named points where a test may kill the process, and nothing else.

``CHINWAG_FAILPOINT=committed:3`` kills it with SIGKILL at the third passage of `committed`. Unset,
as it is for everybody else, a point costs one comparison.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
from typing import Final

NAMES: Final = (
    "received",
    "before_accept",
    "accepted",
    "submitted",
    "started",
    "before_model",
    "answered",
    "before_tools",
    "tools_done",
    "before_commit",
    "committed",
    "before_send",
    "sent",
    "marked",
)

_armed, _, _hit = os.environ.get("CHINWAG_FAILPOINT", "").partition(":")
_passages = itertools.count(1)

if _armed and _armed not in NAMES:
    raise SystemExit(f"CHINWAG_FAILPOINT: no failpoint {_armed!r}; there are {', '.join(NAMES)}")
if _hit and not re.fullmatch("[1-9][0-9]*", _hit):
    raise SystemExit(f"CHINWAG_FAILPOINT: {_hit!r} is no passage; they count from 1")


def failpoint(name: str) -> None:
    """Die here, if this is the passage that a test asked for."""
    if name == _armed and next(_passages) == int(_hit or 1):
        os.kill(os.getpid(), signal.SIGKILL)
