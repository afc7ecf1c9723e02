"""A history as a document: nothing is lost in JSON, and nothing of a text does anything in HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import history
from core.messages import Message, encode_blocks, text_block
from core.store import Blob
from core.transcript import FORMS, About, Document, Form

ABOUT = About("telegram-chat:1", "helper <1>", 1_700_000_000_000)
PNG = Blob("image/png", b"\x89PNG")


def row(
    seq: int, *blocks: dict[str, Any], role: Any = "user", sender: str | None = "t:1"
) -> Message:
    return Message(seq, role, encode_blocks(blocks), 1_700_000_000_000 + seq, sender)


ROWS = (
    row(1, text_block("<from>Ann</from>\nhello <script>alert(1)</script>\n  & \u202e\0 ```x```")),
    row(
        2,
        {"type": "thinking", "thinking": "hidden", "signature": "s"},
        text_block("I look."),
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "</pre>"}},
        role="assistant",
        sender=None,
    ),
    row(
        3,
        history.result("c1", [text_block("four"), {"type": "image", "source": {"id": "b1"}}]),
        history.result("c2", "```\nplain\n```", error=True),
        sender=None,
    ),
    row(
        4,
        {"type": "image", "source": {"type": "blob", "id": "b1", "media_type": "image/png"}},
        {"type": "document", "source": {"type": "blob", "id": "b2"}},
        {"type": "surprise"},
        sender=None,
    ),
)


def document(name: str, blobs: dict[str, Blob] | None = None) -> str:
    form, blobs = FORMS[name], blobs or {}
    rows = form.between.join(form.row(each, ABOUT, blobs) for each in ROWS)
    return form.head(ABOUT) + rows + form.foot(blobs)


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def test_html_shows_all_and_runs_nothing() -> None:
    text = document("html", {"b1": PNG, "b2": Blob("text/html", b"<script>")})
    reader = read(text)
    assert "script" not in reader.tags
    for words in ("hello <script>alert(1)</script>", "weather", '"</pre>"', "four", "plain"):
        assert words in reader.text
    assert "hidden" not in reader.text
    assert "Ann" in reader.text and "<from>" not in reader.text
    assert [v for k, v in reader.attributes if k == "src"] == ["data:image/png;base64,iVBORw=="] * 2
    assert "[document]" in reader.text and "[surprise]" in reader.text
    assert not [k for k, _ in reader.attributes if k.startswith("on") or k == "href"]
    assert "default-src 'none'" in text and "http:" not in text and "https:" not in text
    assert "color-scheme:light dark" in text and "@media print" in text
    assert "\0" not in text


def test_an_image_that_is_not_at_hand_is_named() -> None:
    reader = read(document("html"))
    assert "img" not in reader.tags and reader.text.count("[image]") == 2


@given(st.text(), st.text())
def test_no_text_is_markup(text: str, name: str) -> None:
    form = FORMS["html"]
    message = row(1, text_block(text), {"type": "tool_use", "id": "1", "name": name, "input": text})
    tags = read(form.row(message, ABOUT, {})).tags
    plain = row(1, text_block("x"), {"type": "tool_use", "id": "1", "name": "x", "input": "x"})
    expected = read(form.row(plain, ABOUT, {})).tags
    assert [tag for tag in tags if tag != "b"] == [tag for tag in expected if tag != "b"]


def test_markdown_says_who_said_what() -> None:
    text = document("markdown")
    assert text.startswith("# helper <1> · 2023-11-14 22:13 UTC\n\n### t:1 · 2023-11-14")
    assert "**Ann:** hello" in text
    assert "`weather`\n\n```\n" in text
    assert "````\n```\nplain\n```\n````" in text, "a fence is longer than those within"
    assert "[image]" in text and "[surprise]" in text and "hidden" not in text
    assert not re.search(r"[\0-\x08]", text)


def test_json_is_complete_and_can_be_read_again() -> None:
    again = msgspec.json.decode(document("json", {"b1": PNG}), type=Document)
    assert again.messages == ROWS
    assert (again.format, again.version) == ("chinwag conversation", 1)
    assert (again.key, again.agent, again.exported_at) == (ABOUT.key, ABOUT.agent, ABOUT.at)
    assert again.blobs == {"b1": {"media_type": "image/png", "data": "iVBORw=="}}


@pytest.mark.parametrize("name", FORMS)
def test_a_document_may_be_empty(name: str) -> None:
    form: Form = FORMS[name]
    text = form.head(ABOUT) + form.foot({})
    assert text.endswith("\n")
    if name == "json":
        assert msgspec.json.decode(text, type=Document).messages == ()


def test_a_summary_is_named_as_one() -> None:
    told = row(9, text_block("so far"), role="summary", sender=None)
    form = FORMS["markdown"]
    assert form.row(told, ABOUT, {}).startswith("### Summary")
