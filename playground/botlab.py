"""The test kit: people who talk to a bot on local platforms, in a test.

    async def test_it_remembers(botlab):
        alice = botlab.telegram.person("Alice")
        await alice.says("hello, I am Alice")
        await alice.hears("Nice to meet you, Alice.")
        await botlab.kill()
        await alice.says("what is my name?")
        await alice.hears("Your name is Alice.")

The bot is a process of its own, started as `chinwag run` starts it; the platforms are the
stand-ins, spoken to by the real SDKs. `playground.plugin` makes the fixture; without pytest-asyncio
`async with BotLab(folder) as botlab` is the same. An expectation that fails shows all that was
said.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, Self

from playground.bot import Ran
from playground.claude import Claude
from playground.lab import PATIENCE_SECONDS, Lab
from playground.slack import Channel, Slack
from playground.slack import Person as SlackPerson
from playground.telegram import Chat, Person, Telegram
from playground.troubles import NAMES

Json = dict[str, Any]
Wanted = str | re.Pattern[str] | Callable[[str], bool]

NO_TROUBLE: Final = "none"


class Says(Protocol):
    """A message of the bot as it stands now, of either platform."""

    @property
    def text(self) -> str: ...

    @property
    def deleted(self) -> bool: ...


class BotLab:
    """Servers, people and a bot. Used by `async with`; the bot runs inside.

    :param folder: an empty one, for the bot's database
    :param config: the bot's `config.toml`; None: that of the playground
    :param environ: further variables of the bot
    """

    def __init__(
        self, folder: Path, config: Path | None = None, environ: dict[str, str] | None = None
    ) -> None:
        self.lab = Lab(folder, config=config, more=environ)
        self.transcript: list[str] = []
        self.telegram = OnTelegram(self)
        self.slack = OnSlack(self)
        self._began = time.monotonic()
        self.lab.listeners.append(self._heard)

    async def __aenter__(self) -> Self:
        await self.lab.__aenter__()
        try:
            await self.start()
        except BaseException:
            await self.lab.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.lab.__aexit__(*error)

    @property
    def claude(self) -> Claude:
        """The model. `botlab.claude.script(Say("..."))` has it say that next."""
        return self.lab.claude

    async def start(self, *arguments: str, failpoint: str | None = None) -> None:
        """The bot again, after `stop` or `kill(restart=False)`.

        :param failpoint: ``NAME:HIT``, where it kills itself; see `core/failpoints.py`
        :raises RuntimeError: it ended instead, and why
        """
        await self.lab.start(*arguments, failpoint=failpoint)

    async def kill(self, *, restart: bool = True) -> None:
        """kill -9, in the middle of whatever it does."""
        await self.lab.kill(restart=restart)

    async def stop(self) -> int | None:
        """SIGTERM. The exit code."""
        return await self.lab.bot.stop()

    def trouble(self, name: str) -> None:
        """Something goes wrong from now on, as often as `playground.troubles` says; "none" ends
        all of it.

        :raises KeyError: there is no trouble of this name
        """
        if name == NO_TROUBLE:
            for each in NAMES:
                self.lab.troubles.clear(each)
        else:
            self.lab.troubles.set(name)
        self._note("*", f"trouble: {name}")

    async def chinwag(self, *arguments: str) -> Ran:
        """A command beside the bot, such as ``sessions list``: its code and what it printed."""
        return await self.lab.bot.command(*arguments)

    async def quiet(self, within: float = PATIENCE_SECONDS) -> None:
        """Until all that was said is confirmed and answered.

        :raises AssertionError: it never is
        """
        telegram, slack = self.telegram.server, self.slack.server
        await self._until(
            lambda: not telegram.unconfirmed() and not slack.unacknowledged(),
            "everything is confirmed",
            within,
        )
        end = time.monotonic() + within
        while waiting := await self._unfinished():
            if time.monotonic() > end:
                self._fail(f"still unfinished after {within:g} s: {', '.join(waiting)}")

    # Inside

    async def hear(
        self, who: str, texts: Callable[[], list[str]], wanted: Wanted, within: float
    ) -> str:
        """The first of the texts that fits, once it is there."""

        def found() -> str | None:
            return next((text for text in texts() if _fits(wanted, text)), None)

        what = f"{who} hears {_told(wanted)}"
        await self._until(lambda: found() is not None, what, within)
        text = found()
        assert text is not None
        return text

    async def _until(self, done: Callable[[], bool], what: str, within: float) -> None:
        try:
            await self.lab.until(done, what, within)
        except TimeoutError:
            self._fail(f"never within {within:g} s: {what}")

    def _fail(self, what: str) -> None:
        raise AssertionError(f"{what}\n\n{self.told()}") from None

    def told(self) -> str:
        """The transcript as one text, and the bot's last words when it is not there."""
        lines = self.transcript or ["(nobody has said anything)"]
        if self.lab.bot.pid is None:
            lines = [
                *lines,
                "",
                "The bot is not running. Its last words:",
                self.lab.bot.log()[-3000:],
            ]
        return "\n".join(lines)

    async def _unfinished(self) -> list[str]:
        ran = await self.chinwag("sessions", "list", "--json")
        rows = [json.loads(line) for line in ran.out.splitlines()]
        return [row["key"] for row in rows if row.get("unfinished")]

    def _heard(self, what: str, happened: Json) -> None:
        event = str(happened["event"]) if "event" in happened else ""
        match what, event:
            case "telegram", "sent" | "edited":
                chat = self.telegram.server.chat(happened["chat_id"])
                text = happened.get("text") or f"[{happened.get('file', 'a file')}]"
                self._note(f"bot in {chat.title}", f"{_EDITED[event]}{text}")
            case "telegram", "deleted":
                self._note("bot", f"deletes message {happened['message_id']}")
            case "slack", "sent" | "edited" | "grown" | "whispered":
                self._note(f"bot in {happened['channel']}", f"{_EDITED[event]}{happened['text']}")
            case "telegram" | "slack", "fault":
                self._note("*", f"{happened['method']} meets {happened['fault']}")
            case "bot", "bot.starting" | "bot.killed" | "bot.exited":
                self._note("*", event.replace("bot.", "the bot is "))
            case "bot", _ if happened.get("level") in ("warning", "error"):
                self._note("log", json.dumps(happened, default=str))

    def _note(self, who: str, text: str) -> None:
        self.transcript.append(f"{time.monotonic() - self._began:7.2f}  {who}: {text}")

    def note(self, who: str, text: str) -> None:
        """A line of the transcript."""
        self._note(who, text)


