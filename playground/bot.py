"""The bot as a child process, exactly as `chinwag run` starts it, and what its log says.

It is pointed at the stand-ins by its settings and knows nothing of them. Not a supervisor: what
dies stays dead until somebody starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

Json = dict[str, Any]
State = Literal["stopped", "starting", "running", "dead"]

# A person's own tokens and settings stay out of this.
PRIVATE: Final = ("CHINWAG_", "ANTHROPIC_", "TELEGRAM_", "SLACK_", "OPENAI_")
LONGEST_LINE: Final = 1 << 20
PATIENCE_SECONDS: Final = 30.0
_KEPT_LINES: Final = 400


_SET_PDEATHSIG: Final = 1  # prctl(2)
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_with_us() -> None:
    """In the child, before it is the bot: killed, we could not end it any more."""
    if _LIBC is not None:
        _LIBC.prctl(_SET_PDEATHSIG, signal.SIGTERM)


class Ran(NamedTuple):
    """What a command has done."""

    code: int
    out: str
    err: str


class Bot:
    """One program, that may be killed and started again.

    :param folder: where it is started, and where its database is unless the settings say otherwise
    :param environ: its variables, asked for at each start
    :param heard: gets each line of its log: an event as JSON, or ``{"event": "output", "text"}``;
        and ``bot.starting``, ``bot.exited`` (``code``, negative: the signal) and ``bot.killed``
    :param config: a file; None: `config.toml` in the folder, which may be absent
    """

    def __init__(
        self,
        folder: Path,
        environ: Callable[[], Mapping[str, str]],
        heard: Callable[[Json], None],
        config: Path | None = None,
    ) -> None:
        self.state: State = "stopped"
        self.code: int | None = None
        self.kills = 0
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._folder = folder
        self._environ = environ
        self._heard = heard
        self._config = config
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """None while it is not there."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self, *arguments: str, failpoint: str | None = None) -> None:
        """
        :param arguments: further ones of `chinwag run`
        :param failpoint: ``NAME:HIT``, where it is to kill itself
        :raises RuntimeError: it runs already
        """
        if self.pid is not None:
            raise RuntimeError("the bot runs already")
        if self._reading is not None:
            await self._reading
        point = {"CHINWAG_FAILPOINT": failpoint} if failpoint else {}
        self._set("starting", "bot.starting")
        self._process = await asyncio.create_subprocess_exec(
            *self._command("run", "--log-json", "--log-level", "debug", *arguments),
            cwd=self._folder,
            env=self.environ() | point,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=LONGEST_LINE,
            # Ctrl-C is for us: we end it in order.
            start_new_session=True,
            preexec_fn=_end_with_us,
        )
        self._reading = asyncio.create_task(self._read(self._process), name="the bot's log")

    async def kill(self) -> None:
        """SIGKILL: it can do nothing about it. Nothing happens when it is dead already."""
        if self._process is None or self.pid is None:
            return
        self.kills += 1
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._over()

    async def stop(self) -> int | None:
        """SIGTERM, as an operator ends it. The exit code; None when it was never started.

        :raises TimeoutError: it does not end
        """
        if self._process is None:
            return None
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._over()
        return self._process.returncode

    async def exited(self) -> int:
        """It ends by itself. The exit code.

        :raises TimeoutError: it does not
        """
        assert self._process is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._over()
        assert self._process.returncode is not None
        return self._process.returncode

    async def command(self, *arguments: str) -> Ran:
        """Another command with the same settings, to its end; nothing is typed.

        :raises TimeoutError: it does not end
        """
        process = await asyncio.create_subprocess_exec(
            *self._command(*arguments),
            cwd=self._folder,
            env=self.environ(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                out, err = await process.communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    def environ(self) -> dict[str, str]:
        """The variables of its process: ours without what is private, then its own."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)
        }
        return inherited | dict(self._environ())

    def log(self) -> str:
        """What it said last."""
        return "\n".join(self.lines)

    def _command(self, *arguments: str) -> Sequence[str]:
        # -P: what lies in the folder is not imported by accident.
        command = [sys.executable, "-P", "-m", "bots", *arguments]
        return command if self._config is None else [*command, "--config", str(self._config)]

    async def _over(self) -> None:
        """It has ended and all that it said has been read."""
        assert self._process is not None
        await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # longer than a line may be; the reader has dropped it
                continue
            if not line:
                break
            self._line(line.decode("utf-8", "replace").rstrip())
        self.code = await process.wait()
        if self.code == -signal.SIGKILL:
            self._set("dead", "bot.killed")
        else:
            self._set("stopped" if self.code == 0 else "dead", "bot.exited")

    def _line(self, line: str) -> None:
        self.lines.append(line)
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            event = {"event": "output", "text": line}
        if event["event"] == "running":
            self.state = "running"
        self._heard(event)

    def _set(self, state: State, event: str) -> None:
        self.state = state
        self._heard({"event": event} | ({"code": self.code} if state != "starting" else {}))
