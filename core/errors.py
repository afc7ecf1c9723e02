"""Every error that chinwag raises on purpose, and nothing else: no handling, no logging.

::

    ChinwagError
    ├── InvalidKey                 a session key that cannot be (also a ValueError)
    ├── ConfigError                settings that cannot be used: file, key, cure     exit 2
    ├── StoreError
    │   ├── StoreUnavailable       disk full, locked, I/O: try again; outcome may be unknown
    │   │   └── StoreEmpty         opened to be read, and nothing is stored there yet
    │   ├── StoreCorrupt           the database itself is damaged or is not ours     exit 3
    │   ├── StoreOutdated          an older chinwag wrote it: `chinwag migrate`             exit 3
    │   ├── StoreInUse             another process holds it                          exit 3
    │   ├── SnapshotUnreadable     one conversation cannot be read; its bytes are untouched
    │   ├── SnapshotTooNew         one conversation was written by a newer chinwag
    │   ├── BlobUnreadable         one image, document or long result cannot be read
    │   ├── CannotUnseal           something encrypted cannot be read with the keys that we have
    │   └── StaleSnapshot          somebody else saved first; nothing was changed
    ├── SendError                  what Adapter.send raises
    │   ├── TryLater               not now; after `seconds`
    │   ├── Gone                   the chat is gone or has blocked us
    │   ├── Moved                  the chat has another key now
    │   ├── OutcomeUnknown         it may have been sent
    │   └── Undeliverable          this part can never be sent
    ├── NotFetched                 raised by Fetches.fetch: its sentence goes to the model
    ├── PlatformRefused            the platform refused us for good (token, twin)    exit 4
    │   └── PlatformTaken          another process takes in by the same token        exit 4
    ├── ModelError                 what ModelClient.answer raises
    │   ├── ModelUnavailable       overloaded, rate limit, network, cut stream, silence
    │   ├── ModelRefusedKey        no key, wrong key, no credit                      exit 5
    │   ├── ModelNotFound          no such model (any more)
    │   └── ModelRejected          the request itself was refused (400, 413)
    ├── BudgetReached              nothing more may be spent for now; no call was made
    ├── ToolError                  raised by a tool: its sentence goes to the model
    ├── SessionError
    │   ├── Cleared                the session was cleared while a run was under way
    │   ├── SessionBusy            too many runs wait for this session
    │   └── Fenced                 a turn learned that it is no longer the one
    └── Fatal                      the program must end with `exit_code`
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from core.usage import Usage


class ChinwagError(Exception):
    """The root: `except ChinwagError` catches all that chinwag itself says."""


class InvalidKey(ChinwagError, ValueError):
    """A session key that cannot be: empty, too long, with NUL, or with a bad scope."""


class ConfigError(ChinwagError):
    """Settings that cannot be used. The text names the file, the key and the cure."""


class StoreError(ChinwagError):
    """Anything that a store says."""


class StoreUnavailable(StoreError):
    """Not now: disk full, locked, I/O error. What was asked may or may not have happened."""


class StoreEmpty(StoreUnavailable):
    """Opened to be read, and nothing is stored there yet.

    :param weaknesses: what a save there would not survive, as the server is set up
    """

    def __init__(self, why: str, weaknesses: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.weaknesses = weaknesses


class StoreCorrupt(StoreError):
    """The database as a whole is damaged, or is not a chinwag database. Nothing was written."""


class StoreOutdated(StoreError):
    """An older chinwag wrote this database, and it has not been brought up. Nothing was written."""


class StoreInUse(StoreError):
    """Another process holds this database."""


class SnapshotUnreadable(StoreError):
    """One stored conversation cannot be read. Its bytes are where they were."""


class SnapshotTooNew(StoreError):
    """One stored conversation was written by a newer version. Its bytes are where they were."""


class BlobUnreadable(StoreError):
    """The bytes of one blob are not those that were stored. Never given out."""


class CannotUnseal(StoreError):
    """What is stored encrypted cannot be read: its key is missing, or it was changed."""


class StaleSnapshot(StoreError):
    """The stored revision is not the one the caller saw. Nothing was changed."""


class SendError(ChinwagError):
    """Why a part could not be sent."""


class TryLater(SendError):
    """The platform asks us to wait.

    :param seconds: how long, from now.
    """

    def __init__(self, seconds: float, why: str = "") -> None:
        super().__init__(why or f"try again in {seconds:g} s")
        self.seconds = seconds


class Gone(SendError):
    """The chat does not exist any more, or its owner has blocked the bot."""


class Moved(SendError):
    """The chat goes on under another key.

    :param old: the text that the chat's keys begin with, without a trailing slash
    :param new: what they begin with from now on
    """

    def __init__(self, old: str, new: str) -> None:
        super().__init__(f"{old} is now {new}")
        self.old = old
        self.new = new


class OutcomeUnknown(SendError):
    """The request left, the answer did not come: the part may be on the screen."""


class Undeliverable(SendError):
    """The platform refuses this part, and would refuse it again."""


class NotFetched(ChinwagError):
    """A file that somebody sent cannot be had, and could not be later.

    :param sentence: why, in plain words without a secret: the model reads it, and tells it
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class PlatformRefused(ChinwagError):
    """The platform refuses to work with us: a wrong token, or a second process that polls."""


class PlatformTaken(PlatformRefused):
    """Another process takes in what only one may: it may be one of our own, about to notice."""


class ModelError(ChinwagError):
    """Anything that a model client says.

    :ivar usage: what is billed although there is no answer, as far as one can know; None: the
        service did not say, and may bill all of it
    """

    usage: Usage | None = Usage()


class ModelUnavailable(ModelError):
    """Overloaded, rate limited, unreachable, silent, or cut off in the middle.

    :param retry_after: seconds, when the service named them
    :param usage: see `ModelError`
    """

    def __init__(
        self, why: str, retry_after: float | None = None, usage: Usage | None = None
    ) -> None:
        super().__init__(why)
        self.retry_after = retry_after
        self.usage = usage


class ModelRefusedKey(ModelError):
    """There is no key, the key is wrong, or its credit is used up."""


class ModelNotFound(ModelError):
    """The service does not know this model, or not any more."""


class ModelRejected(ModelError):
    """The service refuses this request as it is; sending it again would not help."""


class BudgetReached(ChinwagError):
    """A limit has no room for another model call: none was made.

    :param scope: ``sender``, ``chat`` or ``all``
    :param period: ``day``, ``month`` or ``ever``
    :param until: when there will be room again; None: not by itself
    :param unpriced: a limit is in money, and nobody knows what the model costs
    """

    def __init__(
        self, scope: str, period: str, until: datetime | None, *, unpriced: bool = False
    ) -> None:
        why = "the price of the model is not known" if unpriced else "it is used up"
        super().__init__(f"the budget of {scope} per {period}: {why}")
        self.scope = scope
        self.period = period
        self.until = until
        self.unpriced = unpriced


class ToolError(ChinwagError):
    """A tool raises this to tell the model, in a plain sentence, what went wrong."""


class SessionError(ChinwagError):
    """Anything that a Session says."""


class Cleared(SessionError):
    """The session was cleared while this run was under way: its answer is not kept."""


class SessionBusy(SessionError):
    """Too many runs already wait for this session."""


class Fenced(SessionError):
    """This turn is no longer the one under way: stop, and write nothing more."""


class Fatal(ChinwagError):
    """The program must end.

    :param exit_code: 3 database, 4 a platform refused us, 5 the model refused us
    """

    def __init__(self, exit_code: int, why: str) -> None:
        super().__init__(why)
        self.exit_code = exit_code
