"""The world outside, in a process of its own: a Telegram and a Claude on bare sockets of loopback.

Told what to do by lines of JSON on its standard input, it answers each with one on its standard
output; the first line it prints is its port. It says messages, streams answers of 100 deltas, and
checks what it gets: that a question carries the whole history, that a reply is what the model said.
What it costs is nobody's figure, so it is no measure of a platform either.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import parse_qs

import msgspec

from bench.measure import percentile
from bench.said import Exchange, exchange

ROOT: Final = Path(__file__).resolve().parents[1]
TOKEN: Final = "1:bench"
BOT: Final = 7_000_000
APART: Final = 100_000  # numbers between the first exchanges of two chats
DELTAS: Final = 100
PAUSE: Final = 0.005  # seconds from the first piece of a paced answer to the others

Mode = Literal["burst", "paced", "held"]


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the outside is told.

    :param mode: how answers come from now on: all at once; the first piece, and the others a
        little later; or nothing but the first piece until the next `release`
    :param turns: messages to be said; the answer comes when all have their reply
    :param together: how many chats wait for a reply at any time
    :param history: messages that each chat has said before all this
    :param held: wait until so many answers have begun
    """

    mode: Mode = "burst"
    turns: int = 0
    chats: int = 1
    together: int = 1
    history: int = 0
    held: int = 0
    release: bool = False


class Report(msgspec.Struct, frozen=True):
    """What came of it; `wall` in seconds, latencies in milliseconds."""

    wall: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    wrong: str = ""


def chat_id(index: int) -> int:
    return index + 1


# ---------------------------------------------------------------------- from inside


