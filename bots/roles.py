"""Which part of the work a process does, when several run one bot: take messages in, answer them,
or both. And which of them takes in what only one may.

Not the engine (`core.dbos`), not the lease itself (`core.lease`): here they are chosen by the
settings. One process alone has the embedded engine, and nothing of this.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable
from uuid import uuid4

from bots.settings import Settings
from bots.stores import store_of
from core.adapter import Accept, Acceptance, Adapter
from core.clock import Clock, SystemClock
from core.engine import EmbeddedEngine, Engine
from core.errors import ConfigError, PlatformTaken
from core.events import trouble
from core.lease import TERM, Lease
from core.messages import Inbound
from core.store import BotStore

Role = Literal["all", "intake", "worker"]

SHARED_STORES: Final = ("postgresql", "postgres", "redis", "rediss", "unix")
# For people who look into the notes; no other process has this one.
HOLDER: Final = f"{socket.gethostname()}.{os.getpid()}.{uuid4().hex[:12]}"


@runtime_checkable
class TakesInAnywhere(Protocol):
    """An adapter whose platform may come to any process of ours."""

    @property
    def anywhere(self) -> bool:
        """False: one process at a time may ask it for messages."""
        ...


def takes_in(settings: Settings) -> bool:
    return settings.engine.role != "worker"


def answers(settings: Settings) -> bool:
    return settings.engine.role != "intake"


def is_shared(settings: Settings) -> bool:
    """Whether other processes run the same bot."""
    return settings.engine.url is not None and not _on_this_machine(settings.engine.url)


def build_engine(settings: Settings, clock: Clock) -> Engine:
    """
    :raises ConfigError: the settings do not fit each other
    """
    check_roles(settings)
    section = settings.engine
    if section.url is None:
        return EmbeddedEngine(clock, concurrency=section.concurrency)
    from core.dbos import DbosEngine

    return DbosEngine(
        _for_dbos(section.url, settings.folder),
        clock,
        works=answers(settings),
        concurrency=section.worker_concurrency,
        queue=section.queue,
        # Where it is as slow as it gets, `bots.pressure` need not know by how much more.
        counted=2 * section.most_waiting,
    )


async def submit(settings: Settings, key: str) -> None:
    """Have a worker look at this conversation, which something beside them has changed.

    :raises StoreUnavailable: it is not sure that one will
    """
    engine = build_engine(settings, SystemClock())
    assert isinstance(engine, AbstractAsyncContextManager), "only a shared one is asked"
    async with engine:
        await engine.submit(key, "")


def check_roles(settings: Settings) -> None:
    """
    :raises ConfigError: several processes were asked for on what only one may have
    """
    role, url = settings.engine.role, settings.engine.url
    scheme = settings.store.url.partition(":")[0]
    if url is None:
        if role != "all":
            raise ConfigError(
                f"role {role}: several processes share their work by [engine] url;"
                " set it to a postgresql: URL, or run without --role"
            )
    elif _on_this_machine(url):
        if role != "all":
            raise ConfigError(
                f"role {role}: [engine] url is a file, which one process has to itself;"
                " several need a postgresql: URL"
            )
    elif not url.startswith("postgresql:"):
        raise ConfigError(
            f"[engine] url: {url.partition(':')[0]}: nothing can be queued there; there are"
            " postgresql: and, for one process, sqlite:"
        )
    elif scheme not in SHARED_STORES:
        raise ConfigError(
            f"[store] url: {scheme}: is for one process; with [engine] url conversations must be"
            " where several can write: postgresql: or redis:"
        )


def opened_store(settings: Settings) -> AbstractAsyncContextManager[BotStore]:
    """Still closed. One that several processes write to takes no lock.

    :raises ConfigError: there is no such store, or the settings do not fit each other
    """
    check_roles(settings)
    return store_of(settings, shared=is_shared(settings))


def taking_in(
    adapter: Adapter, accept: Accept, settings: Settings, store: BotStore, clock: Clock
) -> tuple[Coroutine[Any, Any, None], Callable[[], bool]]:
    """What takes in this adapter's messages until it is cancelled, and whether it does so now, or
    stands by for another process. By a lease another one that is heard is no reason to end."""
    if not is_shared(settings) or _anywhere(adapter):
        return adapter.run(accept), lambda: True
    lease = Lease(store.notes, clock, f"lease.{adapter.name}", HOLDER)

    async def while_held(inbound: Inbound) -> Acceptance:
        # Who was stopped in the middle, and wakes up when another has it, confirms nothing.
        lease.check()
        return await accept(inbound)

    async def take_in() -> None:
        while True:
            try:
                return await adapter.run(while_held)
            except PlatformTaken as error:
                # One that was stopped and woke up, and is about to notice; or somebody else's,
                # whom it ends no sooner when we end too. Its messages are ours when it is gone.
                trouble("lease.twin", adapter=adapter.name, why=str(error))
                await clock.sleep(TERM)

    return lease.hold(take_in), lambda: lease.held


def _anywhere(adapter: Adapter) -> bool:
    return isinstance(adapter, TakesInAnywhere) and adapter.anywhere


def _on_this_machine(url: str) -> bool:
    return url.startswith("sqlite:")


def _for_dbos(url: str, folder: Path) -> str:
    if not url.startswith("sqlite:"):
        return url
    return f"sqlite:///{(folder / url.removeprefix('sqlite:')).absolute()}"
