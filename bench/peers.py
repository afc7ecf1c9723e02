"""What people use instead, each as its own documentation shows it.

A turn loads the conversation and makes one more exchange durable. Imported when they are opened:
none of them is installed where chinwag is developed. What they do besides (graphs, checkpoints of
each step, run objects) is theirs.
"""

from __future__ import annotations

import copy
import importlib
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.said import Exchange
from bench.subject import Seen, Turn

WINDOW: Final = 40


class Plain(NamedTuple):
    """The two messages as plain values, new ones each time, as they would arrive."""

    user: dict[str, Any]
    answer: dict[str, Any]


def plain(said: Exchange) -> Plain:
    return Plain(
        {"role": "user", "content": [{"type": "text", "text": said.user}]},
        {"role": "assistant", "content": [{"type": "text", "text": said.answer}]},
    )


def flat(said: Sequence[Exchange]) -> list[dict[str, Any]]:
    return [message for each in said for message in plain(each)]


class OpenAISession:
    """openai-agents: SQLiteSession(session_id, path), one kept per chat.

    :param limit: how many items a turn asks for; None: all
    """

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self._path = path
        self._limit = limit
        self._sessions: dict[str, Any] = {}

    async def open(self) -> None:
        self._agents = importlib.import_module("agents")

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _session(self, key: str) -> Any:
        if key not in self._sessions:
            self._sessions[key] = self._agents.SQLiteSession(key, str(self._path))
        return self._sessions[key]

    async def fill(self, key: str, said: Sequence[Exchange]) -> None:
        await self._session(key).add_items(flat(said))

    def ready(self, key: str, said: Exchange, total: int) -> Turn:
        items = list(plain(said))

        async def turn() -> Seen:
            session = self._session(key)
            history = await session.get_items(limit=self._limit)
            await session.add_items(items)
            # With a limit it cannot tell how many there are: the count at the end does.
            return Seen(len(history) if self._limit is None else total)

        return turn

    async def count(self, key: str) -> int:
        return len(await self._session(key).get_items())


class LangGraph:
    """A graph of one node over MessagesState with AsyncSqliteSaver; one ainvoke a turn."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, int] = {}

    async def open(self) -> None:
        saver = importlib.import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
        graph = importlib.import_module("langgraph.graph")
        self._messages = importlib.import_module("langchain_core.messages")
        self._context = saver.from_conn_string(str(self._path))
        checkpointer = await self._context.__aenter__()

        async def answer(state: Any, config: Any) -> dict[str, Any]:
            given = config["configurable"]
            self._found[given["thread_id"]] = len(state["messages"]) - 1
            return {"messages": [self._messages.AIMessage(content=given["answer"])]}

        # The graph reads the annotations of its nodes; these are names of this file only.
        answer.__annotations__ = {
            "config": importlib.import_module("langchain_core.runnables").RunnableConfig
        }
        builder = graph.StateGraph(graph.MessagesState)
        builder.add_node("answer", answer)
        builder.add_edge(graph.START, "answer")
        builder.add_edge("answer", graph.END)
        self._graph = builder.compile(checkpointer=checkpointer)

    async def close(self) -> None:
        await self._context.__aexit__(None, None, None)

    def _message(self, message: dict[str, Any]) -> Any:
        kind = (
            self._messages.HumanMessage if message["role"] == "user" else self._messages.AIMessage
        )
        return kind(content=message["content"])

    async def fill(self, key: str, said: Sequence[Exchange]) -> None:
        messages = [self._message(message) for message in flat(said)]
        config = {"configurable": {"thread_id": key}}
        await self._graph.aupdate_state(config, {"messages": messages}, as_node="answer")

    def ready(self, key: str, said: Exchange, total: int) -> Turn:
        user, answer = plain(said)
        config = {"configurable": {"thread_id": key, "answer": answer["content"]}}

        async def turn() -> Seen:
            await self._graph.ainvoke({"messages": [self._message(user)]}, config)
            return Seen(self._found[key])

        return turn

    async def count(self, key: str) -> int:
        state = await self._graph.aget_state({"configurable": {"thread_id": key}})
        return len(state.values.get("messages", []))


class Pickle:
    """python-telegram-bot: history in chat_data, saved as Application.update_persistence does, by
    PicklePersistence. It reads its file only at start, rewrites it whole, and never syncs it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._chats: dict[str, dict[str, Any]] = {}

    async def _opened(self) -> Any:
        telegram = importlib.import_module("telegram.ext")
        persistence = telegram.PicklePersistence(str(self._path))
        persistence.set_bot(telegram.ExtBot("1:a"))
        return persistence

    async def open(self) -> None:
        self._persistence = await self._opened()
        self._chats = dict(await self._persistence.get_chat_data())
        await self._persistence.get_user_data()
        await self._persistence.get_bot_data()

    async def close(self) -> None:
        """Everything is in the file already."""

    async def fill(self, key: str, said: Sequence[Exchange]) -> None:
        self._chats[key] = {"history": flat(said)}
        self._persistence.on_flush = True
        await self._save(key)
        self._persistence.on_flush = False

    async def _save(self, key: str) -> None:
        await self._persistence.update_chat_data(key, copy.deepcopy(self._chats[key]))

    def ready(self, key: str, said: Exchange, total: int) -> Turn:
        both = plain(said)

        async def turn() -> Seen:
            history = self._chats.setdefault(key, {"history": []})["history"]
            found = len(history)
            history.extend(both)
            await self._save(key)
            return Seen(found)

        return turn

    async def count(self, key: str) -> int:
        # What another process would find.
        stored = await (await self._opened()).get_chat_data()
        return len(stored.get(key, {"history": []})["history"])


class Agno:
    """agno: AsyncSqliteDb; the session is read, then it and the new run are written, as
    Agent.arun does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self) -> None:
        self._database = importlib.import_module("agno.db.sqlite").AsyncSqliteDb(
            db_file=str(self._path)
        )
        self._kind = importlib.import_module("agno.db.base").SessionType.AGENT
        self._new = importlib.import_module("agno.session").AgentSession
        self._output = importlib.import_module("agno.run.agent").RunOutput
        self._message = importlib.import_module("agno.models.message").Message

    async def close(self) -> None:
        await self._database.db_engine.dispose()

    async def _session(self, key: str) -> Any:
        return await self._database.get_session(key, self._kind) or self._new(
            session_id=key, agent_id="assistant", created_at=int(time.time()), runs=[]
        )

    def _run(self, key: str, said: Exchange) -> Any:
        return self._output(
            run_id=str(uuid.uuid4()),
            session_id=key,
            agent_id="assistant",
            messages=[
                self._message(role="user", content=said.user),
                self._message(role="assistant", content=said.answer),
            ],
            content=said.answer,
        )

    async def fill(self, key: str, said: Sequence[Exchange]) -> None:
        await self._database.upsert_session(await self._session(key))
        for index, each in enumerate(said):
            await self._database.upsert_run(self._run(key, each), key, run_index=index)

    def ready(self, key: str, said: Exchange, total: int) -> Turn:
        async def turn() -> Seen:
            session = await self._session(key)
            runs = len(session.runs or [])
            await self._database.upsert_session(session)
            await self._database.upsert_run(self._run(key, said), key, run_index=runs)
            return Seen(2 * runs)

        return turn

    async def count(self, key: str) -> int:
        return 2 * len((await self._session(key)).runs or [])
