"""What a script is given, packed as its `cmsgpack` reads it.

MessagePack of before there was a kind for bytes: to Lua text and bytes are the same, and the
library that Debian's server is built with refuses the newer kind. Hence not msgspec's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_NONE, _FALSE, _TRUE = b"\xc0", b"\xc2", b"\xc3"
_SHORT: Final = 32


def pack(value: object) -> bytes:
    """
    :param value: None, bool, a number of at least 0, text, bytes, and what holds these: mappings
        whose keys are text, and whatever else can be gone through
    """
    parts: list[bytes] = []
    _add(value, parts)
    return b"".join(parts)


def _add(value: object, parts: list[bytes]) -> None:
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        size = len(value)
        parts.append(
            bytes((0xA0 | size,))
            if size < _SHORT
            else b"\xda" + size.to_bytes(2, "big")
            if size < 1 << 16
            else b"\xdb" + size.to_bytes(4, "big")
        )
        parts.append(value)
    elif value is None:
        parts.append(_NONE)
    elif isinstance(value, bool):
        parts.append(_TRUE if value else _FALSE)
    elif isinstance(value, int):
        parts.append(b"\xcf" + value.to_bytes(8, "big"))
    elif isinstance(value, Mapping):
        parts.append(b"\xdf" + len(value).to_bytes(4, "big"))
        for name, each in value.items():
            _add(name, parts)
            _add(each, parts)
    elif isinstance(value, Iterable):
        many = tuple(value)
        parts.append(b"\xdd" + len(many).to_bytes(4, "big"))
        for each in many:
            _add(each, parts)
    else:
        raise TypeError(f"cannot be packed: {type(value).__name__}")
