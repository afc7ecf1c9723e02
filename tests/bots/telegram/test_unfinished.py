"""An answer that is still being written looks as it will look in the end."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bots.telegram.render import render
from bots.telegram.unfinished import closed
from tests.bots.telegram.long import long_answer, words_of
from tests.bots.telegram.test_render import LONG, MARKUP, check


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("", ""),
        ("plain", "plain"),
        ("**bo", "**bo**"),
        ("a **b *c", "a **b *c***"),
        ("a *b* c", "a *b* c"),
        ("~~gone", "~~gone~~"),
        ("__loud", "__loud__"),
        ("snake_case", "snake_case"),
        ("2 * 3", "2 * 3"),
        ("`co", "`co`"),
        ("``a ` b", "``a ` b``"),
        ("`**` and **b", "`**` and **b**"),
        ("`a` b", "`a` b"),
        ("a **", "a"),
        ("a\n-", "a\n"),
        ("a\n2.", "a\n"),
        ("a\n#", "a\n"),
        ("[label](http://exa", "label"),
        ("![pic](http://exa", "pic"),
        ("[label](http://example.org)", "[label](http://example.org)"),
        ("```python\nx = 1", "```python\nx = 1\n```"),
        ("```python\nx = 1\n``", "```python\nx = 1\n```"),
        ("```\nx\n```\nand **b", "```\nx\n```\nand **b**"),
        ("~~~~\n```\nx", "~~~~\n```\nx\n~~~~"),
        ("**open\n\nnext", "**open\n\nnext"),
        ("\\*no", "\\*no"),
    ],
)
def test_what_is_open_is_closed(written: str, whole: str) -> None:
    assert closed(written) == whole


ANSWER = """\
# Heading

Some **bold and *both*** words, `code`, ~~gone~~, a [link](https://example.org/a) and snake_case.

* one
* two with `more code`

```python
def f(x):
    return x + 2
```

| a | b |
|---|---|
| 1 | 2 |

> quoted _words_

The end.
"""


def shown(markdown: str) -> tuple[str, set[str]]:
    bodies = [json.loads(body) for body in render(markdown)]
    kinds = {each["type"] for body in bodies for each in body.get("entities", ())}
    return " ".join(body["text"] for body in bodies), kinds


def test_no_mark_is_seen_on_the_way() -> None:
    """At every length; but for what a mark alone at the end may still become."""
    for end in range(len(ANSWER)):
        text, _ = shown(closed(ANSWER[:end]))
        for mark in ("**", "~~", "```", "]("):
            assert mark not in text, ANSWER[:end]


def test_bold_is_bold_from_its_first_letter() -> None:
    assert shown(closed("Some **b"))[1] == {"bold"}
    assert shown(closed("```\nx"))[1] == {"pre"}


@given(st.text(alphabet="ab *_~`[]()#>-\n1.!\\", max_size=60))
def test_it_never_takes_a_word(written: str) -> None:
    words = "".join(char for char in written if char in "ab")
    kept = "".join(char for char in closed(written) if char in "ab")
    if "](" not in written:
        assert kept == words
    assert closed(closed(written)) is not None


@given(MARKUP | LONG, st.floats(0, 1))
@settings(deadline=None)
def test_whatever_has_come_so_far_telegram_takes_it(markdown: str, share: float) -> None:
    for body in render(closed(markdown[: round(len(markdown) * share)])):
        check(json.loads(body))


@given(st.integers(0, 20), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_of_a_long_answer_all_that_has_come_is_shown_in_order(seed: int, share: float) -> None:
    markdown = long_answer(seed, 12_000)
    come = markdown[: round(len(markdown) * share)]
    seen = words_of("\n".join(json.loads(body)["text"] for body in render(closed(come))))
    whole = [f"w{number}" for number in range(1, len(seen) + 1)]
    # The last one may be half a word, or still within the address of a link.
    assert seen[:-1] == whole[:-1] and len(seen) >= len(words_of(come)) - 3
