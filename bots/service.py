"""What systemd is told of us: that we are ready, how we are, and that we are alive.

Only when it asked for that, by ``NOTIFY_SOCKET`` and ``WATCHDOG_USEC``; sd_notify(3) and
sd_watchdog_enabled(3) say how. Alive is a program whose event loop runs and whose store answers.
One that its platform does not reach, or whose model is slow, is not helped by being killed: that is
in the status line, and in `/healthz`, for people.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final

from bots.health import STORE_SILENT
from core.clock import Clock
from core.events import trouble

STATUS_SECONDS: Final = 30.0  # between two status lines, when nobody wants a sign of life

Look = Callable[[], Awaitable[tuple[bool, Mapping[str, Any]]]]


@asynccontextmanager
async def service(
    look: Look, clock: Clock, environ: MutableMapping[str, str] = os.environ
) -> AsyncIterator[None]:
    """systemd hears that we are ready when the block begins, and that we stop when it ends.

    :param look: see `bots.health.Health.look`
    """
    # Not for the programs that we start: they are not the service.
    address = environ.pop("NOTIFY_SOCKET", None)
    wanted, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
    if not address:
        yield
        return
    ours = wanted.isdecimal() and pid in ("", str(os.getpid()))
    seconds = int(wanted) / 1e6 / 3 if ours and int(wanted) else None
    with _Line(address) as line:
        line.say("READY=1", "STATUS=running")
        task = asyncio.create_task(_tell(line, look, clock, seconds), name="service")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            line.say("STOPPING=1", "STATUS=finishing what is being answered")


async def _tell(line: _Line, look: Look, clock: Clock, seconds: float | None) -> None:
    while True:
        await clock.sleep(seconds or STATUS_SECONDS)
        _, seen = await look()
        said = [f"STATUS={'; '.join(seen['wrong']) or 'all is well'}"]
        if seconds is not None and STORE_SILENT not in seen["wrong"]:
            said.append("WATCHDOG=1")
        line.say(*said)


class _Line:
    """The socket that systemd listens at."""

    def __init__(self, address: str) -> None:
        # One that begins with @ is in a name space of its own, not in the file system.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, *words: str) -> None:
        try:
            self._socket.sendto("\n".join(words).encode(), self._address)
        except OSError as error:
            # It is systemd that will miss it, and that acts then.
            trouble("service.unheard", error=error.strerror or type(error).__name__)
