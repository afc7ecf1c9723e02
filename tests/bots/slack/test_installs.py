"""Installs are kept sealed, each in its own place, and change by compare-and-set."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from msgspec.structs import replace

from bots.slack.installs import Install, Installs, install_of, renewed
from core.errors import CannotUnseal
from core.seal import KEY_BYTES, Seal
from tests.core.fakes import NOON, MemoryNotes

TOKEN = "xoxb-1-a-token-of-one"
KEY = bytes(range(KEY_BYTES))


def install(team: str | None = "T1", enterprise: str | None = None, **more: Any) -> Install:
    return Install(
        enterprise=enterprise,
        team=team,
        name="Acme",
        app="A1",
        bot_user="U0BOT",
        bot_id="B0BOT",
        token=TOKEN,
        **more,
    )


@pytest.fixture
def notes() -> MemoryNotes:
    return MemoryNotes()


@pytest.fixture
def installs(notes: MemoryNotes) -> Installs:
    return Installs(notes, Seal([KEY]))


async def listed(installs: Installs) -> list[str]:
    return [each.where async for each in installs.all()]


async def test_what_was_saved_is_found(installs: Installs) -> None:
    await installs.save(install(refresh="xoxe-1", expires=5, scopes=("chat:write",), at=NOON))
    found = await installs.find("T1")
    assert found == install(refresh="xoxe-1", expires=5, scopes=("chat:write",), at=NOON)
    assert await installs.find("T2") is None


async def test_a_workspace_goes_before_its_organisation(installs: Installs) -> None:
    await installs.save(install(None, "E1"))
    assert (await installs.find("T1", "E1") or install()).where == "E1"
    await installs.save(install("T1", "E1"))
    assert (await installs.find("T1", "E1") or install("T9")).where == "T1"
    assert (await installs.find("T2", "E1") or install()).where == "E1"
    assert await installs.find("T2", "E2") is None


async def test_what_was_installed_before_it_joined_an_organisation(installs: Installs) -> None:
    await installs.save(install("T1"))
    assert await installs.find("T1", "E1") == install("T1")
    assert await installs.remove("T1", "E1")
    assert await installs.find("T1", "E1") is None


async def test_its_organisation_need_be_named_once(installs: Installs) -> None:
    """A reply leaves by the id of the workspace alone."""
    await installs.save(install(None, "E1"))
    assert await installs.find("T1") is None
    assert await installs.find("T1", "E1") == install(None, "E1")
    assert await installs.find("T1") == install(None, "E1")
    await installs.save(install("T2", "E1"))
    assert await installs.find("T2") == install("T2", "E1")
    assert await installs.remove("T2")
    assert await installs.find("T2") == install(None, "E1")


async def test_no_token_can_be_read(installs: Installs, notes: MemoryNotes) -> None:
    await installs.save(install(refresh="xoxe-1-next"))
    kept = b"".join(notes.kept.values())
    assert TOKEN.encode() not in kept
    assert b"xoxe" not in kept
    assert TOKEN not in repr(install())


async def test_a_token_in_another_workspaces_place_is_noticed(
    installs: Installs, notes: MemoryNotes
) -> None:
    await installs.save(install("T1"))
    await installs.save(install("T2"))
    notes.kept["slack.install.-.T2"] = notes.kept["slack.install.-.T1"]
    with pytest.raises(CannotUnseal, match=r"slack\.install\.-\.T2: it was changed, or moved"):
        await installs.find("T2")


async def test_all_and_remove(installs: Installs, notes: MemoryNotes) -> None:
    for team in ("T2", "T1", "T1"):
        await installs.save(install(team))
    await installs.save(install(None, "E1"))
    assert await listed(installs) == ["T1", "T2", "E1"]
    assert await installs.remove("T1")
    assert not await installs.remove("T1")
    assert await listed(installs) == ["T2", "E1"]
    assert await installs.remove(None, "E1")
    assert await installs.remove("T2")
    assert notes.kept == {"slack.installs": b"[]"}


async def test_what_is_listed_and_not_there_is_passed_over(
    installs: Installs, notes: MemoryNotes
) -> None:
    """Killed in the middle of a save."""
    await installs.save(install("T1"))
    del notes.kept["slack.install.-.T1"]
    assert await listed(installs) == []


async def test_two_apps_of_one_database_do_not_meet(notes: MemoryNotes) -> None:
    one, two = Installs(notes, Seal([KEY])), Installs(notes, Seal([KEY]), "support")
    await one.save(install("T1"))
    assert await two.find("T1") is None
    assert await listed(two) == []


async def test_a_change_is_applied_to_what_is_stored_now(
    installs: Installs, notes: MemoryNotes
) -> None:
    await installs.save(install())
    seen: list[str] = []

    def change(before: Install) -> Install:
        seen.append(before.name)
        if len(seen) == 1:  # somebody else saves first
            notes.kept["slack.install.-.T1"] = installs._seal.seal(
                b'{"enterprise":null,"team":"T1","name":"Acme Ltd","app":"A1","bot_user":"U0BOT",'
                b'"bot_id":"B0BOT","token":"xoxb-2"}',
                "slack.install.-.T1",
            )
        return replace(before, installer="U7")

    after = await installs.change(install(), change)
    assert seen == ["Acme", "Acme Ltd"]
    assert after is not None
    assert (after.token, after.installer) == ("xoxb-2", "U7")
    assert await installs.find("T1") == after


async def test_a_change_of_what_is_gone_is_none(installs: Installs) -> None:
    assert await installs.change(install(), lambda before: before) is None


async def test_keys_are_changed_without_losing_a_token(notes: MemoryNotes) -> None:
    new = secrets.token_bytes(KEY_BYTES)
    await Installs(notes, Seal([KEY])).save(install())
    both = Installs(notes, Seal([new, KEY]))
    assert await both.reseal() == 1
    assert await both.reseal() == 0
    assert await Installs(notes, Seal([new])).find("T1") == install()
    with pytest.raises(CannotUnseal, match="put that key back"):
        await Installs(notes, Seal([KEY])).find("T1")


# --- what Slack answers -----------------------------------------------------------------------

ANSWER: dict[str, Any] = {
    "ok": True,
    "app_id": "A1",
    "access_token": TOKEN,
    "token_type": "bot",
    "scope": "chat:write,im:history",
    "bot_user_id": "U0BOT",
    "team": {"id": "T1", "name": "Acme"},
    "enterprise": None,
    "is_enterprise_install": False,
    "authed_user": {"id": "U7"},
}
TESTED: dict[str, Any] = {"team_id": "T1", "user_id": "U0BOT", "bot_id": "B0BOT"}


def test_an_install() -> None:
    assert install_of(ANSWER, TESTED, NOON) == install(
        scopes=("chat:write", "im:history"), installer="U7", at=NOON
    )


def test_an_install_in_all_of_an_organisation() -> None:
    answer = {
        **ANSWER,
        "team": None,
        "enterprise": {"id": "E1", "name": "Acme Group"},
        "is_enterprise_install": True,
        "refresh_token": "xoxe-1",
        "expires_in": 43_200,
    }
    wide = install_of(answer, {**TESTED, "team_id": "T9", "enterprise_id": "E1"}, NOON)
    assert (wide.enterprise, wide.team, wide.name) == ("E1", None, "Acme Group")
    assert (wide.refresh, wide.expires) == ("xoxe-1", NOON // 1000 + 43_200)


@pytest.mark.parametrize(
    ("answer", "tested", "why"),
    [
        ({"access_token": None}, {}, "not that of an installed bot"),
        ({"token_type": "user"}, {}, "not that of an installed bot"),
        ({"team": None}, {}, "not that of an installed bot"),
        ({}, {"team_id": "T2"}, "another workspace"),
        ({}, {"user_id": "U1"}, "another user"),
        ({}, {"bot_id": None}, "another user"),
        (
            {"is_enterprise_install": True, "enterprise": {"id": "E1"}},
            {"enterprise_id": "E2"},
            "another organisation",
        ),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(
    answer: dict[str, Any], tested: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why) as error:
        install_of({**ANSWER, **answer}, {**TESTED, **tested}, NOON)
    assert TOKEN not in str(error.value)


def test_the_next_token() -> None:
    old = install(refresh="xoxe-1", expires=5, refreshing=99)
    answer = {"access_token": "xoxb-2", "refresh_token": "xoxe-2", "expires_in": 100}
    assert renewed(old, answer, NOON) == replace(
        old, token="xoxb-2", refresh="xoxe-2", expires=NOON // 1000 + 100, refreshing=0
    )
    with pytest.raises(ValueError, match="no token"):
        renewed(old, {"ok": True}, NOON)
