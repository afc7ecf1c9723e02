"""What happened on the local Slack: what the app was told, what it said, and what is shown now."""

from playground.slack_actions import elements
from playground.slack_agents import status_of
from playground.slack_calls import Call, Calls
from playground.slack_chats import Json, Person, SentMessage, Whisper
from playground.slack_deliveries import Deliveries, Delivery
from playground.slack_places import Place, Places
from playground.slack_socket import Sockets
from playground.slack_streams import Stream
from playground.slack_text import pings


class Record(Places):
    """The part of `Slack` that is asked, by tests and by a page that shows it."""

    calls: Calls
    sockets: Sockets
    _deliveries: Deliveries

    @property
    def deliveries(self) -> list[Delivery]:
        """All that the app was told, in order."""
        return self._deliveries.all

    def unacknowledged(self) -> list[Delivery]:
        """What the app was told and has not said yes to, and Slack has not given up on."""
        return list(self._deliveries.unsettled.values())

    @property
    def connected(self) -> bool:
        """The app has an open Socket Mode connection."""
        return bool(self.sockets.connections)

    def sent(self, chat: Place) -> list[SentMessage]:
        """What the bot sent there, oldest first, deleted messages included."""
        return list(self.chat(chat).sent.values())

    def texts(self, chat: Place) -> list[str]:
        """The texts of the bot that can be read there now."""
        return [message.text for message in self.sent(chat) if not message.deleted]

    def streams(self, chat: Place) -> list[Stream]:
        """The streams that the bot began there, oldest first."""
        place = self.chat(chat)
        every = self._world.streams.values()
        return [s for s in every if (s.team, s.channel) == (place.team, place.id)]

    def session(self, chat: Place, thread: str) -> Json | None:
        """The agent session of a thread: `status`, `title` and more."""
        session: Json | None = self.chat(chat).messages[thread].get("agent_session")
        return session

    def status(self, chat: Place, thread: str) -> str:
        """What the assistant shows in a thread now ("is thinking..."), empty when nothing."""
        return status_of(self._world, self.chat(chat), thread)

    def title(self, chat: Place, thread: str) -> str | None:
        place = self.chat(chat)
        return self._world.titles.get((place.team, place.id, thread))

    def prompts(self, chat: Place, thread: str | None = None) -> list[Json]:
        """The suggested prompts: of a thread, or of the whole conversation."""
        place = self.chat(chat)
        return self._world.prompts.get((place.team, place.id, thread), [])

    def home(self, who: Person) -> Json | None:
        """The view that the app has published to a person's home tab."""
        return self._world.homes.get((who.team, who.id))

    def home_texts(self, who: Person) -> list[str]:
        """What can be read there, a text for each block or element."""
        found = []
        for block in (self.home(who) or {}).get("blocks", ()):
            for each in (block.get("text"), *(block.get("elements") or ())):
                if isinstance(each, dict) and isinstance(each.get("text"), str):
                    found.append(each["text"])
        return found

    def home_buttons(self, who: Person) -> list[str]:
        """What the buttons there say."""
        return [text for text, _ in elements((self.home(who) or {}).get("blocks"))]

    def buttons(self, chat: Place) -> list[tuple[str, list[str]]]:
        """The messages with buttons, oldest first: time stamp, and what the buttons say."""
        shown = [(sent.ts, sent.raw) for sent in self.sent(chat) if not sent.deleted]
        shown += [(whisper.ts, whisper.raw) for whisper in self.chat(chat).whispers]
        labels = [(ts, [text for text, _ in elements(raw.get("blocks"))]) for ts, raw in shown]
        return sorted((ts, texts) for ts, texts in labels if texts)

    def whispers(self, chat: Place, person: Person | None = None) -> list[Whisper]:
        """What the bot said there to one person only."""
        said = self.chat(chat).whispers
        return [w for w in said if person is None or w.user == person.id]

    def pings(self, chat: Place) -> list[str]:
        """The crowds that the bot called there: channel, here, everyone."""
        return [crowd for message in self.sent(chat) for crowd in pings(message.raw)]

    def files(self, chat: Place) -> dict[str, bytes]:
        """The files that the bot sent there, by name."""
        found = [file["id"] for sent in self.sent(chat) for file in sent.raw.get("files") or ()]
        every = [self._world.files[each] for each in found if each in self._world.files]
        return {file.name: file.data or b"" for file in every}

    def file(self, file_id: str) -> bytes | None:
        """What is in a file, whoever has uploaded it."""
        file = self._world.files.get(file_id)
        return None if file is None else file.data

    def called(self, pattern: str) -> list[Call]:
        """The calls of a method."""
        return [call for call in self.calls if call.method == pattern]
