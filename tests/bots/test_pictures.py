"""Pictures made to fit: of real files that Pillow writes, and of broken ones."""

from __future__ import annotations

import random
import struct
import zlib
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bots import pictures
from bots.pictures import LONGEST, MOST_PIXELS, NoPicture, fitted
from core.results import MAX_IMAGE, picture_type

RED, BLUE, CLEAR = (255, 0, 0), (0, 0, 255), (0, 0, 0, 0)


def flag(width: int = 200, height: int = 100, mode: str = "RGB") -> Image.Image:
    """Red, but blue where up and left is."""
    image = Image.new("RGB", (width, height), RED)
    image.paste(BLUE, (0, 0, width // 2, height // 2))
    return image if mode == "RGB" else image.convert(mode)


def file(image: Image.Image, form: str = "JPEG", **options: Any) -> bytes:
    into = BytesIO()
    image.save(into, form, **options)
    return into.getvalue()


def seen(data: bytes) -> Image.Image:
    image = Image.open(BytesIO(data))
    image.load()
    return image


def is_blue(image: Image.Image, x: float, y: float) -> bool:
    colour = image.convert("RGB").getpixel((int(x * image.width), int(y * image.height)))
    assert isinstance(colour, tuple)
    return colour[2] > 200 and colour[0] < 60


def noise(width: int, height: int) -> Image.Image:
    data = random.Random(1).randbytes(width * height * 3)
    return Image.frombytes("RGB", (width, height), data)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "WEBP", "BMP"])
def test_each_form_that_people_send(form: str) -> None:
    made = fitted(file(flag(), form))
    assert picture_type(made) == ("image/jpeg" if form == "JPEG" else "image/png")
    image = seen(made)
    assert image.size == (200, 100)
    assert is_blue(image, 0.1, 0.1) and not is_blue(image, 0.9, 0.9)


@pytest.mark.parametrize(
    ("size", "becomes"),
    [
        ((4000, 3000), (LONGEST, 1176)),
        ((1000, 5000), (314, LONGEST)),
        ((LONGEST, LONGEST), (LONGEST, LONGEST)),
        ((1, 1), (1, 1)),
        ((9000, 2), (LONGEST, 1)),
    ],
)
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_it_is_made_smaller_never_larger(
    size: tuple[int, int], becomes: tuple[int, int], form: str
) -> None:
    assert seen(fitted(file(flag(*size), form))).size == becomes


def test_what_a_camera_writes_beside_it_goes() -> None:
    exif = Image.Exif()
    exif[0x010F] = "SecretCamera"
    exif.get_ifd(0x8825).update({1: "N", 2: (52.0, 31.0, 12.0)})
    for form in ("JPEG", "PNG", "WEBP"):
        data = file(flag(), form, exif=exif)
        assert b"SecretCamera" in data
        made = fitted(data)
        assert b"SecretCamera" not in made
        assert not seen(made).getexif()
    commented = file(flag(), "JPEG", comment=b"my address")
    assert b"my address" in commented and b"my address" not in fitted(commented)


@pytest.mark.parametrize(
    ("orientation", "blue"),
    [
        (1, (0.1, 0.1)),
        (2, (0.9, 0.1)),
        (3, (0.9, 0.9)),
        (4, (0.1, 0.9)),
        (5, (0.1, 0.1)),
        (6, (0.9, 0.1)),
        (7, (0.9, 0.9)),
        (8, (0.1, 0.9)),
        (99, (0.1, 0.1)),
    ],
)
def test_it_stands_upright(orientation: int, blue: tuple[float, float]) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = seen(fitted(file(flag(), "JPEG", exif=exif)))
    assert image.size == ((100, 200) if orientation in (5, 6, 7, 8) else (200, 100))
    corners = [(0.1, 0.1), (0.9, 0.1), (0.1, 0.9), (0.9, 0.9)]
    assert [corner for corner in corners if is_blue(image, *corner)] == [blue]


