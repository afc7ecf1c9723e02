"""The local Slack, driven by the unmodified slack_sdk: streams, agents, the app's home."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.models.messages.chunk import MarkdownTextChunk, PlanUpdateChunk, TaskUpdateChunk
from slack_sdk.web.async_client import AsyncWebClient

from playground.slack import Person, Slack

Json = dict[str, Any]


class Clock:
    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def slack(clock: Clock) -> AsyncIterator[Slack]:
    async with Slack(clock=clock) as running:
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


def asked(slack: Slack, alice: Person) -> Json:
    """A question in the direct conversation; where to answer it by a stream."""
    slack.write(alice, "question")
    direct = slack.chat(alice)
    return {"channel": direct.id, "thread_ts": list(direct.messages)[-1]}


def events(slack: Slack) -> list[Json]:
    return [delivery.event for delivery in slack.deliveries]


# Streams


async def test_a_message_that_grows(slack: Slack, client: AsyncWebClient, alice: Person) -> None:
    where = asked(slack, alice)
    ts = (await client.chat_startStream(**where, markdown_text="**Well"))["ts"]
    grown: list[str] = []

    def watch(event: str, details: Json) -> None:
        if event == "grown":
            grown.append(details["text"])

    slack.listeners.append(watch)
    for text in (", ", "now**"):
        await client.chat_appendStream(channel=where["channel"], ts=ts, markdown_text=text)
    assert grown == ["**Well, ", "**Well, now**"]
    assert slack.streams(alice)[0].state == "in_progress"
    metadata = {"event_type": "part", "event_payload": {"id": "7"}}
    below = [{"type": "context", "elements": [{"type": "mrkdwn", "text": "that is all"}]}]
    answer = await client.chat_stopStream(
        channel=where["channel"], ts=ts, markdown_text=".", blocks=below, metadata=metadata
    )
    assert answer["message"]["streaming_state"] == "completed"
    (sent,) = slack.sent(alice)
    assert sent.text == "**Well, now**.\nthat is all"
    assert (sent.thread, sent.edits, sent.metadata) == (where["thread_ts"], (), metadata)
    page = await client.conversations_replies(
        channel=where["channel"], ts=where["thread_ts"], include_all_metadata=True
    )
    assert page["messages"][1]["text"] == "**Well, now**."
    assert page["messages"][1]["metadata"] == metadata


async def test_what_the_app_hears_of_its_stream(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    where = asked(slack, alice)
    ts = (await client.chat_startStream(**where, markdown_text="a"))["ts"]
    await client.chat_appendStream(channel=where["channel"], ts=ts, markdown_text="b")
    await client.chat_stopStream(channel=where["channel"], ts=ts)
    question, started, busy, done, free = events(slack)
    assert (started["text"], started["streaming_state"]) == ("", "in_progress")
    assert "blocks" not in started and started["bot_id"] == slack.bot.bot_id
    assert (done["subtype"], done["message"]["text"]) == ("message_changed", "ab")
    assert (done["previous_message"]["text"], done["message"]["ts"]) == ("", ts)
    for event, status in ((busy, "processing"), (free, "active")):
        assert event["subtype"] == "message_changed"
        assert event["message"]["text"] == event["previous_message"]["text"] == question["text"]
        assert event["message"]["agent_session"]["status"] == status
        assert "edited" not in event["message"]


async def test_chunks_are_text_tasks_a_plan_and_blocks(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    where = asked(slack, alice)
    started = await client.chat_startStream(
        **where,
        task_display_mode="plan",
        chunks=[
            PlanUpdateChunk(title="Looking"),
            TaskUpdateChunk(id="1", title="Search", status="in_progress"),
        ],
    )
    stream = {"channel": where["channel"], "ts": started["ts"]}
    await client.chat_appendStream(
        **stream,
        chunks=[
            TaskUpdateChunk(id="1", title="Search", status="complete", output="3 found"),
            MarkdownTextChunk(text="Three."),
        ],
    )
    (seen,) = slack.streams(alice)
    assert (seen.plan, seen.text) == ("Looking", "Three.")
    assert seen.tasks == {
        "1": {"id": "1", "title": "Search", "status": "complete", "output": "3 found"}
    }
    append = client.chat_appendStream
    bad: list[tuple[str, Json]] = [
        ("streaming_mode_mismatch", {"markdown_text": "x"}),
        ("invalid_chunks", {"chunks": [{"type": "odd"}]}),
        ("invalid_chunks", {"chunks": [{"type": "task_update", "id": "1"}]}),
        (
            "invalid_chunks",
            {"chunks": [{"type": "task_update", "id": "1", "title": "x", "status": "odd"}]},
        ),
        ("invalid_blocks", {"chunks": [{"type": "blocks", "blocks": [{"type": "odd"}]}]}),
        (
            "cannot_provide_both_markdown_text_and_chunks",
            {"markdown_text": "x", "chunks": [{"type": "markdown_text", "text": "x"}]},
        ),
        ("markdown_text_or_chunks_required", {}),
    ]
    for error, given in bad:
        assert await refused(append(**stream, **given)) == error, given
    fifty = [{"type": "blocks", "blocks": [{"type": "divider"}] * 50}]
    await append(**stream, chunks=fifty)
    one = [{"type": "blocks", "blocks": [{"type": "divider"}]}]
    assert await refused(append(**stream, chunks=one)) == "msg_blocks_too_many"
    await client.chat_stopStream(**stream, blocks=[{"type": "divider"}] * 50)
    assert len(slack.sent(alice)[0].blocks) == 102
    assert slack.texts(alice) == ["Three."]


async def test_twelve_thousand_characters(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    where = asked(slack, alice)
    start = client.chat_startStream
    assert await refused(start(**where, markdown_text="x" * 12_001)) == "msg_blocks_too_long"
    ts = (await start(**where, markdown_text="x" * 12_000))["ts"]
    more = client.chat_appendStream(channel=where["channel"], ts=ts, markdown_text="x")
    assert await refused(more) == "msg_blocks_too_long"
    assert slack.texts(alice) == ["x" * 12_000]


async def test_text_and_task_cards_together_have_a_limit(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    where = asked(slack, alice)
    card = {"type": "task_update", "id": "1", "title": "t" * 9_000, "status": "in_progress"}
    stream = await client.chat_startStream(**where, chunks=[card, card | {"id": "2"}])
    on: Json = {"channel": where["channel"], "ts": stream["ts"]}
    text = {"type": "markdown_text", "text": "x"}
    assert await refused(client.chat_appendStream(**on, chunks=[text])) == "msg_too_long"
    short = [card | {"title": "t"}, card | {"id": "2", "title": "t"}]
    await client.chat_appendStream(**on, chunks=[*short, text])
    more = client.chat_appendStream(**on, chunks=[text | {"text": "ä" * 5_500}])
    assert await refused(more) == "msg_too_long", "in bytes"


async def test_a_stream_in_a_channel_names_who_it_is_for(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    general = slack.channel("general")
    slack.write(alice, "question", general)
    where: Json = {"channel": general.id, "thread_ts": next(iter(general.messages))}
    start = client.chat_startStream
    assert await refused(start(**where)) == "missing_recipient_team_id"
    team = slack.team.id
    assert await refused(start(**where, recipient_team_id=team)) == "missing_recipient_user_id"
    nobody: Json = {"recipient_team_id": team, "recipient_user_id": "U0NOBODY"}
    assert await refused(start(**where, **nobody)) == "user_not_found"
    who: Json = {"recipient_team_id": team, "recipient_user_id": alice.id}
    await start(**where, **who)
    assert slack.streams(general)[0].recipient == alice.id
    lost = start(channel=general.id, thread_ts="1.000000", **who)
    assert await refused(lost) == "thread_not_found"
    direct = slack.chat(alice).id
    plain = client.api_call("chat.startStream", json={"channel": direct})
    assert await refused(plain) == "invalid_arguments"


async def test_a_stream_is_dead_after_five_minutes(
    slack: Slack, client: AsyncWebClient, alice: Person, clock: Clock
) -> None:
    where = asked(slack, alice)
    ts = (await client.chat_startStream(**where, markdown_text="so far"))["ts"]
    stream: Json = {"channel": where["channel"], "ts": ts}
    clock.now += 299
    await client.chat_appendStream(**stream, markdown_text=", so good")
    changing = client.chat_update(**stream, text="x")
    assert await refused(changing) == "streaming_state_conflict"
    clock.now += 1
    dead = "message_not_in_streaming_state"
    assert await refused(client.chat_appendStream(**stream, markdown_text="x")) == dead
    assert await refused(client.chat_stopStream(**stream)) == dead
    assert not slack.streams(alice)[0].alive(clock())
    await client.chat_update(**stream, text="so far, so good, and the rest")
    assert slack.texts(alice) == ["so far, so good, and the rest"]


async def test_only_streams_of_ones_own_can_go_on(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    where = asked(slack, alice)
    append = client.chat_appendStream
    theirs: Json = {"channel": where["channel"], "ts": where["thread_ts"], "markdown_text": "x"}
    assert await refused(append(**theirs)) == "message_not_owned_by_app"
    plain = await client.chat_postMessage(channel=where["channel"], text="plain")
    mine: Json = {"channel": where["channel"], "ts": plain["ts"], "markdown_text": "x"}
    assert await refused(append(**mine)) == "message_not_in_streaming_state"
    nothing: Json = {"channel": where["channel"], "ts": "1.000000", "markdown_text": "x"}
    assert await refused(append(**nothing)) == "message_not_found"
    ts = (await client.chat_startStream(**where))["ts"]
    await client.chat_stopStream(channel=where["channel"], ts=ts)
    twice = client.chat_stopStream(channel=where["channel"], ts=ts)
    assert await refused(twice) == "message_not_in_streaming_state"


async def test_the_helper_of_the_sdk(slack: Slack, client: AsyncWebClient, alice: Person) -> None:
    where = asked(slack, alice)
    stream = await client.chat_stream(**where, buffer_size=4)
    await stream.append(markdown_text="Hello")
    await stream.append(markdown_text=" there")
    await stream.stop()
    assert slack.texts(alice) == ["Hello there"]
    assert slack.streams(alice)[0].state == "completed"


# Sessions


async def test_stop_ends_the_stream_and_the_app_hears_of_it(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    where = asked(slack, alice)
    thread = where["thread_ts"]
    with pytest.raises(ValueError, match="no session"):
        slack.press_stop(alice, thread)
    ts = (await client.chat_startStream(**where, markdown_text="blah"))["ts"]
    (stopped,) = slack.press_stop(alice, thread)
    event = stopped.event
    assert event["type"] == "agent_session_stopped"
    assert (event["channel"], event["thread_ts"]) == (where["channel"], thread)
    assert (event["user"], event["streaming_message_ts"]) == (alice.id, [ts])
    stream: Json = {"channel": where["channel"], "ts": ts}
    more = client.chat_appendStream(**stream, markdown_text="x")
    assert await refused(more) == "stopped_by_user"
    assert await refused(client.chat_stopStream(**stream)) == "message_not_in_streaming_state"
    session = slack.session(alice, thread)
    assert session and session["status"] == "processing"  # that is for the app to change
    await client.agents_sessions_setStatus(
        channel_id=where["channel"], thread_ts=thread, status="active"
    )
    session = slack.session(alice, thread)
    assert session and session["status"] == "active"
    await client.chat_update(**stream, text="blah (stopped)")
    assert slack.texts(alice) == ["blah (stopped)"]


async def test_the_status_of_a_session(slack: Slack, client: AsyncWebClient, alice: Person) -> None:
    where = asked(slack, alice)
    here: Json = {"channel_id": where["channel"], "thread_ts": where["thread_ts"]}
    setting = client.agents_sessions_setStatus
    assert await refused(setting(**here, status="odd")) == "invalid_status"
    assert await refused(setting(channel_id=where["channel"], status="active")) == (
        "thread_ts_required"
    )
    await setting(**here, status="processing", title="Sums", initiator_user_id=alice.id)
    session = slack.session(alice, where["thread_ts"])
    assert session and session["title"] == "Sums"
    assert session["agent_statuses"][0]["is_stoppable"] is True
    await client.agents_sessions_rename(**here, title="Other sums")
    session = slack.session(alice, where["thread_ts"])
    assert session and (session["title"], session["status"]) == ("Other sums", "processing")
    (stopped,) = slack.press_stop(alice, where["thread_ts"])
    assert stopped.event["streaming_message_ts"] == []


async def test_a_reply_in_a_session_changes_its_root_which_is_no_edit(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    where = asked(slack, alice)
    await client.agents_sessions_setStatus(
        channel_id=where["channel"], thread_ts=where["thread_ts"], status="processing"
    )
    _, counted = slack.write(alice, "and this?", thread=where["thread_ts"])
    event = counted.event
    assert event["subtype"] == "message_changed"
    assert event["message"]["ts"] == where["thread_ts"]
    assert event["message"]["text"] == event["previous_message"]["text"]
    assert event["message"]["reply_count"] == 1


async def test_without_the_subscription_there_is_a_warning() -> None:
    async with Slack(events=frozenset({"message.im"})) as slack:
        client = AsyncWebClient(slack.token, base_url=f"{slack.url}/api/")
        where = asked(slack, slack.person("Alice"))
        answer = await client.agents_sessions_setStatus(
            channel_id=where["channel"], thread_ts=where["thread_ts"], status="processing"
        )
        assert answer["warning"] == "missing_agent_session_stopped_event_subscription"


# The assistant view, and the home


async def test_the_older_assistant_view(
    slack: Slack, client: AsyncWebClient, alice: Person
) -> None:
    general = slack.channel("general")
    root, started = slack.open_assistant(alice, beside=general)
    about = started.event["assistant_thread"]
    assert (about["user_id"], about["thread_ts"]) == (alice.id, root.event["ts"])
    assert about["context"]["channel_id"] == general.id
    here: Json = {"channel_id": about["channel_id"], "thread_ts": about["thread_ts"]}
    await client.assistant_threads_setStatus(**here, status="is thinking", loading_messages=["1"])
    assert slack.status(alice, about["thread_ts"]) == "is thinking"
    await client.chat_postMessage(
        channel=here["channel_id"], thread_ts=here["thread_ts"], text="hello"
    )
    assert slack.status(alice, about["thread_ts"]) == ""
    await client.assistant_threads_setTitle(**here, title="Hello")
    assert slack.title(alice, about["thread_ts"]) == "Hello"
    prompts = [{"title": "Sum", "message": "What is 1+1?"}]
    await client.assistant_threads_setSuggestedPrompts(**here, prompts=prompts)
    assert slack.prompts(alice, about["thread_ts"]) == prompts
    everywhere = {"channel_id": here["channel_id"], "prompts": prompts}
    await client.api_call("assistant.threads.setSuggestedPrompts", json=everywhere)
    assert slack.prompts(alice) == prompts
    setting = client.assistant_threads_setStatus
    lost = setting(channel_id=here["channel_id"], thread_ts="1.000000", status="x")
    assert await refused(lost) == "invalid_thread_ts"
    five = client.assistant_threads_setSuggestedPrompts(**here, prompts=prompts * 5)
    assert await refused(five) == "invalid_arguments"


async def test_the_home_of_the_app(slack: Slack, client: AsyncWebClient, alice: Person) -> None:
    (opened,) = slack.open_home(alice)
    assert (opened.event["tab"], opened.event["user"]) == ("home", alice.id)
    assert "view" not in opened.event and slack.home(alice) is None
    view = {"type": "home", "blocks": [{"type": "divider"}]}
    published = (await client.views_publish(user_id=alice.id, view=view))["view"]
    home = slack.home(alice)
    assert home is not None
    assert home == published and home["blocks"] == view["blocks"]
    (again,) = slack.open_home(alice)
    assert again.event["view"]["id"] == published["id"]
    (messages,) = slack.open_home(alice, "messages")
    assert messages.event["tab"] == "messages" and "view" not in messages.event
    late = client.views_publish(user_id=alice.id, view=view, hash="1.other")
    assert await refused(late) == "hash_conflict"
    await client.views_publish(user_id=alice.id, view=view, hash=published["hash"])
    bad: list[tuple[str, Json]] = [
        ("user_not_found", {"user_id": "U0NOBODY", "view": view}),
        ("invalid_arguments", {"user_id": alice.id, "view": {"type": "modal"}}),
        (
            "invalid_blocks",
            {"user_id": alice.id, "view": {"type": "home", "blocks": [{"type": "divider"}] * 101}},
        ),
    ]
    for error, given in bad:
        assert await refused(client.views_publish(**given)) == error
