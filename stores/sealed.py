"""Encryption at rest: any store, with all that people say sealed before it gets there.

Not a database of its own, and not in the way of one that is not encrypted: `guard` gives the store
itself then. The store beneath sees conversations whose texts are sealed, and does with them what it
always does: its checksums are of the sealed bytes. `docs/encryption.md` has what stays plain.

What is stored is sealed with a key of its own, made at random when the database is begun. That key
is in a note, sealed with the first of the keys that the program is given. So these can be changed
in one write, however much is stored; and a wrong one is noticed before anything else is read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
from msgspec.structs import replace

from core import events
from core.blobs import named_in
from core.errors import BlobUnreadable, CannotUnseal, ConfigError, InvalidKey, SnapshotUnreadable
from core.keys import check_key
from core.messages import NO_BLOCKS, Attachment, Inbound, Message, Outbound, Sender
from core.seal import KEY_BYTES, VARIABLE, Seal
from core.snapshot import Overheard, Pending, Snapshot, Suspension
from core.store import Blob, Blobs, BotStore, Notes, SessionRef

KEY_NOTE: Final = "sealing.key"
MOVES_NOTE: Final = "sealing.moves"
_OURS: Final = (KEY_NOTE, MOVES_NOTE)

KNOWN: Final = 64  # conversations whose sealed rows are kept, so that a save seals what is new
TRIES: Final = 20

T = TypeVar("T")
Move = tuple[str, str]

# Of one conversation: by the identity of an open row, that row and the sealed one.
_Pairs = dict[int, tuple[Message, Message]]

_encode: Final = msgspec.json.Encoder().encode
_decode_words: Final = msgspec.json.Decoder(list[str]).decode
_decode_moves: Final = msgspec.json.Decoder(list[Move]).decode

# Its place is its name, the hash of what is sealed, and that is looked at by the store.
_BLOB: Final = "blob"

_MARK: Final = "sealed:"  # of a text in a head


def guard(
    store: BotStore, keys: Sequence[bytes] | None, *, encrypted: bool | None, read_only: bool
) -> Guarded:
    """
    :param keys: as `core.seal.keys_of` gives them
    :param encrypted: what the store is to be; None: what it is
    """
    return Guarded(store, keys, encrypted=encrypted, read_only=read_only)


class Guarded:
    """Opens a store, and looks whether it is what it is said to be."""

    def __init__(
        self,
        store: BotStore,
        keys: Sequence[bytes] | None,
        *,
        encrypted: bool | None,
        read_only: bool,
    ) -> None:
        self._store = store
        self._keys = keys
        self._encrypted = encrypted
        self._read_only = read_only
        self._opened = store

    def __getattr__(self, name: str) -> Any:
        # Never what lies beneath, once it is known that it is sealed.
        return getattr(self._opened, name)

    async def __aenter__(self) -> BotStore:
        """
        :raises ConfigError: it is encrypted and is not to be, or the other way round; or its keys
            are missing. Nothing was written
        :raises CannotUnseal: none of the keys is its own
        """
        opened = await self._store.__aenter__()
        try:
            self._opened = await self._look_at(opened)
            return self._opened
        except BaseException as error:
            await self._store.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._store.__aexit__(kind, error, trace)

    async def _look_at(self, store: BotStore) -> BotStore:
        kept = await store.notes.get(KEY_NOTE)
        if kept is None:
            if not self._encrypted:
                return store
            if not await _is_empty(store):
                raise ConfigError(
                    "[store] encrypted: this database is not: `chinwag sessions copy` brings what"
                    " it has into a new one, which is; docs/encryption.md"
                )
            if self._read_only:
                return store
            kept = await self._begin(store)
        elif self._encrypted is False:
            raise ConfigError(
                "[store] encrypted: this database is: set it to true; or bring what it has into a"
                " new one that is not, docs/encryption.md"
            )
        seal = Seal(self._given())
        key = seal.open(kept, KEY_NOTE)
        # Keys are changed in one write: all else is sealed with the one that is kept in here.
        if (
            not seal.is_newest(kept)
            and not self._read_only
            and await store.notes.put(KEY_NOTE, seal.seal(key, KEY_NOTE), was=kept)
        ):
            events.emit("store.resealed")
        sealed = SealedStore(store, Seal([key]))
        await sealed.read_moves()
        return sealed

    async def _begin(self, store: BotStore) -> bytes:
        if self._keys is None:
            raise ConfigError(
                f"{VARIABLE} is missing: [store] encrypted wants a key. Put"
                f" {VARIABLE}=$(openssl rand -base64 32) into .env, and keep a copy of it"
            )
        key = Seal(self._keys).seal(secrets.token_bytes(KEY_BYTES), KEY_NOTE)
        if await store.notes.put(KEY_NOTE, key, was=None):
            return key
        there = await store.notes.get(KEY_NOTE)  # another process was faster
        assert there is not None
        return there

    def _given(self) -> Sequence[bytes]:
        if self._keys is None:
            raise ConfigError(
                f"{VARIABLE} is missing: the conversations in this database are encrypted with it."
                " Set it to what it was; there is no other way to read them"
            )
        return self._keys


async def _is_empty(store: BotStore) -> bool:
    async for _ in store.summaries(limit=1):
        return False
    async for _ in store.notes.names():
        return False
    return True


class SealedStore:
    """
    :param store: open already
    :param seal: with the database's own key
    """

    def __init__(self, store: BotStore, seal: Seal) -> None:
        self._store = store
        self._seal = seal
        self._moves: tuple[Move, ...] = ()
        self._pairs: OrderedDict[str, _Pairs] = OrderedDict()
        self.usage = store.usage
        self.notes: Notes = SealedNotes(store.notes, seal)
        self.blobs: Blobs = SealedBlobs(store.blobs, seal)
        # Whatever else this store has, or has not: nothing in it shows what is said.
        self.unfinished = store.unfinished
        self.summaries = store.summaries
        self.spoken_by = store.spoken_by
        self.size = store.size
        self.clear_aside = store.clear_aside
        self.scrub = store.scrub
        self.remove = store.remove
        self.clear = store.clear
        self.set_aside = store.set_aside

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._store, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._store.__aexit__(kind, error, trace)

    async def load(self, ref: SessionRef) -> Snapshot | None:
        sealed = await self._store.load(ref)
        if sealed is None:
            return None
        snapshot = await self._opened(ref.key, lambda codec: codec.open_snapshot(sealed))
        self._remember(ref.key, snapshot, sealed)
        return snapshot

    async def save(self, ref: SessionRef, snapshot: Snapshot, *, replaces: int | None) -> None:
        codec = _Codec(self._seal, ref.key, self._moves)
        sealed = codec.seal_snapshot(snapshot, self._pairs.get(ref.key, {}))
        await self._store.save(ref, sealed, replaces=replaces)
        self._remember(ref.key, snapshot, sealed)

    async def archive(
        self, ref: SessionRef, before: int | None = None, limit: int = 100
    ) -> AsyncIterator[Message]:
        async for row in self._store.archive(ref, before, limit):
            yield await self._opened(ref.key, partial(_Codec.open_row, row=row))

    async def move(self, old: str, new: str) -> None:
        """What is said stays sealed for the key under which it was said; that this chat goes on
        under another is written down first."""
        if old != new and _can_be_key(new):
            await self._note_move((old, new))
        self._pairs.clear()
        await self._store.move(old, new)

    async def read_moves(self) -> None:
        kept = await self.notes.get(MOVES_NOTE)
        self._moves = tuple(_decode_moves(kept)) if kept else ()

    async def _note_move(self, move: Move) -> None:
        for _ in range(TRIES):
            kept = await self.notes.get(MOVES_NOTE)
            moves = _decode_moves(kept) if kept else []
            if moves[-1:] == [move]:
                break
            if await self.notes.put(MOVES_NOTE, _encode([*moves, move]), was=kept):
                break
        await self.read_moves()
        assert move in self._moves

    async def _opened(self, key: str, work: Callable[[_Codec], T]) -> T:
        moves = self._moves
        try:
            try:
                return work(_Codec(self._seal, key, moves))
            except CannotUnseal:
                # Another process may have moved it since.
                await self.read_moves()
                if moves == self._moves:
                    raise
                return work(_Codec(self._seal, key, self._moves))
        except CannotUnseal as error:
            said = str(error).replace("\0", " ")
            raise SnapshotUnreadable(f"{key}: {said}") from None

    def _remember(self, key: str, snapshot: Snapshot, sealed: Snapshot) -> None:
        pairs = zip(snapshot.rows, sealed.rows, strict=True)
        self._pairs[key] = {id(row): (row, kept) for row, kept in pairs}
        self._pairs.move_to_end(key)
        if len(self._pairs) > KNOWN:
            self._pairs.popitem(last=False)


def _can_be_key(text: str) -> bool:
    try:
        check_key(text)
    except InvalidKey:
        return False  # the store says so, if anything would move
    return True


class _Codec:
    """Of one conversation: a snapshot with its texts open, and the same with them sealed.

    :param moves: which chats went on under which keys, oldest first
    """

    def __init__(self, seal: Seal, key: str, moves: Sequence[Move]) -> None:
        self._seal = seal
        self._key = key
        self._keys = [key]
        for old, new in reversed(moves):
            self._keys += [
                old + each[len(new) :]
                for each in list(self._keys)
                if each == new or each.startswith(f"{new}/")
            ]
        # Two chats may have become one, and its rows were numbered anew.
        self._moved = len(self._keys) > 1

    # ------------------------------------------------------------------ rows

    def seal_row(self, row: Message) -> Message:
        words = self._words(bytes(row.blocks), f"row\0{row.seq}")
        words[0] = f"{row.seq}:{words[0]}"
        return replace(row, blocks=msgspec.Raw(_encode(words)))

    def open_row(self, row: Message) -> Message:
        """
        :raises CannotUnseal: it was changed, or is of another place
        """
        said = _first(bytes(row.blocks))
        seq, _, sealed = said.partition(":")
        if seq != str(row.seq) and not self._moved:
            raise CannotUnseal(f"row {row.seq}: it was changed, or moved here from elsewhere")
        return replace(row, blocks=msgspec.Raw(self._unsealed(sealed, f"row\0{seq}")))

    # ------------------------------------------------------------------ the rest

    def seal_snapshot(self, snapshot: Snapshot, known: _Pairs) -> Snapshot:
        def row(each: Message) -> Message:
            there = known.get(id(each))
            return there[1] if there and there[0] is each else self.seal_row(each)

        return self._each(snapshot, row, self._seal_text, self._seal_text, self._seal_raw)

    def open_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """
        :raises CannotUnseal: something in it was changed, or is of another place
        """
        return self._each(snapshot, self.open_row, self._open_text, self._open_why, self._open_raw)

    def _each(
        self,
        snapshot: Snapshot,
        row: Callable[[Message], Message],
        text: Callable[[str, str], str],
        why: Callable[[str, str], str],
        raw: Callable[[msgspec.Raw, str], msgspec.Raw],
    ) -> Snapshot:
        """The snapshot with each text in the place of which something else stands."""

        def maybe(said: str | None, place: str) -> str | None:
            return said if said is None else text(said, place)

        def sender(one: Sender, place: str) -> Sender:
            return replace(one, name=text(one.name, f"{place}\0name")) if one.name else one

        def attachment(one: Attachment, place: str) -> Attachment:
            return replace(
                one,
                id=text(one.id, f"{place}\0file"),
                name=text(one.name, f"{place}\0file name"),
                author=text(one.author, f"{place}\0file author"),
            )

        def inbound(one: Inbound) -> Inbound:
            place = f"inbound\0{one.id}"
            return replace(
                one,
                text=text(one.text, f"{place}\0text"),
                blocks=raw(one.blocks, f"{place}\0blocks"),
                sender=sender(one.sender, place),
                attachments=tuple(attachment(each, place) for each in one.attachments),
            )

        def outbound(one: Outbound) -> Outbound:
            place = f"outbound\0{one.id}"
            file = one.file
            return replace(
                one,
                body=maybe(one.body, f"{place}\0body"),
                why=one.why and why(one.why, f"{place}\0why"),
                file=file and replace(file, name=text(file.name, f"{place}\0file")),
            )

        def heard(one: Overheard) -> Overheard:
            place = "heard"
            return replace(one, text=text(one.text, place), sender=sender(one.sender, place))

        def pending(one: Pending) -> Pending:
            return replace(one, reason=maybe(one.reason, f"reason\0{one.id}"))

        def suspension(one: Suspension) -> Suspension:
            return replace(
                one,
                results=raw(one.results, f"results\0{one.id}"),
                calls=tuple(map(pending, one.calls)),
            )

        turn = snapshot.turn
        if turn is not None and (turn.steps or turn.suspended):
            turn = replace(
                turn,
                steps=tuple(map(row, turn.steps)),
                suspended=turn.suspended and suspension(turn.suspended),
            )
        return replace(
            snapshot,
            system_prompt=maybe(snapshot.system_prompt, "system prompt"),
            cwd=maybe(snapshot.cwd, "cwd"),
            messages=tuple(map(row, snapshot.messages)),
            rewritten=tuple(map(row, snapshot.rewritten)),
            inbox=tuple(map(inbound, snapshot.inbox)),
            unanswered=tuple(map(inbound, snapshot.unanswered)),
            edited=snapshot.edited and inbound(snapshot.edited),
            outbox=tuple(map(outbound, snapshot.outbox)),
            heard=tuple(map(heard, snapshot.heard)),
            turn=turn,
        )

    def _seal_text(self, said: str, place: str) -> str:
        if not said:
            return said
        return _MARK + _encode(self._words(said.encode("utf-8", "surrogatepass"), place)).decode()

    def _open_text(self, kept: str, place: str) -> str:
        if not kept:
            return kept
        if not kept.startswith(_MARK):
            raise CannotUnseal(f"{place}: it is not sealed")
        sealed = _first(kept[len(_MARK) :].encode())
        return self._unsealed(sealed, place).decode("utf-8", "surrogatepass")

    def _open_why(self, kept: str, place: str) -> str:
        """A store that moves a chat says by itself what keeps a part."""
        return self._open_text(kept, place) if kept.startswith(_MARK) else kept

    def _seal_raw(self, blocks: msgspec.Raw, place: str) -> msgspec.Raw:
        if bytes(blocks) == bytes(NO_BLOCKS):
            return blocks
        return msgspec.Raw(_encode(self._words(bytes(blocks), place)))

    def _open_raw(self, blocks: msgspec.Raw, place: str) -> msgspec.Raw:
        if bytes(blocks) == bytes(NO_BLOCKS):
            return blocks
        return msgspec.Raw(self._unsealed(_first(bytes(blocks)), place))

    def _words(self, plain: bytes, place: str) -> list[str]:
        """The sealed text, and what blobs it names: a store must know who uses them."""
        sealed = self._seal.seal(plain, f"{self._key}\0{place}")
        return [base64.b64encode(sealed).decode(), *sorted(named_in(plain))]

    def _unsealed(self, said: str, place: str) -> bytes:
        try:
            sealed = base64.b64decode(said, validate=True)
        except (binascii.Error, ValueError):
            raise CannotUnseal(f"{place}: it is not sealed") from None
        for key in self._keys[:-1]:
            try:
                return self._seal.open(sealed, f"{key}\0{place}")
            except CannotUnseal:
                continue
        return self._seal.open(sealed, f"{self._keys[-1]}\0{place}")


def _first(data: bytes) -> str:
    try:
        return _decode_words(data)[0]
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError):
        raise CannotUnseal("a text in it is not sealed") from None


class SealedNotes:
    """Their names are plain."""

    def __init__(self, notes: Notes, seal: Seal) -> None:
        self._notes = notes
        self._seal = seal

    async def get(self, name: str) -> bytes | None:
        """
        :raises CannotUnseal: it was changed, or is another's
        """
        kept = await self._notes.get(name)
        return None if kept is None else self._open(name, kept)

    async def put(self, name: str, value: bytes | None, *, was: bytes | None) -> bool:
        kept = await self._notes.get(name)
        there = None if kept is None else self._open(name, kept)
        if there != was:
            return False
        if value == was:
            return True
        sealed = None if value is None else self._seal.seal(value, f"note\0{name}")
        return await self._notes.put(name, sealed, was=kept)

    async def names(self) -> AsyncIterator[str]:
        async for name in self._notes.names():
            if name not in _OURS:
                yield name

    def _open(self, name: str, kept: bytes) -> bytes:
        try:
            return self._seal.open(kept, f"note\0{name}")
        except CannotUnseal:
            said = f"the note {name!r} was changed, or moved here from elsewhere"
            raise CannotUnseal(said) from None


class SealedBlobs:
    """Called by the hash of what is sealed, which says nothing of what it was."""

    def __init__(self, blobs: Blobs, seal: Seal) -> None:
        self._blobs = blobs
        self._seal = seal
        self.sweep = blobs.sweep

    async def put(self, key: str, data: bytes, media_type: str) -> str:
        sealed = await asyncio.to_thread(self._seal.seal, data, _BLOB, alike=True)
        return await self._blobs.put(key, sealed, media_type)

    async def get(self, id: str) -> Blob | None:
        kept = await self._blobs.get(id)
        if kept is None:
            return None
        try:
            data = await asyncio.to_thread(self._seal.open, kept.data, _BLOB)
        except CannotUnseal:
            raise BlobUnreadable(f"{id[:19]}…: it was changed") from None
        return Blob(kept.media_type, data)
