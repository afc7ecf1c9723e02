"""The local Slack, driven by the unmodified slack_sdk: files in both directions, rate limits."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import aiohttp
import httpx
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from playground.slack import Answer, GarbageBody, Person, Redirect, ResetBefore, Slack

Json = dict[str, Any]


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack() as running:
        yield running


@pytest.fixture
def client(slack: Slack) -> AsyncWebClient:
    return AsyncWebClient(slack.token, base_url=f"{slack.url}/api/", retry_handlers=[])


@pytest.fixture
def alice(slack: Slack) -> Person:
    return slack.person("Alice")


async def refused(call: Awaitable[object]) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


async def fetch(url: str, token: str | None = None, **how: Any) -> httpx.Response:
    async with httpx.AsyncClient(**how) as http:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return await http.get(url, headers=headers)


# In


async def test_a_person_shares_a_file(slack: Slack, alice: Person) -> None:
    told = slack.share(alice, "cat.png", b"\x89PNG", "image/png", text="what is this?")
    (event,) = [delivery.event for delivery in told]
    assert (event["subtype"], event["text"]) == ("file_share", "what is this?")
    (file,) = event["files"]
    assert (file["name"], file["mimetype"], file["size"]) == ("cat.png", "image/png", 4)
    answer = await fetch(file["url_private_download"], slack.token)
    assert (answer.content, answer.headers["content-type"]) == (b"\x89PNG", "image/png")
    assert (await fetch(file["url_private"], slack.token)).content == b"\x89PNG"


async def test_without_text_in_a_channel_and_by_mention(slack: Slack, alice: Person) -> None:
    general = slack.channel("general")
    (silent,) = slack.share(alice, "a.pdf", b"%PDF", "application/pdf", general)
    assert silent.event["text"] == "" and "blocks" not in silent.event
    message, mention = slack.share(
        alice, "b.pdf", b"%PDF", "application/pdf", general, text="sum it up", mention=True
    )
    assert (message.event["subtype"], mention.event["type"]) == ("file_share", "app_mention")
    assert mention.event["files"] == message.event["files"]
    assert "subtype" not in mention.event
    root = silent.event["ts"]
    (reply,) = slack.share(
        alice, "c.m4a", b"x", "audio/mp4", general, thread=root, subtype="slack_audio"
    )
    assert (reply.event["thread_ts"], reply.event["files"][0]["subtype"]) == (root, "slack_audio")


async def test_a_file_is_not_for_everybody(slack: Slack, alice: Person) -> None:
    slack.workspace("Other", token="xoxb-other")
    (told,) = slack.share(alice, "a.txt", b"secret", "text/plain")
    url = told.event["files"][0]["url_private_download"]
    for token in (None, "xoxb-wrong", "xoxb-other", slack.app_token):
        answer = await fetch(url, token)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/html")
        assert b"secret" not in answer.content
    slack.revoke(slack.token)
    assert b"secret" not in (await fetch(url, slack.token)).content
    nothing = await fetch(f"{slack.url}/files-pri/{slack.team.id}-F0NONE/download/x", slack.token)
    assert nothing.status_code == 404
    async with Slack(scopes=frozenset({"chat:write", "im:history"})) as narrow:
        (told,) = narrow.share(narrow.person("Bob"), "a.txt", b"secret", "text/plain")
        answer = await fetch(told.event["files"][0]["url_private"], narrow.token)
        assert b"secret" not in answer.content


async def test_faults_of_downloads(slack: Slack, alice: Person) -> None:
    (told,) = slack.share(alice, "a.txt", b"hello", "text/plain")
    url = told.event["files"][0]["url_private_download"]
    slack.fault("files.download", Redirect("https://elsewhere.example/a.txt"))
    away = await fetch(url, slack.token)
    assert (away.status_code, away.headers["location"]) == (302, "https://elsewhere.example/a.txt")
    slack.fault("files.download", Answer(503))
    assert (await fetch(url, slack.token)).status_code == 503
    slack.fault("files.download", GarbageBody())
    assert b"hello" not in (await fetch(url, slack.token)).content
    slack.fault("files.download", ResetBefore())
    with pytest.raises(httpx.TransportError):
        await fetch(url, slack.token)
    assert (await fetch(url, slack.token)).content == b"hello"
    assert [call.status for call in slack.called("files.download")] == [302, 503, 200, 0, 200]


async def test_a_stub_asks_for_files_info(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    (told,) = slack.share(alice, "a.txt", b"hello", "text/plain", stub=True)
    (stub,) = told.event["files"]
    assert stub["file_access"] == "check_file_info" and "url_private" not in stub
    file = (await client.files_info(file=stub["id"]))["file"]
    assert (await fetch(file["url_private_download"], slack.token)).content == b"hello"
    assert await refused(client.files_info(file="F0NONE")) == "file_not_found"
    elsewhere = slack.channel("elsewhere", with_bot=False)
    slack.share(alice, "b.txt", b"hidden", "text/plain", elsewhere)
    hidden = next(iter(elsewhere.messages.values()))["files"][0]["id"]
    assert await refused(client.files_info(file=hidden)) == "file_not_found"


# Out


async def test_the_bot_uploads(slack: Slack, client: AsyncWebClient, alice: Person) -> None:
    slack.write(alice, "send me the table")
    direct = slack.chat(alice)
    root = next(iter(direct.messages))
    answer = await client.files_upload_v2(
        content="a,b\n1,2\n",
        filename="table.csv",
        title="The table",
        channel=direct.id,
        thread_ts=root,
        initial_comment="Here it is.",
    )
    assert answer["file"]["title"] == "The table"
    assert slack.files(alice) == {"table.csv": b"a,b\n1,2\n"}
    (sent,) = slack.sent(alice)
    assert (sent.text, sent.thread) == ("Here it is.", root)
    assert sent.raw["files"][0]["mimetype"] == "text/csv"
    event = slack.deliveries[-1].event
    assert (event["subtype"], event["bot_id"]) == ("file_share", slack.bot.bot_id)
    await client.files_upload_v2(file=b"\x00" * 10, filename="b.bin", channel=direct.id)
    assert slack.files(alice)["b.bin"] == b"\x00" * 10
    await client.files_delete(file=sent.raw["files"][0]["id"])
    assert list(slack.files(alice)) == ["b.bin"]


async def test_uploads_that_are_refused(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    elsewhere = slack.channel("elsewhere", with_bot=False)
    bad = client.files_getUploadURLExternal(filename="", length=1)
    assert await refused(bad) == "invalid_arguments"
    begun = await client.files_getUploadURLExternal(filename="a.txt", length=3)
    early = client.files_completeUploadExternal(files=[{"id": begun["file_id"]}])
    assert await refused(early) == "file_not_found"
    async with httpx.AsyncClient() as http:
        assert (await http.post(begun["upload_url"], content=b"1234")).status_code == 400
        assert (await http.post(begun["upload_url"], content=b"123")).text == "OK - 3"
        parts = {"file": ("a.txt", b"123")}
        assert (await http.post(begun["upload_url"], files=parts)).text == "OK - 3"
        assert (await http.post(f"{slack.url}/upload/v1/none", content=b"1")).status_code == 404
    files: list[Any] = [{"id": begun["file_id"]}]
    outside = client.files_completeUploadExternal(files=files, channel_id=elsewhere.id)
    assert await refused(outside) == "not_in_channel"
    lost = client.files_completeUploadExternal(
        files=files, channel_id=slack.chat(alice).id, thread_ts="1.000000"
    )
    assert await refused(lost) == "thread_not_found"
    (told,) = slack.share(alice, "hers.txt", b"x", "text/plain")
    hers = told.event["files"][0]["id"]
    assert await refused(client.files_delete(file=hers)) == "cant_delete_file"
    slack.fault("files.upload", ResetBefore())
    with pytest.raises(aiohttp.ClientError):
        await client.files_upload_v2(content="x", filename="x.txt", channel=slack.chat(alice).id)


# Rate limits


class Clock:
    now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_limits_are_off_unless_asked_for(slack: Slack, client: AsyncWebClient) -> None:
    general = slack.channel("general")
    for number in range(30):
        await client.chat_postMessage(channel=general.id, text=str(number))
    assert len(slack.sent(general)) == 30


async def test_a_post_a_second_and_tiers_a_minute() -> None:
    clock = Clock()
    async with Slack(limited=True, clock=clock) as slack:
        client = AsyncWebClient(slack.token, base_url=f"{slack.url}/api/", retry_handlers=[])
        one, two = slack.channel("one"), slack.channel("two")
        for number in range(5):
            await client.chat_postMessage(channel=one.id, text=str(number))
        with pytest.raises(SlackApiError) as caught:
            await client.chat_postMessage(channel=one.id, text="too many")
        response = caught.value.response
        assert (response.status_code, response["error"]) == (429, "ratelimited")
        assert response.headers["Retry-After"] == "5"
        await client.chat_postMessage(channel=two.id, text="elsewhere")
        clock.now += 5
        await client.chat_postMessage(channel=one.id, text="later")
        assert slack.texts(one) == [*"01234", "later"]
        for _ in range(50):
            await client.conversations_history(channel=one.id)
        with pytest.raises(SlackApiError) as caught:
            await client.conversations_history(channel=one.id)
        assert caught.value.response.headers["Retry-After"] == "60"
        other = slack.workspace("Other", token="xoxb-other")
        there = AsyncWebClient("xoxb-other", base_url=f"{slack.url}/api/", retry_handlers=[])
        await there.conversations_history(channel=slack.channel("x", team=other).id)


async def test_an_app_that_others_install_reads_little() -> None:
    clock = Clock()
    async with Slack(limited=True, distributed=True, clock=clock) as slack:
        client = AsyncWebClient(slack.token, base_url=f"{slack.url}/api/", retry_handlers=[])
        alice, general = slack.person("Alice"), slack.channel("general")
        for number in range(20):
            slack.write(alice, str(number), general)
        page = await client.conversations_history(channel=general.id, limit=100)
        assert len(page["messages"]) == 15 and page["has_more"]
        assert await refused(client.conversations_history(channel=general.id)) == "ratelimited"
        clock.now += 60
        await client.conversations_history(channel=general.id)
