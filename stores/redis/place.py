"""Where a Redis is, read out of a URL.

Not by redis-py, whose errors would show what a URL holds, and which takes any of its own arguments
from it.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from core.errors import ConfigError

PREFIX: Final = "chinwag"
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TLS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class Place(msgspec.Struct, frozen=True):
    """
    :param where: for people; never a secret
    :param arguments: for a connection; the password is in them
    :param prefix: what the names of all our keys begin with
    """

    where: str
    arguments: dict[str, Any]
    prefix: str

    def __repr__(self) -> str:
        return f"Place({self.where})"


def place_of(url: str) -> Place:
    """
    ::

        redis://[user[:password]@]host[:port][/database][?prefix=chinwag]
        rediss://...            by TLS; takes ssl_ca_certs, ssl_certfile and ssl_keyfile, too
        unix://[user[:password]@]/path/of.sock[?db=0]

    :raises ConfigError: it is none of these
    """
    try:
        parts = urlsplit(url)
        port = parts.port or 6379
        given = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError:
        # What it says may have the password in it.
        raise _wrong("it cannot be read; write redis://host:6379/0") from None
    known = {"prefix", "db", *(_TLS if parts.scheme == "rediss" else ())}
    for name in given:
        if name not in known:
            raise _wrong(f"there is no {name!r}; there are {', '.join(sorted(known))}")
    prefix = given.get("prefix", PREFIX)
    if not _NAME.fullmatch(prefix):
        raise _wrong("prefix: 1 to 64 letters, digits, '_', '.' or '-'")
    unix = parts.scheme == "unix"
    database = given.get("db") or (not unix and parts.path.strip("/")) or "0"
    if not (database.isascii() and database.isdigit()):
        raise _wrong("a database has a number, such as redis://host:6379/0")
    arguments: dict[str, Any] = {"db": int(database)}
    if parts.username:
        arguments["username"] = unquote(parts.username)
    if parts.password:
        arguments["password"] = unquote(parts.password)
    if unix:
        if not parts.path:
            raise _wrong("unix: names no socket; write unix:///run/redis/redis.sock")
        arguments["path"] = unquote(parts.path)
        where = f"unix://{parts.path}"
    else:
        arguments |= {"host": parts.hostname or "localhost", "port": port}
        arguments |= {name: given[name] for name in _TLS if name in given}
        where = f"{parts.scheme}://{parts.hostname or 'localhost'}:{port}/{database}"
    # In braces: what spreads keys over servers keeps together those that share them.
    return Place(where, arguments, f"{{{prefix}}}:")


def _wrong(why: str) -> ConfigError:
    return ConfigError(f"[store] url: {why}")
