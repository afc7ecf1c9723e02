"""Seal: bytes that only this program's keys can read, bound to the place where they are kept.

AES-256-GCM, a random nonce each. Not a password store and not a signature for others: whoever has a
key can read and write everything. What was sealed for one place does not open in another, so a row
that somebody swapped is noticed. The first key seals, all of them open: to change keys, put a new
one in front, seal everything anew, then take the old one away.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from core.errors import CannotUnseal

KEY_BYTES: Final = 32
VARIABLE: Final = "CHINWAG_ENCRYPTION_KEYS"

_MARK: Final = b"\x01cw"  # no JSON and no text of ours begins like this
_NAME: Final = 8
_NONCE: Final = 12
_HEAD: Final = len(_MARK) + _NAME + _NONCE


def new_key() -> str:
    """A fresh key, as `keys_of` reads it."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def keys_of(text: str) -> tuple[bytes, ...]:
    """The keys in ``base64,base64,...``, 32 bytes each; the first one seals.

    :raises ValueError: one is none, or there is none; the message does not say what it was
    """
    keys: list[bytes] = []
    for number, part in enumerate(text.split(","), start=1):
        try:
            key = base64.b64decode(part.strip(), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise ValueError(f"key {number}: want {KEY_BYTES} random bytes in base64")
        keys.append(key)
    return tuple(keys)


class Seal:
    """
    :param keys: 32 bytes each; the first one seals, all of them open
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        # 20 ms, and only for those who seal something.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not keys:
            raise ValueError("a seal needs a key")
        self._ciphers: Mapping[bytes, Any] = {_name(key): AESGCM(key) for key in keys}
        self._first = _name(keys[0])
        self._nonces = hmac.digest(keys[0], b"chinwag nonces", "sha256")

    def __repr__(self) -> str:
        return f"Seal({len(self._ciphers)} keys)"

    def seal(self, plain: bytes, place: str, *, alike: bool = False) -> bytes:
        """
        :param place: where it will be kept; it opens only when the same is said again
        :param alike: the same bytes for the same place are sealed alike each time, so that they
            can be stored once; who reads the disk sees that they are the same, and no more
        """
        nonce = secrets.token_bytes(_NONCE)
        if alike:
            # Of all that is sealed: two texts never share a nonce but by a chance of 2^-96.
            said = hmac.new(self._nonces, place.encode() + b"\0", "sha256")
            said.update(plain)
            nonce = said.digest()[:_NONCE]
        head = _MARK + self._first + nonce
        return head + bytes(self._ciphers[self._first].encrypt(nonce, plain, place.encode()))

    def open(self, sealed: bytes, place: str) -> bytes:
        """
        :raises CannotUnseal: its key is not among ours, or it was changed, or kept elsewhere
        """
        from cryptography.exceptions import InvalidTag

        if not is_sealed(sealed) or len(sealed) < _HEAD:
            raise CannotUnseal(f"{place}: it is not sealed")
        cipher = self._ciphers.get(sealed[len(_MARK) : len(_MARK) + _NAME])
        if cipher is None:
            raise CannotUnseal(
                f"{place}: it is sealed with a key that {VARIABLE} does not hold; put that key"
                " back, behind the first one"
            )
        try:
            return bytes(
                cipher.decrypt(sealed[_HEAD - _NONCE : _HEAD], sealed[_HEAD:], place.encode())
            )
        except InvalidTag:
            raise CannotUnseal(f"{place}: it was changed, or moved here from elsewhere") from None

    def is_newest(self, sealed: bytes) -> bool:
        """Whether the first key sealed it; if not, it may be sealed anew."""
        return sealed.startswith(_MARK + self._first)


def is_sealed(data: bytes) -> bool:
    return data.startswith(_MARK)


def _name(key: bytes) -> bytes:
    """What a key is called: enough to find it again, of no use for guessing it."""
    return sha256(b"chinwag key " + key).digest()[:_NAME]
