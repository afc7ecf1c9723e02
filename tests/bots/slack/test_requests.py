"""Slack comes to us by HTTP: the same contract, and who is not Slack is told nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bots import http
from bots.contracts.adapter import AdapterContract, Desk, running
from bots.slack.adapter import SlackAdapter
from bots.slack.manifest import PATH
from core.adapter import Adapter, Refused
from core.clock import SystemClock
from core.errors import PlatformRefused
from core.events import logger
from playground.slack import Slack
from playground.slack_posts import signature
from tests.bots.slack.world import RULES, labels, make, seen

FORM = "application/x-www-form-urlencoded"


@asynccontextmanager
async def served(slack: Slack, **more: Any) -> AsyncIterator[SlackAdapter]:
    """An adapter that Slack comes to."""
    adapter = SlackAdapter(
        slack.token,
        signing_secret=slack.signing_secret,
        base_url=f"{slack.url}/api/",
        rules=RULES,
        # Time stamps are compared with it.
        clock=SystemClock(),
        **more,
    )
    with http.listen("127.0.0.1", 0) as listener:
        routes = adapter.routes(Desk().accept)
        serving = asyncio.create_task(http.serve(http.app_of(routes), listener))
        slack.deliver_to(f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}")
        try:
            yield adapter
        finally:
            await adapter.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


@asynccontextmanager
async def hearing(adapter: SlackAdapter, desk: Desk) -> AsyncIterator[Desk]:
    """It runs, and knows who it is."""
    async with running(adapter, desk):
        async with asyncio.timeout(5):
            while adapter._hearing.intake is None:  # noqa: ASYNC110 (what is before has no event)
                await asyncio.sleep(0.005)
        yield desk


class TestContract(AdapterContract):
    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        async with Slack(retry_seconds=(0.05,) * 60) as self.server:
            self.alice = self.server.person("Alice")
            async with served(self.server) as adapter:
                yield adapter

    async def say(self, text: str) -> None:
        self.server.write(self.alice, text)

    async def screen(self) -> list[str]:
        return seen(self.server, self.alice)

    async def press(self, label: str) -> None:
        self.server.choose(self.alice, label)

    async def labels(self) -> list[str]:
        return labels(self.server, self.alice)

    async def files(self) -> dict[str, bytes]:
        return self.server.files(self.alice)


SAID = "what-a-stranger-wants-in-our-log"


async def overheard(slack: Slack, desk: Desk) -> bytes:
    """The body of a request that would be taken in if Slack had signed it."""
    alice = slack.person("Alice")
    slack.write(alice, "hello")
    await desk.have(1)
    (told,) = slack.write(alice, SAID)
    await desk.have(2)
    await slack.settle()
    desk.asked.clear()
    # Another post of hers, of which Slack has told nothing yet.
    event = told.payload["event"] | {"ts": "1999999999.000100", "client_msg_id": "another"}
    return json.dumps(told.payload | {"event": event, "event_id": "Ev0ANOTHER"}).encode()


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """All that our log and those of the libraries between would say; the client's own, which
    speaks in this process too, is not ours."""
    names = ("bots", "core", "chinwag", "slack", "starlette", "uvicorn")
    return "".join(
        f"{record.getMessage()} {record.__dict__}"
        for record in caplog.records
        if record.name.startswith(names)
    )


class TestWhoItIs:
    async def test_slack_may_look_who_is_there(self) -> None:
        async with Slack() as slack, served(slack) as adapter:
            async with hearing(adapter, Desk()):
                assert await slack.verify()
                assert await slack.check_ssl() == 200

    async def test_before_it_runs_nothing_is_taken(self) -> None:
        async with Slack() as slack, served(slack):
            assert not await slack.verify()

    @pytest.mark.parametrize(
        "headers",
        [
            {"X-Slack-Request-Timestamp": "NOW", "X-Slack-Signature": "v0=" + "0" * 64},
            {"X-Slack-Request-Timestamp": "soon", "X-Slack-Signature": "v0=" + "0" * 64},
            {"X-Slack-Request-Timestamp": "NOW", "X-Slack-Signature": "v0=ü"},
            {"X-Slack-Request-Timestamp": "NOW", "X-Slack-Signature": ""},
            {"X-Slack-Request-Timestamp": "-1", "X-Slack-Signature": "v0=" + "0" * 64},
            {"X-Slack-Request-Timestamp": "NOW"},
            {"X-Slack-Signature": "v0=" + "0" * 64},
            {},
        ],
        ids=["wrong", "no number", "not ASCII", "empty", "negative", "half", "other half", "none"],
    )
    async def test_who_is_not_slack(
        self, headers: dict[str, str], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        now = str(int(time.time()))
        sent = {name: value.replace("NOW", now) for name, value in headers.items()}
        async with Slack() as slack, served(slack) as adapter:
            async with hearing(adapter, Desk()) as desk:
                body = await overheard(slack, desk)
                status, answer = await slack.knock(body, headers=sent)
        assert (status, answer) == (401, "")
        assert desk.asked == []
        assert SAID not in logged(caplog)

    async def test_bytes_that_are_no_text(self) -> None:
        async with Slack() as slack, served(slack) as adapter:
            async with hearing(adapter, Desk()):
                status, _ = await slack.knock(b"\xff\xfe{}")
        assert status == 401

    async def test_what_is_too_large(self) -> None:
        async with Slack() as slack, served(slack) as adapter:
            async with hearing(adapter, Desk()):
                assert (await slack.knock(b"x" * (http.MAX_BODY + 1)))[0] == 413
                assert (await slack.knock(b"ssl_check=1" + b"x" * 2_000, FORM, {}))[0] == 413

    @pytest.mark.parametrize("seconds", [-300, 300, -86_400])
    async def test_a_time_stamp_of_another_time(
        self, seconds: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, logger=logger.name)
        async with Slack() as slack, served(slack) as adapter:
            async with hearing(adapter, Desk()) as desk:
                body = json.dumps(slack.inject({"type": "hello"}).payload).encode()
                at = int(time.time()) + seconds + (1 if seconds > 0 else -1)
                for _ in range(3):
                    status, _ = await slack.knock(body, timestamp=at)
                    assert status == 401
        assert desk.asked == []
        said = [each for each in caplog.records if "clock_is_off" in str(each.__dict__)]
        assert len(said) == 1, "it is told, and once only"

    async def test_the_same_request_once_more(self) -> None:
        async with Slack() as slack, served(slack) as adapter:
            alice = slack.person("Alice")
            async with hearing(adapter, Desk()) as desk:
                (told,) = slack.write(alice, "hello")
                await slack.settle()
                body = json.dumps(told.payload).encode()
                at = int(time.time()) - 5
                assert (await slack.knock(body, timestamp=at))[0] == 200
                assert (await slack.knock(body, timestamp=at))[0] == 401
        assert len({inbound.id for inbound in desk.asked}) == 1

    async def test_the_same_request_while_it_is_worked_on(self) -> None:
        async with Slack() as slack, served(slack) as adapter:
            async with hearing(adapter, Desk()) as desk:
                body = await overheard(slack, desk)
                desk.open.clear()
                at = int(time.time()) - 5
                first = asyncio.create_task(slack.knock(body, timestamp=at))
                await desk.until(lambda: bool(desk.asked))
                assert (await slack.knock(body, timestamp=at)) == (401, "")
                desk.open.set()
                assert (await first)[0] == 200
        assert [inbound.text for inbound in desk.asked] == [SAID]

    async def test_what_was_not_taken_may_be_passed_on_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a server between Slack and us does it, with the same signature."""
        monkeypatch.setattr("bots.slack.requests.ANSWER_SECONDS", 0.1)
        async with Slack() as slack, served(slack) as adapter:
            async with hearing(adapter, Desk()) as desk:
                body = await overheard(slack, desk)
                desk.open.clear()
                at = int(time.time()) - 5
                assert (await slack.knock(body, timestamp=at))[0] == 503
                desk.open.set()
                await desk.have(3)
                assert (await slack.knock(body, timestamp=at))[0] == 200

    async def test_signed_with_another_secret(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        async with Slack() as slack, served(slack) as adapter:
            async with hearing(adapter, Desk()) as desk:
                body = await overheard(slack, desk)
                at = str(int(time.time()))
                headers = {
                    "X-Slack-Request-Timestamp": at,
                    "X-Slack-Signature": signature("f" * 32, at, body),
                }
                assert (await slack.knock(body, headers=headers)) == (401, "")
                assert desk.asked == []
                # It is the signature that keeps it out.
                assert (await slack.knock(body))[0] == 200
                assert [inbound.text for inbound in desk.asked] == [SAID]
        assert SAID not in logged(caplog)

    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"1", b"{", b"null", b'{"type": 5}', b"payload=1"]
    )
    async def test_what_slack_would_never_send(self, body: bytes) -> None:
        async with Slack() as slack, served(slack) as adapter:
            async with hearing(adapter, Desk()) as desk:
                for ago, kind in enumerate(("application/json", FORM)):
                    at = int(time.time()) - 2 * ago - 2
                    status, _ = await slack.knock(body, kind, timestamp=at)
                    assert status in (200, 404, 503)
                alice = slack.person("Alice")
                slack.write(alice, "hello")
                await desk.have(1)
        assert desk.texts() == ["hello"]


