"""What leaves for Telegram: each element of Markdown, and what holds for any text whatsoever."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it.token import Token
from telegram import MessageEntity

from bots.telegram import render as module
from bots.telegram.aside import Aside
from bots.telegram.render import render, units
from bots.telegram.writer import Writer

# --- reading a part ---


@dataclass(frozen=True)
class Entity:
    type: str
    text: str
    argument: str = ""


def messages(markdown: str) -> list[dict[str, Any]]:
    return [json.loads(part) for part in render(markdown)]


def texts(markdown: str) -> list[str]:
    return [message["text"] for message in messages(markdown)]


def entities(message: dict[str, Any]) -> list[Entity]:
    """As Telegram reads them: cut out of UTF-16, which fails within a surrogate pair."""
    encoded = message["text"].encode("utf-16-le")
    return [
        Entity(
            one["type"],
            encoded[2 * one["offset"] : 2 * (one["offset"] + one["length"])].decode("utf-16-le"),
            one.get("url") or one.get("language") or "",
        )
        for one in message.get("entities", ())
    ]


def only(markdown: str) -> tuple[str, list[Entity]]:
    (message,) = messages(markdown)
    return message["text"], entities(message)


# --- elements ---


def test_plain_text_has_no_entities_key() -> None:
    assert render("hello\nthere") == ('{"text":"hello\\nthere"}',)


def test_json_is_compact_and_readable() -> None:
    assert render("**é**") == ('{"text":"é","entities":[{"type":"bold","offset":0,"length":1}]}',)


@pytest.mark.parametrize(
    ("markdown", "text", "marked"),
    [
        ("a **b** c", "a b c", [Entity("bold", "b")]),
        ("a *b* _c_", "a b c", [Entity("italic", "b"), Entity("italic", "c")]),
        ("~~a~~", "a", [Entity("strikethrough", "a")]),
        ("`a  b`", "a  b", [Entity("code", "a  b")]),
        ("***a***", "a", [Entity("bold", "a"), Entity("italic", "a")]),
        ("**a *b* c**", "a b c", [Entity("bold", "a b c"), Entity("italic", "b")]),
        ("**a **b** c**", "a b c", [Entity("bold", "a b c")]),
        ("# A *b*", "A b", [Entity("bold", "A b"), Entity("italic", "b")]),
        ("A\n===\nb", "A\n\nb", [Entity("bold", "A")]),
        ("a\n***\nb", "a\n\n———\n\nb", []),
        ("```py\nx = 1\n```", "x = 1", [Entity("pre", "x = 1", "py")]),
        ("```\n  x\ny\n```", "  x\ny", [Entity("pre", "  x\ny")]),
        ("    x\n    y", "x\ny", [Entity("pre", "x\ny")]),
        ("```py a.py\nx\n```", "a.py\nx", [Entity("pre", "x", "py")]),
        ("```two words?\nx\n```", "words?\nx", [Entity("pre", "x", "two")]),
        ("```what?\nx\n```", "what?\nx", [Entity("pre", "x")]),
        ("```py\n```", "py", []),
        ("> a\n> b\n\nc", "a\nb\n\nc", [Entity("blockquote", "a\nb")]),
        ("> a\n> > b", "a\n\nb", [Entity("blockquote", "a\n\nb")]),
        (
            "> ```\n> x\n> ```\n> **b**",
            "x\n\nb",
            [Entity("blockquote", "x\n\nb"), Entity("pre", "x"), Entity("bold", "b")],
        ),
        ("<b>x</b> <script>", "<b>x</b> <script>", []),
        ("<div>\n\nx & &amp; &lt;", "<div>\n\nx & & <", []),
        ("\\*a\\*", "*a*", []),
        ("a [^1]\n\n[^1]: note", "a [^1]\n\n[^1]: note", []),
        ("[a][b]\n\n[b]: http://e.org 'c'", "[a][b]\n\n[b]: http://e.org 'c'", []),
        ("[x] done", "[x] done", []),
    ],
)
def test_element(markdown: str, text: str, marked: list[Entity]) -> None:
    assert only(markdown) == (text, marked)


def test_indented_code_at_the_start_of_a_quote_is_within_it() -> None:
    assert only(">       x")[1] == [Entity("blockquote", "  x"), Entity("pre", "  x")]


def test_a_block_of_an_unknown_kind_keeps_its_words() -> None:
    writer = Writer()
    module._blocks(writer, [Token("math_block", "", 0, content="a + b")], Aside(0))
    assert writer.page().text == "a + b"


def test_code_is_in_no_other_entity_but_a_quote() -> None:
    assert only("> **a `b` c**")[1] == [
        Entity("blockquote", "a b c"),
        Entity("bold", "a"),
        Entity("code", "b"),
        Entity("bold", "c"),
    ]


def test_code_in_a_link_is_the_link_only() -> None:
    assert only("[`a.b`](https://a.b/c)") == ("a.b", [Entity("text_link", "a.b", "https://a.b/c")])


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("- a\n- b", "• a\n• b"),
        ("text\n- a", "text\n\n• a"),
        ("- a\n\n- b", "• a\n\n• b"),
        ("3. a\n7) b", "3. a\n\n7) b"),
        ("1. a\n1. b\n1. c", "1. a\n1. b\n1. c"),
        ("1. a\n   - b\n     - c\n2. d", "1. a\n    • b\n        • c\n2. d"),
        ("- a\n  b\n\n  c", "• a\n    b\n\n    c"),
        ("1.\n2. b", "1. \n2. b"),
        ("- 1. a", "• 1. a"),
        ("- a\n  ```\n  x\n    y\n  ```\n- b", "• a\nx\n  y\n• b"),
    ],
)
def test_list(markdown: str, text: str) -> None:
    assert texts(markdown) == [text]


def test_indentation_has_an_end() -> None:
    markdown = "\n".join("  " * depth + f"- {depth}" for depth in range(9))
    assert texts(markdown)[0].splitlines()[-1] == " " * 16 + "• 8"


def test_table_is_aligned() -> None:
    text, marked = only("|a|b|c|\n|-|:-:|-:|\n|long *one*|x|1|\n|猫|yyy|100|")
    assert text == (
        "a        |  b  |   c\n---------+-----+----\nlong one |  x  |   1\n猫       | yyy | 100"
    )
    assert marked == [Entity("pre", text)]


def test_table_keeps_cells_beyond_its_header_and_lacks_no_links() -> None:
    text, marked = only("> a|b\n> -|-\n> 1|2|extra [one](https://e.org/x)\n> 3")
    assert "extra one (e.org)" in text
    assert marked[1:] == [
        Entity("pre", text.rpartition("\n")[0]),
        Entity("text_link", "one", "https://e.org/x"),
    ]


def test_a_wide_cell_does_not_pad_the_others() -> None:
    (text,) = texts("a|b\n-|-\n" + "x" * 1000 + "|y\n1|2")
    assert text.endswith("\n1" + " " * 39 + " | 2")


# --- links ---


@pytest.mark.parametrize(
    ("markdown", "text", "url"),
    [
        ("[a](https://e.org/b?c=d)", "a (e.org)", "https://e.org/b?c=d"),
        ("[a](https://E.org:81 't u')", "a (e.org:81: t u)", "https://E.org:81"),
        ("[docs of e.org](http://www.e.org/x)", "docs of e.org", "http://www.e.org/x"),
        ("[http://good.org](http://e.org)", "http://good.org (e.org)", "http://e.org"),
        ("[good.org via e.org](http://e.org)", "good.org via e.org (e.org)", "http://e.org"),
        ("[a.com](http://a.co)", "a.com (a.co)", "http://a.co"),
        ("[a](http://exämple.org)", "a (xn--exmple-cua.org)", "http://xn--exmple-cua.org"),
        ("![alt](http://e.org/i.png)", "alt (e.org)", "http://e.org/i.png"),
        ("[**a**](http://e.org)", "a (e.org)", "http://e.org"),
    ],
)
def test_link_shows_its_host(markdown: str, text: str, url: str) -> None:
    shown, marked = only(markdown)
    assert shown == text
    assert [one.argument for one in marked if one.type == "text_link"] == [url]


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("<http://e.org/x>", "http://e.org/x"),
        ("[http://e.org/x](http://e.org/x)", "http://e.org/x"),
        ("[](http://e.org)", "http://e.org"),
        ("[a]()", "a"),
        ("[]()b", "b"),
        ("[mail](mailto:a@e.org)", "mail (a@e.org)"),
        ("<a@e.org>", "a@e.org"),
        ("[call](tel:+123)", "call (+123)"),
        ("[a](tg://user?id=1)", "a (tg://user?id=1)"),
        ("[a](javascript:b)", "a (javascript:b)"),
        ("[a](README.md)", "a (README.md)"),
        ("[a](http://good.org@e.org)", "a (http://good.org@e.org)"),
        ("[a](http://e.org\\\\@good.org)", "a (http://e.org\\@good.org)"),
        ("[a](http://e%6frg.org)", "a (http://e%6frg.org)"),
        (f"[a](http://e.org/{'x' * 2048})", f"a (http://e.org/{'x' * 2048})"),
    ],
)
def test_what_is_no_link_is_text(markdown: str, text: str) -> None:
    assert only(markdown) == (text, [])


def test_a_link_within_a_link_is_text() -> None:
    text, marked = only("[![alt](http://i.org/x.png)](http://e.org)")
    assert text == "alt (http://i.org/x.png) (e.org)"
    assert marked == [Entity("text_link", "alt (http://i.org/x.png)", "http://e.org")]


def test_an_address_cannot_be_turned_round() -> None:
    assert texts("[\u202egro.doog\u2066](http://e.org)") == ["gro.doog (e.org)"]


# --- what Telegram cannot take ---


@pytest.mark.parametrize("markdown", ["", " \n\t ", "\u200b\u2060", "\x01\x02", "> ", "&nbsp;"])
def test_nothing_to_be_seen_is_no_part(markdown: str) -> None:
    assert render(markdown) == ()


@pytest.mark.parametrize("markdown", ["***", "**", "# ", "```", "[]()", "|", "- ", "~~~~"])
def test_markup_alone_raises_nothing_and_sends_nothing_empty(markdown: str) -> None:
    assert all(text.strip() for text in texts(markdown))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a\0b", "a\ufffdb"),
        ("a\ud800b\udc00", "a\ufffdb\ufffd"),
        ("a\ud83d\ude00b", "a😀b"),
        ("a\x01\x1b\x7fb\tc", "ab\tc"),
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
    ],
)
def test_characters_are_cleaned(source: str, text: str) -> None:
    assert texts(source) == [text]


@pytest.mark.parametrize("markdown", ["> " * 40 + "word", "- " * 40 + "word", "1. " * 30 + "word"])
def test_what_is_too_deep_is_shown_as_it_is(markdown: str) -> None:
    assert texts(markdown) == [markdown]


def test_a_fault_in_the_parser_costs_the_looks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise RecursionError

    monkeypatch.setattr(module, "_page", broken)
    assert only("**a**") == ("**a**", [])


def test_units() -> None:
    assert units("") == 0
    assert units("😀" * 3 + "abc") == 9
    assert units("\ud800") == 1


def test_offsets_agree_with_python_telegram_bot() -> None:
    (message,) = messages("𠌕 **bold** 𝄢 *it😀alic* `c𑁍` ~~s~~ [👨‍👩‍👧](http://e.org)")
    text = message["text"]
    assert text == "𠌕 bold 𝄢 it😀alic c𑁍 s 👨‍👩‍👧 (e.org)"
    marked = {"bold": "bold", "italic": "it😀alic", "code": "c𑁍", "strikethrough": "s"}
    marked["text_link"] = "👨‍👩‍👧"
    ours = [(one["type"], one["offset"], one["length"]) for one in message["entities"]]
    theirs = MessageEntity.adjust_message_entities_to_utf_16(
        text,
        [MessageEntity(type, text.rindex(word), len(word)) for type, word in marked.items()],
    )
    assert ours == [(one.type, one.offset, one.length) for one in theirs]


# --- splitting ---


def test_a_text_that_fits_is_one_part() -> None:
    assert texts("x" * 4096) == ["x" * 4096]
    assert texts("😀" * 2048) == ["😀" * 2048]


def test_the_unit_is_utf_16() -> None:
    assert texts("x" + "😀" * 2048) == ["x" + "😀" * 2047, "😀"]


@pytest.mark.parametrize(
    ("better", "worse"),
    [("\n\n", "\n"), ("\n", ". "), (".” ", " "), ("。", " "), (" ", "")],
)
def test_where_to_cut(better: str, worse: str) -> None:
    first = "x" * 3000 + better
    rest = "y" * 500 + worse + "z" * 1000
    assert texts(first + rest) == [first.strip(), rest]


def test_a_good_place_far_from_the_end_is_not_taken() -> None:
    assert texts("a\n\n" + "word " * 1000)[0].endswith("word")


def test_an_emoji_family_stays_together() -> None:
    family = "👨‍👩‍👧‍👦"
    parts = texts("x" * 4090 + family * 3)
    assert parts == ["x" * 4090, family * 3]


def test_combining_marks_stay_with_their_letter() -> None:
    assert texts("x" * 4095 + "e\u0301\u0302") == ["x" * 4095, "e\u0301\u0302"]
    assert texts("x" * 4000 + " \u0301" + "y" * 200)[1].startswith(("y", " \u0301"))


def test_a_grapheme_longer_than_a_part_is_cut() -> None:
    assert [len(text) for text in texts("e" + "\u0301" * 5000)] == [4096, 905]


def test_a_link_at_the_end_of_a_part_goes_to_the_next_with_its_host() -> None:
    first, second = messages("x " * 2030 + f"[{'label ' * 20}here](https://e.org/{'y' * 900})")
    assert "label" not in first["text"]
    assert second["text"].endswith("here (e.org)")
    assert [one.argument for one in entities(second)] == ["https://e.org/" + "y" * 900]


def test_a_bold_word_without_space_around_is_not_cut() -> None:
    assert texts("x" * 4090 + "**" + "y" * 10 + "**" + "z" * 10) == [
        "x" * 4090,
        "y" * 10 + "z" * 10,
    ]


def test_an_entity_longer_than_a_part_is_closed_and_opened_again() -> None:
    parts = messages(f"**{'word ' * 2000}end**")
    assert [entities(part) for part in parts] == [[Entity("bold", part["text"])] for part in parts]
    assert " ".join(part["text"] for part in parts) == "word " * 2000 + "end"


def test_a_fence_that_fits_is_not_cut() -> None:
    code = "y = 1\n" * 500
    first, second = messages("word " * 600 + f"\n\n```py\n{code}```")
    assert "entities" not in first
    assert entities(second) == [Entity("pre", code.strip(), "py")]


def test_a_long_fence_is_opened_again_in_its_language() -> None:
    code = "def f():\n    return 1\n\n" * 500
    parts = messages(f"Look:\n\n```python\n{code}```\n\nDone.")
    fences = [one for part in parts for one in entities(part)]
    assert {(one.type, one.argument) for one in fences} == {("pre", "python")}
    assert len(fences) == len(parts) == 3
    shown = "\n".join(one.text for one in fences)
    assert re.sub("\n+", "\n", shown) == re.sub("\n+", "\n", code).strip()


def test_indentation_at_the_start_of_a_part_stays() -> None:
    parts = messages("```\n" + "    indented\n" * 500 + "```")
    assert all(part["text"].startswith("    indented") for part in parts)
    assert all(part["entities"][0]["offset"] == 0 for part in parts)


def test_at_most_a_hundred_entities() -> None:
    parts = messages("`a` *b* [c](http://e.org/) [d](README) " * 200)
    counts = [len(part["entities"]) for part in parts]
    assert sum(counts) == 600
    assert counts[:-1] == [100] * (len(counts) - 1)


def test_a_link_of_more_entities_than_a_part_holds_is_cut() -> None:
    parts = messages("[" + "*a* " * 150 + "](http://e.org)")
    assert [len(part["entities"]) for part in parts] == [100, 52]


# --- any text ---

SOMETHING = st.text(st.characters(exclude_categories=()), max_size=200)
MARKUP = st.lists(
    st.sampled_from(
        [
            *("*", "**", "_", "__", "~~", "`", "```", "~~~", "#", "> ", "- ", "12. ", "3) ", "!"),
            *(
                "[",
                "](",
                "](http://e.org/a)",
                "]",
                ")",
                "<",
                ">",
                "<b>",
                "|",
                "|-|-|",
                "---",
                "===",
            ),
            *("\n", "\n\n", "    ", " ", "\t", "\\", '"title"', " 'tit", "\n> ", "\n- ", "\n  1. "),
            *(
                "word",
                "two words",
                "http://e.org/b",
                "ñandú",
                "日本語。",
                "😀",
                "👨‍👩‍👧‍👦",
                "e\u0301",
            ),
            *(
                "[^1]: ",
                "\n|a|b|\n|-|-|\n|c|d|e|",
                "\n```py x\ncode\n```\n",
                ".",
                "\u200d",
                "x" * 50,
            ),
        ]
    ),
    max_size=60,
).map("".join)
# Long, so that it has to be cut, in the middle of whatever stands there.
LONG = st.builds(
    lambda text, times, filler: (text + filler) * (1 + times // (1 + len(text))),
    MARKUP | SOMETHING,
    st.integers(4000, 12000),
    st.sampled_from(["", " ", "\n", "\n\n"]),
)


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text))


def check(message: dict[str, Any]) -> None:
    text = message["text"]
    assert text.strip()
    assert units(text) <= 4096
    marked = message.get("entities", [])
    assert "entities" not in message or 0 < len(marked) <= 100
    assert marked == sorted(marked, key=lambda one: (one["offset"], -one["length"]))
    assert all(one.text for one in entities(message))
    for one in entities(message):
        assert not one.text[-1].isspace()
        assert one.text[0] != "\n"
        assert one.type in ("pre", "blockquote") or not one.text[0].isspace()
    if text[0].isspace() and not carries_marks(text):
        assert (marked[0]["type"], marked[0]["offset"], text[0] == "\n") in CODE_AT_THE_START
    assert not text[-1].isspace()
    check_nesting(marked)


CODE_AT_THE_START = [("pre", 0, False), ("blockquote", 0, False)]


def carries_marks(text: str) -> bool:
    """Whether the first character is the base of a longer grapheme."""
    match = regex.match(r"\X", text)
    return match is not None and match.end() > 1


def check_nesting(marked: list[dict[str, Any]]) -> None:
    """Bot API, "formatting options": which entity may be within which."""
    around: list[dict[str, Any]] = []
    for one in marked:
        end = one["offset"] + one["length"]
        around = [outer for outer in around if outer["offset"] + outer["length"] > one["offset"]]
        kinds = {outer["type"] for outer in around}
        assert all(outer["offset"] + outer["length"] >= end for outer in around)
        assert one["type"] not in kinds
        assert not kinds & {"code", "pre"}
        if one["type"] in ("code", "pre"):
            assert kinds <= {"blockquote"}
        if one["type"] == "blockquote":
            assert "text_link" not in kinds
        around.append(one)


@given(SOMETHING | MARKUP | LONG)
@settings(max_examples=400, deadline=None)
def test_every_part_is_one_that_telegram_takes(markdown: str) -> None:
    for message in messages(markdown):
        check(message)


@given(MARKUP | LONG | st.text(st.characters(exclude_categories=(), exclude_characters="&:")))
@settings(max_examples=400, deadline=None)
def test_every_word_appears(markdown: str) -> None:
    parts = messages(markdown)
    shown = "".join(part["text"] for part in parts)
    hidden = {unquote(one.argument) for part in parts for one in entities(part)}
    cleaned = module._clean(markdown)
    assert all(word in shown or word in " ".join(hidden) for word in words(cleaned))


FAMILY = "👨‍👩‍👧‍👦"


@given(st.lists(st.integers(1, 60), min_size=200, max_size=400))
@settings(max_examples=60, deadline=None)
def test_no_grapheme_link_or_block_of_code_is_cut(lengths: list[int]) -> None:
    """Whatever the distances are at which they stand, each of them is in one part."""
    written = [
        {
            0: f"{FAMILY * 3} ",
            1: f"[label {number}](https://e.org/{number}) ",
            2: f"\n\n```py\nfirst {number}\n{'y' * length}\nlast {number}\n```\n\n",
            3: f"**bold {number}** ",
        }[number % 4]
        + "x" * length
        for number, length in enumerate(lengths)
    ]
    parts = messages(" ".join(written))
    assert len(parts) > 1
    shown = [part["text"] for part in parts]
    marked = [one for part in parts for one in entities(part)]
    assert "".join(shown).count(FAMILY) == 3 * len(range(0, len(lengths), 4))
    assert sum(text.count(FAMILY) for text in shown) == 3 * len(range(0, len(lengths), 4))
    for number, length in enumerate(lengths):
        if number % 4 == 1:
            (link,) = [one for one in marked if one.argument == f"https://e.org/{number}"]
            assert link.text == f"label {number}"
            assert any(f"label {number} (e.org)" in text for text in shown)
        elif number % 4 == 2:
            code = f"first {number}\n{'y' * length}\nlast {number}"
            assert Entity("pre", code, "py") in marked
        elif number % 4 == 3:
            assert Entity("bold", f"bold {number}") in marked


@given(LONG)
@settings(deadline=None)
def test_parts_are_few(markdown: str) -> None:
    parts = messages(markdown)
    length = sum(units(part["text"]) for part in parts)
    marked = sum(len(part.get("entities", ())) for part in parts)
    assert len(parts) <= 2 + length / 1024 + marked / 25


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\\`*_[]<>&#~|!-+:=.)"), max_size=80)
)
@settings(deadline=None)
def test_a_text_without_markup_is_itself_but_for_space(text: str) -> None:
    once = "x" + module._clean(text).replace("\n", " ")
    shown = "".join("".join(texts(once * 200)).split())
    assert shown == "".join((once * 200).split())


# --- time ---

LENGTH = 100_000


def seconds(markdown: str) -> float:
    begun = time.process_time()
    render(markdown)
    return time.process_time() - begun


def test_a_long_answer() -> None:
    paragraph = (
        "Some *words* about `code`, see [docs](https://e.org/x). More of the **same**.\n\n- a\n"
    )
    markdown = paragraph * (LENGTH // len(paragraph))
    assert seconds(markdown) < 1
    parts = messages(markdown)
    for part in parts:
        check(part)
    assert words("".join(part["text"] for part in parts)) >= words(paragraph) - {"https", "x"}
    assert len(texts("word " * (LENGTH // 5))) == 25


@pytest.mark.parametrize(
    "markdown",
    [
        *("[" * 50_000, "> " * 5_000, "*" * LENGTH, "* " * 5_000 + "a", "![" * 25_000),
        *("`a` " * 25_000, "*a" * 25_000 + "b*" * 25_000, "[a](" * 25_000, "<" * LENGTH),
        *("x" * LENGTH, "e" + "\u0301" * LENGTH, ".'''" * 25_000, "👨‍👩‍👧‍👦" * 9_000, " " * LENGTH),
        *("```\n" * 25_000, "> " * 200 + "a\n" + "b\n" * 45_000, "|" * LENGTH),
        "![" * 16_000 + "](x)" * 16_000,
    ],
    ids=lambda markdown: ascii(markdown[:8]),
)
def test_nothing_blows_up(markdown: str) -> None:
    assert seconds(markdown) < 3
