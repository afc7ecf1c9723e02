"""What a person reads of Slack's blocks, and which blocks Slack takes."""

from typing import Any

import pytest

from playground.slack_blocks import checked
from playground.slack_chats import Refused
from playground.slack_text import mentioned, pings, rich_text, shown, unescaped

Json = dict[str, Any]


def text(said: str, kind: str = "mrkdwn") -> Json:
    return {"type": kind, "text": said}


def test_the_rich_text_of_what_people_write() -> None:
    said = "<@U0A|al> in <#C0B|help>: <!here> <https://a.example/?b&amp;c|see> 1 &lt; 2"
    (block,) = rich_text(said, "b1")
    elements = block["elements"][0]["elements"]
    assert [element["type"] for element in elements] == [
        "user",
        "text",
        "channel",
        "text",
        "broadcast",
        "text",
        "link",
        "text",
    ]
    assert elements[6] == {"type": "link", "url": "https://a.example/?b&amp;c", "text": "see"}
    assert elements[7]["text"] == " 1 < 2"
    assert mentioned(said) == {"U0A"}
    assert unescaped("&amp;lt;") == "&lt;"


@pytest.mark.parametrize(
    ("block", "read"),
    [
        ({"type": "markdown", "text": "**a**"}, "**a**"),
        ({"type": "section", "text": text("a"), "fields": [text("b"), text("c")]}, "a\nb\nc"),
        ({"type": "header", "text": text("a", "plain_text")}, "a"),
        ({"type": "context", "elements": [text("a"), {"type": "image"}, text("b")]}, "a b"),
        (
            {
                "type": "table",
                "rows": [[text("a", "raw_text"), {"type": "raw_number", "value": 3}], ["odd"]],
            },
            "a | 3\n",
        ),
        (
            {
                "type": "rich_text",
                "elements": [
                    {
                        "type": "rich_text_section",
                        "elements": [
                            text("a ", "text"),
                            {"type": "user", "user_id": "U0A"},
                            {"type": "channel", "channel_id": "C0B"},
                            {"type": "broadcast", "range": "here"},
                            {"type": "link", "url": "https://a.example"},
                            {"type": "emoji", "name": "wave"},
                            "odd",
                        ],
                    },
                    {
                        "type": "rich_text_list",
                        "elements": [
                            {"type": "rich_text_section", "elements": [text("b", "text")]}
                        ],
                    },
                ],
            },
            "a <@U0A><#C0B><!here>https://a.example:wave:b",
        ),
        ({"type": "divider"}, "fallback"),
        ("odd", "fallback"),
    ],
)
def test_what_is_read_of_blocks(block: Any, read: str) -> None:
    assert shown({"text": "fallback", "blocks": [block]}) == read


def test_pings_without_blocks() -> None:
    assert pings({"text": "<!channel|all> &lt;!here&gt;"}) == ["channel"]
    assert shown({"text": None}) == ""


BUTTON: Json = {"type": "button", "text": text("a", "plain_text")}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "odd"},
        {"type": "markdown", "text": ""},
        {"type": "section"},
        {"type": "section", "text": text("")},
        {"type": "section", "text": text("a", "odd")},
        {"type": "section", "fields": [text("a")] * 11},
        {"type": "header", "text": text("a")},
        {"type": "header", "text": text("a" * 151, "plain_text")},
        {"type": "image", "image_url": "https://a.example"},
        {"type": "actions", "elements": []},
        {"type": "actions", "elements": [BUTTON] * 26},
        {"type": "actions", "elements": [{"text": "a"}]},
        {"type": "actions", "elements": [{"type": "button"}]},
        {"type": "actions", "elements": [BUTTON | {"action_id": "a" * 256}]},
        {"type": "actions", "elements": [BUTTON | {"value": "a" * 2001}]},
        {"type": "divider", "block_id": "a" * 256},
    ],
)
def test_blocks_that_slack_refuses(block: Json) -> None:
    with pytest.raises(Refused, match="invalid_blocks") as caught:
        checked([block])
    (fault,) = caught.value.more["errors"]
    assert fault.startswith("[ERROR] ") and fault.endswith("[json-pointer:/blocks/0]")


def test_a_block_id_stands_once() -> None:
    good: list[Json] = [{"type": "divider", "block_id": "a"}, {"type": "divider", "block_id": "b"}]
    assert checked(good) == good
    with pytest.raises(Refused, match="invalid_blocks"):
        checked([good[0], good[0]])
