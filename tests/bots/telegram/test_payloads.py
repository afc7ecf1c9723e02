"""One update of each kind that Telegram sends -> what is expected of it, which lies beside it.

`python -m tests.bots.telegram.test_payloads` writes what `parse` says now; whoever does that reads
the difference before it is kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from telegram import Update

from bots.telegram.parse import parse
from bots.telegram.quoting import MAX_NAME
from bots.telegram.received import Me
from core.messages import Inbound, clean

PAYLOADS = Path(__file__).parents[2] / "payloads" / "telegram"
EXPECTED = PAYLOADS / "expected"
NAMES = sorted(path.stem for path in PAYLOADS.glob("*.json"))
# Kinds that came after the SDK, or have yet to come.
UNKNOWN_TO_THE_SDK = {"of_tomorrow", "stop_pressed", "stop_pressed_topic"}
BOT = Me(7770001234, "chinwag_example_bot")


def payload(name: str) -> Any:
    return json.loads((PAYLOADS / f"{name}.json").read_text("utf-8"))


def parsed(name: str) -> Any:
    """As JSON; None: it says nothing to us."""
    inbound = parse(payload(name), BOT, None, "chat")
    if inbound is None:
        return None
    # So it would be stored, and comes back as it was.
    stored = msgspec.json.encode(inbound)
    assert msgspec.json.decode(stored, type=Inbound) == inbound
    return json.loads(stored)


def expected(name: str) -> Any:
    return json.loads((EXPECTED / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_what_comes_of_it(name: str) -> None:
    assert parsed(name) == expected(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_sdk_takes_it_for_telegrams(name: str) -> None:
    update = Update.de_json(payload(name), None)
    assert update is not None
    assert (update.api_kwargs != {}) == (name in UNKNOWN_TO_THE_SDK)


def test_each_has_its_expectation_and_an_id_of_its_own() -> None:
    assert sorted(path.stem for path in EXPECTED.glob("*.json")) == NAMES
    ids = [payload(name)["update_id"] for name in NAMES]
    assert len(set(ids)) == len(ids)


def test_nobody_real_is_in_them() -> None:
    told = [place[0][place[1]] for name in NAMES for place in named(payload(name))]
    assert {each for each in told if each.startswith("+")} == {"+41000000000"}
    # Two of Telegram's own, in whose names groups and channels speak.
    others = set(told) - {"+41000000000", "GroupAnonymousBot", "Channel_Bot"}
    assert others and all("example" in each for each in others)


def named(value: Any) -> list[tuple[Any, Any]]:
    return [place for place in places(value) if place[1] in ("username", "phone_number")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@given(st.sampled_from(NAMES), st.data())
def test_any_part_of_any_of_them_may_be_anything(name: str, data: st.DataObject) -> None:
    update = payload(name)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places(update)))
        place[0][place[1]] = data.draw(JSON)
    inbound = parse(update, BOT, None, "chat")
    if inbound is not None:
        msgspec.json.encode(inbound)
        assert inbound.text == clean(inbound.text)
        assert not inbound.sender.name or len(inbound.sender.name) <= MAX_NAME


def places(value: Any) -> list[tuple[Any, Any]]:
    """Where something else could stand."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [(value, at) for at, _ in inner]
    for _, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(each, dict | list):
            found += places(each)
    return found


if __name__ == "__main__":
    EXPECTED.mkdir(exist_ok=True)
    for each in NAMES:
        said = json.dumps(parsed(each), indent=2, ensure_ascii=False)
        (EXPECTED / f"{each}.json").write_text(f"{said}\n", "utf-8")
