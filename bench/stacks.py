"""Whole bots: an update in, a streamed answer, one reply out. chinwag, and what stands beside it.

All of them poll the same Telegram and ask the same Claude (`outside.py`), remember each chat, and
answer it out of its history. `HandWritten` is the floor: what is left of a turn when nothing but
the SDKs and four durable saves remain; `Bare` is the floor of that, without SDKs.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from bench import peers
from bench.floors import Group
from bench.ours import Chinwag, heads
from bench.outside import TOKEN, Outside, chat_id
from bench.rows import Loaded, Summed, add, next_window
from bench.said import Exchange
from bench.subject import Wrong
from bots.app import serve
from bots.logs import setup_logging
from bots.settings import Settings
from bots.telegram.wire import bot_at

MODEL: Final = "claude-sonnet-5-5"
INSTRUCTIONS: Final = "You are a helpful assistant."
MAX_TOKENS: Final = 4096
POLL_SECONDS: Final = 30


class Stack(Protocol):
    """A bot that is under way from `open` to `close`."""

    async def fill(self, said: dict[str, list[Exchange]]) -> None:
        """Before it is opened: what each chat has said already."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def counts(self, keys: Sequence[str]) -> dict[str, int]:
        """After it was closed: messages that each chat has."""
        ...


def key_of(index: int) -> str:
    return f"telegram-chat:{chat_id(index)}"


