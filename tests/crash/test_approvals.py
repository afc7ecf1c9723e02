"""SIGKILL while a call waits for a person, and at every failpoint around question and answer.

The real program against the local servers; a person presses real buttons. Whatever dies when: the
call runs once at most, nothing else runs twice, and the model is told what became of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core import approvals, failpoints, phrases
from core.history import INTERRUPTED
from core.snapshot import Snapshot
from playground.telegram import Person
from tests.crash.program import CONFIG, World, assert_valid

ASKED = 'use note with {"text": "milk"} and use erase with {"text": "bread"}'
ERASE = '''\
from core.tools import tool
from effects import note

@tool(needs_approval=True)
def erase(text: str) -> str:
    """Erase a note."""
    return note("erased " + text)
'''


class Asking(World):
    """A bot with a tool that needs an approval."""

    def __init__(self, folder: Path, approval_timeout: float = 3600.0) -> None:
        tools = (
            f'tools = ["effects.py:note", "erase.py:erase"]\napproval_timeout = {approval_timeout}'
        )
        super().__init__(folder, CONFIG.replace('tools = ["effects.py:note"]', tools))
        (folder / "erase.py").write_text(ERASE.replace("from effects import note", _NOTE))

    async def card(self, person: Person) -> None:
        """It asks, and has noted that it did, so that a kill now falls between ask and answer."""
        self.telegram.write(person, ASKED)
        await self.until(lambda: bool(self.telegram.buttons(person)), "a card with buttons")
        await self.until(self._noted, "the card is noted")

    def _noted(self) -> bool:
        # Killed right behind its mark it says nothing of it in the log.
        noted = ".card.0" in self.log() or self.deaths > 0
        return noted and not self.telegram.unconfirmed()

    async def answered(self, person: Person) -> str:
        """The answer to all of it."""

        def there() -> bool:
            return any("The tool" in text for text in self.telegram.texts(person))

        await self.until(there, "an answer")
        await self.quiet()
        return next(text for text in self.telegram.texts(person) if "The tool" in text)

    async def end(self, person: Person) -> Snapshot:
        assert await self.terminate() == 0
        snapshot = await self.snapshot(f"telegram-chat:{person.id}")
        assert_valid(snapshot)
        assert self.telegram.buttons(person) == []
        return snapshot


# A file of the config cannot import the one beside it: no folder of a person's is on the path.
_NOTE = """\
import importlib.util
_spec = importlib.util.spec_from_file_location("effects", "effects.py")
_effects = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_effects)
note = _effects.note
"""


async def test_killed_between_question_and_answer(tmp_path: Path) -> None:
    """Then started again, and the button pressed; pressed twice, and delivered twice."""
    async with Asking(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.start()
        await world.card(alice)
        await world.kill()
        asked = len(world.claude.requests)
        await world.start()
        await world.ready()
        assert len(world.claude.requests) == asked and world.effects() == ["milk"]
        pressed = world.telegram.choose(alice, phrases.APPROVE)
        again = world.telegram.choose(alice, phrases.APPROVE)
        said = await world.answered(alice)
        assert said == "The tool says: noted milk\nThe tool says: noted erased bread"
        world.telegram.redeliver(pressed)
        world.telegram.redeliver(again)
        await world.say(alice, "what did I say first?")
        assert world.effects() == ["milk", "erased bread"]
        await world.end(alice)
        card, *rest = world.telegram.texts(alice)
        assert card.endswith("Approved by Alice.") and '"text": "bread"' in card
        assert len(rest) == 2
        assert [answer["text"] for answer in world.telegram.answers][:1] in (
            [None],
            [phrases.NOT_OPEN],
        )


@pytest.mark.parametrize("name", failpoints.NAMES)
async def test_killed_on_the_way_to_the_question(name: str, tmp_path: Path) -> None:
    async with Asking(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.start(f"{name}:1")
        await world.card(alice)
        if name not in ("marked", "sent"):
            assert world.deaths == 1, "the failpoint was never passed"
        await world.until(lambda: world.deaths == 1, "its death")
        # Of a card that may have come twice either is good, once.
        world.telegram.choose(alice, phrases.APPROVE)
        said = await world.answered(alice)
        # What it gave is saved with the question.
        unsaved = ("before_tools", "tools_done", "before_commit")
        told = INTERRUPTED if name in unsaved else "noted milk"
        assert told in said and said.endswith("The tool says: noted erased bread")
        assert world.effects().count("erased bread") == 1
        assert world.effects().count("milk") == (0 if name == "before_tools" else 1)
        assert await world.terminate() == 0
        assert_valid(await world.snapshot(f"telegram-chat:{alice.id}"))


@pytest.mark.parametrize("name", failpoints.NAMES)
async def test_killed_on_the_way_from_the_answer(name: str, tmp_path: Path) -> None:
    async with Asking(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.start()
        await world.card(alice)
        await world.kill()
        await world.start(f"{name}:1")
        world.telegram.choose(alice, phrases.APPROVE)
        said = await world.answered(alice)
        await world.until(lambda: world.deaths == 1, "its death")
        await world.quiet()
        told = INTERRUPTED if name in ("before_tools", "tools_done") else "noted erased bread"
        assert told in said and "The tool says: noted milk" in said
        effects = ["milk"] if name == "before_tools" else ["milk", "erased bread"]
        assert world.effects() == effects
        await world.end(alice)
        answers = [text for text in world.telegram.texts(alice) if "The tool" in text]
        assert len(answers) == 1 or name == "sent"


@pytest.mark.parametrize("how", ["decline", "go on", "reset", "stop"])
async def test_killed_before_a_no(how: str, tmp_path: Path) -> None:
    async with Asking(tmp_path) as world:
        alice = world.telegram.person("Alice")
        await world.start()
        await world.card(alice)
        await world.kill()
        await world.start("accepted:1")
        if how == "decline":
            world.telegram.choose(alice, phrases.DECLINE)
            assert approvals.DECLINED in await world.answered(alice)
        elif how == "go on":
            world.telegram.write(alice, "my name is Alice")
            said = await world.answered(alice)
            assert approvals.WENT_ON in said and said.endswith("Nice to meet you, Alice.")
        else:
            world.telegram.write(alice, f"/{how}")
            sentence = phrases.RESET if how == "reset" else phrases.STOPPED
            await world.until(lambda: sentence in world.telegram.texts(alice), "the confirmation")
            await world.quiet()
            assert world.telegram.texts(alice)[0] == phrases.NOT_OPEN
        assert world.effects() == ["milk"]
        await world.end(alice)


async def test_it_expires_while_nobody_runs(tmp_path: Path) -> None:
    async with Asking(tmp_path, approval_timeout=0.5) as world:
        alice = world.telegram.person("Alice")
        await world.start("marked:1")
        await world.card(alice)
        assert approvals.EXPIRED in await world.answered(alice)
        assert world.effects() == ["milk"]
        await world.end(alice)
        assert world.telegram.texts(alice)[0].endswith(phrases.EXPIRED)
