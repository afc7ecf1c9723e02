"""Who has installed the app, and with which token: sealed, in the notes of the store.

Not how an app is installed (`oauth.py`). One note for each workspace, or for each organisation that
has it everywhere, and one that lists them. A note is sealed for its own name, so the token of one
workspace cannot be put in the place of another's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from core.seal import Seal
from core.store import Notes

_encode: Final = msgspec.json.Encoder().encode
_names: Final = msgspec.json.Decoder(list[str])


class Install(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    :param enterprise: the organisation (``E...``), where there is one
    :param team: the workspace (``T...``); None: it is installed in all of the organisation
    :param name: of the workspace or the organisation, for people
    :param bot_user: the bot's own user id (``U...``)
    :param bot_id: the id of its messages' author (``B...``)
    :param token: never shown
    :param refresh: for the next token; None: tokens do not end
    :param expires: when the token ends, in seconds since 1970
    :param refreshing: until when somebody is asking for the next token, in ms since 1970
    :param installer: the user who installed it
    :param at: when, in ms since 1970
    """

    enterprise: str | None
    team: str | None
    name: str
    app: str
    bot_user: str
    bot_id: str
    token: str
    refresh: str | None = None
    expires: int | None = None
    refreshing: int = 0
    scopes: tuple[str, ...] = ()
    installer: str = ""
    at: int = 0

    def __repr__(self) -> str:
        return f"Install({self.where}, {self.name!r})"

    @property
    def where(self) -> str:
        """What it is called in lists: ``T1``, or ``E1`` when it is of a whole organisation."""
        return self.team or self.enterprise or ""


_decode: Final = msgspec.json.Decoder(Install).decode


class Installs:
    """
    :param account: which of several apps of one database this is
    """

    def __init__(self, notes: Notes, seal: Seal, account: str | None = None) -> None:
        self._notes = notes
        self._seal = seal
        self._prefix = "slack" if account is None else f"slack@{account}"

    async def find(self, team: str | None, enterprise: str | None = None) -> Install | None:
        """The workspace's own, or else that of its organisation.

        :param team: None: that of the organisation
        :param enterprise: the organisation, where an event has named it; it is remembered
        :raises CannotUnseal: it is there, but cannot be read
        """
        if team is None:
            return await self._read(self._name(enterprise, None))
        of = enterprise or await self._home(team)
        names = [self._name(of, team)]
        if of is not None:
            # The first of these is from before the workspace joined the organisation.
            names += [self._name(None, team), self._name(of, None)]
        for name in names:
            found = await self._read(name)
            if found is not None:
                if found.enterprise and enterprise:
                    await self._remember(team, enterprise)
                return found
        return None

    async def save(self, install: Install) -> None:
        """In the place of the one before, if there was one."""
        if install.team and install.enterprise:
            await self._remember(install.team, install.enterprise)
        name = self._name(install.enterprise, install.team)
        # First its name: what is listed and not there is passed over, what is there and not listed
        # could never be removed.
        await self._list(lambda names: sorted({*names, name}))
        sealed = self._seal.seal(_encode(install), name)
        while not await self._notes.put(name, sealed, was=await self._notes.get(name)):
            pass

    async def change(
        self, install: Install, change: Callable[[Install], Install | None]
    ) -> Install | None:
        """Compare-and-set: what is stored now, after this change of it or somebody else's.

        :param change: None leaves it as it is
        :returns: None: it is installed no more
        """
        name = self._name(install.enterprise, install.team)
        while True:
            was = await self._notes.get(name)
            if was is None:
                return None
            before = _decode(self._seal.open(was, name))
            after = change(before)
            if after is None:
                return before
            if await self._notes.put(name, self._seal.seal(_encode(after), name), was=was):
                return after

    async def remove(self, team: str | None, enterprise: str | None = None) -> bool:
        """Whether it was there. A workspace's own only, and with no team the organisation's."""
        if team is None:
            names = [self._name(enterprise, None)]
        else:
            of = enterprise or await self._home(team)
            # The second is from before the workspace joined the organisation.
            names = [self._name(of, team), self._name(None, team)]
        there = False
        for each in names:
            was = await self._notes.get(each)
            while was is not None and not await self._notes.put(each, None, was=was):
                was = await self._notes.get(each)
            there = there or was is not None
        await self._list(lambda listed: [each for each in listed if each not in names])
        return there

    async def all(self) -> AsyncIterator[Install]:
        """In order of their ids.

        :raises CannotUnseal: one cannot be read
        """
        for name in _names.decode(await self._notes.get(self._index) or b"[]"):
            found = await self._read(name)
            if found is not None:
                yield found

    async def reseal(self) -> int:
        """Seal with the first key what an older one has sealed. How many those were."""
        count = 0
        for name in _names.decode(await self._notes.get(self._index) or b"[]"):
            was = await self._notes.get(name)
            while was is not None and not self._seal.is_newest(was):
                anew = self._seal.seal(self._seal.open(was, name), name)
                if await self._notes.put(name, anew, was=was):
                    count += 1
                    break
                was = await self._notes.get(name)
        return count

    @property
    def _index(self) -> str:
        return f"{self._prefix}.installs"

    def _name(self, enterprise: str | None, team: str | None) -> str:
        return f"{self._prefix}.install.{enterprise or '-'}.{team or '-'}"

    async def _home(self, team: str) -> str | None:
        """The organisation that a workspace is in, when one was ever named."""
        kept = await self._notes.get(f"{self._prefix}.home.{team}")
        return kept.decode() if kept else None

    async def _remember(self, team: str, enterprise: str) -> None:
        name, value = f"{self._prefix}.home.{team}", enterprise.encode()
        was = await self._notes.get(name)
        while was != value and not await self._notes.put(name, value, was=was):
            was = await self._notes.get(name)

    async def _read(self, name: str) -> Install | None:
        sealed = await self._notes.get(name)
        return None if sealed is None else _decode(self._seal.open(sealed, name))

    async def _list(self, change: Callable[[list[str]], list[str]]) -> None:
        while True:
            was = await self._notes.get(self._index)
            names = _names.decode(was or b"[]")
            after = change(names)
            if after == names or await self._notes.put(self._index, _encode(after), was=was):
                return


