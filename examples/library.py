"""Agents in a program of your own: memory, tools, state, another agent, a stream. No bot, no chat.

    .venv/bin/python -m examples.library

Conversations go into `library.db` in the folder where you start it: start it twice, and it still
knows who you are.
"""

from __future__ import annotations

import asyncio

from core import Agent, ConversationMemory, Runtime, ToolContext, tool
from examples.stand_in import model
from stores.sqlite import SQLiteStore


@tool
async def price(article: str, context: ToolContext) -> str:
    """What an article costs, in euros."""
    context.state[article] = {"tea": 3, "cake": 4}.get(article, 5)
    return f"{article}: {context.state[article]} EUR"


class Basket:
    """Put an article into the basket. Gives what is in it, and the sum of the known prices."""

    def __init__(self) -> None:
        # Built anew for each run: no other ever sees this list.
        self.articles: list[str] = []

    async def __call__(self, article: str, context: ToolContext) -> str:
        self.articles.append(article)
        total = sum(context.state.get(each, 0) for each in self.articles)
        return f"{', '.join(self.articles)}: {total} EUR"


translator = Agent(
    name="translator",
    description="Translates a text into French.",
    instructions="Translate into French. Give the translation alone.",
)

shop = Agent(
    name="shop",
    instructions="You help people in a small shop.",
    tools=(price, tool(name="basket")(Basket)),
    agents=(translator,),
    memory=ConversationMemory(40).add_system("Be brief."),
)


async def main() -> None:
    async with (
        model() as client,
        SQLiteStore("library.db") as store,
        Runtime(store, client=client) as runtime,
    ):
        # Runs are independent, unless they share a session id.
        print((await runtime.run(shop, "Do you know my name? What is my name?")).text)
        alice = {"session_id": "user-42", "sender": "web:42"}
        print((await runtime.run(shop, "What is my name?", **alice)).text)
        print((await runtime.run(shop, "Hello, my name is Alice", **alice)).text)

        # Tools of one run share `context.state`; a class keeps its object as long.
        question = 'use price with {"article": "tea"} and use basket with {"article": "tea"}'
        print((await runtime.run(shop, question, **alice)).text)

        # Another agent, asked by the first as if it were a tool; its tokens are counted, too.
        reply = await runtime.run(shop, 'use translator with {"request": "Good tea"}', **alice)
        print(reply.text, f"({reply.usage.output_tokens} tokens out)")

        # Piece by piece, and the whole reply in the end.
        stream = runtime.stream(shop, "say 12 words", **alice)
        async for piece in stream:
            print(piece, end="", flush=True)
        print(f" [{(await stream.result()).outcome}]")

        # A session is a conversation to hold on to.
        session = await runtime.session(shop, session_id="user-42")
        print(f"{len(session.history)} messages are remembered of user-42.")


if __name__ == "__main__":
    asyncio.run(main())
