"""`chinwag sessions`: reading stored conversations beside a running bot, and resetting one.

Gives lines of text; where they go is the command line's affair.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from bots.roles import is_shared, submit
from bots.settings import Settings
from bots.spending import build_prices
from bots.stores import store_of
from bots.wording import build_wording
from core import feedback, outbox, phrases
from core.clock import SystemClock
from core.errors import ConfigError, SnapshotTooNew, SnapshotUnreadable
from core.export import blobs_of, oldest_first
from core.forget import forget as forget_person
from core.messages import Message, clean, decode_blocks
from core.snapshot import encode
from core.snapshots import Snapshots
from core.store import Blob, BotStore, SessionRef, Summary
from core.transcript import FORMS, About

PAGE = 500
LINES = "lines"


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
    async with store_of(settings) as store:
        snapshots = Snapshots(store, SystemClock(), lambda each: SessionRef(key=each))
        snapshot, applied = await snapshots.update(
            ref.key, lambda before: before and outbox.retry(before)
        )
        if snapshot is None:
            raise ConfigError(_unknown(key))
        if is_shared(settings) and snapshot.unfinished:
            # Also when this was asked before, and then nobody could be told.
            await submit(settings, key)
            yield f"{key}: a worker sends it now, or the next one to start."
        elif applied:
            yield f"{key}: it will be sent at the next start."
        else:
            yield f"{key}: everything was delivered."


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


async def list_feedback(settings: Settings, prefix: str, as_json: bool) -> AsyncIterator[str]:
    """What people think of answers, the oldest first."""
    async with _reading(settings) as store:
        found = [each async for each in feedback.opinions(store.notes)]
        found = [each for each in found if each.key.startswith(prefix)]
        for each in sorted(found, key=lambda each: each.at):
            if as_json:
                yield msgspec.json.encode(each).decode()
            else:
                word = "good" if each.good else "bad"
                where = f"{each.key}  {each.message_id}"
                yield f"{_time(each.at)}  {word:<4}  {each.sender}  {where}"
        if not (as_json or found):
            yield "Nobody has said yet what they think of an answer."


async def show_session(settings: Settings, key: str, as_json: bool = False) -> AsyncIterator[str]:
    """
    :param as_json: one object: the whole ``snapshot``, and what its ``calls`` ``cost``
    """
    async with _reading(settings) as store:
        snapshot = await store.load(SessionRef(key=key))
        if snapshot is None:
            raise ConfigError(_unknown(key))
        if as_json:
            sums = await store.usage.sums(key=key)
            yield msgspec.json.encode(
                {
                    "key": key,
                    "calls": sum(each.calls for each in sums),
                    # As text, for a number would round it.
                    "cost": f"{Decimal(sum(each.cost for each in sums)).scaleb(-12):f}",
                    "currency": build_prices(settings).currency,
                    "snapshot": msgspec.Raw(encode(snapshot)),
                }
            ).decode()
            return
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


async def export_session(settings: Settings, key: str, form: str = LINES) -> AsyncIterator[str]:
    """
    :param form: one of `core.transcript.FORMS`, or a JSON object a line
    """
    async with _reading(settings) as store:
        ref = SessionRef(key=key)
        if await store.load(ref) is None:
            raise ConfigError(_unknown(key))
        if form == LINES:
            async for message in oldest_first(store, ref):
                yield msgspec.json.encode(message).decode()
            return
        about = About(key, settings.agent.name, SystemClock().now())
        document, blobs, between = FORMS[form], dict[str, Blob](), ""
        yield document.head(about).removesuffix("\n")
        async for message in oldest_first(store, ref):
            named = await blobs_of(store, message)
            if document.keeps_blobs:
                blobs |= named
            yield between + document.row(message, about, named)
            between = document.between.removesuffix("\n")
        yield document.foot(blobs).removesuffix("\n")


async def reset_session(settings: Settings, key: str) -> AsyncIterator[str]:
    ref = SessionRef(key=key)
    # Asked first and without making anything: a slip of the pen shall not look like success.
    async with _reading(settings) as store:
        with suppress(SnapshotUnreadable, SnapshotTooNew):
            if await store.load(ref) is None:
                raise ConfigError(_unknown(key))
    async with store_of(settings) as store:
        await store.clear(ref)
        yield f"{key} is forgotten."


async def forget(settings: Settings, key: str | None, sender: str | None) -> AsyncIterator[str]:
    """One conversation with all that belongs to it, or one person wherever they spoke."""
    if key is not None:
        ref = SessionRef(key=key)
    async with _reading(settings):
        pass  # Asked first and without making anything.
    async with store_of(settings) as store:
        if sender is not None:
            snapshots = Snapshots(store, SystemClock(), lambda each: SessionRef(key=each))
            mark = build_wording(settings)(phrases.FORGOTTEN_MARK)
            gone = await forget_person(
                store, snapshots, lambda each: SessionRef(key=each), sender, mark
            )
            yield f"conversations deleted  {gone.conversations}"
            yield f"exchanges deleted      {gone.exchanges}"
            yield f"messages marked        {gone.marked}"
            yield f"usage without name     {gone.uses}"
            if gone.unreadable:
                yield f"could not be read      {gone.unreadable}: they are as they were"
        else:
            with suppress(SnapshotUnreadable, SnapshotTooNew):
                known = await store.load(ref) is not None
                if not await store.clear_aside(key=ref.key) and not known:
                    raise ConfigError(_unknown(ref.key))
            await store.clear(ref)
            await store.clear_aside(key=ref.key)
            yield f"{key} is forgotten, and what was set aside of it."
        await store.scrub()
        yield "What was deleted is in no file of the store any more. Backups are yours to delete."


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


def _reading(settings: Settings) -> AbstractAsyncContextManager[BotStore]:
    return store_of(settings, read_only=True)


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
