"""Files on Telegram: pictures as pictures where it takes them, all else as documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from bots.contracts.adapter import PNG
from bots.telegram.adapter import TelegramAdapter
from bots.telegram.sending import MAX_PHOTO
from core.errors import Gone, OutcomeUnknown, TryLater, Undeliverable
from core.messages import File, Outbound
from core.model import ToolCall
from core.results import File as ToolFile
from core.results import Image
from core.tools import tool
from playground.telegram import OLDEST, Answer, Fault, ResetAfter, Telegram
from tests.bots.telegram.rig import SECOND, Rig
from tests.bots.telegram.test_adapter import key, make
from tests.core.fakes import calls

PICTURE = File("chart.png", "image/png", blob="sha256:" + "0" * 64)


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as server:
        yield server


@pytest.fixture
async def adapter(telegram: Telegram) -> AsyncIterator[TelegramAdapter]:
    adapter = make(telegram)
    yield adapter
    await adapter.close()


async def send(
    adapter: TelegramAdapter, to: str, data: bytes = PNG, file: File = PICTURE
) -> tuple[str, ...]:
    part = Outbound("part", "", file=file)
    return (await adapter.send_file(to, part, data, uncertain=False)).message_ids


def methods(telegram: Telegram) -> list[str]:
    return [call.method for call in telegram.calls]


@pytest.mark.parametrize(
    ("media_type", "data", "expected"),
    [
        ("image/png", PNG, ["sendPhoto"]),
        ("image/jpeg", b"\xff\xd8\xff rest", ["sendPhoto"]),
        ("image/gif", b"GIF89a rest", ["sendDocument"]),
        ("image/svg+xml", b"<svg/>", ["sendDocument"]),
        ("text/csv", b"a,b", ["sendDocument"]),
        ("image/png", b"none at all", ["sendPhoto", "sendDocument"]),
        ("image/png", PNG + bytes(MAX_PHOTO), ["sendDocument"]),
    ],
    ids=["png", "jpeg", "gif", "svg", "csv", "no picture", "too large"],
)
async def test_as_what_it_is_sent(
    telegram: Telegram,
    adapter: TelegramAdapter,
    media_type: str,
    data: bytes,
    expected: list[str],
) -> None:
    alice = telegram.person("Alice")
    file = File("a file.x", media_type, blob="b")
    assert await send(adapter, key(alice), data, file) == (str(telegram.sent(alice)[0].message_id),)
    assert telegram.files(alice) == {"a file.x": data}
    assert methods(telegram) == expected


async def test_a_file_on_this_machine_is_never_read(
    telegram: Telegram, adapter: TelegramAdapter
) -> None:
    alice = telegram.person("Alice")
    for media_type in ("image/png", "text/plain"):
        file = File(__file__, media_type, blob="b")
        await send(adapter, key(alice), b"/etc/hostname", file)
    assert set(telegram.files(alice).values()) == {b"/etc/hostname"}


async def test_a_topic_that_is_gone_then_the_chat(
    telegram: Telegram, adapter: TelegramAdapter
) -> None:
    forum = telegram.supergroup("Forum", forum=True)
    thread = forum.topic("Cats")
    await send(adapter, key(forum, thread))
    forum.remove_topic(thread)
    await send(adapter, key(forum, thread))
    await send(adapter, key(forum, thread), b"a", File("a.txt", "text/plain", blob="b"))
    assert [sent.thread for sent in telegram.sent(forum)] == [thread, None, None]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Answer(403, "Forbidden: bot was blocked by the user"), Gone),
        (Answer(400, "Bad Request: chat not found"), Gone),
        (Answer(429, retry_after=7), TryLater),
        (Answer(401, "Unauthorized"), TryLater),
        (Answer(413, "Request Entity Too Large"), Undeliverable),
        (Answer(502, html=True), OutcomeUnknown),
        (ResetAfter(), OutcomeUnknown),
    ],
    ids=str,
)
async def test_what_a_fault_means(
    telegram: Telegram, adapter: TelegramAdapter, fault: Fault, expected: type[Exception]
) -> None:
    alice = telegram.person("Alice")
    telegram.fault("sendPhoto", fault)
    with pytest.raises(expected):
        await send(adapter, key(alice))
    assert methods(telegram) == ["sendPhoto"]


async def test_a_server_without_pictures_and_one_without_files(telegram: Telegram) -> None:
    alice = telegram.person("Alice")
    telegram.knows(*OLDEST)
    adapter = make(telegram)
    for _ in range(2):
        await send(adapter, key(alice))
    assert Counter(methods(telegram)) == {"sendPhoto": 1, "sendDocument": 2}
    telegram.knows("sendMessage")
    for _ in range(2):
        with pytest.raises(Undeliverable):
            await send(adapter, key(alice))
    await adapter.close()


# ---------------------------------------------------------------------- from a tool


@tool
def draw() -> list[object]:
    """Draw."""
    return [Image(PNG, name="chart.png", send=True), ToolFile(b"a,b", "t.csv", send=True)]


DRAWN = calls(ToolCall("c1", "draw", {}))


@pytest.mark.parametrize("where", ["group", "private"])
async def test_what_a_tool_has_comes_after_the_answer_at_the_pace_of_the_chat(where: str) -> None:
    async with Rig(DRAWN, "Here it is. " * 10, seconds=3.0, tools=[draw]) as rig:
        alice = rig.telegram.person("Alice")
        group = rig.telegram.group("Friends", owner=alice)
        place = group if where == "group" else alice
        rig.telegram.fault("sendPhoto", Answer(429, retry_after=4))
        rig.telegram.write(alice, "draw", place, mention=where == "group")
        await rig.until(lambda: len(rig.telegram.files(place)) == 2)
        await rig.quiet(place)
        assert rig.telegram.files(place) == {"chart.png": PNG, "t.csv": b"a,b"}
        ordered = [call.method for call in rig.leaving(place) if call.status == 200]
        assert ordered[-2:] == ["sendPhoto", "sendDocument"]
        assert ordered.count("sendMessage") == 1
        rig.assert_paced(place)
        first, again = (call.at for call in rig.leaving(place) if call.method == "sendPhoto")
        assert again - first >= 4 * SECOND


async def test_a_server_without_files_says_so() -> None:
    async with Rig(DRAWN, "Here it is.", tools=[draw], streaming="off") as rig:
        rig.telegram.knows("getMe", "getUpdates", "sendMessage")
        alice = rig.telegram.person("Alice")
        rig.telegram.write(alice, "draw")
        await rig.until(lambda: len(rig.telegram.texts(alice)) == 3)
        assert rig.telegram.texts(alice) == [
            "Here it is.",
            "[chart.png could not be sent here.]",
            "[t.csv could not be sent here.]",
        ]
