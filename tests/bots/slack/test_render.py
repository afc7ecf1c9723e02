"""Markdown as Slack takes it: every word is said, nothing is cut in two, nobody is called."""

from __future__ import annotations

import json
import re

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bots.slack.plain import MAX_CHARACTERS, plain
from bots.slack.render import blocks, body_of, fallback, inert, render, render_card
from bots.slack.split import MAX_UNITS, split
from core.adapter import Card, Choice
from playground.slack_blocks import checked
from playground.slack_text import pings

KEY = "slack-dm:T1/D1"
LIMIT = 12_000
PROSE = "Some words that go on, and on, and on. " * 20


def parts(markdown: str) -> list[str]:
    return [body_of(body).markdown for body in render(markdown)]


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


class TestSplit:
    def test_what_fits_is_one_part(self) -> None:
        assert split("x" * MAX_UNITS) == ("x" * MAX_UNITS,)

    def test_between_paragraphs(self) -> None:
        text = "\n\n".join([PROSE] * 60)
        found = split(text)
        assert len(found) > 3
        assert all(part.endswith(".") and part.startswith("Some") for part in found)
        assert words("\n".join(found)) == words(text)

    def test_between_lines_when_there_are_no_paragraphs(self) -> None:
        text = "\n".join(f"{number} {PROSE}" for number in range(60))
        assert all(re.match(r"\d+ Some", part) for part in split(text))

    def test_between_words_when_there_are_no_lines(self) -> None:
        found = split("word " * 10_000)
        assert all(set(part.split()) == {"word"} for part in found)

    def test_a_fence_is_closed_and_opened_again(self) -> None:
        code = "\n".join(f"    line_{number} = '{PROSE[:60]}'" for number in range(600))
        text = f"Look:\n\n```python\n{code}\n```\n\nThat was it."
        found = split(text)
        assert len(found) > 3
        for part in found:
            fences = [line for line in part.split("\n") if line.startswith("```")]
            assert fences[::2] == ["```python"] * (len(fences) // 2)
            assert fences[1::2] == ["```"] * (len(fences) // 2)
        lines = [line for part in found for line in part.split("\n") if line.startswith("    ")]
        assert lines == code.split("\n"), "not a line of code, nor its indentation, is lost"

    @pytest.mark.parametrize("fence", ["````", "~~~", "~~~~~"])
    def test_a_fence_of_other_signs(self, fence: str) -> None:
        code = "\n".join(["```", "nested", *["line"] * 4_000])
        for part in split(f"{fence}\n{code}\n{fence}"):
            assert part.startswith(fence) and part.endswith(fence)

    def test_a_link_is_not_cut(self) -> None:
        link = "[a label of words](https://example.org/a/long/way)"
        for offset in range(60):
            text = "x" * offset + f" {link}" * 600
            assert sum(part.count(link) for part in split(text)) == 600

    def test_a_word_without_end(self) -> None:
        text = "👩‍👩‍👧" * 5_000
        found = split(text)
        assert "".join(found) == text
        assert all(regex.fullmatch(r"(👩‍👩‍👧)+", part) for part in found)

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(
            st.sampled_from(
                ["word ", "\n", "\n\n", "```", "```py\n", "~~~\n", "[a b](http://c.d) ", "`x y` "]
            )
            | st.text(max_size=6).filter(lambda text: "\r" not in text),
            min_size=1,
            max_size=60,
        ),
        st.integers(1, 400),
    )
    def test_whatever_it_is(self, pieces: list[str], times: int) -> None:
        text = inert("".join(pieces) * times)
        found = split(text)
        assert all(part.strip() and units(part) <= LIMIT for part in found)
        marks = re.compile(r"[`~]")
        # The info of a fence that goes on is said again; all else once.
        said, source = marks.sub(" ", "\n".join(found)), marks.sub(" ", text)
        assert not set(words(source)) - set(words(said))

    @given(st.integers(0, 9))
    @settings(max_examples=10, deadline=None)
    def test_where_it_is_cut_does_not_change_while_it_grows(self, seed: int) -> None:
        text = "\n\n".join(f"{PROSE}{n}\n```\n{PROSE}\n```" for n in range(20 + seed))
        whole = split(text)
        for length in range(15_000, len(text), 4_999):
            before = split(text[:length])
            assert before[:-1] == whole[: len(before) - 1]


class TestRender:
    @pytest.mark.parametrize(
        "call", ["<!channel>", "<!here|here>", "<!everyone>", "<@U1>", "<#C1>"]
    )
    def test_nobody_is_called(self, call: str) -> None:
        (part,) = parts(f"Hello {call}, and in code: `{call}`")
        assert call not in part
        assert call[1:] in part, "but it is still to be read"
        shown = {
            "blocks": blocks(body_of(render(call)[0]), KEY),
            "text": fallback(body_of(render(call)[0])),
        }
        assert pings(shown) == []
        assert "<" not in shown["text"]

    @pytest.mark.parametrize("harmless", ["<!-- note -->", "<!DOCTYPE html>", "a <b> c", "1 < 2"])
    def test_what_calls_nobody_stays_as_it_is(self, harmless: str) -> None:
        assert parts(harmless) == [harmless]

    def test_what_cannot_be_encoded_or_turns_the_line(self) -> None:
        assert parts("a\ud800b\0c\u202ed") == ["a\ufffdb\ufffdcd"]

    def test_slack_takes_it(self) -> None:
        for body in render("\n\n".join([PROSE] * 60)):
            checked(blocks(body_of(body), KEY))
            assert 0 < len(fallback(body_of(body))) <= 5 * MAX_CHARACTERS

    def test_a_card(self) -> None:
        card = Card("May I **really**?", (Choice("Yes", "+" + "a" * 33), Choice("No" * 99, "-b")))
        body = body_of(render_card(card))
        shown = checked(blocks(body, KEY))
        assert [block["type"] for block in shown] == ["markdown", "actions"]
        assert shown[1]["elements"][0]["value"] == f"+{'a' * 33}@{KEY}"
        assert json.loads(render_card(Card("No."))) == {"markdown": "No."}


class TestPlain:
    @pytest.mark.parametrize(
        ("markdown", "text"),
        [
            ("# Head\n\n**bold** and `code`", "Head\nbold and code"),
            ("* one\n* two\n\n1. three", "• one\n• two\n1. three"),
            ("```py\nx = 1\n```", "x = 1"),
            ("[label](https://a.org) ![alt](b.png)", "label alt"),
            ("a\nb  \nc", "a\nb\nc"),
            ("| a | b |\n|---|---|\n| 1 | 2 |", "a b \n1 2"),
            ("1 < 2 & 3", "1 &lt; 2 &amp; 3"),
            ("---", "---"),
        ],
    )
    def test_it(self, markdown: str, text: str) -> None:
        assert plain(markdown) == text

    def test_only_its_beginning(self) -> None:
        assert len(plain("word " * 10_000)) == MAX_CHARACTERS

    def test_a_fault_of_the_parser_loses_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(self: MarkdownIt, text: str) -> None:
            raise RecursionError

        monkeypatch.setattr(MarkdownIt, "parse", fails)
        assert plain("**hello**") == "**hello**"