class Outside:
    """The process, as its subjects see it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    @classmethod
    async def begin(cls) -> Self:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.outside",
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        return cls(process, int(await process.stdout.readline()))

    async def order(self, order: Order) -> Report:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        return msgspec.json.decode(await self._process.stdout.readline(), type=Report)

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


# ---------------------------------------------------------------------- outside


def _event(kind: str, **fields: object) -> bytes:
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    return _chunk(f"event: {kind}\ndata: {data}\n\n".encode())


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_USAGE: Final = {"input_tokens": 10, "output_tokens": 1}
_MESSAGE: Final[dict[str, object]] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "bench",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": _USAGE,
}
_BEGINNING: Final = b"".join(
    (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        b"transfer-encoding: chunked\r\n\r\n",
        _event("message_start", message=_MESSAGE),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _event("ping"),
    )
)
_END: Final = b"".join(
    (
        _event("content_block_stop", index=0),
        _event(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None},
            usage={"output_tokens": DELTAS},
        ),
        _event("message_stop"),
        b"0\r\n\r\n",
    )
)


def pieces(text: str) -> list[str]:
    """So many of them, as even as can be."""
    ends = [round(len(text) * number / DELTAS) for number in range(DELTAS + 1)]
    return [text[first:last] for first, last in pairwise(ends)]


def deltas(text: str) -> list[bytes]:
    return [
        _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        for piece in pieces(text)
    ]


def stream(text: str) -> bytes:
    """All events of an answer, as they are before HTTP cuts them into chunks."""
    events = (_BEGINNING.partition(b"\r\n\r\n")[2], *deltas(text), _END)
    return b"".join(
        line + b"\n\n" for line in re.findall(rb"event: [^\r]*?data: [^\n]*", b"".join(events))
    )


def _json(body: object) -> bytes:
    data = json.dumps(body).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(data) + data


class _World:
    """Who says what, and what came back."""

    def __init__(self, report: Callable[[Report], None]) -> None:
        self.order = Order()
        self._report = report
        self._said: dict[int, int] = {}  # turns of a chat so far
        self._asked: dict[int, tuple[Exchange, float]] = {}  # what a chat waits for, since when
        self._updates: deque[tuple[int, bytes]] = deque()
        self._poll: Callable[[bytes], None] | None = None
        self._number = 0
        self._jobs: list[deque[int]] = []
        self._took: list[float] = []
        self._began = 0.0
        self._left = 0
        self._open = 0
        self._held: list[Callable[[], None]] = []
        self._wrong = ""

    def obey(self, order: Order) -> None:
        self.order = order
        if order.release:
            held, self._held = self._held, []
            for finish in held:
                finish()
            # The answer is that of the order that was held.
            return
        if not order.turns:
            self._done()
            return
        self._took.clear()
        self._left = order.turns
        self._open = 0
        self._began = time.perf_counter()
        self._jobs = [
            deque(index % order.chats for index in range(first, order.turns, order.together))
            for first in range(order.together)
        ]
        for worker in range(order.together):
            self._next(worker)

    def _done(self) -> None:
        wrong, self._wrong = self._wrong, ""
        self._report(
            Report(
                time.perf_counter() - self._began,
                percentile(self._took, 50) * 1e3 if self._took else 0.0,
                percentile(self._took, 99) * 1e3 if self._took else 0.0,
                wrong,
            )
        )

    def _next(self, worker: int) -> None:
        """The next chat of this worker says its next message."""
        if not self._jobs[worker]:
            return
        index = self._jobs[worker].popleft()
        turn = self._said[index] = self._said.get(index, 0) + 1
        said = exchange(index * APART + self.order.history // 2 + turn - 1)
        self._asked[index] = (said, time.perf_counter())
        self._number += 1
        person = {"id": chat_id(index), "first_name": "Alice", "username": "alice"}
        update = {
            "update_id": self._number,
            "message": {
                "message_id": self._number,
                "date": 1_800_000_000,
                "text": said.user,
                "chat": {**person, "type": "private"},
                "from": {**person, "is_bot": False, "language_code": "en"},
            },
        }
        self._updates.append((self._number, json.dumps(update, separators=(",", ":")).encode()))
        self._hand_over()

    def _hand_over(self) -> None:
        if self._poll is None or not self._updates:
            return
        answer, self._poll = self._poll, None
        body = b'{"ok":true,"result":[%b]}' % b",".join([each for _, each in self._updates][:100])
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        answer(head % len(body) + body)

    # ------------------------------------------------------------------ Telegram

    def call(self, method: str, body: bytes, answer: Callable[[bytes], None]) -> None:
        given = _given(body)
        if method == "getUpdates":
            while self._updates and self._updates[0][0] < int(given.get("offset", 0)):
                self._updates.popleft()
            if int(given.get("timeout", 0)) == 0:
                answer(_json({"ok": True, "result": []}))
                return
            self._poll = answer
            self._hand_over()
        elif method == "getMe":
            me = {"id": BOT, "is_bot": True, "first_name": "bench", "username": "bench_bot"}
            answer(_json({"ok": True, "result": me}))
        elif method == "sendMessage":
            answer(_json({"ok": True, "result": self._sent(given)}))
        else:
            answer(_json({"ok": True, "result": True}))

    def _sent(self, given: dict[str, Any]) -> dict[str, object]:
        index = int(given["chat_id"]) - 1
        text = str(given["text"])
        asked = self._asked.pop(index, None)
        if asked is None:
            self._wrong = f"chat {index} got a reply that nobody waits for"
        else:
            said, since = asked
            if text.strip() != said.answer.strip():
                self._wrong = f"chat {index} got {text[:40]!r}, not {said.answer[:40]!r}"
            self._took.append(time.perf_counter() - since)
            self._left -= 1
            if self._left:
                self._next(index % self.order.together)
            else:
                self._done()
        person = {"id": index + 1, "first_name": "Alice", "username": "alice", "type": "private"}
        me = {"id": BOT, "is_bot": True, "first_name": "bench", "username": "bench_bot"}
        self._number += 1
        return {
            "message_id": self._number,
            "date": 1_800_000_000,
            "chat": person,
            "from": me,
            "text": text,
        }

    # ------------------------------------------------------------------ Claude

    def ask(self, body: bytes, answer: Callable[[bytes], None]) -> None:
        said = self._question(json.loads(body))
        first, *others = deltas(said.answer)
        rest = b"".join((*others, _END))
        if self.order.mode == "burst":
            answer(_BEGINNING + first + rest)
            return
        answer(_BEGINNING + first)
        if self.order.mode == "paced":
            asyncio.get_running_loop().call_later(PAUSE, answer, rest)
            return
        self._held.append(lambda: answer(rest))
        self._open += 1
        if self._open == self.order.held:
            self._done()

    def _question(self, request: dict[str, Any]) -> Exchange:
        messages = request["messages"]
        content = messages[-1]["content"]
        text = content if isinstance(content, str) else content[-1]["text"]
        number = int(text.partition(":")[0])
        index, place = divmod(number, APART)
        expected = 2 * place + 1
        if len(messages) != expected:
            self._wrong = f"chat {index}: asked with {len(messages)} messages, not {expected}"
        return exchange(number)


def _given(body: bytes) -> dict[str, Any]:
    if body.startswith(b"{"):
        return dict(json.loads(body))
    return {name: values[0] for name, values in parse_qs(body.decode()).items()}


class _Connection(asyncio.Protocol):
    """HTTP as far as well-behaved clients of these two services speak it."""

    def __init__(self, world: _World) -> None:
        self._world = world
        self._came = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (end := self._came.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._came[:end])
            fields = dict(
                line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
            )
            length = int(fields.get(b"content-length", b"0"))
            if len(self._came) < end + 4 + length:
                return
            body = bytes(self._came[end + 4 : end + 4 + length])
            del self._came[: end + 4 + length]
            path = head.split(b" ", 2)[1].decode()
            if path.startswith("/v1/messages"):
                self._world.ask(body, self._answer)
            else:
                self._world.call(path.rpartition("/")[2], body, self._answer)

    def _answer(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


async def main() -> None:
    loop = asyncio.get_running_loop()

    def report(report: Report) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()

    world = _World(report)
    server = await loop.create_server(lambda: _Connection(world), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        world.obey(msgspec.json.decode(line, type=Order))


if __name__ == "__main__":
    asyncio.run(main())
