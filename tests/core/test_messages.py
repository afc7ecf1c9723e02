"""Text at the border, and blocks that stay as they are."""

from __future__ import annotations

import unicodedata

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from core.messages import (
    CUT_NOTE,
    MAX_INBOUND_CHARACTERS,
    Inbound,
    Message,
    Outbound,
    Sender,
    clean,
    cut,
    decode_blocks,
    encode_blocks,
    is_one_text,
    text_block,
    text_of,
)

# With the halves of surrogate pairs, which JSON can carry and no encoder takes.
ANY_TEXT = st.text(st.characters() | st.characters(categories=["Cs"]) | st.sampled_from("\r\n\0\t"))


@given(ANY_TEXT)
@example("\ud800")
@example("a\ud800b")
@example("\ud83d\ude42")
@example("\ud83d\ud83d\ude42")
@example("\udc00\ud800")
@example("\r\r\n\n")
@example("\x1b[31m\x9b31m\x85")
def test_clean_text_is_taken_by_every_encoder(text: str) -> None:
    cleaned = clean(text)
    assert cleaned.encode().decode() == cleaned
    assert cleaned.encode("utf-16").decode("utf-16") == cleaned
    assert {char for char in cleaned if unicodedata.category(char) == "Cc"} <= {"\n", "\t"}
    assert clean(cleaned) == cleaned
    blocks = encode_blocks([text_block(cleaned)])
    assert text_of(blocks) == cleaned


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t")))
def test_clean_leaves_alone_what_is_clean(text: str) -> None:
    assert clean(text) == text


def test_what_clean_makes_of_what_is_not() -> None:
    assert clean("\ud83d\ude42") == "\U0001f642"
    assert clean("a\ud800b\udc00") == "a\ufffdb\ufffd"
    assert clean("a\0b") == "a\ufffdb"
    assert clean("a\x1b\x7f\x9bb") == "ab"
    assert clean("a\r\nb\rc\nd\te") == "a\nb\nc\nd\te"


def test_cut_says_that_it_cut() -> None:
    longest = "x" * MAX_INBOUND_CHARACTERS
    assert cut(longest) == longest
    assert cut(longest + "y") == longest + CUT_NOTE
    assert cut("abc", 2) == "ab" + CUT_NOTE


def test_text_of_blocks_is_what_a_person_reads() -> None:
    blocks = encode_blocks(
        [
            text_block("a"),
            {"type": "tool_use", "id": "1", "name": "n", "input": {}},
            text_block("b"),
            {"no": "type"},
        ]
    )
    assert text_of(blocks) == "ab"
    assert text_of(encode_blocks([])) == ""


@pytest.mark.parametrize("blocks", [b"{}", b"[1]", b"[", b'"[]"'])
def test_blocks_are_an_array_of_objects(blocks: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_blocks(Raw(blocks))


def test_blocks_are_kept_byte_for_byte() -> None:
    verbatim = rb'[ {"type" : "thinking",  "signature":"caf\u00e9", "n": 1.0e2} ]'
    message = Message(seq=1, role="assistant", blocks=Raw(verbatim), at=0)
    again = msgspec.json.decode(msgspec.json.encode(message), type=Message)
    assert bytes(again.blocks) == verbatim
    assert again == message


@pytest.mark.parametrize(
    "value",
    [
        Message(seq=1, role="user", blocks=Raw(b"[]"), at=0),
        Message(seq=1, role="user", blocks=Raw(b"[]"), at=5, sender="t:1", message_ids=("1", "2")),
        Inbound(id="1", key="t:1", kind="message", sender=Sender("t:1"), text="hi"),
        Inbound(
            id="1",
            key="t:1",
            kind="command",
            sender=Sender("t:1", "Ann"),
            text="/help",
            blocks=Raw(b'[{"type":"image"}]'),
            message_id="7",
            reply_to="6",
            group=True,
            at=9,
        ),
        Outbound(id="x.0", body="hi"),
        Outbound(id="x.0", body=None, state="held", replaces="7", reply_to="6"),
    ],
)
def test_values_are_frozen_and_survive_being_stored(value: Message | Inbound | Outbound) -> None:
    encoded = msgspec.json.encode(value)
    assert msgspec.json.decode(encoded, type=type(value)) == value
    with pytest.raises(AttributeError):
        setattr(value, value.__struct_fields__[0], "other")
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(encoded[:-1] + b',"unknown":1}', type=type(value))


@given(st.lists(st.text(), min_size=1, max_size=3))
def test_what_is_one_text_at_a_glance_is_one(texts: list[str]) -> None:
    blocks = bytes(encode_blocks([text_block(text) for text in texts]))

    assert is_one_text(blocks) <= (len(texts) == 1)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "blob", "id": "1"}},
        {"type": "blob", "id": "1"},
        {"type": "tool_use", "id": "1", "name": "look", "input": {}},
        {"type": "tool_result", "tool_use_id": "1", "content": "ok"},
    ],
)
def test_nothing_else_is_taken_for_a_text(block: dict[str, object]) -> None:
    words = text_block("just words")

    assert is_one_text(bytes(encode_blocks([words])))
    assert not is_one_text(bytes(encode_blocks([block])))
    assert not is_one_text(bytes(encode_blocks([words, block])))
    assert not is_one_text(b"[]")
