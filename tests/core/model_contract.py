"""What every model client must do. A new one proves itself by inheriting this class:

    class TestMine(ModelClientContract):
        @pytest.fixture
        def far_end(self): ...      a FarEnd that plays the service over a real socket

It says nothing about how a service words its answers, only what the turn relies on.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Sequence
from typing import Final, Literal, Protocol

import pytest

from core.errors import (
    ModelError,
    ModelNotFound,
    ModelRefusedKey,
    ModelRejected,
    ModelUnavailable,
)
from core.messages import Message, Role, decode_blocks, encode_blocks, text_block
from core.model import Answer, ModelClient, Request, ToolCall
from core.tools import tool

Failure = Literal[
    "overloaded",
    "broken",
    "rate_limit",
    "rate_limit_for_2s",
    "wrong_key",
    "no_permission",
    "no_money",
    "no_credit",
    "no_model",
    "rejected",
    "too_large",
    "no_answer",
    "cut",
    "ends_early",
    "fails_in_the_middle",
    "silent",
    "silent_in_the_middle",
]
ERRORS: Final[dict[Failure, type[ModelError]]] = {
    "overloaded": ModelUnavailable,
    "broken": ModelUnavailable,
    "rate_limit": ModelUnavailable,
    "rate_limit_for_2s": ModelUnavailable,
    "wrong_key": ModelRefusedKey,
    "no_permission": ModelRefusedKey,
    "no_money": ModelRefusedKey,
    "no_credit": ModelRefusedKey,
    "no_model": ModelNotFound,
    "rejected": ModelRejected,
    "too_large": ModelRejected,
    "no_answer": ModelUnavailable,
    "cut": ModelUnavailable,
    "ends_early": ModelUnavailable,
    "fails_in_the_middle": ModelUnavailable,
    "silent": ModelUnavailable,
    "silent_in_the_middle": ModelUnavailable,
}


class FarEnd(Protocol):
    """The service, as a test wants it to behave. One call prepares one answer.

    :param model: a model that exists
    :param secret: the key that its clients use
    """

    model: str
    secret: str

    def client(self) -> ModelClient:
        """A new client of this service; whoever asked closes it."""
        ...

    def impatient(self) -> ModelClient:
        """The same, that gives up after a tenth of a second of silence."""
        ...

    def lost(self) -> ModelClient:
        """A client of an address where nobody listens."""
        ...

    def keyless(self) -> ModelClient:
        """A client that was given no key."""
        ...

    def says(self, text: str) -> None: ...

    def is_cut_short(self, text: str) -> None:
        """The answer reaches `max_tokens`."""
        ...

    def calls(self, *wanted: ToolCall, text: str = "") -> None: ...

    def thinks(self, thinking: str, text: str) -> None: ...

    def fails(self, failure: Failure) -> None: ...

    def answers_slowly(self) -> None:
        """An answer that has begun, and takes much longer than any test."""
        ...

    def asked(self) -> int:
        """How many requests have come."""
        ...

    async def nobody_listens(self) -> bool:
        """Whether, within a second, all clients have gone away."""
        ...


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return city


CALL: Final = ToolCall(id="call_1", name="weather", input={"city": "Lübeck"})
OTHER_CALL: Final = ToolCall(id="call_2", name="weather", input={"city": "Kiel"})


def spoken(role: Role, text: str, seq: int = 1) -> Message:
    return Message(seq=seq, role=role, blocks=encode_blocks([text_block(text)]), at=0)


def after(answer: Answer, *results: dict[str, object]) -> Sequence[Message]:
    """The history with this answer in it, and what follows."""
    follows = results or (text_block("And now?"),)
    return (
        spoken("user", "Hello", 1),
        Message(seq=2, role="assistant", blocks=answer.blocks, at=0),
        Message(seq=3, role="user", blocks=encode_blocks(follows), at=0),
    )


class ModelClientContract:
    @pytest.fixture
    def far_end(self) -> FarEnd:
        raise NotImplementedError("a FarEnd that plays the service")

    @pytest.fixture
    async def client(self, far_end: FarEnd) -> AsyncIterator[ModelClient]:
        client = far_end.client()
        yield client
        await client.close()

    def request(
        self,
        far_end: FarEnd,
        messages: Sequence[Message] = (spoken("user", "Hello"),),
        *,
        use_tools: bool = True,
    ) -> Request:
        return Request(
            model=far_end.model,
            system=("Be brief.",),
            messages=messages,
            tools=(weather.json,),
            use_tools=use_tools,
            max_tokens=1000,
        )

    def test_it_is_a_model_client(self, client: ModelClient) -> None:
        assert isinstance(client, ModelClient)

    # ------------------------------------------------------------------ answers

    async def test_text(self, far_end: FarEnd, client: ModelClient) -> None:
        far_end.says("Guten Tag, wörld 👋\nHow are you?")
        answer = await client.answer(self.request(far_end))
        assert answer.text == "Guten Tag, wörld 👋\nHow are you?"
        assert answer.calls == ()
        assert answer.stop_reason == "end_turn"
        assert decode_blocks(answer.blocks)

    async def test_tokens_are_counted(self, far_end: FarEnd, client: ModelClient) -> None:
        far_end.says("Hello.")
        usage = (await client.answer(self.request(far_end))).usage
        assert usage.input_tokens + usage.cache_creation_input_tokens > 0
        assert usage.output_tokens > 0

    async def test_text_is_shown_as_it_comes(self, far_end: FarEnd, client: ModelClient) -> None:
        far_end.says("One two three four.")
        shown: list[str] = []
        answer = await client.answer(self.request(far_end), shown.append)
        assert "".join(shown) == answer.text
        assert len(shown) > 1

    async def test_what_is_shown_comes_before_the_end(
        self, far_end: FarEnd, client: ModelClient
    ) -> None:
        far_end.answers_slowly()
        begun = asyncio.Event()
        answering = asyncio.create_task(client.answer(self.request(far_end), lambda _: begun.set()))
        async with asyncio.timeout(5):
            await begun.wait()
        assert not answering.done()
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)

    async def test_calls_of_tools(self, far_end: FarEnd, client: ModelClient) -> None:
        far_end.calls(CALL, OTHER_CALL, text="I will look.")
        answer = await client.answer(self.request(far_end))
        assert answer.calls == (CALL, OTHER_CALL)
        assert answer.text == "I will look."
        assert answer.stop_reason == "tool_use"

    async def test_an_answer_that_was_too_long(self, far_end: FarEnd, client: ModelClient) -> None:
        far_end.is_cut_short("Once upon a")
        answer = await client.answer(self.request(far_end))
        assert (answer.text, answer.stop_reason) == ("Once upon a", "max_tokens")

    async def test_what_was_said_can_be_sent_back(
        self, far_end: FarEnd, client: ModelClient
    ) -> None:
        far_end.thinks("Let me think…", "Yes.")
        thought = await client.answer(self.request(far_end))
        assert thought.text == "Yes."
        far_end.says("As I said.")
        again = await client.answer(self.request(far_end, after(thought)))
        assert again.text == "As I said."

    async def test_results_of_tools_can_be_sent(self, far_end: FarEnd, client: ModelClient) -> None:
        far_end.calls(CALL)
        called = await client.answer(self.request(far_end))
        far_end.says("It rains.")
        result: dict[str, object] = {
            "type": "tool_result",
            "tool_use_id": CALL.id,
            "content": "rain",
        }
        messages = after(called, result)
        assert (await client.answer(self.request(far_end, messages))).text == "It rains."
        far_end.says("It still rains.")
        last = self.request(far_end, messages, use_tools=False)
        assert (await client.answer(last)).text == "It still rains."

    async def test_answers_at_the_same_time_are_not_mixed_up(
        self, far_end: FarEnd, client: ModelClient
    ) -> None:
        said = [f"Answer number {number}." for number in range(8)]
        for text in said:
            far_end.says(text)
        shown: list[list[str]] = [[] for _ in said]
        answers = await asyncio.gather(
            *(client.answer(self.request(far_end), pieces.append) for pieces in shown)
        )
        assert sorted(answer.text for answer in answers) == said
        assert ["".join(pieces) for pieces in shown] == [answer.text for answer in answers]

    # ------------------------------------------------------------------ failures

    @pytest.mark.parametrize("failure", ERRORS)
    async def test_a_failure_has_its_error(self, far_end: FarEnd, failure: Failure) -> None:
        client = far_end.impatient() if failure.startswith("silent") else far_end.client()
        far_end.fails(failure)
        shown: list[str] = []
        try:
            with pytest.raises(ERRORS[failure]) as raised:
                await client.answer(self.request(far_end), shown.append)
            assert type(raised.value) is ERRORS[failure]
            # One attempt: whether there is another is the turn's affair.
            assert far_end.asked() == 1
            assert far_end.secret not in "".join(traceback.format_exception(raised.value))
            far_end.says("Here I am again.")
            assert (await client.answer(self.request(far_end))).text == "Here I am again."
        finally:
            await client.close()

    async def test_how_long_to_wait_is_passed_on(
        self, far_end: FarEnd, client: ModelClient
    ) -> None:
        waits: dict[Failure, float | None] = {"rate_limit": None, "rate_limit_for_2s": 2.0}
        for failure, wait in waits.items():
            far_end.fails(failure)
            with pytest.raises(ModelUnavailable) as raised:
                await client.answer(self.request(far_end))
            assert raised.value.retry_after == wait

    async def test_nobody_listens_at_the_address(self, far_end: FarEnd) -> None:
        client = far_end.lost()
        with pytest.raises(ModelUnavailable):
            await client.answer(self.request(far_end))
        await client.close()

    async def test_no_key(self, far_end: FarEnd) -> None:
        client = far_end.keyless()
        with pytest.raises(ModelRefusedKey):
            await client.answer(self.request(far_end))
        await client.close()
        assert far_end.asked() == 0

    async def test_cancelled_in_the_middle_it_hangs_up(
        self, far_end: FarEnd, client: ModelClient
    ) -> None:
        far_end.answers_slowly()
        begun = asyncio.Event()
        answering = asyncio.create_task(client.answer(self.request(far_end), lambda _: begun.set()))
        async with asyncio.timeout(5):
            await begun.wait()
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        assert await far_end.nobody_listens()
        far_end.says("Here I am again.")
        assert (await client.answer(self.request(far_end))).text == "Here I am again."

    # ------------------------------------------------------------------ its end

    async def test_the_key_is_not_in_its_repr(self, far_end: FarEnd, client: ModelClient) -> None:
        assert far_end.secret not in repr(client)
        far_end.says("Hello.")
        await client.answer(self.request(far_end))
        assert far_end.secret not in repr(client)

    async def test_closing_twice_is_fine(self, far_end: FarEnd) -> None:
        client = far_end.client()
        await client.close()
        far_end.says("Hello.")
        await client.answer(self.request(far_end))
        await client.close()
        await client.close()