class TestAnswering:
    async def test_what_cannot_be_accepted_in_time_comes_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bots.slack.requests.ANSWER_SECONDS", 0.1)
        async with Slack(retry_seconds=(0.05,) * 60) as slack, served(slack) as adapter:
            desk = Desk()
            desk.open.clear()
            async with hearing(adapter, desk):
                (told,) = slack.write(slack.person("Alice"), "hello")
                await slack.until(lambda: len(told.reasons) >= 2)
                assert len(desk.asked) == 1, "it stands in line already"
                desk.open.set()
                await slack.settle()
        assert told.state == "acknowledged"
        assert len({inbound.id for inbound in desk.accepted}) == 1

    async def test_a_command_is_answered_there_and_then(self) -> None:
        body = (
            b"command=%2Fchinwag&text=reset&team_id=TEAM&channel_id=CHANNEL&user_id=USER"
            b"&trigger_id=1.2.3&response_url=https%3A%2F%2Fexample.org"
        )
        async with Slack() as slack, served(slack) as adapter:
            alice, general = slack.person("Alice"), slack.channel("general")
            refusing = Desk(Refused("not **you**", private=True))
            async with hearing(adapter, refusing):
                body = body.replace(b"TEAM", slack.team.id.encode())
                body = body.replace(b"USER", alice.id.encode())
                in_channel = body.replace(b"CHANNEL", general.id.encode())
                status, answer = await slack.knock(in_channel, FORM)
                assert status == 200 and "each thread is a conversation" in answer
                assert json.loads(answer)["response_type"] == "ephemeral"
                direct = body.replace(b"CHANNEL", slack.chat(alice).id.encode())
                status, answer = await slack.knock(direct, FORM)
                assert status == 200 and "not *you*" in json.loads(answer)["text"].replace(
                    "**", "*"
                )
            assert [inbound.text for inbound in refusing.asked] == ["/reset"]


async def test_by_socket_mode_nobody_comes() -> None:
    async with Slack() as slack:
        adapter = make(slack)
        assert list(adapter.routes(Desk().accept)) == []
        await adapter.close()


def test_without_a_signing_secret_nobody_could_be_known() -> None:
    with pytest.raises(PlatformRefused, match="SLACK_SIGNING_SECRET"):
        SlackAdapter("xoxb-1-2")