class OnTelegram:
    """The local Telegram. `server` has whatever is not here."""

    def __init__(self, botlab: BotLab) -> None:
        self.server: Telegram = botlab.lab.telegram
        self._botlab = botlab

    def person(self, name: str) -> OneOnTelegram:
        return OneOnTelegram(self._botlab, self.server.person(name))

    def group(self, title: str, owner: OneOnTelegram | None = None) -> Chat:
        return self.server.group(title, owner=owner.person if owner else None)

    def forum(self, title: str, owner: OneOnTelegram | None = None) -> Chat:
        """A group with topics; `forum.topic("Garden")` makes one and gives its id."""
        person = owner.person if owner else None
        return self.server.supergroup(title, forum=True, owner=person)


class OneOnTelegram:
    """A person, at their telephone. Without a chat they are in the private one with the bot."""

    def __init__(self, botlab: BotLab, person: Person) -> None:
        self.person = person
        self.name = person.name
        self._botlab = botlab
        self._server = botlab.lab.telegram
        self._taken: set[tuple[int, int, str]] = set()

    async def says(
        self, text: str, chat: Chat | None = None, *, topic: int | None = None, mention: bool = True
    ) -> int:
        """:param mention: in a group, with the bot's name in front. Returns the message's id."""
        named = chat is not None and mention and not text.startswith("/")
        where = f"{self.name} in {chat.title}" if chat else self.name
        self._botlab.note(where, text)
        self._server.write(self.person, text, chat, thread=topic, mention=named)
        return self._server.chat(chat or self.person).last_id

    async def edits(self, message_id: int, text: str, chat: Chat | None = None) -> None:
        self._botlab.note(self.name, f"(edits) {text}")
        self._server.edit(self.person, message_id, text, chat)

    async def hears(
        self,
        wanted: Wanted,
        chat: Chat | None = None,
        *,
        topic: int | None = None,
        within: float = PATIENCE_SECONDS,
    ) -> str:
        """A message of the bot that says this and was not yet heard: the whole text, a pattern that
        is found in it, or a function that is true for it. Returns the text.

        :raises AssertionError: it never comes; with all that was said
        """
        place = self._server.chat(chat or self.person)

        def texts() -> list[str]:
            return [
                sent.text
                for sent in self._server.sent(place)
                if not sent.deleted
                and (topic is None or sent.thread == topic)
                and (place.id, sent.message_id, sent.text) not in self._taken
            ]

        text = await self._botlab.hear(self.name, texts, wanted, within)
        sent = next(
            each
            for each in self._server.sent(place)
            if each.text == text and (place.id, each.message_id, text) not in self._taken
        )
        self._taken.add((place.id, sent.message_id, text))
        return text

    async def presses(self, label: str, chat: Chat | None = None) -> None:
        """The newest button that says this, once it is there."""
        place = self._server.chat(chat or self.person)

        def labels() -> list[str]:
            return [label for _, labels in self._server.buttons(place) for label in labels]

        await self._botlab.hear(self.name, labels, label, PATIENCE_SECONDS)
        self._botlab.note(self.name, f"(presses {label})")
        self._server.choose(self.person, label, chat)

    def sees(self, chat: Chat | None = None) -> list[str]:
        """All that the bot has said there and not taken back."""
        return self._server.texts(self._server.chat(chat or self.person))


