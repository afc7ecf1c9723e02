"""What a page sees of a `Lab`: its state to begin with, and each change as an event of the feed.

Between the lab and the web: it knows no request and no HTML.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from decimal import Decimal
from typing import Any, Final

from playground import hops, slack_view
from playground.feed import Feed, event
from playground.lab import Lab
from playground.telegram_view import drafts_json, message_json, state

Json = dict[str, Any]

LAST_MESSAGES: Final = 150  # of each conversation, to begin with
LAST_HOPS: Final = 400
LAST_TURNS: Final = 200
_SAVED: Final = frozenset({"accepted", "committed", "delivered", "suspended", "apologised"})


class Show:
    """
    :param real: whether the real model may be chosen
    """

    def __init__(self, lab: Lab, feed: Feed, *, real: bool) -> None:
        self.lab = lab
        self.feed = feed
        self.requests: deque[tuple[int, Json]] = deque(maxlen=100)
        self._real = real
        self._hops: deque[Json] = deque(maxlen=LAST_HOPS)
        self._turns: deque[Json] = deque(maxlen=LAST_TURNS)
        self._costs: deque[Json] = deque(maxlen=LAST_TURNS)
        self._spent: dict[str, Decimal] = {}
        self._snapshots: dict[str, Json] = {}
        self._due: dict[str, None] = {}
        self._looking: asyncio.Task[None] | None = None
        lab.listeners.append(self._heard)

    def close(self) -> None:
        self.lab.listeners.remove(self._heard)
        if self._looking is not None:
            self._looking.cancel()

    def first(self) -> str:
        """The whole state as the feed's first event."""
        return event("state", self.state())

    def state(self) -> Json:
        return {
            "telegram": state(self.lab.telegram, LAST_MESSAGES),
            "slack": slack_view.state(self.lab.slack, LAST_MESSAGES),
            "bot": self.bot(),
            "troubles": self.lab.troubles.json(),
            "hops": list(self._hops),
            "turns": list(self._turns),
            "costs": list(self._costs),
            "snapshots": list(self._snapshots.values()),
        }

    def bot(self) -> Json:
        bot = self.lab.bot
        return {
            "state": bot.state,
            "pid": bot.pid,
            "code": bot.code,
            "kills": bot.kills,
            "model": "real" if self.lab.real_model else "stand-in",
            "real": self._real,
        }

    def say_bot(self) -> None:
        self.feed.publish("bot", self.bot())

    def say_message(self, chat_id: int, message_id: int) -> None:
        """Of Telegram: as it stands now, or that it is gone."""
        chat = self.lab.telegram.chat(chat_id)
        shown = message_json(self.lab.telegram, chat, message_id)
        if shown is not None:
            self.feed.publish("message", shown)

    def say_on_slack(self, channel_id: str, ts: str) -> None:
        """The same of Slack."""
        slack = self.lab.slack
        channel = slack.team.channels[channel_id]
        shown = slack_view.message_json(slack, channel, ts)
        for whisper in channel.whispers:
            if whisper.ts == ts:
                shown = slack_view.whisper_json(slack, whisper)
        if shown is not None:
            self.feed.publish("message", shown)

    # Inside

    def _heard(self, what: str, happened: Json) -> None:
        match what:
            case "bot":
                self._of_bot(happened)
            case "telegram":
                self._of_telegram(happened)
            case "slack":
                self._of_slack(happened)
            case "claude":
                asked = happened["asked"]
                self.requests.append((asked.number, asked.body))
                self._hop(hops.of_model(happened))
                self._say_troubles()
            case "trouble":
                self._say_troubles()

    def _of_bot(self, happened: Json) -> None:
        name = happened["event"]
        if name in ("bot.starting", "bot.exited", "bot.killed", "running"):
            self.say_bot()
        self._hop(hops.of_bot(happened))
        key = happened.get("key")
        if name == "answered":
            turn = {each: happened.get(each) for each in _FIGURES} | {"key": key}
            self._turns.append(turn)
            self.feed.publish("turn", turn)
        if name in _SAVED and isinstance(key, str):
            self._look(key)

    def _of_telegram(self, happened: Json) -> None:
        hop = hops.of_platform(happened)
        if hop is not None:
            self._hop(hop)
        match happened["event"]:
            case "sent" | "edited":
                self.say_message(happened["chat_id"], happened["message_id"])
                self._say_drafts(happened["chat_id"])
            case "deleted":
                gone = {"chat": happened["chat_id"], "id": happened["message_id"]}
                self.feed.publish("deleted", {"platform": "telegram"} | gone)
            case "draft":
                self._say_drafts(happened["chat_id"])
            case "action":
                thread = happened.get("thread")
                self.feed.publish(
                    "typing",
                    {"platform": "telegram", "chat": happened["chat_id"], "thread": thread},
                )
            case "answered":
                self.feed.publish("toast", {"text": happened["text"] or ""})
            case "queued":
                self._of_update(self.lab.telegram.update_text(happened["update_id"]))
            case "fault":
                self._say_troubles()

    def _of_slack(self, happened: Json) -> None:
        hop = hops.of_platform(happened)
        if hop is not None:
            self._hop(hop)
        match happened["event"]:
            case "written" | "sent" | "edited" | "grown" | "whispered" | "pressed":
                self.say_on_slack(happened["channel"], happened["ts"])
            case "deleted":
                gone = {"chat": happened["channel"], "id": happened["ts"]}
                self.feed.publish("deleted", {"platform": "slack"} | gone)
            case "status":
                about = {"chat": happened["channel"], "thread": None, "on": happened["status"]}
                self.feed.publish("typing", {"platform": "slack"} | about)
            case "fault":
                self._say_troubles()

    def _of_update(self, text: str) -> None:
        try:
            update = json.loads(text)
        except ValueError:  # a test may send anything
            return
        for kind in ("message", "edited_message"):
            message = update.get(kind) if isinstance(update, dict) else None
            if isinstance(message, dict):
                self.say_message(message["chat"]["id"], message["message_id"])
        if isinstance(update, dict) and "stopped_message_generation" in update:
            self._say_drafts(update["stopped_message_generation"]["chat"]["id"])

    def _say_drafts(self, chat_id: int) -> None:
        chat = self.lab.telegram.chat(chat_id)
        about = {"platform": "telegram", "chat": chat_id, "drafts": drafts_json(chat)}
        self.feed.publish("drafts", about)

    def _say_troubles(self) -> None:
        self.feed.publish("troubles", {"all": self.lab.troubles.json()})

    def _hop(self, hop: Json) -> None:
        self._hops.append(hop)
        self.feed.publish("hop", hop)

    def _look(self, key: str) -> None:
        """Look up what is stored there, once for all that happens meanwhile."""
        if not self.feed:
            return
        self._due[key] = None
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_up(), name="looking into the database")

    async def _look_up(self) -> None:
        while self._due:
            await asyncio.sleep(0.15)  # the saves of one answer come close together
            key = next(iter(self._due))
            del self._due[key]
            ran = await self.lab.bot.command("sessions", "show", key, "--json")
            if ran.code == 0:
                self._say_snapshot(key, json.loads(ran.out))

    def _say_snapshot(self, key: str, shown: Json) -> None:
        before = self._snapshots.pop(key, {})  # the one that was looked at last is the last
        if before and before["snapshot"]["revision"] == shown["snapshot"]["revision"]:
            self._snapshots[key] = before
            return
        if "turn" not in shown["snapshot"]:
            # While one is under way, the most that it can cost is reserved.
            self._say_cost(key, Decimal(shown["cost"]), shown["currency"])
        changed = hops.changes(before.get("snapshot", {}), shown["snapshot"])
        self._snapshots[key] = shown | {"changed": changed}
        self.feed.publish("snapshot", self._snapshots[key])

    def _say_cost(self, key: str, total: Decimal, currency: str) -> None:
        spent = total - self._spent.get(key, Decimal(0))
        self._spent[key] = total
        if spent > 0:
            cost = {"key": key, "cost": f"{spent:f}", "currency": currency}
            self._costs.append(cost)
            self.feed.publish("cost", cost)


_FIGURES: Final = ("at", "ms", "first_ms", "input", "cached", "cache_written", "output")
