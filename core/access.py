"""Access: whom the owner lets in and whom not, besides what the config says; and who has asked.

Two notes of the store, each changed by compare-and-set: the lists, and a short table of strangers
who asked to be let in. What a person is asked by a card is here; who is admitted is the gate's
affair. Ids decide; a name is only for the owner to read.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from core.clock import Clock
from core.errors import StoreCorrupt
from core.messages import Sender
from core.store import Notes

LISTS: Final = "access.lists"
ASKED: Final = "access.asked"

MOST_ASKED: Final = 50
MOST_AN_HOUR: Final = 10
HOUR_MS: Final = 3_600_000
ASKED_MS: Final = 7 * 24 * HOUR_MS

Verdict = Literal["allow", "deny"]

_DATA: Final = re.compile(r"!([+-])([0-9a-f]{16})")


class Listed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody about whom it was decided.

    :param token: of the question that was answered by it
    """

    id: str
    name: str = ""
    at: int = 0
    token: str = ""


class Lists(msgspec.Struct, frozen=True, omit_defaults=True):
    allow: tuple[Listed, ...] = ()
    deny: tuple[Listed, ...] = ()

    def decided(self, token: str) -> tuple[Listed, Verdict] | None:
        """What became of a question."""
        for verdict, listed in (("allow", self.allow), ("deny", self.deny)):
            for each in listed:
                if each.token == token:
                    return each, verdict  # type: ignore[return-value]
        return None

    def without(self, person: str) -> Lists:
        return Lists(
            tuple(each for each in self.allow if each.id != person),
            tuple(each for each in self.deny if each.id != person),
        )

    def having(self, listed: Listed, verdict: Verdict) -> Lists:
        """With this person on this list, and on no other."""
        rest = self.without(listed.id)
        if verdict == "allow":
            return replace(rest, allow=(*rest.allow, listed))
        return replace(rest, deny=(*rest.deny, listed))


class Asking(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stranger who wants to speak.

    :param token: random; a button names it
    :param at: milliseconds since 1970, UTC
    """

    id: str
    name: str
    at: int
    token: str


_encode: Final = msgspec.json.Encoder().encode
_lists: Final = msgspec.json.Decoder(Lists).decode
_asking: Final = msgspec.json.Decoder(tuple[Asking, ...]).decode


def data(asking: Asking, verdict: Verdict) -> str:
    """What a button says."""
    return f"!{'+' if verdict == 'allow' else '-'}{asking.token}"


def pressed(text: str) -> tuple[str, Verdict] | None:
    """The question and the answer that a button names; None: it is none of these."""
    found = _DATA.fullmatch(text)
    return (found[2], "allow" if found[1] == "+" else "deny") if found else None


async def read(notes: Notes) -> Lists:
    """
    :raises StoreCorrupt: the note is not one of ours, and nobody may be let in by mistake
    """
    return _decoded(await notes.get(LISTS))


async def change(notes: Notes, how: Callable[[Lists], Lists]) -> Lists:
    """
    :param how: pure: it is applied again when somebody else was faster
    """
    while True:
        before = await notes.get(LISTS)
        after = how(_decoded(before))
        encoded = None if after == Lists() else _encode(after)
        if encoded == before or await notes.put(LISTS, encoded, was=before):
            return after


async def ask(notes: Notes, clock: Clock, sender: Sender) -> Asking | None:
    """Who wants to be let in is noted, once; None: too many did lately, and nobody is asked."""
    while True:
        before = await notes.get(ASKED)
        now = clock.now()
        known = tuple(each for each in _table(before) if now - each.at < ASKED_MS)
        for each in known:
            if each.id == sender.id:
                return each
        lately = sum(1 for each in known if now - each.at < HOUR_MS)
        if len(known) >= MOST_ASKED or lately >= MOST_AN_HOUR:
            return None
        asking = Asking(sender.id, sender.name, now, secrets.token_hex(8))
        if await notes.put(ASKED, _encode((*known, asking)), was=before):
            return asking


async def waiting(notes: Notes, clock: Clock) -> tuple[Asking, ...]:
    """Who asks, oldest first."""
    now = clock.now()
    return tuple(each for each in _table(await notes.get(ASKED)) if now - each.at < ASKED_MS)


async def decide(
    notes: Notes, clock: Clock, token: str, verdict: Verdict
) -> tuple[Listed, Verdict] | None:
    """The lists say it first, then the table forgets the question: killed in between, it was
    answered already. What was answered stays as it was; None: there is no such question."""
    known = (await read(notes)).decided(token)
    if known is not None:
        return known
    asking = next((each for each in await waiting(notes, clock) if each.token == token), None)
    if asking is None:
        return None
    listed = Listed(asking.id, asking.name, clock.now(), token)

    def how(lists: Lists) -> Lists:
        return lists if lists.decided(token) else lists.having(listed, verdict)

    decided = (await change(notes, how)).decided(token)
    await forget(notes, asking.id)
    return decided


async def forget(notes: Notes, person: str) -> None:
    """They have not asked."""
    while True:
        before = await notes.get(ASKED)
        left = tuple(each for each in _table(before) if each.id != person)
        encoded = _encode(left) if left else None
        if encoded == before or await notes.put(ASKED, encoded, was=before):
            return


def _table(note: bytes | None) -> tuple[Asking, ...]:
    """One that cannot be read is begun anew: it is only a list of questions."""
    try:
        return _asking(note) if note else ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def _decoded(note: bytes | None) -> Lists:
    if note is None:
        return Lists()
    try:
        return _lists(note)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreCorrupt(f"the stored access lists are none: {error}") from error
