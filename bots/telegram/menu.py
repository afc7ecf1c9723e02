"""The menu that Telegram shows beside the input field: the bot's commands, one list a place.

Derived from the table of commands, so that it never says anything else than /help. Set when it
differs from what Telegram has. A convenience: whatever goes wrong with it, the bot runs on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from telegram import (
    Bot,
    BotCommand,
    BotCommandScope,
    BotCommandScopeAllChatAdministrators,
    BotCommandScopeAllGroupChats,
    BotCommandScopeAllPrivateChats,
)

from bots.telegram.failures import why
from bots.telegram.keys import Scope
from core.command import Command, Commands
from core.events import emit
from core.phrases import Wording

MAX_COMMANDS: Final = 100
MAX_DESCRIPTION: Final = 256
# Telegram has a button for it, and nobody needs it twice.
_ELSEWHERE: Final = frozenset({"start"})

Menu = tuple[tuple[str, str], ...]


def menus(commands: Commands, say: Wording, scope: Scope) -> Iterator[tuple[BotCommandScope, Menu]]:
    """What each kind of place shows. Of what only some may do where several people share one
    conversation, only they are told."""
    everybody = [each for each in commands.open_to(trusted=False) if each.name not in _ELSEWHERE]
    shared = scope == "chat"
    alone = [each for each in everybody if not each.groups]
    yield BotCommandScopeAllPrivateChats(), _menu(alone, say)
    members = [each for each in everybody if not (shared and each.room == "admins")]
    yield BotCommandScopeAllGroupChats(), _menu(members, say)
    yield BotCommandScopeAllChatAdministrators(), _menu(everybody, say)


def _menu(commands: list[Command], say: Wording) -> Menu:
    return tuple(
        (each.name, " ".join(say(each.help).split())[:MAX_DESCRIPTION] or each.name)
        for each in commands[:MAX_COMMANDS]
    )


async def publish(bot: Bot, commands: Commands, say: Wording, scope: Scope) -> None:
    """Never raises: an old server knows no menus, and the next start tries again."""
    try:
        for place, menu in menus(commands, say, scope):
            shown = await bot.get_my_commands(place)
            if tuple((each.command, each.description) for each in shown) != menu:
                await bot.set_my_commands([BotCommand(*entry) for entry in menu], place)
    except Exception as error:
        emit("telegram.no_menu", level=logging.DEBUG, why=why(error))
