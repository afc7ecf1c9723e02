"""Files in both directions: from Slack's own hosts alone, and found again when it is unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bots.contracts.adapter import Desk, running
from bots.slack import files as files_module
from bots.slack.adapter import SlackAdapter
from core.errors import NotFetched, OutcomeUnknown, TryLater, Undeliverable
from core.messages import Attachment, File, Inbound, Outbound
from playground.slack import Answer, Error, Fault, Redirect, ResetAfter, ResetBefore, Slack
from tests.bots.slack.world import make

PICTURE = b"\x89PNG" + bytes(range(256)) * 40


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack() as server:
        yield server


@pytest.fixture
async def adapter(slack: Slack) -> AsyncIterator[SlackAdapter]:
    adapter = make(slack)
    yield adapter
    await adapter.close()


async def shared(slack: Slack, adapter: SlackAdapter, **more: Any) -> Inbound:
    async with running(adapter, Desk()) as desk:
        slack.share(slack.person("Alice"), "cat.png", PICTURE, "image/png", **more)
        (inbound,) = await desk.have(1)
    return inbound


class TestIn:
    @pytest.mark.parametrize("stub", [False, True], ids=["with its address", "by its id"])
    async def test_a_file(self, slack: Slack, adapter: SlackAdapter, stub: bool) -> None:
        inbound = await shared(slack, adapter, stub=stub)
        (attachment,) = inbound.attachments
        fetched = await adapter.fetch(inbound.key, attachment)
        assert fetched.data == PICTURE
        assert len(slack.called("files.info")) == (1 if stub else 0)
        if not stub:
            assert (fetched.name, fetched.media_type) == ("cat.png", "image/png")

    @pytest.mark.parametrize(
        "url",
        [
            "https://example.org/cat.png",
            "http://files.slack.com/files-pri/T1-F1/cat.png",
            "https://files.slack.com.example.org/cat.png",
            "https://files.slack.com@example.org/cat.png",
            "https://example.org/files.slack.com",
            "file:///etc/passwd",
            "",
        ],
    )
    async def test_nothing_is_asked_elsewhere(
        self, slack: Slack, adapter: SlackAdapter, url: str
    ) -> None:
        with pytest.raises(NotFetched):
            await adapter.fetch(f"slack-dm:{slack.team.id}/D1", Attachment("photo", url))
        assert not slack.called("files.download")

    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            (Redirect("https://example.org/elsewhere"), NotFetched),
            (Answer(404), NotFetched),
            (Answer(503), TryLater),
            (Answer(429, retry_after=3), TryLater),
            (ResetBefore(), TryLater),
        ],
        ids=str,
    )
    async def test_what_is_not_given(
        self, slack: Slack, adapter: SlackAdapter, fault: Fault, expected: type[Exception]
    ) -> None:
        inbound = await shared(slack, adapter)
        # A connection that had been idle is tried once more by the client itself.
        slack.fault("files.download", fault, times=None)
        with pytest.raises(expected) as caught:
            await adapter.fetch(inbound.key, inbound.attachments[0])
        assert slack.token not in str(caught.value)

    async def test_a_page_to_sign_in_is_no_file(self) -> None:
        async with Slack(scopes=frozenset({"chat:write", "im:history"})) as slack:
            adapter = make(slack)
            inbound = await shared(slack, adapter)
            with pytest.raises(NotFetched, match="does not give it out"):
                await adapter.fetch(inbound.key, inbound.attachments[0])
            await adapter.close()

    @pytest.mark.parametrize("told", [True, False])
    async def test_what_is_too_large(
        self, slack: Slack, adapter: SlackAdapter, told: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files_module, "MAX_BYTES", 1_000)
        inbound = await shared(slack, adapter)
        (attachment,) = inbound.attachments
        if not told:
            attachment = Attachment("photo", attachment.id)
        with pytest.raises(NotFetched, match="larger"):
            await adapter.fetch(inbound.key, attachment)
        assert len(slack.called("files.download")) == (0 if told else 1)

    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            (Error("file_not_found"), NotFetched),
            (Answer(429, retry_after=3), TryLater),
            (Answer(500), TryLater),
        ],
        ids=str,
    )
    async def test_what_nobody_knows_by_its_id(
        self, slack: Slack, adapter: SlackAdapter, fault: Fault, expected: type[Exception]
    ) -> None:
        slack.fault("files.info", fault)
        with pytest.raises(expected):
            await adapter.fetch(f"slack-dm:{slack.team.id}/D1", Attachment("photo", "F0CAT00001"))

    async def test_of_another_workspace(self, adapter: SlackAdapter) -> None:
        with pytest.raises(NotFetched):
            await adapter.fetch("slack-dm:T0OTHER/D1", Attachment("photo", "F0CAT00001"))


class TestOut:
    def part(self) -> Outbound:
        file = File("notes.html", "text/html", "html", 1, 2, 0)
        return Outbound("part", "", file=file)

    async def key(self, slack: Slack, adapter: SlackAdapter) -> str:
        async with running(adapter, Desk()) as desk:
            slack.write(slack.person("Alice"), "hello")
            (inbound,) = await desk.have(1)
        return inbound.key

    async def test_an_upload_whose_end_is_unknown_is_found(
        self, slack: Slack, adapter: SlackAdapter
    ) -> None:
        key = await self.key(slack, adapter)
        slack.fault("files.completeUploadExternal", ResetAfter())
        with pytest.raises(OutcomeUnknown):
            await adapter.send_file(key, self.part(), b"notes", uncertain=False)
        receipt = await adapter.send_file(key, self.part(), b"notes", uncertain=True)
        assert len(receipt.message_ids) == 1
        assert len(slack.called("files.completeUploadExternal")) == 1
        await adapter.send_file(key, self.part(), b"others", uncertain=True)
        assert len(slack.called("files.completeUploadExternal")) == 2

    @pytest.mark.parametrize("fault", [Answer(500), ResetBefore(), ResetAfter()], ids=str)
    async def test_what_was_not_uploaded_is_tried_again(
        self, slack: Slack, adapter: SlackAdapter, fault: Fault
    ) -> None:
        key = await self.key(slack, adapter)
        slack.fault("files.upload", fault)
        with pytest.raises(TryLater):
            await adapter.send_file(key, self.part(), b"notes", uncertain=False)
        await adapter.send_file(key, self.part(), b"notes", uncertain=False)
        assert len(slack.called("files.completeUploadExternal")) == 1

    async def test_nothing(self, slack: Slack, adapter: SlackAdapter) -> None:
        key = await self.key(slack, adapter)
        with pytest.raises(Undeliverable):
            await adapter.send_file(key, self.part(), b"", uncertain=False)
        with pytest.raises(Undeliverable):
            await adapter.send_file("console:default", self.part(), b"x", uncertain=False)
