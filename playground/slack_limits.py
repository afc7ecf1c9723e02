"""How often Slack lets a method be called, when `limited`: 429 with Retry-After beyond that.

A tier is so many calls a minute for an app in a workspace; chat.postMessage is one a second in each
channel, with a short burst (docs.slack.dev, "Rate limits"). Apps that are distributed, and not in
Slack's marketplace, may read a conversation once a minute, 15 messages at a time. The tiers of
Slack promise a least number and bend above it; here the number is exact, so that a test is.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from playground.slack_chats import Json, Refused

BURST = 5
READING = frozenset(("conversations.history", "conversations.replies"))
DISTRIBUTED_PAGE = 15


@dataclass(slots=True)
class Limits:
    """Counts the calls. `distributed`: our app is one that others install."""

    clock: Callable[[], float]
    limited: bool = False
    distributed: bool = False
    _calls: dict[tuple[str, str], deque[float]] = field(default_factory=dict)

    def count(self, method: str, tier: int | None, team: str | None, given: Json) -> None:
        """Notes a call. Raises `Refused` (429) when it is one too many: it is not done."""
        if self.distributed and method in READING:
            tier = 1
            given["limit"] = min(given.get("limit") or DISTRIBUTED_PAGE, DISTRIBUTED_PAGE)
        if not self.limited or tier is None:
            return
        window, most, about = 60.0, tier, team or ""
        if method == "chat.postMessage":
            window, most, about = float(BURST), BURST, f"{about}/{given.get('channel')}"
        now = self.clock()
        calls = self._calls.setdefault((method, about), deque())
        while calls and now - calls[0] >= window:
            calls.popleft()
        if len(calls) >= most:
            wait = max(1, math.ceil(window - (now - calls[0])))
            raise Refused("ratelimited", 429, retry_after=wait)
        calls.append(now)