class _Stored:
    """Filled and counted by what `turns` measures of the same store.

    :param make: the store alone
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    async def fill(self, said: dict[str, list[Exchange]]) -> None:
        store = self._make()
        await store.open()
        for key, all_of_it in said.items():
            await store.fill(key, all_of_it)
        await store.close()

    async def counts(self, keys: Sequence[str]) -> dict[str, int]:
        store = self._make()
        await store.open()
        found = {key: await store.count(key) for key in keys}
        await store.close()
        return found


class Program(_Stored):
    """The program as `chinwag run` starts it, with its log.

    :param level: of the log
    :param streaming: whether the answer is shown while it grows, which costs further requests
    """

    def __init__(
        self, folder: Path, outside: Outside, level: str = "info", streaming: str = "off"
    ) -> None:
        super().__init__(partial(Chinwag, folder / "db"))
        self._folder = folder
        self._url = outside.url
        self._level = level
        self._streaming = streaming

    async def open(self) -> None:
        self._log = (self._folder / "log").open("w")
        setup_logging(level=self._level, stream=self._log)
        given: dict[str, Any] = {
            "telegram": {
                "token": TOKEN,
                "base_url": self._url,
                "poll_timeout": POLL_SECONDS,
                "streaming": self._streaming,
            },
            "anthropic": {"api_key": "sk-bench", "base_url": self._url},
            # Named, not open to everybody: that demands a budget, which nobody beside us has, and
            # in which 200 answers at once would wait for each other.
            "access": {
                "allow": [f"telegram:{number}" for number in range(1, 1001)],
                "messages_per_minute": 1_000_000,
            },
            "store": {"url": f"sqlite:{self._folder / 'db'}"},
        }
        settings = Settings(**given)
        self._serving = asyncio.create_task(serve(settings))

    async def close(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        code = await self._serving
        self._log.close()
        if code:
            raise Wrong(f"the program ended with {code}")


class Typical(_Stored):
    """PTB's Application, `AsyncAnthropic.messages.stream`, LangGraph with AsyncSqliteSaver: each as
    its documentation shows it, updates of all chats at once."""

    def __init__(self, folder: Path, outside: Outside) -> None:
        super().__init__(partial(peers.LangGraph, folder / "db"))
        self._path = folder / "db"
        self._url = outside.url

    async def open(self) -> None:
        anthropic = importlib.import_module("anthropic")
        telegram = importlib.import_module("telegram.ext")
        messages = importlib.import_module("langchain_core.messages")
        graph = importlib.import_module("langgraph.graph")
        saver = importlib.import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
        self._client = anthropic.AsyncAnthropic(api_key="sk-bench", base_url=self._url)
        self._context = saver.from_conn_string(str(self._path))

        async def answer(state: Any) -> dict[str, Any]:
            asked = [
                {
                    "role": "user" if message.type == "human" else "assistant",
                    "content": message.content,
                }
                for message in state["messages"]
            ]
            said: list[str] = []
            async with self._client.messages.stream(
                model=MODEL, max_tokens=MAX_TOKENS, system=INSTRUCTIONS, messages=asked
            ) as stream:
                async for piece in stream.text_stream:
                    said.append(piece)
            return {"messages": [messages.AIMessage(content="".join(said))]}

        # The graph reads the annotations of its nodes; these are names of this file only.
        answer.__annotations__ = {}
        builder = graph.StateGraph(graph.MessagesState)
        builder.add_node("answer", answer)
        builder.add_edge(graph.START, "answer")
        builder.add_edge("answer", graph.END)
        compiled = builder.compile(checkpointer=await self._context.__aenter__())

        async def handle(update: Any, context: Any) -> None:
            config = {"configurable": {"thread_id": f"telegram-chat:{update.effective_chat.id}"}}
            asked = messages.HumanMessage(content=update.message.text)
            state = await compiled.ainvoke({"messages": [asked]}, config)
            await update.message.reply_text(state["messages"][-1].content)

        self._application = (
            telegram.Application.builder()
            .token(TOKEN)
            .base_url(f"{self._url}/bot")
            .concurrent_updates(True)
            .connection_pool_size(256)
            .pool_timeout(60)
            .build()
        )
        handler = telegram.MessageHandler(telegram.filters.TEXT, handle)
        self._application.add_handler(handler)
        await self._application.initialize()
        await self._application.updater.start_polling(timeout=POLL_SECONDS)
        await self._application.start()

    async def close(self) -> None:
        await self._application.updater.stop()
        await self._application.stop()
        await self._application.shutdown()
        await self._client.close()
        await self._context.__aexit__(None, None, None)


# ---------------------------------------------------------------------- floors


class _Message(msgspec.Struct):
    chat: dict[str, Any]
    text: str = ""


class _Update(msgspec.Struct):
    update_id: int
    message: _Message


class _Updates(msgspec.Struct):
    result: list[_Update]


class _Delta(msgspec.Struct):
    text: str = ""


class _Event(msgspec.Struct):
    type: str
    delta: _Delta | None = None


_updates: Final = msgspec.json.Decoder(_Updates).decode
_event: Final = msgspec.json.Decoder(_Event).decode
_PLAIN: Final = b'{"model":"%b","max_tokens":%d,"stream":true,"system":%b,"messages":[%b]}'


class Reader:
    """The text of a stream, as it comes. What it cannot understand it takes for nothing."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._rest = b""

    def feed(self, data: bytes) -> bool:
        """Whether the message has ended."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for each in events:
            event = _event(each.partition(b"data: ")[2])
            if event.type == "content_block_delta" and event.delta is not None:
                self.said.append(event.delta.text)
            elif event.type == "message_stop":
                return True
        return False


def plain_body(rows: Sequence[bytes], asked: bytes) -> bytes:
    """A request: rows as they are stored, and what is asked now."""
    system = json.dumps(INSTRUCTIONS).encode()
    return _PLAIN % (MODEL.encode(), MAX_TOKENS, system, b",".join((*rows, asked)))


def _rows(loaded: Loaded | None) -> list[bytes]:
    return [row for _, row in (loaded[1] or ())] if loaded else []


def message_of(role: str, text: str) -> bytes:
    return msgspec.json.encode({"role": role, "content": [{"type": "text", "text": text}]})


class _ByHand(_Stored):
    """One task a message; bare sqlite3 with group commit, the four saves of a turn by hand."""

    def __init__(self, folder: Path, outside: Outside) -> None:
        super().__init__(partial(Group, folder / "db", bare=True))
        self._outside = outside
        self._turns: set[asyncio.Task[None]] = set()
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self) -> None:
        self._store = self._make()
        await self._store.open()
        # What the saves hold beside the messages is of one size, whatever was said.
        said = Exchange(0, "x" * 140, "x" * 735)
        self._heads = [Summed(head) for head in heads("telegram-chat:1", said, 20)]
        self._polling = asyncio.create_task(self._poll())

    async def close(self) -> None:
        self._polling.cancel()
        await asyncio.gather(self._polling, return_exceptions=True)
        await asyncio.gather(*self._turns)
        await self._store.close()

    async def _poll(self) -> None:
        offset = 0
        while True:
            for update in _updates(await self._get_updates(offset)).result:
                offset = update.update_id + 1
                task = asyncio.create_task(self._turn(update.message))
                self._turns.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._turns.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # Nobody would ever get a reply, and the run never end.
            traceback.print_exception(task.exception())
            os._exit(1)

    async def _turn(self, message: _Message) -> None:
        # Whoever has a reply may write again before it is noted as delivered.
        async with self._locks[message.chat["id"]]:
            await self._answer(message)

    async def _answer(self, message: _Message) -> None:
        accepted, started, committed, delivered = self._heads
        chat: int = message.chat["id"]
        key = f"telegram-chat:{chat}"
        asked = message_of("user", message.text)
        loaded = await self._store.load(key)
        if loaded is None:
            place = await self._store.save(lambda database: add(database, key, accepted))
        else:
            place = await self._store.step(loaded[0], accepted, unfinished=True)
        place = await self._store.step(place, started, (Summed(asked),), window=next_window(place))
        said = "".join(await self._ask(plain_body(_rows(loaded), asked)))
        place = await self._store.step(place, committed, (Summed(message_of("assistant", said)),))
        await self._send(chat, said)
        await self._store.step(place, delivered, unfinished=False)

    async def _get_updates(self, offset: int) -> bytes:
        raise NotImplementedError

    async def _ask(self, body: bytes) -> list[str]:
        raise NotImplementedError

    async def _send(self, chat: int, text: str) -> None:
        raise NotImplementedError


class HandWritten(_ByHand):
    """On the same SDKs as chinwag, set up as it sets them up."""

    async def open(self) -> None:
        anthropic = importlib.import_module("anthropic")
        self._bot, self._wire = bot_at(self._outside.url, TOKEN, timeout=20)
        self._stream = anthropic.AsyncStream[object]
        self._client = anthropic.AsyncAnthropic(
            api_key="sk-bench",
            base_url=self._outside.url,
            max_retries=0,
            http_client=anthropic.DefaultAioHttpClient(),
        )
        await super().open()

    async def close(self) -> None:
        await super().close()
        await self._client.close()
        await self._wire.shutdown()
        await self._bot.request.shutdown()

    async def _get_updates(self, offset: int) -> bytes:
        await self._bot.get_updates(offset=offset, timeout=POLL_SECONDS)
        return self._wire.body

    async def _ask(self, body: bytes) -> list[str]:
        stream = await self._client.post(
            "/v1/messages", content=body, cast_to=object, stream=True, stream_cls=self._stream
        )
        reader = Reader()
        async for data in stream.response.aiter_bytes():
            reader.feed(data)
        return reader.said

    async def _send(self, chat: int, text: str) -> None:
        await self._bot.send_message(chat, text)


class Bare(_ByHand):
    """No SDK, no HTTP client: sockets that are kept, and the bytes that must be sent."""

    async def open(self) -> None:
        self._free: list[Socket] = []
        await super().open()

    async def close(self) -> None:
        await super().close()
        for socket in self._free:
            await socket.close()

    async def _with(self, ask: Callable[[Socket], Awaitable[Any]]) -> Any:
        socket = self._free.pop() if self._free else await Socket.open(self._outside.port)
        try:
            answer = await ask(socket)
        except BaseException:
            # Cancelled in the middle of a poll: what it would bring is nobody's.
            await socket.close()
            raise
        self._free.append(socket)
        return answer

    async def _get_updates(self, offset: int) -> bytes:
        body = b'{"offset":%d,"timeout":%d}' % (offset, POLL_SECONDS)
        return bytes(await self._with(lambda socket: socket.call("getUpdates", body)))

    async def _ask(self, body: bytes) -> list[str]:
        reader = Reader()
        await self._with(lambda socket: socket.ask(body, reader.feed))
        return reader.said

    async def _send(self, chat: int, text: str) -> None:
        body = msgspec.json.encode({"chat_id": chat, "text": text})
        await self._with(lambda socket: socket.call("sendMessage", body))


class Socket:
    """A connection that knows just enough of HTTP for the two services outside."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Socket:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**20))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    def _write(self, path: str, body: bytes) -> None:
        head = b"POST %b HTTP/1.1\r\nhost: bench\r\ncontent-length: %d\r\n\r\n"
        self._writer.write(head % (path.encode(), len(body)) + body)

    async def call(self, method: str, body: bytes) -> bytes:
        self._write(f"/bot{TOKEN}/{method}", body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        return await self._reader.readexactly(int(head.rpartition(b"length: ")[2]))

    async def ask(self, body: bytes, feed: Callable[[bytes], bool]) -> None:
        """
        :param feed: given the events, cut anywhere; tells when the message has ended
        """
        self._write("/v1/messages", body)
        await self._reader.readuntil(b"\r\n\r\n")
        rest = b""
        ended = False
        while not ended:
            came = rest + await self._reader.read(2**16)
            whole, rest = _dechunked(came)
            for data in whole:
                ended = data == b"" or ended
                feed(data)


def _dechunked(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole chunks in it, and what is left."""
    whole: list[bytes] = []
    at = 0
    while (end := data.find(b"\r\n", at)) >= 0:
        length = int(data[at:end], 16)
        if len(data) < end + 4 + length:
            break
        whole.append(data[end + 2 : end + 2 + length])
        at = end + 4 + length
    return whole, data[at:]


STACKS: Final[dict[str, Callable[[Path, Outside], Stack]]] = {
    "chinwag": Program,
    "chinwag, log at warning": partial(Program, level="warning"),
    "chinwag, growing answers": partial(Program, streaming="auto"),
    "PTB + Anthropic stream + LangGraph": Typical,
    "by hand, same SDKs": HandWritten,
    "bare sockets": Bare,
}