def test_what_is_clear_stays_so() -> None:
    image = Image.new("RGBA", (10, 10), CLEAR)
    assert seen(fitted(file(image, "PNG"))).getpixel((0, 0)) == CLEAR
    palette = Image.new("P", (10, 10), 0)
    made = seen(fitted(file(palette, "GIF", transparency=0)))
    assert made.mode == "RGBA" and made.getpixel((0, 0))[3] == 0  # type: ignore[index]


@pytest.mark.parametrize("mode", ["L", "1", "P", "CMYK", "LA", "YCbCr"])
def test_each_way_to_say_a_colour(mode: str) -> None:
    form = {"CMYK": "JPEG", "YCbCr": "JPEG"}.get(mode, "PNG")
    assert seen(fitted(file(flag(mode=mode), form))).size == (200, 100)


def test_sixteen_bits_do_not_turn_white() -> None:
    grey = Image.new("I;16", (10, 10), 0x4000)
    assert seen(fitted(file(grey, "PNG"))).convert("L").getpixel((5, 5)) == 0x40


def test_of_one_that_moves_the_first_frame() -> None:
    frames = [Image.new("RGB", (20, 20), BLUE), Image.new("RGB", (20, 20), RED)]
    moving = file(frames[0], "GIF", save_all=True, append_images=frames[1:])
    image = seen(fitted(moving))
    assert is_blue(image, 0.5, 0.5)
    assert getattr(image, "n_frames", 1) == 1


def test_the_same_file_gives_the_same_bytes() -> None:
    assert fitted(file(flag())) == fitted(file(flag()))


def test_one_that_no_png_holds_becomes_a_jpeg() -> None:
    data = file(noise(LONGEST, LONGEST), "PNG")
    assert len(data) > MAX_IMAGE
    made = fitted(data)
    assert picture_type(made) == "image/jpeg" and len(made) <= MAX_IMAGE
    clear = noise(LONGEST, LONGEST).convert("RGBA")
    clear.putalpha(0)
    image = seen(fitted(file(clear, "PNG")))
    assert image.format == "JPEG"
    assert image.getpixel((5, 5)) == (255, 255, 255), "what is clear is white then"


def test_one_that_nothing_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_IMAGE", 100)
    with pytest.raises(NoPicture, match="too large"):
        fitted(file(noise(100, 100)))


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it has so many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(40_001, 1_000), (100_000, 100_000), (2**31 - 1, 1)])
def test_a_bomb_is_not_unfolded(size: tuple[int, int]) -> None:
    assert size[0] * size[1] > MOST_PIXELS
    with pytest.raises(NoPicture, match="million pixels"):
        fitted(bomb(*size))


def test_of_a_large_photo_the_decoder_leaves_out_most() -> None:
    large = Image.new("L", (12_000, 9_000))
    assert large.width * large.height > MOST_PIXELS
    assert seen(fitted(file(large, "JPEG", quality=20))).size == (LONGEST, 1176)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"\x89PNG\r\n\x1a\n",
        file(flag(1000, 1000))[:2000],
        b"GIF89a",
        b"BM" + bytes(60),
    ],
)
def test_broken_ones(data: bytes) -> None:
    with pytest.raises(NoPicture, match="cannot be read"):
        fitted(data)


def test_one_for_which_there_is_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(image: object) -> Image.Image:
        raise MemoryError

    monkeypatch.setattr(pictures, "_small", full)
    with pytest.raises(NoPicture, match="too many pixels"):
        fitted(file(flag()))


@given(st.sampled_from(["JPEG", "PNG", "GIF", "WEBP", "BMP"]), st.data())
def test_any_damage_is_said(form: str, data: st.DataObject) -> None:
    whole = bytearray(file(flag(30, 20), form))
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        made = fitted(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    except NoPicture:
        return
    assert picture_type(made) in ("image/jpeg", "image/png")
    assert max(seen(made).size) <= LONGEST
