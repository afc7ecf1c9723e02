"""What every adapter must do. Inherit, say how a person speaks and what they see, run pytest.

    class TestMine(AdapterContract):
        @pytest.fixture
        async def adapter(self) -> AsyncIterator[Adapter]:
            self.server = ...                       # a platform of your own, on loopback
            yield MyAdapter(self.server.url)

        async def say(self, text: str) -> None: ... # a person writes to the bot, in one chat
        async def screen(self) -> list[str]: ...    # the bot's messages that they see there

Where there are buttons, also what pressing one is, and which there are: `press` and `labels`.

Needs nothing but `core`, pytest and pytest-asyncio (asyncio_mode = auto).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace

from bots.contracts.showing import Leave
from core.adapter import (
    Acceptance,
    Accepted,
    Adapter,
    CallState,
    Card,
    Cards,
    Choice,
    Doing,
    Duplicate,
    Limits,
    Refused,
    SendsFiles,
    ShowsTools,
)
from core.errors import StoreUnavailable
from core.keys import SessionKey, check_key
from core.messages import File, Inbound, Outbound

PATIENCE = 10.0
# The smallest picture there is: one pixel.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c02"
    "0000000b4944415478da63fcff1f0003030200efa2a75b0000000049454e44ae426082"
)
STOPPED_WITHIN = 3.0


class Desk:
    """The far side of `accept`.

    :param asked: all that the adapter brought, whatever became of it
    :param accepted: that of it which was accepted
    """

    def __init__(self, answer: Acceptance | None = None, *, failing: int = 0) -> None:
        self.asked: list[Inbound] = []
        self.accepted: list[Inbound] = []
        self.answer = answer or Accepted()
        self.failing = failing
        self.open = asyncio.Event()
        self.open.set()
        self._changed = asyncio.Event()

    async def accept(self, inbound: Inbound) -> Acceptance:
        self._note(self.asked, inbound)
        await self.open.wait()
        if self.failing:
            self.failing -= 1
            raise StoreUnavailable("the disk is full")
        self._note(self.accepted, inbound)
        return self.answer

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not done():
                self._changed.clear()
                await self._changed.wait()

    async def have(self, count: int) -> list[Inbound]:
        """The first so many that were accepted."""
        await self.until(lambda: len(self.accepted) >= count)
        return self.accepted[:count]

    def texts(self) -> list[str]:
        return [inbound.text for inbound in self.accepted]

    def _note(self, where: list[Inbound], inbound: Inbound) -> None:
        where.append(inbound)
        self._changed.set()


@asynccontextmanager
async def running(adapter: Adapter, desk: Desk) -> AsyncIterator[Desk]:
    """The adapter takes messages in while the block runs; then it is cancelled, and must obey."""
    task = asyncio.create_task(adapter.run(desk.accept))
    try:
        yield desk
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=STOPPED_WITHIN)
        assert task.done(), "a cancelled run must end"
        if not task.cancelled():
            task.result()


class AdapterContract:
    redelivers = True  # the platform brings again what was not confirmed
    foreign_keys: tuple[str, ...] = ("nobodys-chat:1", "a free key", "agent:a/id/1", "")

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        """A new one for each test, and its platform with it."""
        raise NotImplementedError
        yield

    async def say(self, text: str) -> None:
        """A person writes to the bot; always the same person in the same chat."""
        raise NotImplementedError

    async def screen(self) -> list[str]:
        """The bot's messages in that chat as the person sees them now."""
        raise NotImplementedError

    async def press(self, label: str) -> None:
        """They press the newest button with this label."""
        raise NotImplementedError

    async def labels(self) -> list[str]:
        """The buttons that they can press now."""
        raise NotImplementedError

    async def files(self) -> dict[str, bytes]:
        """What was sent to that chat as files, by name; for a platform that takes any."""
        raise NotImplementedError

    # What it is

    async def test_it_has_the_shape(self, adapter: Adapter) -> None:
        assert isinstance(adapter, Adapter)
        assert adapter.name
        assert isinstance(adapter.limits, Limits)

    async def test_it_serves_its_own_keys_only(self, adapter: Adapter) -> None:
        key = (await self._hear(adapter, "hello")).key
        assert adapter.serves(key)
        assert not any(adapter.serves(foreign) for foreign in self.foreign_keys)
        parsed = SessionKey.parse(key)
        assert parsed is not None, "a key is built with SessionKey"
        assert not adapter.serves(str(replace(parsed, account="another-account")))
        assert not adapter.serves(str(replace(parsed, scope=f"x{parsed.scope}")))

    # What it takes in

    async def test_a_message_becomes_an_inbound(self, adapter: Adapter) -> None:
        inbound = await self._hear(adapter, "hello, bot")
        assert inbound.text == "hello, bot"
        assert inbound.kind == "message"
        assert inbound.id
        assert inbound.sender.id
        assert inbound.at > 0
        assert check_key(inbound.key) == inbound.key
        assert msgspec.json.decode(msgspec.json.encode(inbound), type=Inbound).key == inbound.key

    async def test_each_message_is_brought_once_and_in_order(self, adapter: Adapter) -> None:
        texts = [f"message {number}" for number in range(20)]
        async with running(adapter, Desk()) as desk:
            for text in texts:
                await self.say(text)
            await desk.have(len(texts))
            await self.say("the last")
            await desk.have(len(texts) + 1)
        assert desk.texts() == [*texts, "the last"]
        assert len({inbound.id for inbound in desk.accepted}) == len(texts) + 1
        assert len({inbound.key for inbound in desk.accepted}) == 1

    async def test_within_a_chat_one_waits_for_the_other(self, adapter: Adapter) -> None:
        desk = Desk()
        desk.open.clear()
        async with running(adapter, desk):
            await self.say("first")
            await self.say("second")
            await desk.until(lambda: bool(desk.asked))
            await asyncio.sleep(0.05)
            assert [inbound.text for inbound in desk.asked] == ["first"]
            desk.open.set()
            await desk.have(2)
        assert desk.texts() == ["first", "second"]

    async def test_a_duplicate_is_done_with(self, adapter: Adapter) -> None:
        async with running(adapter, Desk(Duplicate())) as desk:
            await self.say("again")
            await desk.have(1)
            await self.say("new")
            await desk.have(2)
        assert desk.texts() == ["again", "new"]

    async def test_what_is_not_accepted_comes_again(self, adapter: Adapter) -> None:
        self._need_redelivery()
        async with running(adapter, Desk(failing=2)) as desk:
            await self.say("hold on to this")
            await self.say("and this")
            await desk.have(2)
        assert desk.texts() == ["hold on to this", "and this"]
        assert len({inbound.id for inbound in desk.asked}) == 2, "the same event, the same id"

    async def test_it_comes_again_when_we_stop_before_it_is_accepted(
        self, adapter: Adapter
    ) -> None:
        self._need_redelivery()
        desk = Desk()
        desk.open.clear()
        async with running(adapter, desk):
            await self.say("hold on to this")
            await desk.until(lambda: bool(desk.asked))
        async with running(adapter, Desk()) as later:
            await later.have(1)
        assert later.accepted == desk.asked

    async def test_a_refusal_is_said(self, adapter: Adapter) -> None:
        async with running(adapter, Desk(Refused("this bot is **private**"))) as desk:
            await self.say("let me in")
            await desk.have(1)
            async with asyncio.timeout(PATIENCE):
                # The screen is the platform's: it has no event of ours to wait for.
                while not any("private" in seen for seen in await self.screen()):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        assert len(desk.accepted) == 1

    async def test_it_stops_when_nothing_happens(self, adapter: Adapter) -> None:
        async with running(adapter, Desk()):
            await asyncio.sleep(0.05)

    # What it sends

    @pytest.mark.parametrize("nothing", ["", " ", "\n\n \t\n"])
    async def test_white_space_alone_renders_to_nothing(
        self, adapter: Adapter, nothing: str
    ) -> None:
        assert adapter.render(nothing) == ()

    async def test_rendering_keeps_every_word(self, adapter: Adapter) -> None:
        words = [f"word{number}" for number in range(6_000)]
        lines = [" ".join(words[at : at + 7]) for at in range(0, len(words), 7)]
        markdown = (
            "# Heading\n\n**loud** and `fixed`\n\n* bullet\n\n```\nverbatim\n```\n\n"
            + "\n".join(lines)
        )
        bodies = adapter.render(markdown)
        assert adapter.render(markdown) == bodies, "rendering is pure"
        seen = " ".join(text for body in bodies for text in _texts(json.loads(body))).split()
        for word in ("Heading", "loud", "fixed", "bullet", "verbatim"):
            assert any(word in each for each in seen)
        assert [word for word in seen if word.startswith("word")] == words

    async def test_what_it_sends_is_seen(self, adapter: Adapter) -> None:
        async with running(adapter, Desk()) as desk:
            await self.say("hello")
            (inbound,) = await desk.have(1)
            for number, body in enumerate(adapter.render("good **morning**")):
                part = Outbound(f"part-{number}", body, reply_to=inbound.message_id)
                receipt = await adapter.send(inbound.key, part, uncertain=False)
                assert all(isinstance(one, str) and one for one in receipt.message_ids)
            assert "morning" in " ".join(await self.screen())

    async def test_an_uncertain_part_is_on_the_screen_in_the_end(self, adapter: Adapter) -> None:
        async with running(adapter, Desk()) as desk:
            await self.say("hello")
            (inbound,) = await desk.have(1)
            part = Outbound("part-1", adapter.render("once more")[0])
            await adapter.send(inbound.key, part, uncertain=True)
            assert any("once more" in seen for seen in await self.screen())

    async def test_a_press_is_a_decision(self, adapter: Adapter) -> None:
        cards = self._need_buttons(adapter)
        choices = (Choice("Yes, do", f"+{'a' * 33}"), Choice("No", f"-{'b' * 33}"))
        body = cards.render_card(Card("May I **really**?", choices))
        assert body == cards.render_card(Card("May I **really**?", choices)), "it is pure"
        async with running(adapter, Desk()) as desk:
            await self.say("hello")
            (said,) = await desk.have(1)
            receipt = await adapter.send(said.key, Outbound("part-1", body), uncertain=False)
            assert "May I really?" in " ".join(await self.screen())
            assert await self.labels() == ["Yes, do", "No"]
            await self.press("No")
            _, pressed = await desk.have(2)
            assert (pressed.kind, pressed.text) == ("decision", choices[1].data)
            assert (pressed.key, pressed.sender.id) == (said.key, said.sender.id)
            assert pressed.message_id == receipt.message_ids[0]
            after = Outbound("part-2", cards.render_card(Card("No.")), replaces=pressed.message_id)
            for _ in range(2):
                assert await adapter.send(said.key, after, uncertain=True) == receipt
            assert (await self.screen())[-1] == "No." and await self.labels() == []

    async def test_a_press_that_is_not_accepted_comes_again(self, adapter: Adapter) -> None:
        cards = self._need_buttons(adapter)
        self._need_redelivery()
        key = (await self._hear(adapter, "hello")).key
        body = cards.render_card(Card("May I?", (Choice("Yes", "+yes"),)))
        await adapter.send(key, Outbound("part-1", body), uncertain=False)
        async with running(adapter, Desk(failing=2)) as desk:
            await self.press("Yes")
            await desk.have(1)
        assert len(desk.asked) == 3 and len({inbound.id for inbound in desk.asked}) == 1

    async def test_what_a_refused_press_is_told_disturbs_nobody(self, adapter: Adapter) -> None:
        cards = self._need_buttons(adapter)
        key = (await self._hear(adapter, "hello")).key
        body = cards.render_card(Card("May I?", (Choice("Yes", "+yes"),)))
        await adapter.send(key, Outbound("part-1", body), uncertain=False)
        before = await self.screen()
        refused = Refused("This is not for you to decide.", private=True)
        async with running(adapter, Desk(refused)) as desk:
            await self.press("Yes")
            await desk.have(1)
            await asyncio.sleep(0.05)
        assert await self.screen() == before and await self.labels() == ["Yes"]
        async with running(adapter, Desk(replace(refused, over=True))) as desk:
            await self.press("Yes")
            async with asyncio.timeout(PATIENCE):
                while await self.labels():  # noqa: ASYNC110 (the platform has no event of ours)
                    await asyncio.sleep(0.01)
        assert await self.screen() == before

    async def test_the_largest_card_is_one_message(self, adapter: Adapter) -> None:
        cards = self._need_buttons(adapter)
        key = (await self._hear(adapter, "hello")).key
        text = "**May I?**\n\n```\n" + "😀" * 1_600 + "\n```\n\n" + "Only you. " * 50
        body = cards.render_card(Card(text, (Choice("Yes", "+yes"),)))
        receipt = await adapter.send(key, Outbound("part-1", body), uncertain=False)
        assert len(receipt.message_ids) == 1
        (shown,) = await self.screen()
        assert shown.count("😀") == 1_600 and shown.count("Only you.") == 50

    @pytest.mark.parametrize(
        ("file", "data"),
        [
            (
                File("conversation.html", "text/html", "html", 1, 2, 0),
                b"<p>\xff" + bytes(range(256)) * 300,
            ),
            (File("données 2026.csv", "text/csv", blob="sha256:" + "0" * 64), b"a,b\n1,2\n"),
            (File("chart.png", "image/png", blob="sha256:" + "0" * 64), PNG),
            (File("no chart.png", "image/png", blob="sha256:" + "0" * 64), b"not a picture"),
        ],
        ids=lambda value: value.name if isinstance(value, File) else "",
    )
    async def test_a_file_is_on_the_screen(self, adapter: Adapter, file: File, data: bytes) -> None:
        if not isinstance(adapter, SendsFiles):
            pytest.skip("this platform takes no files")
        async with running(adapter, Desk()) as desk:
            await self.say("hello")
            (inbound,) = await desk.have(1)
            part = Outbound("part-1", "", file=file, reply_to=inbound.message_id)
            receipt = await adapter.send_file(inbound.key, part, data, uncertain=False)
            assert all(isinstance(one, str) and one for one in receipt.message_ids)
            assert (await self.files())[file.name] == data

    async def test_live_is_harmless(self, adapter: Adapter) -> None:
        inbound = await self._hear(adapter, "hello")
        for shown in ((), ("no such message",)):
            live = adapter.live(
                inbound.key, inbound, shown, Leave(lambda leaving: leaving == "edit")
            )
            for text in ("", "good", "good morning", "\ud800 \0", "x" * 50_000):
                assert live.show(text) in (True, False)
                await asyncio.sleep(0)
            left = await live.close()
            assert isinstance(left, tuple)
            assert all(isinstance(one, str) for one in left)

    async def test_live_shows_tools_or_does_not(self, adapter: Adapter) -> None:
        inbound = await self._hear(adapter, "hello")
        live = adapter.live(inbound.key, inbound, (), Leave())
        if not isinstance(live, ShowsTools):
            await live.close()
            pytest.skip("what is shown here says nothing of tools")
        states: tuple[CallState, ...] = ("running", "asks", "failed", "done")
        for state in (*states, "running", "running"):
            # What a server of tools says of them is somebody else's text.
            calls = (Doing("c1", "Look\ud800 up <!channel>", state), Doing("c2", "x" * 500, "done"))
            for told in (calls, calls[:1], ()):
                live.doing(told)
                await asyncio.sleep(0)
            assert live.show("") in (True, False)
        left = await live.close()
        assert all(isinstance(one, str) for one in left)
        live.doing(())

    # How it is asked

    async def _hear(self, adapter: Adapter, text: str) -> Inbound:
        async with running(adapter, Desk()) as desk:
            await self.say(text)
            (inbound,) = await desk.have(1)
        return inbound

    def _need_buttons(self, adapter: Adapter) -> Cards:
        if not isinstance(adapter, Cards):
            pytest.skip("this platform has no buttons")
        return adapter

    def _need_redelivery(self) -> None:
        if not self.redelivers:
            pytest.skip("this platform brings nothing again")


def _texts(value: object) -> Iterator[str]:
    """Every text in a body."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
