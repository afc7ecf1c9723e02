"""Opening: which conversation is meant, in which store, asked of which model.

For Session and Runtime. Nothing here is loaded or kept; it only reads what a caller has
named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from core.agent import Agent
from core.model import ModelClient
from core.store import SessionRef, SessionStore

StoreChoice = (
    SessionStore | type[SessionStore] | tuple[type[SessionStore] | SessionStore, Mapping[str, Any]]
)


def derived_key(agent: str, id: str | None, cwd: str) -> str:
    """The key of a session that was given none."""
    if id is not None:
        return f"{agent_key(agent)}/id/{quote(id, safe='-._~')}"
    return f"{agent_key(agent)}/cwd/{sha256(cwd.encode()).hexdigest()[:16]}"


def agent_key(agent: str) -> str:
    """The key of a stateful agent: one conversation, wherever it runs."""
    return f"agent:{quote(agent, safe='-._~')}"


def reference(
    agent: Agent,
    *,
    key: str | None = None,
    id: str | None = None,
    cwd: str | None = None,
    store_options: Mapping[str, Any] | None = None,
    own_options: Mapping[str, Any] | None = None,
) -> SessionRef:
    """What a store is told. Lowest first: `store_options`, agent and cwd, the agent's session id,
    `id`, `key`, and the options of a tuple, which may override even the key."""
    options: dict[str, Any] = {
        **(store_options or {}),
        "agent": agent.name,
        "cwd": cwd or os.getcwd(),
    }
    id = agent.session_id if id is None else id
    if id is not None:
        options["id"] = id
    if key is not None:
        options["key"] = key
    options |= own_options or {}
    if options.get("key") is None:
        name, id = options["agent"], options.get("id")
        whole = agent.stateful and id is None
        options["key"] = agent_key(name) if whole else derived_key(name, id, options["cwd"])
    return SessionRef(
        key=options["key"],
        agent=options["agent"],
        cwd=options["cwd"],
        id=options.get("id"),
        options=options,
    )


def parted(
    store: StoreChoice | None,
) -> tuple[SessionStore | type[SessionStore] | None, Mapping[str, Any]]:
    """The store, and the options of a tuple."""
    return store if isinstance(store, tuple) else (store, {})


async def opened(
    chosen: SessionStore | type[SessionStore] | None, stack: AsyncExitStack
) -> SessionStore | None:
    """An instance is its owner's to open and close; what is made here is closed here."""
    if not isinstance(chosen, type):
        return chosen
    # A class may say that all who name it share one instance, as MemoryStore does.
    store: SessionStore = getattr(chosen, "shared", chosen)()
    if isinstance(store, AbstractAsyncContextManager):
        await stack.enter_async_context(store)
    return store


def claude(stack: AsyncExitStack) -> ModelClient:
    """Claude, with the environment's key; closed with the stack."""
    from core.claude import Claude

    client = Claude()
    stack.push_async_callback(client.close)
    return client
