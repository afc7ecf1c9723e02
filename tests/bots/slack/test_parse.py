"""What Slack sends -> Inbound: who is meant, whose conversation it is, and what is nobody's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bots.slack.acts import COMMANDS_IN_THREADS, Hint
from bots.slack.keys import address
from bots.slack.opened import Opened, Reset
from bots.slack.parse import parse, team_of
from bots.slack.rules import Me, Rules
from core.feedback import Opinion
from core.messages import Attachment, Inbound

ME = Me("T1", "UBOT", "BBOT", "chinwag")
RULES = Rules(words=frozenset({"reset", "stop", "model", "start"}))
TS, ROOT, LATER = "1700000000.000100", "1690000000.000200", "1700000009.000300"
ID = "T1/C1/001700000000.000100"


def body(event: dict[str, Any], **around: Any) -> dict[str, Any]:
    envelope: dict[str, Any] = {
        "token": "x",
        "team_id": "T1",
        "api_app_id": "A1",
        "type": "event_callback",
        "event_id": "Ev1",
        "event": event,
        "authorizations": [{"team_id": "T1", "user_id": "UBOT", "is_bot": True}],
    }
    return envelope | around


def message(text: str = "hello", **more: Any) -> dict[str, Any]:
    event: dict[str, Any] = {
        "type": "message",
        "channel": "C1",
        "channel_type": "channel",
        "user": "U1",
        "text": text,
        "ts": TS,
        "event_ts": TS,
        "team": "T1",
    }
    return event | more


def direct(text: str = "hello", **more: Any) -> dict[str, Any]:
    return message(text, channel="D1", channel_type="im", **more)


def heard(event: dict[str, Any], rules: Rules = RULES, **around: Any) -> Inbound | None:
    found = parse(body(event, **around), ME, rules)
    assert not isinstance(found, Hint | Opinion | Opened | Reset)
    return found


def told(event: dict[str, Any], rules: Rules = RULES, **around: Any) -> Inbound:
    found = heard(event, rules, **around)
    assert found is not None
    return found


class TestWhoIsMeant:
    def test_a_direct_message(self) -> None:
        said = told(direct(user_profile={"display_name": "Ada\u202e", "real_name": "Ada L"}))
        assert (said.key, said.kind, said.text) == ("slack-dm:T1/D1", "message", "hello")
        assert (said.sender.id, said.sender.name) == ("slack:T1/U1", "Ada")
        assert (said.message_id, said.group, said.follows) == (TS, False, False)
        assert said.at == 1_700_000_000_000

    def test_a_mention_opens_a_thread(self) -> None:
        said = told(message("<@UBOT> hello"))
        assert (said.key, said.text) == (f"slack-thread:T1/C1/{TS}", "hello")
        assert (said.id, said.group, said.follows) == (ID, True, False)

    def test_both_events_of_one_post_are_one_message(self) -> None:
        mention = message("<@UBOT> hello", type="app_mention")
        del mention["channel_type"]
        assert told(message("<@UBOT> hello")) == told(mention, event_id="Ev2")

    def test_a_mention_in_a_thread_is_of_that_thread(self) -> None:
        said = told(message("so, <@UBOT|chinwag>, what now?", thread_ts=ROOT))
        assert (said.key, said.text) == (
            f"slack-thread:T1/C1/{ROOT}",
            "so, @chinwag, what now?",
        )

    @pytest.mark.parametrize("kind", ["channel", "group", "mpim"])
    def test_nobody_is_meant_by_what_names_nobody(self, kind: str) -> None:
        assert heard(message(channel_type=kind)) is None

    def test_in_a_thread_one_is_meant_who_is_in_it(self) -> None:
        said = told(message("go on", thread_ts=ROOT))
        assert (said.key, said.follows) == (f"slack-thread:T1/C1/{ROOT}", True)

    @pytest.mark.parametrize(
        ("event", "rules"),
        [
            (message("go on", thread_ts=ROOT), replace(RULES, thread_follow=False)),
            (message("go on", thread_ts=ROOT), replace(RULES, scope="channel")),
            (message("<@U2> what do you say?", thread_ts=ROOT), RULES),
            (message("go on", thread_ts=TS), RULES),
        ],
        ids=["off", "no threads", "somebody else", "the first of a thread"],
    )
    def test_what_does_not_follow(self, event: dict[str, Any], rules: Rules) -> None:
        assert heard(event, rules) is None

    @pytest.mark.parametrize(
        "more",
        [
            {"bot_id": "B2"},
            {"subtype": "bot_message"},
            {"user": "UBOT"},
            {"user": "USLACK"},
            {"user": "USLACKBOT"},
            {"subtype": "channel_join"},
            {"subtype": "message_replied"},
            {"subtype": "assistant_app_thread"},
            {"user": None},
            {"ts": "yesterday"},
            {"channel": "../etc"},
            {"text": ""},
            {"text": " \n "},
        ],
        ids=str,
    )
    def test_nobody(self, more: dict[str, Any]) -> None:
        assert heard(direct() | more) is None

    @pytest.mark.parametrize("subtype", ["file_share", "thread_broadcast", "me_message"])
    def test_what_else_a_person_writes(self, subtype: str) -> None:
        assert told(direct(subtype=subtype)).text == "hello"

    @pytest.mark.parametrize("field", ["team", "user_team", "source_team"])
    def test_people_of_another_team(self, field: str) -> None:
        foreign = message("<@UBOT> hello") | {field: "T2"}
        assert heard(foreign) is None
        let_in = told(foreign, replace(RULES, teams=frozenset({"T2"})))
        assert let_in.sender.id == "slack:T2/U1"
        assert let_in.key == f"slack-thread:T1/C1/{TS}", "the team is ours"

    def test_the_team_is_the_one_that_we_are_in(self) -> None:
        shared = body(message("<@UBOT> hi"), team_id="T2")
        assert team_of(shared) == "T1"
        assert isinstance(parse(shared, ME, RULES), Inbound)
        assert parse(shared, replace(ME, team="T2"), RULES) is None

    def test_files_alone_count(self) -> None:
        url = "https://files.slack.com/files-pri/T1-F1/download/cat.png"
        files = [
            {"id": "F1", "name": "cat.png", "mimetype": "image/png", "size": 5, "url_private": url},
            {"id": "F2", "mimetype": "audio/mp4", "subtype": "slack_audio", "duration_ms": 2_500},
            {"id": "F3", "title": "a plan", "mimetype": "application/pdf"},
            {},
        ]
        said = told(direct("", subtype="file_share", files=files))
        assert (said.kind, said.text) == ("message", "")
        assert said.attachments == (
            Attachment("photo", url, "cat.png", "image/png", 5),
            Attachment("voice", "F2", "", "audio/mp4", 0, 2),
            Attachment("document", "F3", "a plan", "application/pdf"),
            Attachment("document", ""),
        )


class TestWhoseConversation:
    @pytest.mark.parametrize(
        ("event", "rules", "key"),
        [
            (direct(thread_ts=ROOT), RULES, "slack-dm:T1/D1"),
            (direct(), replace(RULES, agent_view=True), f"slack-thread:T1/D1/{TS}"),
            (direct(thread_ts=ROOT), replace(RULES, agent_view=True), f"slack-thread:T1/D1/{ROOT}"),
            (message("<@UBOT> x"), replace(RULES, scope="channel"), "slack-channel:T1/C1"),
            (message("<@UBOT> x"), replace(RULES, scope="user"), "slack-user:T1/C1/U1"),
            (direct(), replace(RULES, account="work"), "slack-dm@work:T1/D1"),
        ],
    )
    def test_the_key(self, event: dict[str, Any], rules: Rules, key: str) -> None:
        said = told(event, rules)
        assert said.key == key
        to = address(key, rules.account)
        assert to is not None and (to.team, to.channel) == ("T1", event["channel"])

    def test_ids_sort_as_the_times_do(self) -> None:
        early, late = told(direct(ts="999999999.5")), told(direct(ts="1700000000.000001"))
        assert early.id < late.id

    @pytest.mark.parametrize(
        "key",
        [
            "slack-dm:T1",
            "slack-dm:T1/D1/x",
            "slack-thread:T1/C1",
            "slack-thread:T1/C1/now",
            "slack-user:T1/C1/-",
            "slack-dm:t1/D1",
            "slack-other:T1/C1",
        ],
    )
    def test_no_key_of_ours(self, key: str) -> None:
        assert address(key, None) is None


class TestWords:
    @pytest.mark.parametrize(
        ("written", "read"),
        [
            ("<@UBOT>, hello <@UBOT>", "hello"),
            ("<@UBOT>", "@chinwag"),
            ("<@UBOT> <@U2> and <@U3|carol>", "@U2 and @carol"),
            ("<@UBOT> see <#C2|general> and <#C3>", "see #general and #C3"),
            ("<@UBOT> <https://a.org> <https://b.org|here>", "https://a.org here (https://b.org)"),
            ("<@UBOT> <mailto:a@b.org|a@b.org>", "a@b.org"),
            ("<@UBOT> <!here> <!subteam^S1|@ops> <!subteam^S2>", "@here @ops @S2"),
            ("<@UBOT> 1 &lt; 2 &amp;&amp; 3 &gt; 2 &amp;lt;", "1 < 2 && 3 > 2 &lt;"),
        ],
    )
    def test_what_a_person_has_written(self, written: str, read: str) -> None:
        assert told(message(written)).text == read

    @pytest.mark.parametrize(
        ("event", "text"),
        [
            (direct("!reset"), "/reset"),
            (direct("!Model  claude  3 "), "/model claude  3"),
            (direct(" /reset"), "/reset"),
            (message("<@UBOT> reset"), "/reset"),
            (message("<@UBOT> !stop"), "/stop"),
            (message("!stop", thread_ts=ROOT), "/stop"),
        ],
    )
    def test_commands(self, event: dict[str, Any], text: str) -> None:
        said = told(event)
        assert (said.kind, said.text) == ("command", text)

    @pytest.mark.parametrize(
        "event", [direct("reset"), direct("!unknown"), message("<@UBOT> stop talking")]
    )
    def test_no_commands(self, event: dict[str, Any]) -> None:
        assert told(event).kind == "message"


class TestEdits:
    def changed(self, now: dict[str, Any], before: dict[str, Any], **more: Any) -> dict[str, Any]:
        event: dict[str, Any] = {
            "type": "message",
            "subtype": "message_changed",
            "hidden": True,
            "channel": "C1",
            "channel_type": "channel",
            "ts": LATER,
            "event_ts": LATER,
            "message": now,
            "previous_message": before,
        }
        return event | more

    def test_an_edit(self) -> None:
        before = message("<@UBOT> helo")
        now = message("<@UBOT> hello", edited={"user": "U1", "ts": LATER})
        said = told(self.changed(now, before))
        assert (said.kind, said.text, said.message_id) == ("edit", "hello", TS)
        assert (said.key, said.follows) == (told(before).key, True)
        assert said.id == f"{ID}/001700000009.000300"

    @pytest.mark.parametrize(
        "now",
        [
            message("<@UBOT> hello", attachments=[{}]),
            message("<@UBOT> hello", edited={"ts": LATER}),
            message("<@UBOT> other", edited={"ts": LATER}, bot_id="B2"),
        ],
        ids=["unfurled", "the same text", "a bot's"],
    )
    def test_none(self, now: dict[str, Any]) -> None:
        assert heard(self.changed(now, message("<@UBOT> hello"))) is None

    def test_a_deletion(self) -> None:
        gone = {
            **message(),
            "subtype": "message_deleted",
            "deleted_ts": TS,
            "ts": LATER,
            "event_ts": LATER,
            "previous_message": message("<@UBOT> hello"),
        }
        said = told(gone)
        assert (said.kind, said.text, said.message_id) == ("edit", "", TS)

    def test_a_tombstone(self) -> None:
        stone = message("This message was deleted.", subtype="tombstone", user="USLACKBOT")
        said = told(self.changed(stone, message("<@UBOT> hello", thread_ts=TS)))
        assert (said.kind, said.text, said.sender.id) == ("edit", "", "slack:T1/U1")


class TestActs:
    def test_the_button_beside_a_status(self) -> None:
        event = {
            "type": "agent_session_stopped",
            "channel": "C1",
            "thread_ts": ROOT,
            "user": "U1",
            "event_ts": LATER,
        }
        said = told(event)
        assert (said.kind, said.text, said.key) == (
            "command",
            "/stop",
            f"slack-thread:T1/C1/{ROOT}",
        )

    def slash(self, **more: Any) -> dict[str, Any]:
        fields = {
            "command": "/chinwag",
            "text": "model x",
            "team_id": "T1",
            "channel_id": "D1",
            "user_id": "U1",
            "user_name": "ada",
            "trigger_id": "1.2.abc",
        }
        return fields | more

    @pytest.mark.parametrize(
        ("more", "text"),
        [
            ({}, "/model x"),
            ({"text": ""}, "/help"),
            ({"text": "/reset"}, "/reset"),
            ({"command": "/reset", "text": ""}, "/reset"),
        ],
    )
    def test_a_slash_command(self, more: dict[str, Any], text: str) -> None:
        said = parse(self.slash(**more), ME, RULES)
        assert isinstance(said, Inbound)
        assert (said.kind, said.text, said.key) == ("command", text, "slack-dm:T1/D1")

    def test_a_slash_command_has_no_thread(self) -> None:
        assert parse(self.slash(channel_id="C1"), ME, RULES) == COMMANDS_IN_THREADS
        agent = replace(RULES, agent_view=True)
        assert parse(self.slash(), ME, agent) == COMMANDS_IN_THREADS
        said = parse(self.slash(channel_id="C1"), ME, replace(RULES, scope="channel"))
        assert isinstance(said, Inbound) and said.key == "slack-channel:T1/C1"

    def test_a_slash_command_from_another_team(self) -> None:
        assert parse(self.slash(team_id="T2"), ME, RULES) is None

    def shortcut(self, **more: Any) -> dict[str, Any]:
        payload = {
            "type": "message_action",
            "callback_id": "chinwag_reset",
            "team": {"id": "T1"},
            "user": {"id": "U1", "name": "ada", "team_id": "T1"},
            "channel": {"id": "C1"},
            "message": message(thread_ts=ROOT),
            "action_ts": LATER,
        }
        return payload | more

    def test_the_shortcut(self) -> None:
        said = parse(self.shortcut(), ME, RULES)
        assert isinstance(said, Inbound)
        assert (said.kind, said.text, said.key) == (
            "command",
            "/reset",
            f"slack-thread:T1/C1/{ROOT}",
        )
        assert parse(self.shortcut(callback_id="other"), ME, RULES) is None

    def pressed(self, **more: Any) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "type": "block_actions",
            "team": {"id": "T1"},
            "user": {"id": "U1", "username": "ada", "team_id": "T1"},
            "container": {"type": "message", "message_ts": TS, "channel_id": "C1"},
            "actions": [
                {
                    "action_id": "chinwag_approval_0",
                    "value": f"+yes@slack-thread:T1/C1/{ROOT}",
                    "action_ts": LATER,
                }
            ],
        }
        return payload | more

    def test_a_press(self) -> None:
        said = parse(self.pressed(), ME, RULES)
        assert isinstance(said, Inbound)
        assert (said.kind, said.text, said.key) == (
            "decision",
            "+yes",
            f"slack-thread:T1/C1/{ROOT}",
        )
        assert (said.message_id, said.sender.id) == (TS, "slack:T1/U1")

    @pytest.mark.parametrize(
        "more",
        [
            {"container": {"message_ts": TS, "channel_id": "C2"}},
            {"actions": [{"action_id": "other", "value": "x", "action_ts": LATER}]},
            {"actions": [{"action_id": "chinwag_approval", "value": "x", "action_ts": LATER}]},
            {
                "actions": [
                    {
                        "action_id": "chinwag_approval",
                        "value": f"+yes@slack-thread:T2/C1/{ROOT}",
                        "action_ts": LATER,
                    }
                ]
            },
            {"user": {"id": "U1", "team_id": "T2"}},
        ],
        ids=["another channel", "another button", "no key", "another team's key", "a foreigner"],
    )
    def test_no_press_of_ours(self, more: dict[str, Any]) -> None:
        assert parse(self.pressed(**more), ME, RULES) is None


SEEN: Final = ("app_home_opened", "app_home_opened_home", "assistant_thread_started")
PAYLOADS: Final = Path(__file__).parents[2] / "payloads" / "slack"
HEARD: Final = {
    "agent_session_stopped": "command",
    "app_mention": "message",
    "app_mention_edited": "message",
    "app_mention_file": "message",
    "app_mention_thread": "message",
    "file_share": "message",
    "file_share_deleted": "message",
    "file_share_mention": "message",
    "file_share_remote": "message",
    "file_share_voice": "message",
    "message_app_context": "message",
    "message_changed": "edit",
    "message_changed_tombstone": "edit",
    "message_channel_mention": "message",
    "message_deleted": "edit",
    "message_enterprise": "message",
    "message_im": "message",
    "message_im_thread": "message",
    "message_rich": "message",
    "message_thread": "message",
    "slash_command": "",
    "slash_command_enterprise": "",
    "slash_command_im": "command",
    "thread_broadcast": "message",
}

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_fields = [
    *(field.encode_name for field in msgspec.structs.fields(Inbound)),
    *("type subtype channel channel_type user text ts thread_ts bot_id team user_team".split()),
    *("files edited message previous_message event_ts user_profile".split()),
]
_values = _json | st.sampled_from(
    ["message", "app_mention", "im", "C1", "D1", "U1", "T1", TS, "<@UBOT> hi", "message_changed"]
)
_event = st.dictionaries(st.sampled_from(_fields), _values, max_size=12)


class TestAnyJson:
    @given(_json)
    def test_anything(self, anything: object) -> None:
        assert parse(anything, ME, RULES) is None
        assert team_of(anything) is None

    @given(_event, _event)
    def test_anything_that_looks_like_an_event(
        self, event: dict[str, Any], inner: dict[str, Any]
    ) -> None:
        base = message("<@UBOT> hello", message=inner, previous_message=inner)
        found = parse(body(base | event), ME, RULES)
        assert not isinstance(found, Hint)
        if isinstance(found, Inbound):
            assert address(found.key, None) is not None
            assert msgspec.json.decode(msgspec.json.encode(found), type=Inbound) == found

    @given(st.text())
    def test_any_text(self, text: str) -> None:
        said = heard(direct(text))
        assert said is None or said.text.encode() is not None

    @pytest.mark.parametrize("file", sorted(PAYLOADS.glob("*.json")), ids=lambda file: file.stem)
    def test_recorded_payloads(self, file: Path) -> None:
        payload = json.loads(file.read_text())
        team = team_of(payload) or "T0ACMETEAM1"
        me = Me(team, "U0CHINWAGBT", "B0CHINWAGBT")
        found = parse(payload, me, RULES)
        if file.stem in SEEN:
            assert isinstance(found, Opened)
            return
        assert (found is not None) == (file.stem in HEARD), found
        if isinstance(found, Inbound):
            assert address(found.key, None) is not None
            assert found.kind == HEARD[file.stem]
            assert parse(payload, me, RULES) == found

    def test_what_is_nested_without_end(self) -> None:
        deep: dict[str, Any] = {}
        for _ in range(100_000):
            deep = {"message": deep, "type": "message"}
        assert parse(body(deep), ME, RULES) is None
