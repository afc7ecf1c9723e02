"""What may go wrong between a bot and Telegram, and the rules that say when.

A fault strikes one call at a time. It changes what the client gets to see, never what the server
knows: the stand-in goes on from its own state, as Telegram would.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Delay:
    """The answer is late. The thing itself is done at once, or only after the wait when `before`.

    A client that stops waiting does not undo it.
    """

    seconds: float
    before: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """An error instead of doing it. `html`: the page of a proxy instead of JSON."""

    status: int
    description: str | None = None
    retry_after: int | None = None
    html: bool = False


@dataclass(frozen=True, slots=True)
class ResetBefore:
    """The TCP connection is reset, and nothing was done."""


@dataclass(frozen=True, slots=True)
class ResetAfter:
    """It is done, then the TCP connection is reset: the client cannot know."""


@dataclass(frozen=True, slots=True)
class GarbageBody:
    """200 with a body that is no JSON. It was done only if `done`."""

    text: str = "<!doctype html><title>Sign in to the network</title>"
    done: bool = False


@dataclass(frozen=True, slots=True)
class DeliverTwice:
    """For getUpdates: the next batch that is not empty comes twice, though confirmed."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """For a download: it is to be had at this URL, says a redirect."""

    url: str


@dataclass(frozen=True, slots=True)
class Overflow:
    """For a download: so many bytes, of which nobody was told before."""

    total: int


@dataclass(frozen=True, slots=True)
class CutShort:
    """For a download: the connection breaks after so many bytes."""

    sent: int


OfFile = Elsewhere | Overflow | CutShort
Fault = Delay | Answer | ResetBefore | ResetAfter | GarbageBody | DeliverTwice | OfFile


@dataclass(eq=False, slots=True)
class Rule:
    """When a fault strikes: on calls that match, after the first `after`, `times` times or
    always."""

    pattern: str
    fault: object
    times: int | None = 1
    chat: int | str | None = None
    after: int = 0
    hits: int = 0

    def cancel(self) -> None:
        self.times = self.hits

    @property
    def spent(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def matches(self, method: str, chat: object) -> bool:
        return fnmatchcase(method, self.pattern.lower()) and self.chat in (None, chat)


@dataclass(slots=True)
class Faults:
    """The rules in order. One fault per call: the first rule that is due takes it."""

    rules: list[Rule] = field(default_factory=list)

    def strike(self, method: str, chat: object) -> Rule | None:
        """The rule that takes this call, counted as a hit. Rules that still wait count it down."""
        for rule in self.rules:
            if rule.spent or not rule.matches(method, chat):
                continue
            if rule.after > 0:
                rule.after -= 1
                continue
            rule.hits += 1
            return rule
        return None
