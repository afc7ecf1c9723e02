"""The page's server: who may look, what may be done, and what the feed tells."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from playground import feed as feeds
from playground.__main__ import people
from playground.acting import picture
from playground.claude import Claude
from playground.claude_answers import Say
from playground.feed import Feed
from playground.lab import Lab
from playground.serve import serving
from playground.show import LAST_MESSAGES, Show
from playground.slack_view import tree
from playground.web import Web

TOKEN = "let-me-in"
Json = dict[str, Any]


class Page(NamedTuple):
    lab: Lab
    url: str
    http: aiohttp.ClientSession

    async def do(self, what: str, **given: object) -> tuple[int, Json]:
        async with self.http.post(f"{self.url}/do/{what}", json=given) as answer:
            return answer.status, await answer.json()

    async def say(self, text: str, person: int, chat: int | None = None, **more: object) -> Json:
        status, body = await self.do("say", person=person, chat=chat or person, text=text, **more)
        assert status == 200, body
        return body


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with Lab(tmp_path) as lab, aiohttp.ClientSession() as http:
        people(lab)
        show = Show(lab, Feed(), real=False)
        async with serving(Web(lab, show, TOKEN, None).app) as url:
            yield Page(lab, f"{url}/{TOKEN}", http)
        show.close()


async def events(page: Page, wanted: int) -> list[tuple[str, Json]]:
    """The first events of the feed."""
    found: list[tuple[str, Json]] = []
    async with asyncio.timeout(20), page.http.get(f"{page.url}/events") as answer:
        assert answer.content_type == "text/event-stream"
        kind = ""
        while len(found) < wanted:
            # The whole state is one line, longer than a line of aiohttp's may be.
            line = await answer.content.readuntil(b"\n")
            if line.startswith(b"event: "):
                kind = line[7:].decode().strip()
            elif line.startswith(b"data: "):
                found.append((kind, json.loads(line[6:])))
    return found


async def test_nothing_without_the_token(page: Page) -> None:
    root = page.url.removesuffix(f"/{TOKEN}")
    for path in (
        "/",
        "/wrong/",
        "/wrong/events",
        "/wrong/app.js",
        "/wrong/history?chat=1&before=9",
    ):
        async with page.http.get(root + path) as answer:
            assert answer.status == 404
    async with page.http.post(f"{root}/wrong/do/kill") as answer:
        assert answer.status == 404
    async with page.http.get(f"{page.url}/", headers={"host": "elsewhere.example"}) as answer:
        assert answer.status == 400


async def test_everything_comes_from_here(page: Page) -> None:
    for name in ("", "app.js", "style.css", "icon.svg"):
        async with page.http.get(f"{page.url}/{name}") as answer:
            assert answer.status == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["x-content-type-options"] == "nosniff"
            text = await answer.text()
            assert "https://" not in text and " style=" not in text and 'onclick="' not in text
    for name in ("..%2fweb.py", "web.py", "nothing.js", "index.html"):
        async with page.http.get(f"{page.url}/{name}") as answer:
            assert answer.status == 404


async def test_the_feed_begins_with_all_there_is_and_goes_on(page: Page) -> None:
    alice = page.lab.telegram.chats[0].id
    reading = asyncio.create_task(events(page, 3))
    await page.lab.until(lambda: reading.done() or _readers(page) > 0, "somebody reads")
    await page.say("hello", alice)
    (first, state), *rest = await reading
    assert first == "state"
    titles = [chat["title"] for chat in state["telegram"]["chats"]]
    assert titles == ["Alice", "Bob", "Carol", "Friends", "Garden", "Kitchen"]
    titles = [chat["title"] for chat in state["slack"]["chats"]]
    assert titles == ["Alice", "Bob", "Carol", "general", "harbour"]
    assert state["bot"]["state"] == "stopped"
    messages = [data for kind, data in rest if kind == "message"]
    assert messages[0]["text"] == "hello" and messages[0]["place"] == f"telegram:{alice}"


def _readers(page: Page) -> int:
    (hear,) = [each for each in page.lab.listeners if getattr(each, "__self__", None)][:1]
    show = hear.__self__  # type: ignore[attr-defined]
    assert isinstance(show, Show)
    return len(show.feed)


async def test_people_write_edit_and_reply_in_a_topic(page: Page) -> None:
    telegram = page.lab.telegram
    alice, forum = telegram.chats[0].id, telegram.chats[4]
    thread = next(iter(forum.topics))
    await page.say("first", alice, forum.id, thread=thread)
    first = forum.last_id
    await page.say("second", alice, forum.id, thread=thread, reply_to=first)
    assert forum.messages[forum.last_id]["reply_to_message"]["message_id"] == first
    status, _ = await page.do("edit", person=alice, chat=forum.id, message=first, text="1st")
    assert status == 200 and forum.messages[first]["text"] == "1st"
    # What cannot be is said in a sentence.
    bob = telegram.chats[1].id
    status, body = await page.do("edit", person=bob, chat=forum.id, message=first, text="no")
    assert (status, body) == (400, {"error": f"message {first} is not from Bob"})
    status, body = await page.do("stop", person=alice)
    assert (status, body) == (400, {"error": "Alice sees no draft that can be stopped"})
    async with page.http.post(f"{page.url}/do/kick", json={}) as answer:
        assert answer.status == 404
    async with page.http.post(f"{page.url}/do/say", data=b"[1]") as answer:
        assert answer.status == 400


async def test_people_write_in_a_thread_on_slack(page: Page) -> None:
    slack = page.lab.slack
    people = {each.name: each.id for each in slack.team.people.values()}
    general = next(each for each in slack.team.channels.values() if each.name == "general")

    async def do(what: str, **given: object) -> tuple[int, Json]:
        about = {"platform": "slack", "chat": general.id, "person": people["Alice"]}
        return await page.do(what, **{**about, **given})

    assert await do("say", text="@Playground hello") == (200, {})
    (root,) = general.messages
    assert general.messages[root]["text"] == f"<@{slack.bot.id}> hello"
    await do("say", text="more", thread=root)
    await do("say", text="else", person=people["Bob"])
    assert (await do("edit", message=root, text="hi"))[0] == 200
    status, body = await do("edit", message=root, text="no", person=people["Bob"])
    assert (status, body) == (400, {"error": f"message {root} is not from Bob"})
    ((_, state),) = await events(page, 1)
    shown = [(each["text"], each["thread"]) for each in state["slack"]["messages"]]
    assert shown == [("hi", None), ("more", root), ("else", None)], "a thread is together"
    query = f"platform=slack&chat={general.id}&before={list(general.messages)[-1]}"
    async with page.http.get(f"{page.url}/history?{query}") as answer:
        assert [each["text"] for each in await answer.json()] == ["hi", "more"]


def test_markdown_is_elements_and_never_html() -> None:
    assert tree("**a** <b>x</b> [l](https://x.org)\n\n- one\n- `two`\n") == [
        {
            "tag": "p",
            "children": [
                {"tag": "strong", "children": ["a"]},
                " <b>x</b> ",
                {"tag": "a", "href": "https://x.org", "children": ["l"]},
            ],
        },
        {
            "tag": "ul",
            "children": [
                {"tag": "li", "children": [{"tag": "p", "children": ["one"]}]},
                {
                    "tag": "li",
                    "children": [{"tag": "p", "children": [{"tag": "code", "children": ["two"]}]}],
                },
            ],
        },
    ]
    assert tree("```py\nx\n```") == [
        {"tag": "pre", "children": [{"tag": "code", "children": ["x"]}]}
    ]


@pytest.mark.parametrize("platform", ["telegram", "slack"])
async def test_a_person_sends_a_file(page: Page, platform: str) -> None:
    ((_, state),) = await events(page, 1)
    place = state[platform]["chats"][0]
    about = {"platform": platform, "person": place["person"], "chat": place["chat"]}
    png = b"\x89PNG\r\n\x1a\n" + bytes(40)
    for name, data, kind in (("a.png", png, "image/png"), ("a.html", b"<script>", "text/html")):
        file = {"name": name, "type": kind, "data": base64.b64encode(data).decode()}
        assert await page.do("say", text="look", file=file, **about) == (200, {})
    ((_, state),) = await events(page, 1)
    first, second = state[platform]["messages"]
    assert first["text"] == "look" and first["file"]["there"]
    urls = [f"{page.url}/file/{platform}/{place['chat']}/{each['id']}" for each in (first, second)]
    async with page.http.get(urls[0]) as answer:
        assert answer.content_type == "image/png" and await answer.read() == png
    async with page.http.get(urls[1]) as answer:
        # Whoever opens it does not run it.
        assert answer.content_type == "application/octet-stream"
        assert answer.headers["content-disposition"] == "attachment"
        assert await answer.read() == b"<script>"
    async with page.http.get(f"{urls[1]}9") as answer:
        assert answer.status == 404
    file = {"name": "x", "data": "no base64!"}
    assert (await page.do("say", text="", file=file, **about))[0] == 400


async def test_older_messages_come_when_asked_for(page: Page) -> None:
    telegram = page.lab.telegram
    alice = telegram.chats[0]
    assert alice.person is not None
    for number in range(LAST_MESSAGES + 30):
        telegram.write(alice.person, f"message {number}")
    ((_, state),) = await events(page, 1)
    there = [each for each in state["telegram"]["messages"]]
    assert len(there) == LAST_MESSAGES and there[0]["text"] == "message 30"
    query = f"chat={alice.id}&before={there[0]['id']}"
    async with page.http.get(f"{page.url}/history?{query}") as answer:
        older = await answer.json()
    assert [each["text"] for each in older] == [f"message {number}" for number in range(30)]
    async with page.http.get(f"{page.url}/history?chat=5&before=x") as answer:
        assert answer.status == 404


async def test_kill_and_trouble_by_button(page: Page) -> None:
    await page.lab.start()
    before = page.lab.bot.pid
    assert (await page.do("kill"))[0] == 200
    assert page.lab.bot.kills == 1 and page.lab.bot.pid not in (None, before)
    assert (await page.do("trouble", name="429", on=True))[0] == 200
    assert page.lab.troubles.left("429") == 2
    assert (await page.do("trouble", name="429", on=False))[0] == 200
    assert page.lab.troubles.left("429") == 0
    status, body = await page.do("model", which="real")
    assert status == 400 and "ANTHROPIC_API_KEY" in body["error"]
    status, body = await page.do("trouble", name="fire", on=True)
    assert status == 400 and "no trouble" in body["error"]


async def test_the_real_model_only_when_a_person_chooses_it(tmp_path: Path) -> None:
    async with (
        Claude() as elsewhere,
        Lab(tmp_path) as lab,
        aiohttp.ClientSession() as http,
    ):
        people(lab)
        real = {"ANTHROPIC_API_KEY": "of-a-person", "ANTHROPIC_BASE_URL": elsewhere.url}
        show = Show(lab, Feed(), real=True)
        async with serving(Web(lab, show, TOKEN, real).app) as url:
            page = Page(lab, f"{url}/{TOKEN}", http)
            await lab.start()
            alice = lab.telegram.chats[0]
            await page.say("my name is Alice", alice.id)
            await lab.telegram.wait_for(1, alice, timeout=20)
            assert elsewhere.requests == [] and show.bot()["model"] == "stand-in"
            elsewhere.script(Say("I am the real one."))
            assert (await page.do("model", which="real"))[0] == 200
            await page.say("and who are you?", alice.id)
            await lab.telegram.wait_for(2, alice, timeout=20)
            assert lab.telegram.texts(alice)[1] == "I am the real one."
            assert elsewhere.headers[0]["authorization"] == "Bearer of-a-person"
            assert len(elsewhere.requests[0]["messages"]) == 3, "the conversation goes on"
            assert (await page.do("model", which="stand-in"))[0] == 200
            await page.say("what is my name?", alice.id)
            await lab.telegram.wait_for(3, alice, timeout=20)
            assert lab.telegram.texts(alice)[2] == "Your name is Alice."
            assert len(elsewhere.requests) == 1
        show.close()


async def test_who_reads_too_slowly_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MOST_UNREAD", 3)
    feed = Feed()
    reading = feed.read(lambda: "first")
    assert await anext(reading) == "first"
    for number in range(5):
        feed.publish("n", {"number": number})
    assert not feed, "it is nobody's any more"
    text = await anext(reading)
    assert text.count("event: n\n") == 3
    with pytest.raises(StopAsyncIteration):
        await anext(reading)


def test_only_pictures_are_shown() -> None:
    assert picture(b"\x89PNG\r\n\x1a\n...") == "image/png"
    assert picture(b"RIFF....WEBPVP8 ") == "image/webp"
    assert picture(b"<svg onload=alert(1)>") is None
    assert picture(os.urandom(0)) is None
