"""Runtime: runs agents. Conductor's face: an agent is a value, a run is a call.

::

    result = await Runtime(store).run(agent, "What is my name?")

By default each run is independent: nothing is stored, nothing is remembered. An agent's
`session_id`, or `stateful`, makes its runs one conversation in the runtime's store; runs of one
conversation wait for each other, and all of them end up in its history. Not a bot: that is
`core.conversations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self
from weakref import WeakValueDictionary

from core.agent import Agent
from core.clock import Clock, SystemClock
from core.errors import StaleSnapshot
from core.line import Line
from core.model import ModelClient
from core.opening import StoreChoice, claude, opened, parted, reference
from core.reply import Reply, Show, Stream
from core.session import Session
from core.snapshot import Snapshot, stored
from core.snapshots import new_id
from core.store import SessionRef, SessionStore
from core.turn import Approve


class Runtime:
    """
    ::

        async with Runtime(SQLiteStore) as runtime:     what it opens is closed in the end
            await runtime.run(agent, "hello")

    Outside of `async with` each run opens what it needs and closes it again: right for one run,
    slow for many.

    :param store: as for `Session.start`; None: memory, for this object's life
    :param store_options: free options that every call of the store receives
    :param client: the model; None: Claude, with the environment's key
    :param approve: as for `Session.start`
    """

    def __init__(
        self,
        store: StoreChoice | None = None,
        *,
        store_options: Mapping[str, Any] | None = None,
        client: ModelClient | None = None,
        approve: Approve | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._chosen, self._own_options = parted(_Remembered() if store is None else store)
        self._store_options = store_options
        self._client = client
        self._approve = approve
        self._clock = clock or SystemClock()
        # A line lives as long as somebody stands in it: an idle conversation costs nothing.
        self._lines: WeakValueDictionary[str, Line] = WeakValueDictionary()
        self._ready: _Ready | None = None
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """
        :raises StoreError: the store cannot be opened
        """
        async with AsyncExitStack() as stack:
            self._ready = await self._open(stack)
            self._closing = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ready = None
        await self._closing.aclose()

    async def run(
        self,
        agent: Agent,
        text: str,
        *,
        session_id: str | None = None,
        key: str | None = None,
        sender: str | None = None,
    ) -> Reply:
        """One run. What the agent says of model, instructions, thinking and effort holds, also for
        a conversation that began with others.

        :param session_id: over the agent's own: one agent for many conversations
        :param key: names the conversation outright, over any session id
        :param sender: who speaks (``telegram:42``), for tools and for the history
        :raises ValueError: there is nothing in the text
        :raises SessionBusy: too many runs wait for this conversation already
        :raises ModelError: no answer could be had; nothing was saved
        :raises StoreError: what the store raises; this run is not in the history
        """
        return await self._run(agent, text, session_id, key, sender, None)

    def stream(
        self,
        agent: Agent,
        text: str,
        *,
        session_id: str | None = None,
        key: str | None = None,
        sender: str | None = None,
    ) -> Stream:
        """The same as `run`, piece by piece."""
        return Stream(lambda show: self._run(agent, text, session_id, key, sender, show))

    async def session(
        self,
        agent: Agent,
        *,
        session_id: str | None = None,
        key: str | None = None,
        cwd: str | None = None,
        model: str | None = None,
        system_prompt: str | None = None,
        thinking: str | None = None,
        effort: str | None = None,
    ) -> Session:
        """A conversation to hold on to: its history can be looked at, and cleared. Its runs and
        those of `run` wait for each other. Options are restored as by `Session.start`.

        Without a name (`key`, `session_id`, or one of the agent's own, or `stateful`) it lives as
        long as the object.

        :raises StoreError: what the store raises
        """
        async with AsyncExitStack() as stack:
            ready = self._ready or await self._open(stack)
            session = self._session(ready, agent, session_id, key, cwd)
            await session.restore(
                model=model,
                system_prompt=system_prompt,
                thinking=thinking,
                effort=effort,
                cwd=cwd,
            )
            session.owns(stack.pop_all())
        return session

    # ------------------------------------------------------------------ how

    async def _run(
        self,
        agent: Agent,
        text: str,
        session_id: str | None,
        key: str | None,
        sender: str | None,
        show: Show | None,
    ) -> Reply:
        async with AsyncExitStack() as stack:
            ready = self._ready or await self._open(stack)
            # Not loaded before it is at the front: what others say until then belongs to it.
            session = self._session(ready, agent, session_id, key, None)
            return await session.shown_run(text, sender, show)

    def _session(
        self,
        ready: _Ready,
        agent: Agent,
        session_id: str | None,
        key: str | None,
        cwd: str | None,
    ) -> Session:
        store: SessionStore | None = ready.store
        named = key is not None or session_id is not None or agent.session_id is not None
        if named or agent.stateful:
            ref = reference(
                agent,
                key=key,
                id=session_id,
                cwd=cwd,
                store_options=self._store_options,
                own_options=self._own_options,
            )
            line = self._lines.setdefault(ref.key, Line())
        else:
            store, ref, line = None, reference(agent, id=new_id(), cwd=cwd), Line()
        return Session(agent, store, ref, ready.client, self._clock, line, self._approve)

    async def _open(self, stack: AsyncExitStack) -> _Ready:
        store = await opened(self._chosen, stack)
        assert store is not None
        return _Ready(store, self._client or claude(stack))


class _Ready(NamedTuple):
    store: SessionStore
    client: ModelClient


class _Remembered:
    """A SessionStore in this object's own memory. (`stores` is out of reach from here.)"""

    def __init__(self) -> None:
        self._kept: dict[str, Snapshot] = {}

    async def load(self, ref: SessionRef) -> Snapshot | None:
        return self._kept.get(ref.key)

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        kept = self._kept.get(ref.key)
        if (kept and kept.revision) != replaces:
            raise StaleSnapshot(f"{ref.key}: another revision is stored, not {replaces}")
        self._kept[ref.key] = stored(snapshot)

    async def clear(self, ref: SessionRef) -> None:
        self._kept.pop(ref.key, None)
