"""Files that people sent, fetched from a Bot API server over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bots.telegram import files
from bots.telegram.files import Files
from bots.telegram.wire import Request, bot_at
from core.errors import NotFetched, TryLater
from core.messages import Attachment
from playground.telegram import (
    Answer,
    CutShort,
    Delay,
    Elsewhere,
    GarbageBody,
    Overflow,
    ResetBefore,
    Telegram,
)
from playground.telegram_media import Document, Photo

MB = 1 << 20


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as telegram:
        yield telegram


@pytest.fixture
async def fetching(telegram: Telegram) -> AsyncIterator[Files]:
    bot, updates = bot_at(telegram.url, telegram.token, timeout=1.0)
    yield Files(bot)
    await bot.request.shutdown()
    await updates.shutdown()


def sent(telegram: Telegram, data: bytes = b"bytes of it", size: int | None = None) -> Attachment:
    """Somebody has sent this, as the adapter would name it."""
    alice = telegram.person("Alice")
    update = telegram.update(telegram.send(alice, Document(data, "a.txt", size=size)))
    document = update["message"]["document"]
    return Attachment("document", document["file_id"], "a.txt", "text/plain", len(data))


async def refused(fetching: Files, attachment: Attachment) -> str:
    with pytest.raises(NotFetched) as caught:
        await fetching.fetch(attachment)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value.sentence


async def later(fetching: Files, attachment: Attachment, telegram: Telegram) -> float:
    with pytest.raises(TryLater) as caught:
        await fetching.fetch(attachment)
    assert telegram.token not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value.seconds


async def test_the_bytes_of_a_file(telegram: Telegram, fetching: Files) -> None:
    file = await fetching.fetch(sent(telegram))
    assert (file.data, file.media_type, file.name) == (b"bytes of it", "text/plain", "a.txt")
    assert [call.method for call in telegram.calls] == ["getFile", "download"]


async def test_of_a_photo_the_size_that_was_asked_for(telegram: Telegram, fetching: Files) -> None:
    update = telegram.update(telegram.send(telegram.person("Alice"), Photo(b"x" * 1000)))
    large = update["message"]["photo"][-1]["file_id"]
    assert (await fetching.fetch(Attachment("photo", large))).data == b"x" * 1000


async def test_a_large_one_whole(telegram: Telegram, fetching: Files) -> None:
    data = bytes(range(256)) * 4 * 1024 * 19
    assert (await fetching.fetch(sent(telegram, data))).data == data


@pytest.mark.parametrize("told", [0, 25 * MB])
async def test_too_large(telegram: Telegram, fetching: Files, told: int) -> None:
    attachment = sent(telegram, b"x", size=25 * MB)
    named = Attachment("document", attachment.id, size=told)
    assert await refused(fetching, named) == "it is larger than the 20 MB that this bot takes"
    assert len(telegram.calls) == (0 if told else 1), "it is not even asked for"


async def test_larger_than_anybody_said(telegram: Telegram, fetching: Files) -> None:
    attachment = sent(telegram)
    telegram.fault("download", Overflow(1 << 40))
    assert "20 MB" in await refused(fetching, attachment)


async def test_an_owner_may_want_less(telegram: Telegram) -> None:
    bot, updates = bot_at(telegram.url, telegram.token, timeout=1.0)
    small = Files(bot, max_bytes=MB)
    assert "the 1 MB" in await refused(small, sent(telegram, bytes(MB + 1)))
    attachment = sent(telegram, bytes(MB + 1))
    assert "the 1 MB" in await refused(small, Attachment("document", attachment.id))
    assert len((await small.fetch(sent(telegram, bytes(MB)))).data) == MB
    await bot.request.shutdown()
    await updates.shutdown()


async def test_no_redirect_is_followed(telegram: Telegram, fetching: Files) -> None:
    asked: list[bytes] = []

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(1000))
        writer.close()

    attachment = sent(telegram)
    async with await asyncio.start_server(other, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        telegram.fault("download", Elsewhere(f"http://127.0.0.1:{port}/x"))
        assert await refused(fetching, attachment) == files.UNKNOWN
    assert asked == []


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../../etc/passwd",
        "photos/../../x",
        "photos/..",
        "..",
        "photos//x",
        "photos/",
        "a\\b",
        "a\nb",
        "http://evil.example/x",
        None,
    ],
)
async def test_a_path_that_leads_elsewhere(
    telegram: Telegram, fetching: Files, path: str | None
) -> None:
    attachment = sent(telegram)
    kept = telegram.stored.files[attachment.id]
    telegram.stored.files[attachment.id] = replace(kept, path=path)  # type: ignore[arg-type]
    assert await refused(fetching, attachment) == files.UNKNOWN
    assert [call.method for call in telegram.calls] == ["getFile"]


async def test_no_file_of_this_machine_is_read(
    telegram: Telegram, fetching: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PTB's own download would: it takes the path for one of a server on the same machine."""
    attachment = sent(telegram)
    path = tmp_path / telegram.stored.files[attachment.id].path
    path.parent.mkdir()
    path.write_text("of this machine")
    monkeypatch.chdir(tmp_path)
    assert (await fetching.fetch(attachment)).data == b"bytes of it"