class OnSlack:
    """The local Slack. `server` has whatever is not here."""

    def __init__(self, botlab: BotLab) -> None:
        self.server: Slack = botlab.lab.slack
        self._botlab = botlab

    def person(self, name: str) -> OneOnSlack:
        return OneOnSlack(self._botlab, self.server.person(name))

    def channel(self, name: str) -> Channel:
        return self.server.channel(name)


class OneOnSlack:
    """A person, at their desk. Without a channel they are in the direct messages with the bot."""

    def __init__(self, botlab: BotLab, person: SlackPerson) -> None:
        self.person = person
        self.name = person.name
        self._botlab = botlab
        self._server = botlab.lab.slack
        self._taken: set[tuple[str, str, str]] = set()

    async def says(
        self,
        text: str,
        channel: Channel | None = None,
        *,
        thread: str | None = None,
        mention: bool | None = None,
    ) -> str:
        """:param mention: the bot's name in front; by default at the top of a channel only.
        Returns the `ts` of the message, by which its thread is called; of a ``/command`` nothing.
        """
        place = self._server.chat(channel or self.person)
        self._botlab.note(f"{self.name} in {place.name or place.id}", text)
        if text.startswith("/"):
            self._server.command(self.person, text, place)
            return ""
        named = (channel is not None and thread is None) if mention is None else mention
        self._server.write(self.person, text, place, thread=thread, mention=named)
        return list(place.messages)[-1]

    async def hears(
        self,
        wanted: Wanted,
        channel: Channel | None = None,
        *,
        thread: str | None = None,
        within: float = PATIENCE_SECONDS,
    ) -> str:
        """As on Telegram; what only this person sees is heard too."""
        place = self._server.chat(channel or self.person)

        def there() -> list[tuple[str, str]]:
            said = [
                (sent.ts, sent.text)
                for sent in self._server.sent(place)
                if not sent.deleted and (thread is None or sent.thread == thread)
            ]
            said += [(each.ts, each.text) for each in self._server.whispers(place, self.person)]
            return [each for each in said if (place.id, *each) not in self._taken]

        text = await self._botlab.hear(
            self.name, lambda: [text for _, text in there()], wanted, within
        )
        ts = next(ts for ts, said in there() if said == text)
        self._taken.add((place.id, ts, text))
        return text

    async def presses(self, label: str, channel: Channel | None = None) -> None:
        """The newest button that says this, once it is there."""
        place = self._server.chat(channel or self.person)

        def labels() -> list[str]:
            return [label for _, labels in self._server.buttons(place) for label in labels]

        await self._botlab.hear(self.name, labels, label, PATIENCE_SECONDS)
        self._botlab.note(self.name, f"(presses {label})")
        self._server.choose(self.person, label, place)

    async def opens_home(self) -> None:
        """They look at the app's home tab."""
        self._botlab.note(self.name, "(opens the app's home)")
        self._server.open_home(self.person)

    async def reads_at_home(self, wanted: Wanted, within: float = PATIENCE_SECONDS) -> str:
        """A text that stands there, once it does."""
        return await self._botlab.hear(
            self.name, lambda: self._server.home_texts(self.person), wanted, within
        )

    async def presses_at_home(self, label: str) -> None:
        """The button there that says this, once it is there."""
        await self._botlab.hear(
            self.name, lambda: self._server.home_buttons(self.person), label, PATIENCE_SECONDS
        )
        self._botlab.note(self.name, f"(presses {label} on the app's home)")
        self._server.choose_at_home(self.person, label)

    def sees(self, channel: Channel | None = None) -> list[str]:
        """All that the bot has said there and not taken back."""
        return self._server.texts(self._server.chat(channel or self.person))


_EDITED: Final = {"sent": "", "grown": "(grows) ", "edited": "(edits) ", "whispered": "(whispers) "}


def _fits(wanted: Wanted, text: str) -> bool:
    if isinstance(wanted, str):
        return text == wanted
    if isinstance(wanted, re.Pattern):
        return wanted.search(text) is not None
    return wanted(text)


def _told(wanted: Wanted) -> str:
    return wanted.pattern if isinstance(wanted, re.Pattern) else repr(wanted)
