"""Where one answer is shown while it grows: the `Surface` of `live`, in one conversation."""

from __future__ import annotations

from bots.slack.keys import Address, is_ts
from bots.slack.post import Post, Tasks, name_of
from bots.slack.render import body_of
from bots.slack.wires import Wires
from core.messages import Inbound


class Place:
    """
    :param inbound: what is being answered
    """

    def __init__(self, wires: Wires, to: Address, key: str, inbound: Inbound) -> None:
        self._wires = wires
        self._to = to
        self._key = key
        self._inbound = inbound
        self._name = f"live {inbound.id} "

    async def status(self, text: str) -> None:
        if self._to.thread is None:
            raise LookupError("there is no status outside of a thread")
        await (await self._post()).status(self._to, text)

    async def start(self, markdown: str, tasks: Tasks) -> str:
        team, _, user = self._inbound.sender.id.removeprefix("slack:").partition("/")
        return await (await self._post()).start(self._to, markdown, tasks, team, user)

    async def append(self, ts: str, markdown: str, tasks: Tasks) -> None:
        await (await self._post()).append(self._to, ts, markdown, tasks)

    async def stop(self, ts: str, markdown: str, tasks: Tasks) -> None:
        await (await self._post()).stop(self._to, ts, markdown, self._name, tasks)

    async def say(self, body: str, index: int) -> str:
        name = f"{self._name}{index}"
        return await (await self._post()).say(self._to, self._key, body_of(body), name)

    async def edit(self, ts: str, body: str, index: int) -> None:
        name = f"{self._name}{index}"
        await (await self._post()).edit(self._to, self._key, ts, body_of(body), name)

    async def delete(self, ts: str) -> None:
        await (await self._post()).delete(self._to, ts)

    async def left(self) -> list[str]:
        asked = self._inbound.message_id
        if not is_ts(asked):
            return []
        found = []
        async for message in (await self._post()).own(self._to, asked):
            name = name_of(message)
            # A stream carries no name until it is over, and nothing else of ours is without one.
            stream = name is None and self._to.thread is not None and not message.get("files")
            if (stream or (name or "").startswith(self._name)) and message["ts"] > asked:
                found.append(str(message["ts"]))
        return sorted(found)

    async def _post(self) -> Post:
        return await self._wires.post(self._to)
