"""The real program as a child, the platforms and the model here in the parent.

Used by every test that kills it: nothing of the child is replaced, it is only pointed at the local
servers by their base URLs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from core.history import calls, repair
from core.messages import Message, text_of
from core.snapshot import Snapshot
from core.store import SessionRef
from playground.claude import Claude
from playground.telegram import TOKEN, Chat, Person, Telegram
from stores.postgres import PostgresStore
from stores.redis import RedisStore
from stores.sqlite import SQLiteStore

PATIENCE: Final = 30.0
KEY: Final = "sk-ant-" + "the-key-of-the-playground"

CONFIG: Final = """\
[agent]
tools = ["effects.py:note"]
[access]
open = true
messages_per_minute = 100000
[telegram]
poll_timeout = 5
"""

EFFECTS: Final = '''\
import os

def note(text: str) -> str:
    """Write a note down."""
    # Appending is atomic and at once on disk: an effect on the world outside.
    file = os.open("effects.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (text + "\\n").encode())
    os.close(file)
    return "noted " + text
'''


class Ran(NamedTuple):
    """What a command has done."""

    code: int
    out: str
    err: str


class World:
    """A Telegram, a Claude, and a bot between them that may die."""

    killed = 0  # how often that has happened, in all worlds of this process
    patience = PATIENCE

    def __init__(self, folder: Path, config: str = CONFIG) -> None:
        self.folder = folder
        (folder / "config.toml").write_text(config)
        (folder / "effects.py").write_text(EFFECTS)
        self.telegram = Telegram()
        self.claude = Claude()
        self.child: asyncio.subprocess.Process | None = None
        self.deaths = 0
        self._calls = 0  # how many Telegram had answered when it was last started

    async def __aenter__(self) -> Self:
        await self.telegram.__aenter__()
        await self.claude.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.child is not None and self.child.returncode is None:
            self.child.kill()
            await self.child.wait()
        await self.claude.__aexit__(kind, error, trace)
        await self.telegram.__aexit__(kind, error, trace)
        if error is not None:
            print(self.log()[-6000:])
        else:
            self.sweep()

    def sweep(self) -> None:
        """No secret is in anything that a run leaves behind: log, database, what was said to people
        and to the model. At the end of every test that runs the program."""
        kept = {
            file.name: file.read_bytes()
            for file in self.folder.rglob("*")
            if file.is_file() and file.name != ".env"
        }
        kept["the model's requests"] = json.dumps(self.claude.requests).encode()
        said = [call.params for call in self.telegram.calls]
        kept["what Telegram was told"] = json.dumps(said, default=str).encode()
        for token in {TOKEN, self.telegram.token}:
            for secret in (token, token.partition(":")[2], KEY):
                found = [name for name, data in kept.items() if secret.encode() in data]
                assert not found, f"a secret is in {found}"

    async def start(self, failpoint: str | None = None, *arguments: str, **environ: str) -> None:
        """The program, exactly as `chinwag run` starts it.

        :param arguments: further ones of `chinwag run`
        """
        point = {"CHINWAG_FAILPOINT": failpoint} if failpoint else {}
        self._calls = len(self.telegram.calls)
        with (self.folder / "log.txt").open("a") as log:
            log.write(f"--- start {failpoint or ''}\n")
            log.flush()
            self.child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "bots",
                "run",
                *arguments,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env=self.environ(**point, **environ),
            )

    def environ(self, **more: str) -> dict[str, str]:
        """What the program is told by variables: where the local servers are, and the secrets."""
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return {
            **inherited,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "TELEGRAM_BOT_TOKEN": self.telegram.token,
            "CHINWAG_TELEGRAM__BASE_URL": self.telegram.url,
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.claude.url,
            **more,
        }

    async def command(self, *arguments: str, **environ: str) -> Ran:
        """Another command in the same folder, to its end; nothing is typed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bots",
            *arguments,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environ(**environ),
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    async def ready(self) -> None:
        """It listens."""

        def asked() -> bool:
            return any(call.method == "getUpdates" for call in self.telegram.calls[self._calls :])

        await self.until(asked, "it asks for updates")

    async def exited(self) -> int:
        """It ends by itself. The exit code."""
        assert self.child is not None
        return await asyncio.wait_for(self.child.wait(), PATIENCE)

    def log(self) -> str:
        return (self.folder / "log.txt").read_text()

    async def terminate(self) -> int:
        """SIGTERM, as an operator stops it. The exit code."""
        assert self.child is not None
        self.child.terminate()
        return await self.exited()

    async def kill(self) -> None:
        assert self.child is not None
        with contextlib.suppress(ProcessLookupError):  # it has just died by itself
            self.child.kill()
        await self.child.wait()
        self.died()

    def died(self) -> None:
        """It was killed, and is not running yet."""
        World.killed += 1

    async def until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait; when the program dies of its failpoint meanwhile, start it again without."""
        async with asyncio.timeout(self.patience) as limit:
            try:
                while not reached():
                    await self._changed_or_dead(reached)
            except TimeoutError:
                if limit.expired():
                    raise AssertionError(f"never: {what}") from None
                raise

    async def _changed_or_dead(self, reached: Callable[[], bool]) -> None:
        assert self.child is not None
        changed = asyncio.create_task(self.telegram.until(reached, timeout=self.patience))
        dead = asyncio.create_task(self.child.wait())
        try:
            await asyncio.wait((changed, dead), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            dead.cancel()
            await asyncio.gather(changed, dead, return_exceptions=True)
        await self._revive()

    async def _revive(self) -> None:
        """Start it again when its failpoint has killed it."""
        assert self.child is not None
        if self.child.returncode is not None:
            assert self.child.returncode == -signal.SIGKILL, f"exit {self.child.returncode}"
            self.deaths += 1
            self.died()
            await self.start()

    def stored(self) -> SQLiteStore | RedisStore | PostgresStore:
        """Where the program stores, to look into it."""
        return SQLiteStore(self.folder / "chinwag.db", read_only=True)

    async def _unfinished(self) -> list[str]:
        async with self.stored() as store:
            return [key async for key in store.unfinished()]

    async def quiet(self) -> None:
        """Every update is confirmed, and in no conversation is anything left to do."""
        await self.until(lambda: not self.telegram.unconfirmed(), "all updates confirmed")
        async with asyncio.timeout(self.patience):
            while await self._unfinished():
                assert self.child is not None
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.child.wait(), 0.02)
                await self._revive()

    async def say(self, person: Person, text: str, chat: Chat | None = None) -> None:
        """Write, wait for one more message of the bot in that chat, and until all is noted."""
        place = chat or person
        before = len(self.telegram.texts(place))
        self.telegram.write(person, text, chat)
        await self.until(lambda: len(self.telegram.texts(place)) > before, f"an answer to {text!r}")
        await self.quiet()

    def effects(self) -> list[str]:
        file = self.folder / "effects.txt"
        return file.read_text().splitlines() if file.exists() else []

    async def snapshot(self, key: str) -> Snapshot:
        """What is stored; the program must not be running."""
        async with self.stored() as store:
            snapshot = await store.load(SessionRef(key=key))
            assert await store.check() == []
        assert snapshot is not None
        return snapshot


def said(messages: tuple[Message, ...], role: str) -> list[str]:
    """The texts of one side."""
    texts = [text_of(message.blocks) for message in messages if message.role == role]
    return [text for text in texts if text]


def assert_valid(snapshot: Snapshot) -> None:
    """Whole turns in order, and nothing is left to do."""
    assert not snapshot.unfinished
    assert repair(snapshot.messages) == snapshot.messages
    seqs = [message.seq for message in snapshot.messages]
    assert seqs == sorted(set(seqs))
    assert not snapshot.messages or snapshot.messages[-1].role == "assistant"
    assert not any(calls(message) for message in snapshot.messages[-1:])
