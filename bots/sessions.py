"""`chinwag sessions`: reading stored conversations beside a running bot, and resetting one.

Gives lines of text; where they go is the command line's affair.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from bots.settings import Settings
from core import outbox
from core.clock import SystemClock
from core.errors import ConfigError, SnapshotTooNew, SnapshotUnreadable
from core.messages import Message, clean, decode_blocks
from core.snapshots import Snapshots
from core.store import BotStore, SessionRef, Summary
from stores.urls import open_store

PAGE = 500


async def undelivered(settings: Settings, prefix: str) -> AsyncIterator[str]:
    """What could not be sent, and why. Looks into each conversation: there is no index of it."""
    async with _reading(settings) as store:
        found = False
        async for key in _keys(store, prefix):
            with suppress(SnapshotUnreadable, SnapshotTooNew):
                snapshot = await store.load(SessionRef(key=key))
                for part in snapshot.undelivered if snapshot else ():
                    found = True
                    yield f"{key}  {part.state}: {clean(part.why or 'unknown')}"
                    yield f"    {_shortened(part.body)}"
        if found:
            yield ""
            yield "`chinwag sessions undelivered --retry KEY` has one sent again at the next start."


async def retry_undelivered(settings: Settings, key: str) -> AsyncIterator[str]:
    ref = SessionRef(key=key)
    async with open_store(settings.store.url, settings.folder) as store:
        snapshots = Snapshots(store, SystemClock(), lambda each: SessionRef(key=each))
        snapshot, applied = await snapshots.update(
            ref.key, lambda before: before and outbox.retry(before)
        )
        if snapshot is None:
            raise ConfigError(_unknown(key))
        yield f"{key}: " + (
            "it will be sent at the next start." if applied else "everything was delivered."
        )


async def list_sessions(settings: Settings, prefix: str, as_json: bool) -> AsyncIterator[str]:
    async with _reading(settings) as store:
        if not as_json:
            yield f"{'last change':<20} {'messages':>8}  {'':<10} key"
        async for each in _summaries(store, prefix):
            if as_json:
                yield msgspec.json.encode(each).decode()
            else:
                state = "unfinished" if each.unfinished else ""
                yield f"{_time(each.updated_at):<20} {each.messages:>8}  {state:<10} {each.key}"


async def show_session(settings: Settings, key: str) -> AsyncIterator[str]:
    async with _reading(settings) as store:
        snapshot = await store.load(SessionRef(key=key))
        if snapshot is None:
            raise ConfigError(_unknown(key))
        yield f"key        {key}"
        yield f"begun      {_time(snapshot.created_at)}"
        yield f"changed    {_time(snapshot.updated_at)}"
        yield f"model      {snapshot.model or '-'}"
        usage = snapshot.usage
        yield (
            f"tokens     {usage.input_tokens} in, {usage.cache_read_input_tokens} from cache, "
            f"{usage.output_tokens} out"
        )
        yield f"waiting    {len(snapshot.inbox)} to answer, {len(snapshot.outbox)} to send"
        yield ""
        for message in snapshot.messages:
            yield _readable(message)


async def export_session(settings: Settings, key: str) -> AsyncIterator[str]:
    """Oldest first, though a store reads from the end: pages are turned around as a whole."""
    async with _reading(settings) as store:
        ref = SessionRef(key=key)
        if await store.load(ref) is None:
            raise ConfigError(_unknown(key))
        pages: list[list[Message]] = []
        before: int | None = None
        while page := [message async for message in store.archive(ref, before, PAGE)]:
            pages.append(page)
            before = page[-1].seq
        for page in reversed(pages):
            for message in reversed(page):
                yield msgspec.json.encode(message).decode()


async def reset_session(settings: Settings, key: str) -> AsyncIterator[str]:
    ref = SessionRef(key=key)
    # Asked first and without making anything: a slip of the pen shall not look like success.
    async with _reading(settings) as store:
        with suppress(SnapshotUnreadable, SnapshotTooNew):
            if await store.load(ref) is None:
                raise ConfigError(_unknown(key))
    async with open_store(settings.store.url, settings.folder) as store:
        await store.clear(ref)
        yield f"{key} is forgotten."


async def _summaries(store: BotStore, prefix: str) -> AsyncIterator[Summary]:
    after: str | None = None
    while True:
        page = [each async for each in store.summaries(prefix, after, PAGE)]
        for each in page:
            yield each
        if len(page) < PAGE:
            return
        after = page[-1].key


async def _keys(store: BotStore, prefix: str) -> AsyncIterator[str]:
    async for each in _summaries(store, prefix):
        yield each.key


def _shortened(body: str | None, most: int = 100) -> str:
    """What a part says, as its platform would be told."""
    text = clean(body or "(a message to be deleted)").replace("\n", " ")
    return text if len(text) <= most else text[: most - 1] + "…"


def _reading(settings: Settings) -> BotStore:
    return open_store(settings.store.url, settings.folder, read_only=True)


def _unknown(key: str) -> str:
    return f"{key}: no such conversation; `chinwag sessions list` shows all"


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _readable(message: Message) -> str:
    lines = []
    for block in decode_blocks(message.blocks):
        lines.append(_block(block))
    # What a model or a tool said may hold what a terminal obeys.
    return clean(f"{_time(message.at)}  {message.role}: " + "\n".join(lines))


def _block(block: dict[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block["text"])
        case "tool_use":
            return f"[calls {block['name']} with {msgspec.json.encode(block['input']).decode()}]"
        case "tool_result":
            return f"[gets {block.get('content')}]"
        case kind:
            return f"[{kind}]"
