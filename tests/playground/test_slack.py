"""The local Slack, driven by the unmodified slack_sdk over a real socket: the Web API."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import aiohttp
import httpx
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from playground.slack import (
    Answer,
    Channel,
    Delay,
    Error,
    GarbageBody,
    ResetAfter,
    ResetBefore,
    Slack,
)


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack() as running:
        yield running


@pytest.fixture
def client(slack: Slack) -> AsyncWebClient:
    return web(slack)


def web(slack: Slack, token: str | None = None, **more: Any) -> AsyncWebClient:
    more.setdefault("retry_handlers", [])
    return AsyncWebClient(token or slack.token, base_url=f"{slack.url}/api/", **more)


async def refused(call: Awaitable[object]) -> str:
    """The error that a call gets."""
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


def texts(answer: AsyncSlackResponse) -> list[str]:
    return [message["text"] for message in answer["messages"]]


async def raw(slack: Slack, method: str, **how: Any) -> httpx.Response:
    async with httpx.AsyncClient() as http:
        headers = {"Authorization": f"Bearer {slack.token}"}
        if "content" in how:
            headers["Content-Type"] = "application/json; charset=utf-8"
        return await http.post(f"{slack.url}/api/{method}", headers=headers, **how)


# Who


async def test_the_bot_knows_itself(slack: Slack, client: AsyncWebClient) -> None:
    me = await client.auth_test()
    assert (me["team_id"], me["user_id"], me["bot_id"]) == (
        slack.team.id,
        slack.bot.id,
        slack.bot.bot_id,
    )
    profile = (await client.bots_info(bot=slack.bot.bot_id))["bot"]
    assert (profile["user_id"], profile["app_id"]) == (slack.bot.id, slack.application.id)


@pytest.mark.parametrize(
    ("token", "error"),
    [("xoxb-other", "invalid_auth"), ("", "not_authed")],
)
async def test_tokens_that_are_none(slack: Slack, token: str, error: str) -> None:
    async with httpx.AsyncClient() as http:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = await http.post(f"{slack.url}/api/auth.test", headers=headers)
    assert answer.json() == {"ok": False, "error": error}


async def test_a_token_that_is_no_good_any_more(slack: Slack, client: AsyncWebClient) -> None:
    slack.revoke(slack.token, "account_inactive")
    assert await refused(client.auth_test()) == "account_inactive"


async def test_each_method_wants_its_kind_of_token(slack: Slack, client: AsyncWebClient) -> None:
    assert await refused(client.apps_connections_open(app_token=slack.token)) == (
        "not_allowed_token_type"
    )
    alice = slack.person("Alice")
    posting = web(slack, slack.app_token).chat_postMessage(channel=alice.id, text="x")
    assert await refused(posting) == "not_allowed_token_type"
    assert await refused(client.api_call("chat.nonsense")) == "unknown_method"


async def test_people_and_members(slack: Slack, client: AsyncWebClient) -> None:
    alice, bob = slack.person("Alice Cooper"), slack.person("Bob", guest=True, admin=True)
    ci = slack.other_bot("CI")
    general = slack.channel("general", [alice, bob, ci])
    user = (await client.users_info(user=alice.id))["user"]
    assert (user["real_name"], user["team_id"], user["is_bot"]) == (
        "Alice Cooper",
        slack.team.id,
        False,
    )
    user = (await client.users_info(user=bob.id))["user"]
    assert (user["is_restricted"], user["is_admin"]) == (True, True)
    assert (await client.users_info(user=ci.id))["user"]["is_bot"]
    assert await refused(client.users_info(user="U0NOBODY")) == "user_not_found"
    assert await refused(client.bots_info(bot="B0NOBODY")) == "bot_not_found"
    page = await client.conversations_members(channel=general.id, limit=3)
    assert page["members"] == [alice.id, bob.id, ci.id]
    cursor = page["response_metadata"]["next_cursor"]
    page = await client.conversations_members(channel=general.id, limit=3, cursor=cursor)
    assert page["members"] == [slack.bot.id]
    assert page["response_metadata"]["next_cursor"] == ""
    everybody = [user["id"] for user in (await client.users_list())["members"]]
    assert set(everybody) == {alice.id, bob.id, ci.id, slack.bot.id}


async def test_channels(slack: Slack, client: AsyncWebClient) -> None:
    alice = slack.person("Alice")
    general = slack.channel("general", [alice])
    secret = slack.channel("secret", [alice], private=True, with_bot=False)
    direct = slack.chat(alice)
    about = (await client.conversations_info(channel=general.id))["channel"]
    assert (about["name"], about["is_channel"], about["is_member"]) == ("general", True, True)
    about = (await client.conversations_info(channel=direct.id))["channel"]
    assert (about["is_im"], about["user"]) == (True, alice.id)
    assert await refused(client.conversations_info(channel=secret.id)) == "channel_not_found"
    opened = await client.conversations_open(users=alice.id)
    assert opened["channel"]["id"] == direct.id
    listed = await client.conversations_list(types="public_channel,private_channel")
    assert [channel["id"] for channel in listed["channels"]] == [general.id]
    await client.conversations_leave(channel=general.id)
    posting = client.chat_postMessage(channel=general.id, text="x")
    assert await refused(posting) == "not_in_channel"
    await client.conversations_join(channel=general.id)
    await client.chat_postMessage(channel=general.id, text="back")
    assert slack.texts(general) == ["back"]


async def test_the_same_channel_id_in_two_workspaces(slack: Slack, client: AsyncWebClient) -> None:
    other = slack.workspace("Other", token="xoxb-other")
    here = slack.channel("general")
    there = slack.channel("general", team=other, channel_id=here.id)
    await client.chat_postMessage(channel=here.id, text="here")
    await web(slack, "xoxb-other").chat_postMessage(channel=there.id, text="there")
    assert (slack.texts(here), slack.texts(there)) == (["here"], ["there"])
    assert slack.called("chat.postMessage")[1].team == other.id
    them = await web(slack, "xoxb-other").auth_test()
    assert (them["team_id"], them["team"]) == (other.id, "Other")


# Posting


async def test_a_post_as_slack_answers_it(slack: Slack, client: AsyncWebClient) -> None:
    alice = slack.person("Alice")
    answer = await client.chat_postMessage(channel=alice.id, text="a &lt; b, <@U0X> <!here>")
    direct = slack.chat(alice)
    (sent,) = slack.sent(alice)
    assert (answer["channel"], answer["ts"]) == (direct.id, sent.ts)
    message = answer["message"]
    assert (message["user"], message["bot_id"]) == (slack.bot.id, slack.bot.bot_id)
    assert message["bot_profile"]["app_id"] == message["app_id"] == slack.application.id
    assert message["text"] == "a &lt; b, <@U0X> <!here>"
    assert sent.text == "a < b, <@U0X> <!here>"
    elements = message["blocks"][0]["elements"][0]["elements"]
    assert [element["type"] for element in elements] == ["text", "user", "text", "broadcast"]
    assert slack.pings(alice) == ["here"]


async def test_forms_and_json_are_the_same(slack: Slack) -> None:
    alice = slack.person("Alice")
    blocks = [{"type": "markdown", "text": "**hi**"}]
    given: dict[str, Any] = {"channel": alice.id, "text": "hi", "blocks": blocks}
    assert (await raw(slack, "chat.postMessage", json=given)).json()["ok"]
    form = given | {"blocks": '[{"type": "markdown", "text": "**hi**"}]'}
    assert (await raw(slack, "chat.postMessage", data=form)).json()["ok"]
    assert (await raw(slack, "chat.postMessage", params=form)).json()["ok"]
    token = form | {"token": slack.token}
    async with httpx.AsyncClient() as http:
        assert (await http.post(f"{slack.url}/api/chat.postMessage", data=token)).json()["ok"]
        parts = [(name, (None, value)) for name, value in token.items()]
        answer = await http.post(f"{slack.url}/api/chat.postMessage", files=parts)
        assert answer.json()["ok"]
    assert slack.texts(alice) == ["**hi**"] * 5
    for content, error in ((b"{", "invalid_json"), (b"[]", "json_not_object")):
        answer = await raw(slack, "auth.test", content=content)
        assert answer.json() == {"ok": False, "error": error}


async def test_pings_are_those_that_slack_would_make(slack: Slack, client: AsyncWebClient) -> None:
    alice = slack.person("Alice")
    await client.chat_postMessage(channel=alice.id, text="&lt;!channel&gt;")
    assert slack.pings(alice) == []
    await client.chat_postMessage(channel=alice.id, markdown_text="<!channel> now")
    section = {"type": "section", "text": {"type": "mrkdwn", "text": "<!everyone|all>"}}
    await client.chat_postMessage(channel=alice.id, text="x", blocks=[section])
    plain = {"type": "section", "text": {"type": "plain_text", "text": "<!everyone>"}}
    await client.chat_postMessage(channel=alice.id, text="x", blocks=[plain])
    assert slack.pings(alice) == ["channel", "everyone"]


async def test_what_is_refused(slack: Slack, client: AsyncWebClient) -> None:
    alice, general = slack.person("Alice"), slack.channel("general")
    elsewhere = slack.channel("elsewhere", with_bot=False)
    closed = slack.channel("closed")
    closed.archived = True
    many = [{"type": "divider"}] * 51
    long = [{"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3001}}]
    cases: list[tuple[str, dict[str, Any]]] = [
        ("channel_not_found", {"channel": "C0NOWHERE", "text": "x"}),
        ("channel_not_found", {"channel": "U0NOBODY", "text": "x"}),
        ("not_in_channel", {"channel": elsewhere.id, "text": "x"}),
        ("is_archived", {"channel": closed.id, "text": "x"}),
        ("no_text", {"channel": general.id, "text": " "}),
        ("no_text", {"channel": general.id, "markdown_text": ""}),
        ("msg_too_long", {"channel": general.id, "text": "x" * 40_001}),
        ("msg_too_long", {"channel": general.id, "markdown_text": "x" * 12_001}),
        ("markdown_text_conflict", {"channel": general.id, "text": "x", "markdown_text": "x"}),
        ("thread_not_found", {"channel": general.id, "text": "x", "thread_ts": "1.000001"}),
        ("invalid_blocks", {"channel": general.id, "text": "x", "blocks": many}),
        ("invalid_blocks", {"channel": general.id, "text": "x", "blocks": long}),
        ("invalid_blocks", {"channel": general.id, "text": "x", "blocks": [{"type": "odd"}]}),
        ("invalid_blocks_format", {"channel": general.id, "text": "x", "blocks": "[1]"}),
        (
            "msg_blocks_too_long",
            {
                "channel": general.id,
                "text": "x",
                "blocks": [{"type": "markdown", "text": "x" * 6_001}] * 2,
            },
        ),
        ("invalid_metadata_schema", {"channel": general.id, "text": "x", "metadata": {"a": 1}}),
        ("invalid_arguments", {"text": "x"}),
        ("invalid_arguments", {"channel": general.id, "text": 7}),
        ("invalid_arguments", {"channel": general.id, "markdown_text": 7}),
        ("invalid_attachments", {"channel": general.id, "attachments": "x"}),
        ("invalid_metadata_format", {"channel": general.id, "text": "x", "metadata": "x"}),
        (
            "metadata_too_large",
            {
                "channel": general.id,
                "text": "x",
                "metadata": {"event_type": "x", "event_payload": {"a": "x" * 16_000}},
            },
        ),
    ]
    for error, given in cases:
        assert await refused(client.api_call("chat.postMessage", json=given)) == error, given
    assert slack.sent(general) == [] and slack.sent(alice) == []
    assert [call.error for call in slack.called("chat.postMessage")][:2] == [
        "channel_not_found",
        "channel_not_found",
    ]


async def test_a_scope_that_is_missing() -> None:
    async with Slack(scopes=frozenset({"chat:write", "im:history"})) as slack:
        alice, general = slack.person("Alice"), slack.channel("general")
        await web(slack).chat_postMessage(channel=alice.id, text="x")
        with pytest.raises(SlackApiError) as caught:
            await web(slack).conversations_history(channel=general.id)
        response = caught.value.response
        assert (response["error"], response["needed"]) == ("missing_scope", "channels:history")
        assert response["provided"] == "chat:write,im:history"
        assert response.headers["x-oauth-scopes"] == "chat:write,im:history"
        await web(slack).conversations_history(channel=slack.chat(alice).id)


async def test_threads_and_their_reading(slack: Slack, client: AsyncWebClient) -> None:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "question", general)
    (root,) = general.messages
    metadata = {"event_type": "part", "event_payload": {"id": "7"}}
    reply = await client.chat_postMessage(
        channel=general.id, text="answer", thread_ts=root, metadata=metadata
    )
    assert reply["message"]["parent_user_id"] == alice.id
    nested = client.chat_postMessage(channel=general.id, text="x", thread_ts=reply["ts"])
    assert await refused(nested) == "cannot_reply_to_message"
    slack.write(alice, "thanks", general, thread=root)
    await client.chat_postMessage(
        channel=general.id, text="aloud", thread_ts=root, reply_broadcast=True
    )
    slack.write(alice, "next", general)

    page = await client.conversations_history(channel=general.id)
    assert texts(page) == ["next", "aloud", "question"]
    assert page["messages"][2]["reply_count"] == 3
    assert page["messages"][1]["subtype"] == "thread_broadcast"
    page = await client.conversations_history(channel=general.id, limit=1)
    assert (texts(page), page["has_more"]) == (["next"], True)
    cursor = page["response_metadata"]["next_cursor"]
    page = await client.conversations_history(channel=general.id, limit=2, cursor=cursor)
    assert (texts(page), page["has_more"]) == (["aloud", "question"], False)

    page = await client.conversations_replies(channel=general.id, ts=root)
    assert texts(page) == ["question", "answer", "thanks", "aloud"]
    assert "metadata" not in page["messages"][1]
    page = await client.conversations_replies(
        channel=general.id, ts=root, oldest=root, include_all_metadata=True, limit=1
    )
    assert (texts(page), page["has_more"]) == (["question", "answer"], True)
    assert page["messages"][1]["metadata"] == metadata
    assert slack.sent(general)[0].metadata == metadata
    page = await client.conversations_replies(channel=general.id, ts=root, oldest=reply["ts"])
    assert texts(page) == ["question", "thanks", "aloud"]
    page = await client.conversations_replies(
        channel=general.id, ts=root, latest=reply["ts"], inclusive=True
    )
    assert texts(page) == ["question", "answer"]
    reading = client.conversations_replies(channel=general.id, ts="1.000000")
    assert await refused(reading) == "thread_not_found"


async def test_changing_and_deleting(slack: Slack, client: AsyncWebClient) -> None:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "mine", general)
    (theirs,) = general.messages
    metadata = {"event_type": "part", "event_payload": {"id": "7"}}
    posted = await client.chat_postMessage(channel=general.id, text="one", metadata=metadata)
    ts = posted["ts"]
    answer = await client.chat_update(channel=general.id, ts=ts, text="two")
    assert answer["message"]["edited"]["user"] == slack.bot.bot_id
    (sent,) = slack.sent(general)
    assert (sent.text, sent.edits, sent.metadata) == ("two", ("one",), metadata)
    await client.chat_update(channel=general.id, ts=ts, markdown_text="**three**" * 1_000)
    too_long = client.chat_update(channel=general.id, ts=ts, text="x" * 4_001)
    assert await refused(too_long) == "msg_too_long"
    changing = client.chat_update(channel=general.id, ts=theirs, text="x")
    assert await refused(changing) == "cant_update_message"
    deleting = client.chat_delete(channel=general.id, ts=theirs)
    assert await refused(deleting) == "cant_delete_message"
    for call in (client.chat_update, client.chat_delete):
        nothing = call(channel=general.id, ts="1.000000", text="x")
        assert await refused(nothing) == "message_not_found"
    await client.chat_delete(channel=general.id, ts=ts)
    assert slack.texts(general) == []
    assert slack.sent(general)[0].deleted
    assert texts(await client.conversations_history(channel=general.id)) == ["mine"]


async def test_a_change_keeps_what_it_does_not_name(
    slack: Slack, client: AsyncWebClient, general: Channel
) -> None:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "one"}}]
    metadata = {"event_type": "part", "event_payload": {"id": "7"}}
    posted = await client.chat_postMessage(
        channel=general.id, text="one", blocks=blocks, metadata=metadata
    )
    where: dict[str, Any] = {"channel": general.id, "ts": posted["ts"]}
    await client.chat_update(**where, text="two")
    (sent,) = slack.sent(general)
    assert (sent.text, sent.metadata) == ("two", metadata)
    await client.chat_update(**where, text="three", metadata={})
    assert slack.sent(general)[0].metadata is None
    general.archived = True
    assert await refused(client.chat_update(**where, text="four")) == "is_inactive"


async def test_reading_by_pages_that_are_none(
    slack: Slack, client: AsyncWebClient, general: Channel
) -> None:
    reading = client.conversations_history
    assert await refused(reading(channel=general.id, limit=1_000)) == "invalid_limit"
    assert await refused(reading(channel=general.id, cursor="odd")) == "invalid_cursor"
    await client.chat_postMessage(channel=general.id, text="x")
    assert await refused(reading(channel=general.id, oldest="odd")) == "invalid_ts_oldest"
    nothing = client.api_call("conversations.replies", params={"channel": general.id})
    assert await refused(nothing) == "invalid_arguments"
    elsewhere = slack.channel("elsewhere", with_bot=False)
    assert await refused(reading(channel=elsewhere.id)) == "not_in_channel"
    assert (await client.conversations_leave(channel=elsewhere.id))["not_in_channel"]
    assert await refused(client.conversations_open(users="U0NOBODY")) == "user_not_found"
    private = slack.channel("private", private=True)
    joining = client.conversations_join(channel=private.id)
    assert await refused(joining) == "method_not_supported_for_channel_type"
    link = client.chat_getPermalink(channel=general.id, message_ts="1.000000")
    assert await refused(link) == "message_not_found"
    assert (await client.team_info())["team"]["domain"] == "acme"
    assert (await client.auth_test())["url"] == "https://acme.slack.com/"
    assert (await web(slack, slack.app_token).auth_test())["app_id"] == slack.application.id


async def test_a_root_with_replies_leaves_a_tombstone(slack: Slack, client: AsyncWebClient) -> None:
    alice, general = slack.person("Alice"), slack.channel("general")
    slack.write(alice, "question", general)
    (root,) = general.messages
    await client.chat_postMessage(channel=general.id, text="answer", thread_ts=root)
    slack.delete(alice, root, general)
    (message,) = (await client.conversations_history(channel=general.id))["messages"]
    assert (message["subtype"], message["user"]) == ("tombstone", "USLACKBOT")


async def test_what_only_one_person_sees(slack: Slack, client: AsyncWebClient) -> None:
    alice, bob, general = slack.person("Alice"), slack.person("Bob"), slack.channel("general")
    slack.write(alice, "hello", general)
    answer = await client.chat_postEphemeral(channel=general.id, user=alice.id, text="psst")
    (whisper,) = slack.whispers(general, alice)
    assert (whisper.text, whisper.ts) == ("psst", answer["message_ts"])
    assert slack.whispers(general, bob) == [] and slack.sent(general) == []
    outside = client.chat_postEphemeral(channel=general.id, user=bob.id, text="x")
    assert await refused(outside) == "user_not_in_channel"
    gone = client.chat_update(channel=general.id, ts=answer["message_ts"], text="x")
    assert await refused(gone) == "message_not_found"


async def test_a_link_to_a_message(slack: Slack, client: AsyncWebClient) -> None:
    general = slack.channel("general")
    posted = await client.chat_postMessage(channel=general.id, text="x")
    link = await client.chat_getPermalink(channel=general.id, message_ts=posted["ts"])
    number = posted["ts"].replace(".", "")
    assert link["permalink"] == f"https://acme.slack.com/archives/{general.id}/p{number}"


# Faults


@pytest.fixture
def general(slack: Slack) -> Channel:
    return slack.channel("general")


async def test_too_many_requests(slack: Slack, general: Channel) -> None:
    slack.fault("chat.post*", Answer(429, retry_after=7))
    with pytest.raises(SlackApiError) as caught:
        await web(slack).chat_postMessage(channel=general.id, text="x")
    response = caught.value.response
    assert (response.status_code, response["error"]) == (429, "ratelimited")
    assert response.headers["Retry-After"] == "7"
    slack.fault("chat.postMessage", Answer(429, retry_after=0))
    patient = web(slack, retry_handlers=[AsyncRateLimitErrorRetryHandler()])
    await patient.chat_postMessage(channel=general.id, text="again")
    assert slack.texts(general) == ["again"]


async def test_server_errors_and_pages(slack: Slack, general: Channel) -> None:
    post = web(slack).chat_postMessage
    slack.fault("chat.postMessage", Answer(503))
    with pytest.raises(SlackApiError) as caught:
        await post(channel=general.id, text="x")
    assert caught.value.response.status_code == 503
    slack.fault("chat.postMessage", Answer(500, "internal_error"))
    assert await refused(post(channel=general.id, text="x")) == "internal_error"
    slack.fault("chat.postMessage", Error("fatal_error"))
    assert await refused(post(channel=general.id, text="x")) == "fatal_error"
    slack.fault("chat.postMessage", GarbageBody())
    with pytest.raises(SlackApiError):
        await post(channel=general.id, text="x")
    assert slack.sent(general) == []
    slack.fault("chat.postMessage", GarbageBody(done=True))
    with pytest.raises(SlackApiError):
        await post(channel=general.id, text="done")
    assert slack.texts(general) == ["done"]


async def test_the_connection_is_cut(slack: Slack, general: Channel) -> None:
    post = web(slack).chat_postMessage
    before = slack.fault("chat.postMessage", ResetBefore())
    with pytest.raises(aiohttp.ClientError):
        await post(channel=general.id, text="never")
    slack.fault("chat.postMessage", ResetAfter())
    with pytest.raises(aiohttp.ClientError):
        await post(channel=general.id, text="done")
    assert (before.hits, slack.texts(general)) == (1, ["done"])
    assert [call.status for call in slack.called("chat.postMessage")] == [0, 0]


async def test_the_sdk_as_it_comes_posts_twice(slack: Slack, general: Channel) -> None:
    """Why an adapter must pass `retry_handlers=[]`."""
    slack.fault("chat.postMessage", ResetAfter())
    usual = AsyncWebClient(slack.token, base_url=f"{slack.url}/api/")
    await usual.chat_postMessage(channel=general.id, text="x")
    assert slack.texts(general) == ["x", "x"]


async def test_slow_answers_and_faults_of_one_channel(slack: Slack, general: Channel) -> None:
    alice = slack.person("Alice")
    slack.fault("chat.postMessage", Delay(30), chat=general)
    post = web(slack).chat_postMessage
    begin = time.monotonic()
    await post(channel=alice.id, text="at once")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(post(channel=general.id, text="late"), 0.2)
    assert time.monotonic() - begin < 5
    assert slack.texts(general) == ["late"]


# Alone


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
async def test_it_runs_alone(end: signal.Signals) -> None:
    command = (sys.executable, "-m", "playground.slack", "--token", "xoxb-1")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    me = await AsyncWebClient("xoxb-1", base_url=f"{url}/api/").auth_test()
    assert me["team"] == "Acme"
    process.send_signal(end)
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
