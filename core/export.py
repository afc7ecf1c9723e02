"""`/export`: all of a conversation as files, read page by page.

A file is not stored: what is in the outbox says which rows it has, and it is made when it leaves.
Rows are never changed, so it is the same however often that is; and what is forgotten meanwhile is
not in it. A long conversation becomes several files, so that none takes more memory than `FILE`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

from core import phrases
from core.blobs import named_in
from core.command import Backstage, Call, Outcome
from core.errors import BlobUnreadable, Undeliverable
from core.messages import File, Message
from core.snapshot import Snapshot, Span
from core.store import Blob, BotStore, SessionRef
from core.transcript import FORMS, About, Form

PAGE: Final = 200
# What every platform takes; of one file, in bytes.
FILE: Final = 8 << 20
# An image of more bytes is named in a document, not shown.
IMAGE: Final = 4 << 20
# Where no file can be sent, so many characters are.
TEXT: Final = 30_000


async def newest_first(
    store: BotStore, ref: SessionRef, before: int | None = None
) -> AsyncIterator[Message]:
    """All rows of history, a page of them in memory."""
    while page := [row async for row in store.archive(ref, before, PAGE)]:
        for row in page:
            yield row
        before = page[-1].seq


async def oldest_first(store: BotStore, ref: SessionRef) -> AsyncIterator[Message]:
    """The same the other way round: first where the pages are, then each of them."""
    ends: list[int] = []
    before: int | None = None
    while page := [row async for row in store.archive(ref, before, PAGE)]:
        ends.append(page[0].seq)
        before = page[-1].seq
    for end in reversed(ends):
        for row in reversed([row async for row in store.archive(ref, end + 1, PAGE)]):
            yield row


async def blobs_of(store: BotStore, row: Message) -> dict[str, Blob]:
    """Those of its blobs that are there, whole, and not too large."""
    found: dict[str, Blob] = {}
    for id in named_in(bytes(row.blocks)):
        try:
            blob = await store.blobs.get(id)
        except BlobUnreadable:
            continue
        if blob is not None and len(blob.data) <= IMAGE:
            found[id] = blob
    return found


async def plan(store: BotStore, ref: SessionRef, form: Form, about: About) -> list[Span]:
    """Which rows each file has, the oldest first."""
    spans: list[Span] = []
    upto = first = size = 0
    async for row in newest_first(store, ref):
        blobs = await blobs_of(store, row)
        # In JSON they stand at the end, as base64.
        more = len(form.row(row, about, blobs)) + sum(len(each.data) * 2 for each in blobs.values())
        if size and size + more > FILE:
            spans.append((first, upto))
            size = 0
        upto = upto if size else row.seq
        first, size = row.seq, size + more
    if size:
        spans.append((first, upto))
    return spans[::-1]


async def made(store: BotStore, ref: SessionRef, file: File) -> bytes:
    """The file as it is to be sent.

    :raises Undeliverable: it was kept, and is not there any more
    :raises StoreError: what the store raises
    """
    if file.blob:
        return await _kept(store, file)
    form, about = FORMS[file.form], About(ref.key, ref.agent, file.at)
    pieces: list[str] = []
    all_blobs: dict[str, Blob] = {}
    async for row in newest_first(store, ref, file.last + 1):
        if row.seq < file.first:
            break
        blobs = await blobs_of(store, row)
        pieces.append(form.row(row, about, blobs))
        if form.keeps_blobs:
            all_blobs |= blobs
    pieces.reverse()
    text = form.head(about) + form.between.join(pieces) + form.foot(all_blobs)
    return text.encode("utf-8", "replace")


async def _kept(store: BotStore, file: File) -> bytes:
    try:
        blob = await store.blobs.get(file.blob)
    except BlobUnreadable as error:
        raise Undeliverable(str(error)) from error
    if blob is None:
        raise Undeliverable(f"{file.name} is stored no longer")
    return blob.data


# ---------------------------------------------------------------------- the command


async def first(call: Call, backstage: Backstage) -> object:
    """The files, or where none can be sent the text; None: nobody knows such a form."""
    form = FORMS.get(_form(call.argument))
    if form is None:
        return None
    ref = backstage.ref(call.inbound.key)
    if not call.files:
        return await _text(backstage.store, ref, call)
    about = About(ref.key, ref.agent, call.now)
    spans = await plan(backstage.store, ref, form, about)
    day = datetime.fromtimestamp(call.now / 1000, UTC).strftime("%Y-%m-%d")
    return tuple(
        File(
            name=f"conversation-{day}{f'-{number}' if len(spans) > 1 else ''}.{form.suffix}",
            media_type=form.media_type,
            form=_form(call.argument),
            first=span[0],
            last=span[1],
            at=call.now,
        )
        for number, span in enumerate(spans, 1)
    )


def run(snapshot: Snapshot, call: Call) -> Outcome:
    if call.found is None:
        return Outcome(call.say(phrases.EXPORT_HOW, forms=", ".join(FORMS)))
    if not call.found:
        return Outcome(call.say(phrases.NOTHING_TO_EXPORT))
    if isinstance(call.found, str):
        return Outcome(call.found)
    return Outcome(call.say(phrases.EXPORTED), files=call.found)


def _form(argument: str) -> str:
    wanted = argument.lower()
    return {"": "html", "md": "markdown"}.get(wanted, wanted)


async def _text(store: BotStore, ref: SessionRef, call: Call) -> str:
    """The newest messages that fit, as Markdown."""
    form, about = FORMS["markdown"], About(ref.key, ref.agent, call.now)
    pieces: list[str] = []
    size = 0
    async for row in newest_first(store, ref):
        piece = form.row(row, about, {})
        size += len(piece)
        if pieces and size > TEXT:
            pieces.append(call.say(phrases.EXPORT_CUT))
            break
        pieces.append(piece)
    return form.between.join(reversed(pieces))