def install_of(answer: Mapping[str, Any], tested: Mapping[str, Any], now: int) -> Install:
    """What `oauth.v2.access` answered, held against what `auth.test` says of its token.

    :param now: ms since 1970
    :raises ValueError: it is no install of a bot, or its token is another workspace's
    """
    wide = bool(answer.get("is_enterprise_install"))
    team, enterprise = answer.get("team") or {}, answer.get("enterprise") or {}
    token, bot_user = answer.get("access_token"), answer.get("bot_user_id")
    named = enterprise if wide else team
    if not (token and bot_user and named.get("id")) or answer.get("token_type") != "bot":
        raise ValueError("Slack's answer is not that of an installed bot")
    if not wide and tested.get("team_id") != team["id"]:
        raise ValueError("the token is of another workspace than the install")
    if wide and tested.get("enterprise_id") != enterprise["id"]:
        raise ValueError("the token is of another organisation than the install")
    if tested.get("user_id") != bot_user or not tested.get("bot_id"):
        raise ValueError("the token is of another user than the bot")
    expires_in = answer.get("expires_in")
    return Install(
        enterprise=enterprise.get("id"),
        team=None if wide else team["id"],
        name=str(named.get("name") or ""),
        app=str(answer.get("app_id") or ""),
        bot_user=bot_user,
        bot_id=tested["bot_id"],
        token=token,
        refresh=answer.get("refresh_token"),
        expires=None if expires_in is None else now // 1000 + int(expires_in),
        scopes=tuple(scope for scope in str(answer.get("scope") or "").split(",") if scope),
        installer=str((answer.get("authed_user") or {}).get("id") or ""),
        at=now,
    )


def renewed(install: Install, answer: Mapping[str, Any], now: int) -> Install:
    """With the next token, from `oauth.v2.access` asked with ``grant_type=refresh_token``.

    :param now: ms since 1970
    :raises ValueError: the answer has none
    """
    token, expires_in = answer.get("access_token"), answer.get("expires_in")
    if not token or not expires_in:
        raise ValueError("Slack's answer has no token")
    return replace(
        install,
        token=token,
        refresh=answer.get("refresh_token") or install.refresh,
        expires=now // 1000 + int(expires_in),
        refreshing=0,
    )
