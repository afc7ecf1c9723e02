"""A World whose bot is on Slack instead."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bots.slack.installs import Install, Installs
from core.seal import Seal, keys_of, new_key
from playground.slack import Channel, Person, Slack
from stores.sqlite import SQLiteStore
from tests.crash.program import KEY, World

CONFIG: Final = """\
[agent]
tools = ["effects.py:note"]
[access]
open = true
messages_per_minute = 100000
"""


class SlackWorld(World):
    """A Slack, a Claude, and a bot between them that may die."""

    def __init__(self, folder: Path, config: str = CONFIG, *, distributed: bool = False) -> None:
        super().__init__(folder, config)
        # Slack goes on for minutes; here nobody waits that long for the last tries.
        retry_seconds = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
        self.slack = Slack(retry_seconds=retry_seconds, distributed=distributed)
        self._opened = 0  # how many connections there had been when it was last started

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.slack.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await self.slack.__aexit__(kind, error, trace)

    def sweep(self) -> None:
        kept = {
            file.name: file.read_bytes()
            for file in self.folder.rglob("*")
            if file.is_file() and file.name != ".env"
        }
        kept["the model's requests"] = json.dumps(self.claude.requests).encode()
        said = [call.params for call in self.slack.calls]
        kept["what Slack was told"] = json.dumps(said, default=str).encode()
        for secret in (self.slack.token, self.slack.app_token, KEY):
            found = [name for name, data in kept.items() if secret.encode() in data]
            assert not found, f"a secret is in {found}"

    def environ(self, **more: str) -> dict[str, str]:
        inherited = super().environ()
        return {
            **{name: value for name, value in inherited.items() if "TELEGRAM" not in name},
            "SLACK_BOT_TOKEN": self.slack.token,
            "SLACK_APP_TOKEN": self.slack.app_token,
            "CHINWAG_SLACK__BASE_URL": f"{self.slack.url}/api",
            **more,
        }

    async def start(self, failpoint: str | None = None, *arguments: str, **environ: str) -> None:
        self._opened = self.slack.sockets.opened
        await super().start(failpoint, *arguments, **environ)

    async def ready(self) -> None:
        await self.until(lambda: self.slack.sockets.opened > self._opened, "it listens")

    def kill_at(self, event: str, **details: Any) -> None:
        """The process dies the moment that this happens at Slack, before it is told so."""

        def happened(name: str, what: dict[str, Any]) -> None:
            if name == event and details.items() <= what.items():
                self.slack.listeners.remove(happened)
                assert self.child is not None
                os.kill(self.child.pid, signal.SIGKILL)

        self.slack.listeners.append(happened)

    async def _changed_or_dead(self, reached: Callable[[], bool]) -> None:
        assert self.child is not None
        changed = asyncio.create_task(self.slack.until(reached, self.patience))
        dead = asyncio.create_task(self.child.wait())
        try:
            await asyncio.wait((changed, dead), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            dead.cancel()
            await asyncio.gather(changed, dead, return_exceptions=True)
        await self._revive()

    async def quiet(self) -> None:
        """All that Slack told is acknowledged, and nothing is left to do."""
        await self.until(lambda: not self.slack.unacknowledged(), "everything acknowledged")
        async with asyncio.timeout(self.patience):
            while await self._unfinished():
                assert self.child is not None
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.child.wait(), 0.02)
                await self._revive()

    async def tell(
        self, person: Person, text: str, channel: Channel | None = None, thread: str | None = None
    ) -> str:
        """Write, wait for one more message of the bot there, and until all is noted. The ts of
        what was written."""
        place = channel or person
        before = len(self.slack.texts(place))
        mention = channel is not None and thread is None
        (told, *_) = self.slack.write(person, text, channel, thread=thread, mention=mention)
        await self.until(lambda: len(self.slack.texts(place)) > before, f"an answer to {text!r}")
        await self.quiet()
        return str(told.event["ts"])


class InstalledWorld(SlackWorld):
    """Its app is one that others install: the token stands among the installs, sealed."""

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        super().__init__(folder, config, distributed=True)
        self._key = new_key()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        bot = self.slack.install(self.slack.team, self.slack.token)
        team = self.slack.team
        kept = Install(
            None, team.id, team.name, bot.app_id, bot.id, bot.bot_id, self.slack.token, at=1
        )
        async with SQLiteStore(self.folder / "chinwag.db") as store:
            await Installs(store.notes, Seal(keys_of(self._key))).save(kept)
        return self

    def environ(self, **more: str) -> dict[str, str]:
        app = self.slack.application
        given = super().environ(
            SLACK_CLIENT_ID=app.client_id,
            SLACK_CLIENT_SECRET=app.client_secret,
            CHINWAG_ENCRYPTION_KEYS=self._key,
            CHINWAG_HTTP__PORT=str(self._port),
            CHINWAG_HTTP__PUBLIC_URL=f"http://127.0.0.1:{self._port}",
            **more,
        )
        return {name: value for name, value in given.items() if name != "SLACK_BOT_TOKEN"}
