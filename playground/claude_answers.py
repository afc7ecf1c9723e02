"""What the stand-in for Claude can answer: small values, from a plain sentence to a torn line.

They say what happens, not how it looks on the wire; `claude_wire` knows that. The good ones are
`Say`, `UseTools`, `Think` and `Pause`; `Refuse`, `Empty` and `Whitespace` are answers a client must
expect; all others are faults of the service or of the network.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

SIGNATURE_PREFIX = "playground-"
_SIGNATURE_KEY = (
    b"this protects nothing; it only shows whether a thinking block came back unchanged"
)

HALF = "This is an answer that will never be finished because something happens on the way."


def sign(thinking: str) -> str:
    """The signature of a thinking block. The same in every process: stored histories stay valid."""
    digest = hmac.new(
        _SIGNATURE_KEY, thinking.encode("utf-8", "surrogatepass"), hashlib.sha256
    ).hexdigest()
    return SIGNATURE_PREFIX + digest


@dataclass(frozen=True)
class Say:
    """One text block. `deltas` are the pieces it is streamed in (default: word by word), which
    replace `text` when given; `pause` is the time in seconds before each of them (default: the
    pace of the server)."""

    text: str
    stop_reason: str = "end_turn"
    deltas: tuple[str, ...] | None = None
    pause: float = 0.0


@dataclass(frozen=True)
class ToolUse:
    """One call of a tool. Without an `id` the server makes one, a new one for each request."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class UseTools:
    """A thinking block and a text block, where given, then the calls; stop reason `tool_use`."""

    calls: tuple[ToolUse, ...]
    text: str = ""
    thinking: str = ""


@dataclass(frozen=True)
class Think:
    """A signed thinking block, then a text block. To a request with `display: omitted` the block
    goes out with an empty text, as from the real service."""

    thinking: str
    text: str


@dataclass(frozen=True)
class Pause:
    """Stop reason `pause_turn`. Only after it may a request end with an assistant message, the one
    that was paused, sent back unchanged."""

    text: str


@dataclass(frozen=True)
class Compacted:
    """A compaction block, then an answer; without a text the compaction has failed."""

    text: str | None
    answer: Say | UseTools | Think


@dataclass(frozen=True)
class Refuse:
    """Stop reason `refusal`, with its category, after as much text as `partial` has."""

    category: str | None = "cyber"
    partial: str = ""


@dataclass(frozen=True)
class Empty:
    """No content at all, stop reason `end_turn`."""


@dataclass(frozen=True)
class Whitespace:
    """A text block of nothing but white space, stop reason `end_turn`."""

    text: str = " \n\n "


@dataclass(frozen=True)
class Fail:
    """An HTTP error, such as `Fail(429, "rate_limit_error", retry_after=2)`."""

    status: int
    type: str
    message: str = ""
    retry_after: float | None = None


@dataclass(frozen=True)
class ErrorEvent:
    """Status 200, then an `error` event after so many deltas. Not streamed: an HTTP error."""

    type: str = "overloaded_error"
    after_deltas: int = 1
    text: str = HALF


@dataclass(frozen=True)
class Cut:
    """The connection is closed after so many deltas, in the middle of the answer; `None` closes it
    before the first byte. Not streamed: closed in the middle of the JSON."""

    after_deltas: int | None = 1
    text: str = HALF


@dataclass(frozen=True)
class EndEarly:
    """The HTTP answer ends as it should, but the stream in it has no `message_stop`, not even the
    end of its block. Not streamed: half of the JSON."""

    after_deltas: int = 1
    text: str = HALF


@dataclass(frozen=True)
class Silence:
    """Nothing is sent for so many seconds, then the connection is closed; ends sooner when the
    client goes away. With `headers` the status line is sent first."""

    seconds: float
    headers: bool = False


@dataclass(frozen=True)
class Raw:
    """These bytes, in these chunks, as the body: for odd borders, comments, unknown events."""

    chunks: tuple[bytes, ...]


Answer: TypeAlias = (
    Say
    | UseTools
    | Think
    | Pause
    | Compacted
    | Refuse
    | Empty
    | Whitespace
    | Fail
    | ErrorEvent
    | Cut
    | EndEarly
    | Silence
    | Raw
)
