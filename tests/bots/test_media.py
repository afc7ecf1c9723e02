"""Files that people send, as what a model can read."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bots import media
from bots.media import Media
from bots.plugins import load_transcriber
from core.adapter import Fetched
from core.attachments import Opens
from core.errors import ConfigError, NotFetched
from core.messages import CUT_NOTE, Attachment
from core.results import MAX_CHARACTERS, MAX_DOCUMENT, File, Image, picture_type
from tests.bots.test_pictures import file, flag

DOCUMENT = Attachment("document", "d", "notes.txt")
VOICE = Attachment("voice", "v", media_type="audio/ogg", seconds=3)


@pytest.fixture
async def opener() -> AsyncIterator[Media]:
    opener = Media()
    yield opener
    await opener.close()


async def read(
    opener: Opens, data: bytes, attachment: Attachment = DOCUMENT, media_type: str = ""
) -> str | Image | File:
    parts = await opener.open(attachment, Fetched(data, media_type))
    (part,) = parts
    return part


async def refused(opener: Opens, data: bytes, **more: Any) -> str:
    with pytest.raises(NotFetched) as caught:
        await read(opener, data, **more)
    return caught.value.sentence


async def test_pictures_as_photos_and_as_files(opener: Media) -> None:
    for attachment in (DOCUMENT, Attachment("photo", "p")):
        part = await read(opener, file(flag()), attachment)
        assert isinstance(part, Image)
        assert picture_type(part.data) == "image/jpeg"
    assert isinstance(await read(opener, file(flag(), "BMP")), Image)
    assert await refused(opener, b"\xff\xd8\xff broken") == "it cannot be read as a picture"


async def test_a_pdf_goes_as_it_is(opener: Media) -> None:
    data = b"%PDF-1.7 and so on"
    assert await read(opener, data) == File(data, "notes.txt", "application/pdf")
    locked = b"%PDF-1.7\ntrailer << /Root 1 0 R /Encrypt 5 0 R >>"
    assert await refused(opener, locked) == media.LOCKED
    assert await refused(opener, b"%PDF-" + bytes(MAX_DOCUMENT)) == media.TOO_LARGE


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
async def test_texts(opener: Media, encoding: str) -> None:
    part = await read(opener, "näher 🚀\r\n\tx".encode(encoding))
    assert part == File("näher 🚀\r\n\tx".encode(), "notes.txt", "text/plain")


async def test_an_old_text_that_says_it_is_one(opener: Media) -> None:
    part = await read(opener, "näher".encode("cp1252"), media_type="text/plain")
    assert isinstance(part, File) and part.data.decode() == "näher"
    assert await refused(opener, "näher".encode("cp1252")) == media.UNREADABLE


async def test_a_long_text_is_cut_and_says_so(opener: Media) -> None:
    part = await read(opener, ("é" * (3 * MAX_CHARACTERS)).encode())
    assert isinstance(part, File)
    text = part.data.decode()
    assert text.endswith(CUT_NOTE) and len(text) == MAX_CHARACTERS + len(CUT_NOTE)
    part = await read(opener, ("🚀" * (2 * MAX_CHARACTERS)).encode()[1:], media_type="text/plain")
    assert isinstance(part, File)


async def test_what_is_none_of_these(opener: Media) -> None:
    assert await refused(opener, b"PK\x03\x04 zipped") == media.UNREADABLE
    assert await refused(opener, bytes(range(256))) == media.UNREADABLE
    assert await refused(opener, b"") == media.EMPTY
    assert await refused(opener, b" \n") == media.EMPTY


async def test_what_it_does_not_even_ask_for(opener: Media) -> None:
    assert opener.declines(DOCUMENT) is None
    assert opener.declines(Attachment("photo", "p")) is None
    assert opener.declines(VOICE) == media.DEAF
    assert opener.declines(Attachment("document", "d", media_type="audio/mpeg")) == media.DEAF
    assert opener.declines(Attachment("video_note", "d", media_type="video/mp4")) == media.DEAF
    assert opener.declines(Attachment("document", "d", media_type="video/mp4")) == media.BLIND
    assert opener.declines(Attachment("animation", "d")) == media.BLIND


async def test_what_is_spoken_is_written_down() -> None:
    asked: list[tuple[bytes, str]] = []

    async def listen(data: bytes, media_type: str) -> str:
        asked.append((data, media_type))
        return " good morning\n"

    opener = Media(listen)
    assert opener.declines(VOICE) is None
    said = await read(opener, b"OggS", VOICE)
    assert said == "[voice message, 3 s, written down:]\ngood morning"
    assert asked == [(b"OggS", "audio/ogg")]


class _Later:
    """Called, it gives something to wait for, though it is no coroutine function."""

    def __call__(self, data: bytes, media_type: str) -> Any:
        async def words() -> str:
            return "later"

        return words()


@pytest.mark.parametrize("listen", [lambda data, media_type: "later", _Later()])
async def test_a_transcriber_may_be_any_function(listen: Any) -> None:
    assert str(await read(Media(listen), b"OggS", VOICE)).endswith("later")


async def test_a_transcriber_that_hears_nothing_or_fails(caplog: pytest.LogCaptureFixture) -> None:
    def fail(data: bytes, media_type: str) -> str:
        raise ValueError("key sk-1234 is wrong")

    assert await refused(Media(fail), b"OggS", attachment=VOICE) == media.UNHEARD
    assert "sk-1234" not in caplog.text
    assert caplog.records[-1].levelno == logging.WARNING
    assert await refused(Media(lambda *_: " "), b"OggS", attachment=VOICE) == media.SILENT


class TestConfigured:
    def test_a_function_of_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "ears.py").write_text("def listen(data, media_type): return 'heard'\nx = 1\n")
        listen = load_transcriber("ears.py:listen", tmp_path)
        assert listen(b"", "") == "heard"
        with pytest.raises(ConfigError, match=r"\[media\] transcriber: .* is no function"):
            load_transcriber("ears.py:x", tmp_path)
        with pytest.raises(ConfigError, match="no such file"):
            load_transcriber("eyes.py:x", tmp_path)


def test_it_is_what_the_core_asks_for() -> None:
    opener: Opens = Media()
    names: Sequence[str] = ("declines", "open")
    assert all(callable(getattr(opener, name)) for name in names)
