"""Long code as a file beside the answer: all of it is said, in a few messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bots.telegram.aside import suffix_of
from bots.telegram.render import render
from core.messages import Outbound
from playground.telegram import Telegram
from tests.bots.telegram.long import words_of
from tests.bots.telegram.rig import Rig
from tests.bots.telegram.test_adapter import key, make
from tests.bots.telegram.test_render import LONG, MARKUP, check, words

CODE = "\n".join(f"    line_{number} = 'w{number}'" for number in range(1, 700))
ANSWER = f"Here it is:\n\n```python\n{CODE}\n```\n\nThat **was** it."


def parts(markdown: str, above: int = 3) -> list[dict[str, Any]]:
    return [json.loads(body) for body in render(markdown, above)]


def test_it_stands_behind_the_text_which_names_it() -> None:
    text, file = parts(ANSWER)
    assert text["text"] == "Here it is:\n\n📄 code-1.py\n\nThat was it."
    assert [one["type"] for one in text["entities"]] == ["code", "bold"]
    assert file == {"document": "code-1.py", "text": CODE + "\n"}
    assert render(ANSWER) == render(ANSWER, 0) and len(render(ANSWER)) == 4


def test_only_code_that_takes_more_parts_than_that() -> None:
    fits = f"```\n{'x' * 4096 * 3}\n```"
    assert all("document" not in part for part in parts(fits))
    longer = f"```\n{'x' * 4096 * 3}y\n```"
    assert [part.get("document") for part in parts(longer)] == [None, "code-1.txt"]
    assert [part.get("document") for part in parts("😀" * 9_000)] == [None] * len(
        render("😀" * 9_000)
    )
    assert parts(f"```\n{'😀' * 6_145}\n```")[-1]["document"] == "code-1.txt"


def test_several_and_in_lists_and_quotes() -> None:
    one = "\n".join(f"w{number}" for number in range(2_000))
    quoted = "> ```sql\n" + "\n".join("> " + line for line in one.split("\n")) + "\n> ```"
    item = "* ```c++ main.cpp\n" + "\n".join("  " + line for line in one.split("\n")) + "\n  ```"
    *texts, first, second = parts(f"{quoted}\n\n{item}\n\nend", above=1)
    assert (first["document"], second["document"]) == ("code-1.sql", "code-2.cpp")
    assert first["text"] == second["text"] == one + "\n"
    said = "\n".join(text["text"] for text in texts)
    assert "📄 code-1.sql" in said and "main.cpp\n" in said and said.endswith("end")


@pytest.mark.parametrize(
    ("language", "suffix"),
    [
        *[("python", "py"), ("Rust", "rs"), ("c", "c"), ("C++", "cpp"), ("json", "json")],
        *[("", "txt"), ("../../x", "txt"), ("no-such-language", "txt"), ("x.exe", "txt")],
    ],
)
def test_what_it_is_called(language: str, suffix: str) -> None:
    assert suffix_of(language) == suffix


@given(MARKUP | LONG, st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_every_word_is_in_a_text_or_in_a_file(markdown: str, above: int) -> None:
    found = parts(markdown, above)
    for part in found:
        if "document" not in part:
            check(part)
    everything = "".join(part["text"] for part in found)
    split = words("\n".join(json.loads(body)["text"] for body in render(markdown)))
    assert all(word in everything for word in split)


async def test_as_messages_where_there_are_no_files() -> None:
    async with Telegram() as telegram:
        telegram.knows("sendMessage")
        adapter = make(telegram, file_above=3)
        alice = telegram.person("Alice")
        *_, body = adapter.render(ANSWER)
        await adapter.send(key(alice), Outbound("p", body), uncertain=False)
        assert words_of("\n".join(telegram.texts(alice))) == words_of(CODE)
        assert adapter.render(ANSWER) == render(ANSWER), "and from then on at once"
        await adapter.close()


@pytest.mark.parametrize("streaming", ["edit", "off"])
async def test_an_answer_that_grows_until_its_code_is_too_long(streaming: str) -> None:
    answer = f"{ANSWER}\n\n{'And more words. ' * 400}"
    async with Rig(answer, seconds=20.0, streaming=streaming, file_above=1) as rig:
        alice = rig.telegram.person("Alice")
        group = rig.telegram.group("Friends", owner=alice)
        rig.telegram.write(alice, "tell me", group, mention=True)
        await rig.until(lambda: bool(rig.telegram.files(group)))
        await rig.quiet(group)
        *texts, file = parts(answer, 1)
        assert len(texts) == 2
        assert [text for text in rig.telegram.texts(group) if text] == [
            part["text"] for part in texts
        ]
        assert rig.telegram.files(group) == {"code-1.py": file["text"].encode()}
        rig.assert_paced(group)
