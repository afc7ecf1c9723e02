"""What people send in the stand-in for Telegram, and its files: the unmodified SDK takes both, and
nothing of it has a field that the recorded payloads have not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from telegram import Bot, Update
from telegram.error import BadRequest

from playground.telegram import Answer, CutShort, Elsewhere, Overflow, Telegram
from playground.telegram_media import (
    Contact,
    Document,
    External,
    Photo,
    Place,
    Poll,
    Sendable,
    Sticker,
    Video,
    Voice,
    Words,
)

Json = dict[str, Any]
RECORDED = Path(__file__).parents[1] / "payloads" / "telegram"
JPEG = b"\xff\xd8\xff" + bytes(500)


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as telegram:
        yield telegram


@pytest.fixture
async def bot(telegram: Telegram) -> AsyncIterator[Bot]:
    base = telegram.url
    bot = Bot(telegram.token, base_url=f"{base}/bot", base_file_url=f"{base}/file/bot")
    async with bot:
        yield bot


def fields(value: Any, path: str = "") -> set[str]:
    """The names of all fields, with the way to them."""
    if isinstance(value, dict):
        below = (
            fields(each, f"{path}.{name}") | {f"{path}.{name}"} for name, each in value.items()
        )
        return set().union(*below)
    if isinstance(value, list):
        return set().union(*(fields(each, f"{path}[]") for each in value))
    return set()


@pytest.mark.parametrize(
    ("what", "how", "recorded"),
    [
        (Words("hello"), {}, "text"),
        (Photo(JPEG), {"caption": "look"}, "photo_caption"),
        (Photo(JPEG), {"album": "1"}, "album_second"),
        (Document(b"x", "a.md", "text/markdown"), {}, "document_text"),
        (Voice(b"x"), {}, "voice"),
        (Video(b"x"), {"caption": "see"}, "video"),
        (Video(b"x", note=True), {}, "video_note"),
        (Sticker(), {}, "sticker"),
        (Place(1.0, 2.0), {}, "location"),
        (Place(1.0, 2.0, "Bar", "1 Way"), {}, "venue"),
        (Contact("+41", "Bo"), {}, "contact"),
        (Poll("Tea?", ("yes", "no")), {}, "poll"),
        (Words("hi"), {"forwarded": "Mallory"}, "forwarded_hidden_user"),
    ],
)
async def test_each_has_the_fields_of_the_recorded_ones(
    telegram: Telegram, bot: Bot, what: Sendable, how: Json, recorded: str
) -> None:
    sent = telegram.update(telegram.send(telegram.person("Alice", "alice"), what, **how))
    known = json.loads((RECORDED / f"{recorded}.json").read_text("utf-8"))
    assert fields(sent) - fields(known) == set()
    (update,) = await bot.get_updates()
    assert isinstance(update, Update) and update.message is not None
    assert update.to_dict()["message"].keys() >= {"message_id", "chat", "from", "date"}


async def test_whose_words(telegram: Telegram, bot: Bot) -> None:
    alice, bob = telegram.person("Alice"), telegram.person("Bob")
    club = telegram.supergroup("Club")
    first = telegram.message_id(telegram.write(bob, "the moon is cheese", club))
    telegram.send(alice, Words("true?"), club, reply_to=first, quote="moon")
    telegram.send(alice, Photo(JPEG), forwarded=bob)
    telegram.send(alice, Words("x"), forwarded=club)
    telegram.send(alice, Words("this?"), external=External(bob, Photo(JPEG)), quote="moon")
    _, reply, of_person, of_chat, outside = [each.message for each in await bot.get_updates()]
    assert reply and reply.reply_to_message and reply.quote and reply.quote.text == "moon"
    assert of_person and of_person.forward_origin
    assert of_person.forward_origin.to_dict()["sender_user"]["first_name"] == "Bob"
    assert of_chat and of_chat.forward_origin
    assert of_chat.forward_origin.to_dict()["sender_chat"]["title"] == "Club"
    assert outside and outside.external_reply and len(outside.external_reply.photo or ()) == 2


async def test_an_album(telegram: Telegram, bot: Bot) -> None:
    alice = telegram.person("Alice")
    ids = telegram.album(alice, [Photo(JPEG)] * 3, caption="which?", mention=True)
    messages = [each.message for each in await bot.get_updates()]
    assert len(ids) == len(messages) == 3
    assert len({each.media_group_id for each in messages if each}) == 1
    assert [each.caption for each in messages if each] == ["@playground_bot which?", None, None]
    assert [len(each.caption_entities) for each in messages if each] == [1, 0, 0]


async def stored(telegram: Telegram, data: bytes = b"the bytes", size: int | None = None) -> str:
    update = telegram.update(
        telegram.send(telegram.person("Alice"), Document(data, "a.txt", size=size))
    )
    file_id: str = update["message"]["document"]["file_id"]
    return file_id


async def test_files_are_given_out(telegram: Telegram, bot: Bot) -> None:
    file = await bot.get_file(await stored(telegram))
    assert file.file_size == 9
    assert file.file_path == f"{telegram.url}/file/bot{telegram.token}/documents/file_1.txt"
    assert await file.download_as_bytearray() == b"the bytes"
    photo = telegram.update(telegram.send(telegram.person("Bob"), Photo(JPEG)))["message"]["photo"]
    sizes = [await (await bot.get_file(each["file_id"])).download_as_bytearray() for each in photo]
    assert sizes == [JPEG[:200], JPEG]


async def test_what_is_not_given_out(telegram: Telegram, bot: Bot) -> None:
    with pytest.raises(BadRequest, match="temporarily unavailable"):
        await bot.get_file("nobody's")
    large = await stored(telegram, size=21 << 20)
    with pytest.raises(BadRequest, match="ile is too big"):
        await bot.get_file(large)
    telegram.stored.local = True
    path = (await bot.get_file(large)).file_path
    assert path is not None and path.endswith("/var/lib/bot/documents/file_1.txt")
    async with aiohttp.ClientSession() as client:
        for address, status in (
            (f"bot{telegram.token}/documents/none", 404),
            ("bot1:wrong/documents/file_1.txt", 401),
        ):
            async with client.get(f"{telegram.url}/file/{address}") as response:
                assert response.status == status


async def test_what_goes_wrong_with_a_file(telegram: Telegram, bot: Bot) -> None:
    file = await bot.get_file(await stored(telegram))
    assert file.file_path is not None
    async with aiohttp.ClientSession() as client:
        telegram.fault("download", Answer(502))
        async with client.get(file.file_path) as response:
            assert response.status == 502
        telegram.fault("download", Elsewhere("http://127.0.0.1:1/x"))
        async with client.get(file.file_path, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (302, "http://127.0.0.1:1/x")
        telegram.fault("download", Overflow(200_000))
        async with client.get(file.file_path) as response:
            assert response.content_length is None
            assert len(await response.read()) == 200_000
        telegram.fault("download", CutShort(4))
        with pytest.raises(aiohttp.ClientPayloadError):
            async with client.get(file.file_path) as response:
                await response.read()
        async with client.get(file.file_path) as response:
            assert await response.read() == b"the bytes"
    assert [call.method for call in telegram.calls].count("download") == 5
