"""What a tool gave becomes content that a history can hold and a model can read."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from core.errors import ToolError
from core.results import (
    MAX_CHARACTERS,
    MAX_DOCUMENT,
    MAX_IMAGE,
    MAX_KEPT,
    MAX_PARTS,
    MAX_SENT,
    MAX_VALUES,
    File,
    Image,
    content_of,
    file_name,
    size_of,
)

PNG = b"\x89PNG\r\n\x1a\n rest of it"
JPEG = b"\xff\xd8\xff rest of it"
PDF = b"%PDF-1.7 rest of it"


class Kept:
    def __init__(self) -> None:
        self.data: dict[str, tuple[bytes, str]] = {}

    async def __call__(self, data: bytes, media_type: str) -> str:
        id = f"sha256:{sha256(data).hexdigest()}"
        self.data[id] = (data, media_type)
        return id


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def kept_as(data: bytes, media_type: str) -> dict[str, Any]:
    id = f"sha256:{sha256(data).hexdigest()}"
    return {"type": "blob", "id": id, "media_type": media_type}


def shown(data: bytes, media_type: str) -> dict[str, Any]:
    return {**kept_as(data, media_type), "size": len(data)}


async def test_an_image_is_kept_beside_the_history() -> None:
    kept = Kept()
    assert await content_of(Image(PNG), kept) == [
        {"type": "image", "source": shown(PNG, "image/png")}
    ]
    assert list(kept.data.values()) == [(PNG, "image/png")]


async def test_without_a_place_beside_it_an_image_is_in_the_history() -> None:
    assert await content_of([Image(JPEG, "image/jpeg")]) == [
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": "image/jpeg",
                "data": base64.b64encode(JPEG).decode(),
            },
        }
    ]


async def test_what_an_image_is_its_bytes_say() -> None:
    assert await content_of(Image(JPEG, "image/png"), Kept()) == [
        {"type": "image", "source": shown(JPEG, "image/jpeg")}
    ]
    with pytest.raises(ToolError, match="kind that cannot be shown"):
        await content_of(Image(b"BM a bitmap", "image/bmp"), Kept())


async def test_parts_stay_in_their_order() -> None:
    parts = ("Before:", Image(PNG), {"a": 1}, None, File(PDF, "a.pdf", "application/pdf"))
    assert await content_of(parts, Kept()) == [
        text("Before:"),
        {"type": "image", "source": shown(PNG, "image/png")},
        text('{"a":1}'),
        text("Done."),
        {"type": "document", "source": shown(PDF, "application/pdf"), "title": "a.pdf"},
    ]


async def test_a_list_without_images_is_json() -> None:
    assert await content_of(["a", 1], Kept()) == '["a",1]'


async def test_what_kind_of_file_it_is() -> None:
    kept = Kept()
    csv = File(b"a,b\n1,\xff", "t\0.csv", "text/csv")
    assert await content_of(csv, kept) == [text("t\ufffd.csv:"), text("a,b\n1,\ufffd")]
    assert await content_of(File(PNG, "p.png", "image/png"), kept) == await content_of(
        Image(PNG), kept
    )
    zipped = File(b"PK rest", "all.zip", "application/zip")
    assert await content_of(zipped, kept) == [
        text("[the file all.zip, application/zip, 7 bytes; it is kept, but cannot be read here]"),
        {"type": "blob", "source": kept_as(b"PK rest", "application/zip")},
    ]
    assert await content_of(zipped) == [
        text("[the file all.zip, application/zip, 7 bytes; it cannot be read here]")
    ]
    assert kept.data[shown(b"PK rest", "")["id"]] == (b"PK rest", "application/zip")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Image(PNG + bytes(MAX_IMAGE)), f"{MAX_IMAGE} can be shown"),
        (File(bytes(MAX_DOCUMENT + 1), "f.bin"), "f.bin has .* too large"),
        ([Image(PNG)] * (MAX_PARTS + 1), f"{MAX_PARTS} are allowed"),
    ],
    ids=["image", "file", "parts"],
)
async def test_bounds(value: object, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        await content_of(value, Kept())


async def test_a_long_text_is_cut_and_kept_whole() -> None:
    whole = "ä" * (MAX_CHARACTERS + 1)
    for value in (whole, File(whole.encode(), "t.txt", "text/plain")):
        kept = Kept()
        content = await content_of(value, kept)
        assert isinstance(content, list)
        begun, reference = content[-2:]
        assert begun["text"].startswith("ä" * MAX_CHARACTERS + "\n[… 200002 bytes in all;")
        assert reference == {"type": "blob", "source": kept_as(whole.encode(), "text/plain")}
        assert list(kept.data.values()) == [(whole.encode(), "text/plain")]


async def test_a_long_text_among_parts() -> None:
    content = await content_of(["x" * (MAX_CHARACTERS + 1), Image(PNG)], Kept())
    assert [block["type"] for block in content if isinstance(block, dict)] == [
        "text",
        "blob",
        "image",
    ]


@pytest.mark.parametrize("whole", ["x" * (MAX_KEPT + 1), "ä" * (MAX_KEPT // 2 + 1)])
async def test_a_text_too_long_to_be_kept_is_only_cut(whole: str) -> None:
    kept = Kept()
    content = await content_of(whole, kept)
    assert isinstance(content, str)
    assert content.endswith("\n[… the result was longer; the rest was cut here]")
    assert len(content) < MAX_CHARACTERS + 100
    assert not kept.data


@dataclass
class Plain:
    inside: list[str] = field(default_factory=lambda: ["x" * MAX_KEPT, "y"])


class Struct(msgspec.Struct):
    inside: set[str]


@pytest.mark.parametrize(
    "value",
    [
        Plain(),
        Struct({"x" * (MAX_KEPT + 1)}),
        {"a": bytes(MAX_KEPT), "b": 1},
        dict.fromkeys(range(MAX_VALUES)),
        [0] * MAX_VALUES,
        [[0] * 1000] * 1001,
    ],
    ids=["dataclass", "struct", "bytes", "mapping", "list", "nested"],
)
async def test_too_large_is_said_before_it_is_copied(value: object) -> None:
    with pytest.raises(ToolError, match="too large"):
        await content_of(value, Kept())


def test_a_size_is_about_right() -> None:
    assert size_of("x" * 10) == 10
    assert size_of({"k": ["v" * 100, Plain]}) < 200


# ---------------------------------------------------------------------- for the person


async def test_what_is_sent_the_model_learns_of_and_a_picture_it_sees() -> None:
    kept = Kept()
    given = [
        "Look:",
        Image(PNG, name="a/../chart.png", send=True),
        File(b"a,b", "t.csv", send=True),
    ]
    about = "the person is sent it after your answer]"
    assert await content_of(given, kept) == [
        text("Look:"),
        text(f"[the file chart.png, image/png, {len(PNG)} bytes: {about}"),
        {"type": "image", "source": shown(PNG, "image/png")},
        {"type": "blob", "source": kept_as(PNG, "image/png"), "send": "chart.png"},
        text(f"[the file t.csv, application/octet-stream, 3 bytes: {about}"),
        {
            "type": "blob",
            "source": kept_as(b"a,b", "application/octet-stream"),
            "send": "t.csv",
        },
    ]
    assert len(kept.data) == 2


async def test_a_picture_that_the_model_does_not_take_is_sent_all_the_same() -> None:
    large = PNG + bytes(MAX_IMAGE)
    content = await content_of(Image(large, send=True), Kept())
    assert [block["type"] for block in content] == ["text", "blob"]  # type: ignore[index]
    content = await content_of(Image(b"<svg/>", "image/svg+xml", send=True), Kept())
    assert content[1]["send"] == "image.svg+xml"  # type: ignore[index]


async def test_what_cannot_be_sent() -> None:
    with pytest.raises(ToolError, match="empty"):
        await content_of(File(b"", "a.txt", send=True), Kept())
    with pytest.raises(ToolError, match="can be sent"):
        await content_of(File(bytes(MAX_SENT + 1), "a.bin", send=True), Kept())
    assert await content_of(File(b"x", "a.txt", "text/plain", send=True)) == [
        text("[the file a.txt, text/plain, 1 bytes; it cannot be sent from here]")
    ]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("report.pdf", "report.pdf"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("..", "file"),
        ("a/", "file"),
        (".env", "env"),
        ("a\0\nb\u202egnp.exe", "a\ufffdbgnp.exe"),
        ("été 😀.txt", "été 😀.txt"),
        ("x" * 300 + ".tar", "x" * 96 + ".tar"),
        ("x" * 300, "x" * 99),
    ],
)
def test_a_name_is_a_name_and_nothing_else(name: str, kept: str) -> None:
    assert file_name(name) == kept
