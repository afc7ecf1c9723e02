"""SessionKey: the name of a conversation. Not an address to log in with, not a file name.

Text form ``scope[@account]:part[/part...]``, reversible: ``parse(str(key)) == key``. Only adapters
build keys, from platform ids; everybody else sees the text and compares it as it is.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from core.errors import InvalidKey

MAX_LENGTH: Final = 255

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
# Everything else in a part is percent-encoded, so that "/", ":" and "@" always mean themselves.
_PLAIN: Final = "-._~"


class SessionKey(msgspec.Struct, frozen=True):
    """
    :param scope: platform and kind, ``telegram-chat``: ``[a-z][a-z0-9-]{0,39}``
    :param parts: the platform's ids, one or more, none of them empty
    :param account: which of several bots of one platform; same letters as a scope
    :raises InvalidKey: when the parts do not make a key
    """

    scope: str
    parts: tuple[str, ...]
    account: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.scope):
            raise InvalidKey(f"scope {self.scope!r}: want a letter, then letters, digits or -")
        if self.account is not None and not _NAME.fullmatch(self.account):
            raise InvalidKey(f"account {self.account!r}: want a letter, then letters, digits or -")
        if not self.parts or not all(self.parts):
            raise InvalidKey("a key needs at least one part, and no part may be empty")
        check_key(str(self))

    def __str__(self) -> str:
        account = f"@{self.account}" if self.account else ""
        try:
            parts = "/".join(quote(part, safe=_PLAIN) for part in self.parts)
        except UnicodeEncodeError as error:
            raise InvalidKey("a key's parts must be encodable text") from error
        return f"{self.scope}{account}:{parts}"

    @staticmethod
    def parse(text: str) -> SessionKey | None:
        """The key that has this text; None when it is a free key that no adapter built."""
        head, colon, tail = text.partition(":")
        if not colon:
            return None
        scope, at, account = head.partition("@")
        try:
            key = SessionKey(
                scope,
                tuple(unquote(part, errors="strict") for part in tail.split("/")),
                account if at else None,
            )
        except (InvalidKey, UnicodeDecodeError):
            return None
        return key if str(key) == text else None


def check_key(text: str) -> str:
    """The text itself, when a store can keep it.

    :raises InvalidKey: empty, longer than 255 characters, with NUL or a lone surrogate
    """
    if not text:
        raise InvalidKey("a session key must not be empty")
    if len(text) > MAX_LENGTH:
        raise InvalidKey(f"a session key has {MAX_LENGTH} characters at most, this has {len(text)}")
    if "\0" in text:
        raise InvalidKey("a session key must not contain NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidKey("a session key must be encodable text") from error
    return text
