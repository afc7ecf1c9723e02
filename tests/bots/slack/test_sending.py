"""What leaves for Slack: parts, edits, deletions, what is looked for, and what an error means."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from slack_sdk.errors import SlackApiError

from bots.slack.adapter import SlackAdapter
from bots.slack.failures import code_of, failure, retry_after, why
from core.errors import Gone, OutcomeUnknown, SendError, TryLater, Undeliverable
from core.messages import Outbound
from playground.slack import (
    Answer,
    Channel,
    Delay,
    Error,
    Fault,
    GarbageBody,
    Person,
    ResetAfter,
    ResetBefore,
    Slack,
)
from tests.bots.slack.world import make

_KEY: Final = ConnectionKey("127.0.0.1", 1, False, True, None, None, None)
HELLO: Final = json.dumps({"markdown": "hello"})


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack() as server:
        yield server


@pytest.fixture
async def adapter(slack: Slack) -> AsyncIterator[SlackAdapter]:
    adapter = make(slack, send_timeout=2.0)
    yield adapter
    await adapter.close()


def key(slack: Slack, place: Person | Channel, thread: str | None = None) -> str:
    channel = slack.chat(place)
    if thread is not None:
        return f"slack-thread:{slack.team.id}/{channel.id}/{thread}"
    return f"slack-{'dm' if channel.kind == 'im' else 'channel'}:{slack.team.id}/{channel.id}"


async def send(
    adapter: SlackAdapter,
    to: str,
    body: str | None = HELLO,
    *,
    uncertain: bool = False,
    **more: Any,
) -> tuple[str, ...]:
    part = Outbound(more.pop("id", "part"), body, **more)
    return (await adapter.send(to, part, uncertain=uncertain)).message_ids


class TestSaying:
    async def test_it_carries_its_name_and_nothing_unfolds(
        self, slack: Slack, adapter: SlackAdapter
    ) -> None:
        alice = slack.person("Alice")
        (ts,) = await send(adapter, key(slack, alice), adapter.render("see <!here> x.org")[0])
        (sent,) = slack.sent(alice)
        assert sent.ts == ts
        assert sent.metadata == {"event_type": "chinwag_part", "event_payload": {"id": "part"}}
        (call,) = slack.called("chat.postMessage")
        assert call.params["unfurl_links"] is call.params["unfurl_media"] is False
        assert call.params["text"] == "see &lt;\u2060!here&gt; x.org"
        assert slack.token not in json.dumps(call.params)

    async def test_in_a_thread(self, slack: Slack, adapter: SlackAdapter) -> None:
        alice, general = slack.person("Alice"), slack.channel("general")
        (root, *_) = slack.write(alice, "hi", general)
        thread = root.event["ts"]
        await send(adapter, key(slack, general, thread))
        assert [sent.thread for sent in slack.sent(general)] == [thread]

    async def test_an_edit_and_a_deletion_twice_each(
        self, slack: Slack, adapter: SlackAdapter
    ) -> None:
        alice = slack.person("Alice")
        to = key(slack, alice)
        (ts,) = await send(adapter, to)
        for _ in range(2):
            edited = await send(adapter, to, adapter.render("other")[0], id="b", replaces=ts)
            assert edited == (ts,)
        assert slack.texts(alice) == ["other"]
        for _ in range(2):
            assert await send(adapter, to, None, id="c", replaces=ts) == ()
        assert slack.texts(alice) == []

    async def test_what_is_gone_is_said_anew(self, slack: Slack, adapter: SlackAdapter) -> None:
        alice = slack.person("Alice")
        to = key(slack, alice)
        (ts,) = await send(adapter, to)
        await send(adapter, to, None, id="b", replaces=ts)
        (new,) = await send(adapter, to, id="c", replaces=ts)
        assert new != ts and slack.texts(alice) == ["hello"]

    @pytest.mark.parametrize("body", ["", "{}", "[]", '{"text": "telegram"}', "\ud800"])
    async def test_another_platforms_body(
        self, slack: Slack, adapter: SlackAdapter, body: str
    ) -> None:
        with pytest.raises(Undeliverable):
            await send(adapter, key(slack, slack.person("Alice")), body)

    @pytest.mark.parametrize("to", ["telegram-chat:1", "slack-dm@other:T1/D1", "slack-dm:T1"])
    async def test_another_adapters_key(self, adapter: SlackAdapter, to: str) -> None:
        with pytest.raises(Undeliverable):
            await send(adapter, to)

    async def test_a_workspace_where_we_are_not(self, adapter: SlackAdapter) -> None:
        with pytest.raises(Gone):
            await send(adapter, "slack-dm:T0OTHER/D1")


class TestLooking:
    async def test_what_was_sent_is_found(self, slack: Slack, adapter: SlackAdapter) -> None:
        alice = slack.person("Alice")
        to = key(slack, alice)
        slack.fault("chat.postMessage", ResetAfter())
        with pytest.raises(OutcomeUnknown):
            await send(adapter, to)
        (ts,) = await send(adapter, to, uncertain=True)
        assert [sent.ts for sent in slack.sent(alice)] == [ts]

    async def test_what_was_not_sent_is_sent(self, slack: Slack, adapter: SlackAdapter) -> None:
        alice = slack.person("Alice")
        to = key(slack, alice)
        await send(adapter, to, id="another part")
        slack.fault("chat.postMessage", ResetBefore())
        with pytest.raises(OutcomeUnknown):
            await send(adapter, to)
        await send(adapter, to, uncertain=True)
        assert len(slack.sent(alice)) == 2

    async def test_in_a_long_thread_far_back(self, slack: Slack, adapter: SlackAdapter) -> None:
        alice, general = slack.person("Alice"), slack.channel("general")
        (root, *_) = slack.write(alice, "hi", general)
        thread = root.event["ts"]
        to = key(slack, general, thread)
        (ts,) = await send(adapter, to)
        for number in range(450):
            slack.write(alice, f"message {number}", general, thread=thread)
        assert await send(adapter, to, uncertain=True) == (ts,)
        assert len(slack.called("conversations.replies")) >= 1
        assert len(slack.sent(general)) == 1

    async def test_a_copy_by_somebody_else_is_not_ours(
        self, slack: Slack, adapter: SlackAdapter
    ) -> None:
        general, other = slack.channel("general"), slack.other_bot("Mimic")
        name = {"event_type": "chinwag_part", "event_payload": {"id": "part"}}
        slack.write(other, "hello", general, metadata=name)
        await send(adapter, key(slack, general), uncertain=True)
        assert slack.texts(general) == ["hello"]

    async def test_a_look_may_have_to_wait(self, slack: Slack, adapter: SlackAdapter) -> None:
        alice = slack.person("Alice")
        slack.fault("conversations.history", Answer(429, retry_after=60))
        with pytest.raises(TryLater) as later:
            await send(adapter, key(slack, alice), uncertain=True)
        assert later.value.seconds == 60.5
        assert slack.sent(alice) == [], "nothing was sent without a look"

    @pytest.mark.parametrize("policy", ["resend", "hold"])
    async def test_who_may_not_look(self, slack: Slack, policy: Any) -> None:
        adapter = make(slack, on_unknown_outcome=policy)
        alice = slack.person("Alice")
        slack.fault("conversations.history", Error("missing_scope"))
        if policy == "hold":
            with pytest.raises(Undeliverable, match="may have been sent"):
                await send(adapter, key(slack, alice), uncertain=True)
        else:
            await send(adapter, key(slack, alice), uncertain=True)
        assert len(slack.sent(alice)) == (policy == "resend")
        await adapter.close()


class TestErrors:
    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            (Answer(429, retry_after=3), TryLater),
            (Error("ratelimited"), TryLater),
            (Error("invalid_auth"), TryLater),
            (Error("token_revoked"), TryLater),
            (Error("channel_not_found"), Gone),
            (Error("is_archived"), Gone),
            (Error("account_inactive"), Gone),
            (Error("msg_too_long"), Undeliverable),
            (Error("invalid_blocks"), Undeliverable),
            (Error("a_word_that_nobody_knows"), Undeliverable),
            (Error("internal_error"), OutcomeUnknown),
            (Answer(500), OutcomeUnknown),
            (Answer(502, html=True), OutcomeUnknown),
            (Delay(3.0), OutcomeUnknown),
            (ResetBefore(), OutcomeUnknown),
            (ResetAfter(), OutcomeUnknown),
            (GarbageBody(), OutcomeUnknown),
            (GarbageBody("[1]"), OutcomeUnknown),
            (GarbageBody('{"ok":true}'), OutcomeUnknown),
        ],
        ids=str,
    )
    async def test_what_an_answer_means(
        self, slack: Slack, adapter: SlackAdapter, fault: Fault, expected: type[SendError]
    ) -> None:
        alice = slack.person("Alice")
        slack.fault("chat.postMessage", fault)
        with pytest.raises(SendError) as caught:
            await send(adapter, key(slack, alice))
        assert type(caught.value) is expected
        assert len(slack.called("chat.postMessage")) == 1, "nothing is repeated"
        assert slack.token not in str(caught.value)

    async def test_a_channel_that_we_are_not_in(self, slack: Slack, adapter: SlackAdapter) -> None:
        secret = slack.channel("secret", private=True, with_bot=False)
        with pytest.raises(Gone):
            await send(adapter, key(slack, secret))

    @pytest.mark.parametrize(
        ("cause", "expected"),
        [
            (aiohttp.ConnectionTimeoutError(), TryLater),
            (aiohttp.ClientConnectorError(_KEY, OSError()), TryLater),
            (aiohttp.ClientHttpProxyError(Mock(), ()), TryLater),
            (aiohttp.SocketTimeoutError(), OutcomeUnknown),
            (aiohttp.ServerDisconnectedError(), OutcomeUnknown),
            (TimeoutError(), OutcomeUnknown),
            (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), Undeliverable),
            (RuntimeError("what"), OutcomeUnknown),
        ],
        ids=lambda value: getattr(value, "__name__", type(value).__name__),
    )
    def test_whether_it_left(self, cause: Exception, expected: type[SendError]) -> None:
        assert type(failure(cause)) is expected

    @pytest.mark.parametrize(
        "response", [None, b"", "text", {}, {"error": 5}, {"error": "x" * 500}, Mock(spec=[])]
    )
    def test_what_is_no_answer(self, response: object) -> None:
        error = SlackApiError("a text that may quote what was said", response)  # type: ignore[no-untyped-call]
        assert code_of(error) is None
        assert why(error) == "SlackApiError"
        assert type(failure(error)) is OutcomeUnknown

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"Retry-After": "7"}, 7.0),
            ({"retry-after": ["9"]}, 9.0),
            ({}, 5.0),
            ({"Retry-After": "soon"}, 5.0),
        ],
    )
    def test_how_long_to_wait(self, headers: dict[str, object], seconds: float) -> None:
        response = Mock(status_code=429, headers=headers)
        response.__getitem__ = lambda self, name: "ratelimited"
        error = SlackApiError("no", response)  # type: ignore[no-untyped-call]
        assert retry_after(error) == seconds