async def test_a_name_with_signs_is_asked_for_as_it_is(telegram: Telegram, fetching: Files) -> None:
    attachment = sent(telegram)
    kept = telegram.stored.files[attachment.id]
    telegram.stored.files[attachment.id] = replace(kept, path="documents/ä ?x=1#y%41.txt")
    assert (await fetching.fetch(attachment)).data == b"bytes of it"


async def test_a_server_of_ones_own_that_keeps_its_files_to_itself(
    telegram: Telegram, fetching: Files
) -> None:
    telegram.stored.local = True
    assert await refused(fetching, sent(telegram)) == files.UNKNOWN


async def test_what_is_not_there_any_more(telegram: Telegram, fetching: Files) -> None:
    attachment = sent(telegram)
    with pytest.raises(TryLater):  # in the same words Telegram says that it is not there for now
        await fetching.fetch(Attachment("photo", "of another bot"))
    telegram.fault("download", Answer(404))
    assert await refused(fetching, attachment) == files.GONE
    telegram.fault("getFile", Answer(400, "Bad Request: invalid file_id"))
    assert await refused(fetching, attachment) == files.GONE


async def test_a_token_that_is_good_no_more(telegram: Telegram, fetching: Files) -> None:
    attachment = sent(telegram)
    telegram.token = "1:other"
    assert await refused(fetching, attachment) == files.UNKNOWN


async def test_an_old_server_without_the_method(telegram: Telegram, fetching: Files) -> None:
    attachment = sent(telegram)
    telegram.fault("getFile", Answer(404))
    assert await refused(fetching, attachment) == files.UNKNOWN


@pytest.mark.parametrize(
    ("method", "fault", "seconds"),
    [
        ("getFile", Answer(429, retry_after=7), 7.5),
        ("getFile", Answer(502, html=True), files.WAIT),
        ("getFile", Answer(400, "Bad Request: file is temporarily unavailable"), files.LONG_WAIT),
        ("getFile", ResetBefore(), files.WAIT),
        ("getFile", GarbageBody(), files.WAIT),
        ("download", Answer(429), files.WAIT),
        ("download", Answer(500), files.WAIT),
        ("download", ResetBefore(), files.WAIT),
        ("download", CutShort(4), files.WAIT),
        ("download", Delay(1.5), files.WAIT),
    ],
)
async def test_what_may_be_had_later(
    telegram: Telegram, fetching: Files, method: str, fault: object, seconds: float
) -> None:
    attachment = sent(telegram)
    # On a connection that was used before the client itself asks once more.
    times = 2 if (method, fault) == ("download", ResetBefore()) else 1
    telegram.fault(method, fault, times=times)  # type: ignore[arg-type]
    assert await later(fetching, attachment, telegram) == seconds
    assert (await fetching.fetch(attachment)).data == b"bytes of it"


async def test_how_long_a_server_wants_us_to_wait() -> None:
    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Later\r\nretry-after: 9\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    request = Request(connections=1, pool_timeout=1)
    async with await asyncio.start_server(busy, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await request.download(f"http://127.0.0.1:{port}/x", 9) == (503, 9.0, b"")
    await request.shutdown()


async def test_what_is_packed_is_not_unpacked() -> None:
    async def packed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"accept-encoding: identity" in head.lower()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nzzzz")
        await writer.drain()
        writer.close()

    request = Request(connections=1, pool_timeout=1)
    async with await asyncio.start_server(packed, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await request.download(f"http://127.0.0.1:{port}/x", 9) == (200, None, b"zzzz")
    await request.shutdown()
