"""Variables that config.toml names, so that it holds no secret although something needs one.

``${NAME}`` in the table of an MCP server: the variable's value takes its place; only there, and
only once, for what a value has in it is not looked at again. And the `token_env` of a bot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_NAME: Final = re.compile(
    r"token|secret|passw|key|credential|authorization|cookie", re.IGNORECASE
)


def literal_secrets(servers: Any) -> Iterator[tuple[str, str, str]]:
    """Where a value stands whose name says that it is secret, and that no variable gives: the
    server, ``env`` or ``headers``, the name."""
    for server, table in servers.items() if isinstance(servers, dict) else ():
        for field in ("env", "headers"):
            values = table.get(field) if isinstance(table, dict) else None
            for name, value in values.items() if isinstance(values, dict) else ():
                if _SECRET_NAME.search(name) and not _VARIABLE.search(str(value)):
                    yield server, field, name


def _bots(telegram: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    bots = telegram.get("bots") if isinstance(telegram, dict) else None
    for number, bot in enumerate(bots if isinstance(bots, list) else (), 1):
        if isinstance(bot, dict):
            yield number, bot


def literal_tokens(telegram: Any) -> Iterator[tuple[int, str]]:
    """The secrets that stand in a bot's table, by its number; they are not there any more then."""
    for number, bot in _bots(telegram):
        if bot.pop("token", None) is not None:
            yield number, "token"


def fill_tokens(telegram: Any, variables: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Gives every bot its token; yields the number of one and the variable, where it has none."""
    for number, bot in _bots(telegram):
        name = bot.get("token_env")
        if not isinstance(name, str):
            continue
        token = variables.get(name, "").strip()
        if token:
            bot["token"] = token
        else:
            yield number, name


class Filling:
    """Fills in, and remembers what.

    :param variables: where a value is looked for
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.values: list[str] = []
        self.missing: list[tuple[tuple[str | int, ...], str]] = []

    def fill_in(self, value: Any, trail: tuple[str | int, ...] = ()) -> Any:
        """The same value, in all of its texts."""
        if isinstance(value, dict):
            return {key: self.fill_in(each, (*trail, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self.fill_in(each, (*trail, index)) for index, each in enumerate(value)]
        if not isinstance(value, str):
            return value

        def replaced(found: re.Match[str]) -> str:
            given = self._variables.get(found[1], "").strip()
            if not given:
                self.missing.append((trail, found[1]))
            else:
                self.values.append(given)
            return given

        return _VARIABLE.sub(replaced, value)
