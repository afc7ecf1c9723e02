"""`chinwag sessions`: what an operator sees of stored conversations, beside a bot that runs."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from bots.cli import cli
from bots.sessions import (
    export_session,
    forget,
    list_sessions,
    reset_session,
    retry_undelivered,
    show_session,
    undelivered,
)
from bots.settings import Settings, load_settings
from core import changes, outbox
from core.changes import Fence
from core.errors import ConfigError, InvalidKey, StoreInUse, StoreUnavailable
from core.memory import ConversationMemory
from core.messages import Inbound, Message, Sender, encode_blocks, text_block
from core.snapshot import Snapshot, Usage, decode
from core.store import BotStore, SessionRef
from core.transcript import Document
from stores.urls import open_store

NOON = 1_800_000_000_000  # 2027-01-15 08:00:00
KEY = "telegram-chat:42"
URLS = ("sqlite:chats/bot.db", "disk:chats/bot")


def answered(snapshot: Snapshot, number: int, answer: list[dict[str, object]]) -> Snapshot:
    """A whole turn later."""
    inbound = Inbound(
        f"u{number}", KEY, "message", Sender("telegram:42", "Ada"), f"question {number}", at=NOON
    )
    after = changes.accept(snapshot, inbound)
    after = changes.start(after, execution=f"e{number}", now=NOON, memory=ConversationMemory(4, 2))
    fence = Fence(after.epoch, f"e{number}")
    after = changes.commit(
        after, fence, [encode_blocks(answer)], ['"x"'], Usage(10, 5, 0, 100), NOON
    )
    assert after.next_part is not None
    after = outbox.delivered(after, after.next_part.id, (str(number),))
    return replace(after, revision=snapshot.revision + 1, model="anthropic/claude-sonnet-5-5")


async def fill(store: BotStore) -> None:
    ref = SessionRef(key=KEY)
    snapshot = changes.begin(revision=1, epoch="epoch", now=NOON)
    await store.save(ref, snapshot, replaces=None)
    for number in range(1, 7):
        after = answered(snapshot, number, [text_block(f"answer {number} \x1b[2J")])
        await store.save(ref, after, replaces=snapshot.revision)
        snapshot = after
    waiting = changes.accept(
        changes.begin(revision=1, epoch="epoch", now=NOON),
        Inbound("u1", "telegram-chat:7", "message", Sender("telegram:7"), "hello"),
    )
    await store.save(SessionRef(key="telegram-chat:7"), waiting, replaces=None)
    await store.save(
        SessionRef(key="console:default"),
        changes.begin(revision=1, epoch="epoch", now=NOON),
        replaces=None,
    )


def settings_for(folder: Path, url: str) -> Settings:
    (folder / "chats").mkdir(exist_ok=True)
    config = folder / "config.toml"
    config.write_text(f'[store]\nurl = "{url}"\n')
    return load_settings(config, {})


@pytest.fixture(params=URLS)
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    return settings_for(tmp_path, request.param)


@pytest.fixture
async def running(settings: Settings) -> AsyncIterator[BotStore]:
    """A bot that holds the store."""
    async with open_store(settings.store.url, settings.folder) as store:
        await fill(store)
        yield store


async def lines(found: AsyncIterator[str]) -> list[str]:
    return [line async for line in found]


async def test_list_beside_a_running_bot(settings: Settings, running: BotStore) -> None:
    head, *rows = await lines(list_sessions(settings, "", False))
    assert head.split() == ["last", "change", "messages", "key"]
    assert [row.split()[-1] for row in rows] == ["console:default", KEY, "telegram-chat:7"]
    assert [row.split()[0] for row in rows] == ["2027-01-15"] * 3
    assert ["unfinished" in row for row in rows] == [False, False, True]
    rows = await lines(list_sessions(settings, "telegram-", True))
    found = [json.loads(row) for row in rows]
    assert [each["key"] for each in found] == [KEY, "telegram-chat:7"]
    assert found[1]["unfinished"] is True
    assert found[0]["messages"] == (12 if settings.store.url.startswith("sqlite") else 4)
    assert len(await lines(list_sessions(settings, "slack-", False))) == 1


async def test_show_beside_a_running_bot(settings: Settings, running: BotStore) -> None:
    shown = "\n".join(await lines(show_session(settings, KEY)))
    assert "begun      2027-01-15 08:00:00" in shown
    assert "model      anthropic/claude-sonnet-5-5" in shown
    assert "tokens     60 in, 600 from cache, 30 out" in shown
    assert "waiting    0 to answer, 0 to send" in shown
    assert "user: question 6" in shown
    assert "assistant: answer 6" in shown
    assert "\x1b" not in shown, "no text commands the terminal"
    waiting = await lines(show_session(settings, "telegram-chat:7"))
    assert "waiting    1 to answer, 0 to send" in waiting


async def test_show_as_json_is_the_whole_snapshot(settings: Settings, running: BotStore) -> None:
    (line,) = await lines(show_session(settings, KEY, True))
    shown = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    assert decode(bytes(shown.pop("snapshot"))) == await running.load(SessionRef(key=KEY))
    assert {name: json.loads(bytes(value)) for name, value in shown.items()} == {
        "key": KEY,
        "calls": 0,
        "cost": "0.000000000000",
        "currency": "USD",
    }


async def test_show_reads_what_is_no_text(settings: Settings) -> None:
    blocks: list[dict[str, object]] = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
    ]
    message = Message(1, "assistant", encode_blocks(blocks), NOON)
    result = Message(
        2,
        "user",
        encode_blocks([{"type": "tool_result", "tool_use_id": "t1", "content": "rain"}]),
        NOON,
    )
    snapshot = replace(
        changes.begin(revision=1, epoch="epoch", now=NOON),
        messages=(message, result),
        spans=((1, 2),),
        next_seq=3,
        window=1,
    )
    async with open_store(settings.store.url, settings.folder) as store:
        await store.save(SessionRef(key=KEY), snapshot, replaces=None)
    shown = "\n".join(await lines(show_session(settings, KEY)))
    assert '[thinking]\n[calls weather with {"city":"Oslo"}]' in shown
    assert "user: [gets rain]" in shown


async def test_export_beside_a_running_bot(settings: Settings, running: BotStore) -> None:
    rows = [json.loads(row) for row in await lines(export_session(settings, KEY))]
    seqs = [row["seq"] for row in rows]
    assert seqs == sorted(seqs)
    assert rows[-1]["blocks"] == [text_block("answer 6 \x1b[2J")]
    if settings.store.url.startswith("sqlite"):
        assert [row["role"] for row in rows] == ["user", "assistant"] * 6, "trimmed ones included"
    else:
        assert [row["role"] for row in rows] == ["user", "assistant"] * 2, "it keeps the window"
    assert await lines(export_session(settings, "console:default")) == []


@pytest.mark.parametrize("form", ["html", "markdown", "json"])
async def test_an_export_may_be_a_document(
    settings: Settings, running: BotStore, form: str
) -> None:
    rows = [json.loads(row) for row in await lines(export_session(settings, KEY))]
    text = "\n".join(await lines(export_session(settings, KEY, form)))
    assert "answer 6" in text
    if form == "json":
        again = msgspec.json.decode(text, type=Document)
        assert [row.seq for row in again.messages] == [row["seq"] for row in rows]
    else:
        assert text.count("answer") == len(rows) / 2
    empty = "\n".join(await lines(export_session(settings, "console:default", form)))
    if form == "json":
        assert msgspec.json.decode(empty, type=Document).messages == ()


async def test_the_blobs_of_an_export_are_in_it(settings: Settings) -> None:
    async with open_store(settings.store.url, settings.folder) as store:
        id = await store.blobs.put(KEY, b"\x89PNG", "image/png")
        block: dict[str, object] = {
            "type": "image",
            "source": {"type": "blob", "id": id, "media_type": "image/png"},
        }
        row = Message(1, "user", encode_blocks([block]), 0, "telegram:1")
        snapshot = replace(
            changes.begin(revision=1, epoch="e", now=0),
            spans=((1, 1),),
            messages=(row,),
            next_seq=2,
        )
        await store.save(SessionRef(key=KEY), snapshot, replaces=None)
    html = "\n".join(await lines(export_session(settings, KEY, "html")))
    assert "data:image/png;base64,iVBORw==" in html
    text = "\n".join(await lines(export_session(settings, KEY, "json")))
    assert msgspec.json.decode(text, type=Document).blobs[id]["data"] == "iVBORw=="


async def test_pages_join_without_a_gap(
    settings: Settings, running: BotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (
        await lines(export_session(settings, KEY)),
        await lines(list_sessions(settings, "", True)),
    )
    for page in (1, 3):
        monkeypatch.setattr("bots.sessions.PAGE", page)
        monkeypatch.setattr("core.export.PAGE", page)
        again = (
            await lines(export_session(settings, KEY)),
            await lines(list_sessions(settings, "", True)),
        )
        assert again == whole


async def test_reset_needs_the_bot_to_be_stopped(settings: Settings) -> None:
    async with open_store(settings.store.url, settings.folder) as store:
        await fill(store)
        with pytest.raises(StoreInUse, match="stop it, or send /reset in the chat"):
            await lines(reset_session(settings, KEY))
        assert await store.load(SessionRef(key=KEY)) is not None
    assert await lines(reset_session(settings, KEY)) == [f"{KEY} is forgotten."]
    rows = await lines(list_sessions(settings, "", True))
    assert [json.loads(row)["key"] for row in rows] == ["console:default", "telegram-chat:7"]


async def test_an_unknown_key_is_said_to_be_one(settings: Settings, running: BotStore) -> None:
    for command in (show_session, export_session, reset_session):
        with pytest.raises(ConfigError, match="telegram-chat:9: no such conversation; `chinwag se"):
            await lines(command(settings, "telegram-chat:9"))
        for bad in ("", "x" * 300):
            with pytest.raises(InvalidKey):
                await lines(command(settings, bad))


async def test_without_a_store_none_is_made(settings: Settings) -> None:
    """The wrong folder must not look like an empty one, nor be one afterwards."""
    for found in (
        list_sessions(settings, "", False),
        show_session(settings, KEY),
        export_session(settings, KEY),
        reset_session(settings, KEY),
    ):
        with pytest.raises(StoreUnavailable):
            await lines(found)
    assert list((settings.folder / "chats").iterdir()) == []


async def test_reset_removes_what_cannot_be_read(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, URLS[0])
    async with open_store(settings.store.url, settings.folder) as store:
        await fill(store)
    database = sqlite3.connect(tmp_path / "chats" / "bot.db")
    database.execute("UPDATE sessions SET head = x'00' WHERE key = ?", (KEY,))
    database.commit()
    database.close()
    assert await lines(reset_session(settings, KEY)) == [f"{KEY} is forgotten."]


# ---------------------------------------------------------------------- the command line


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    settings = settings_for(tmp_path, URLS[0])

    async def make() -> None:
        async with open_store(settings.store.url, settings.folder) as store:
            await fill(store)

    asyncio.run(make())
    return tmp_path / "config.toml"


def invoke(*arguments: str, config: Path, typed: str = "") -> tuple[str, BaseException | None]:
    ran = CliRunner().invoke(cli, ["sessions", *arguments, "--config", str(config)], input=typed)
    return ran.output, ran.exception


def test_reset_asks_first(config: Path) -> None:
    said, error = invoke("reset", KEY, config=config, typed="n\n")
    assert f"Delete what was said in {KEY}?" in said
    assert isinstance(error, SystemExit)
    assert KEY in invoke("list", config=config)[0]
    said, error = invoke("reset", KEY, config=config, typed="y\n")
    assert error is None
    assert KEY not in invoke("list", config=config)[0]


def test_forget_asks_and_takes_a_person_or_a_conversation(config: Path) -> None:
    for wrong in ((), ("a:1", "--sender", "t:1")):
        _, error = invoke("forget", *wrong, config=config)
        assert isinstance(error, SystemExit) and error.code == 2
    said, error = invoke("forget", KEY, config=config, typed="n\n")
    assert f"Delete everything of {KEY}?" in said and isinstance(error, SystemExit)
    said, error = invoke("forget", KEY, "--yes", config=config)
    assert error is None and f"{KEY} is forgotten" in said
    assert "in no file of the store any more" in said
    assert KEY not in invoke("list", config=config)[0]
    _, error = invoke("forget", KEY, "--yes", config=config)
    assert isinstance(error, ConfigError)
    said, error = invoke("forget", "--sender", "telegram:9999", "--yes", config=config)
    assert error is None and "conversations deleted  0" in said


async def test_a_person_is_forgotten_by_the_operator(settings: Settings) -> None:
    async with open_store(settings.store.url, settings.folder) as store:
        await fill(store)
        rows = [row async for row in store.archive(SessionRef(key=KEY))]
        sender = next(row.sender for row in rows if row.sender)
    said = await lines(forget(settings, None, sender))
    assert not said[0].endswith(" 0")
    async with open_store(settings.store.url, settings.folder) as store:
        assert [key async for key in store.spoken_by(sender)] == []


async def test_what_was_set_aside_is_forgotten_by_its_key(settings: Settings) -> None:
    async with open_store(settings.store.url, settings.folder) as store:
        await fill(store)
        await store.set_aside(SessionRef(key=KEY))
    assert await lines(forget(settings, KEY, None))
    with pytest.raises(ConfigError, match="no such conversation"):
        await lines(forget(settings, KEY, None))


def test_export_into_a_file(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    _, error = invoke("export", "telegram-chat:9", "--output", str(file), config=config)
    assert isinstance(error, ConfigError)
    assert not file.exists(), "no empty file is left"
    said, error = invoke("export", KEY, "--output", str(file), config=config)
    assert (said, error) == ("", None)
    assert len(file.read_text().splitlines()) == 12
    assert file.stat().st_mode & 0o077 == 0
    _, error = invoke("export", KEY, "--output", str(file), config=config)
    assert "exists already; name another file" in str(error)
    _, error = invoke("export", KEY, "--output", str(tmp_path / "no" / "such"), config=config)
    assert "cannot be written: No such file or directory" in str(error)
    assert isinstance(error, ConfigError)


async def test_what_could_not_be_sent_is_listed_and_can_be_sent_after_all(
    settings: Settings,
) -> None:
    ref = SessionRef(key=KEY)
    async with open_store(settings.store.url, settings.folder) as store:
        await fill(store)
        before = await store.load(ref)
        assert before is not None
        inbound = Inbound("u9", KEY, "command", Sender("telegram:42"), "/id")
        after = outbox.gone(changes.reply(before, inbound, ['{"text":"lost words\\n\x1b[2J"}']))
        after = replace(after, revision=before.revision + 1)
        await store.save(ref, after, replaces=before.revision)
    lines = [line async for line in undelivered(settings, "telegram")]
    assert lines[0] == f"{KEY}  failed: {outbox.GONE}"
    assert "lost words" in lines[1] and "\x1b" not in lines[1]
    assert [line async for line in undelivered(settings, "console")] == []
    for answer in ("next start", "was delivered"):
        (line,) = [line async for line in retry_undelivered(settings, KEY)]
        assert answer in line
    async with open_store(settings.store.url, settings.folder) as store:
        assert {key async for key in store.unfinished()} == {KEY, "telegram-chat:7"}
    with pytest.raises(ConfigError, match="no such conversation"):
        assert [line async for line in retry_undelivered(settings, "telegram-chat:99")]
