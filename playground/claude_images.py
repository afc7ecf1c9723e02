"""What the Messages API refuses in a picture: too many bytes, too many pixels.

The size is read from the head of the file, as far as that is easy: PNG, GIF and JPEG.
"""

from __future__ import annotations

import struct

LARGEST = 5 << 20  # of the base64 text
LONGEST_EDGE = 8_000
MANY = 20  # from so many on in a request, edges have another limit
LONGEST_OF_MANY = 2_000
HEAD = 100_000  # characters of base64 in which the size stands

TOO_LONG = "At least one of the image dimensions exceed max allowed size"

# The markers of JPEG after which the size stands.
_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


def too_large(text: str, data: bytes) -> str | None:
    """Why the service does not take it.

    :param text: base64
    :param data: its bytes, or the first of them
    """
    if len(text) > LARGEST:
        return f"image exceeds 5 MB maximum: {len(text)} bytes > {LARGEST} bytes"
    if max(size_of(data)) > LONGEST_EDGE:
        return f"{TOO_LONG}: {LONGEST_EDGE} pixels"
    return None


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height; zeros when they are not known."""
    if data.startswith(b"\x89PNG") and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return width, height
    if data.startswith(b"GIF8") and len(data) >= 10:
        width, height = struct.unpack("<HH", data[6:10])
        return width, height
    return _of_jpeg(data) if data.startswith(b"\xff\xd8") else (0, 0)


def _of_jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4])
        if marker in _SIZES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + length
    return 0, 0
