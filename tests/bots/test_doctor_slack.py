"""`chinwag check`, the part about Slack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bots.doctor import Finding, exit_code
from bots.doctor_slack import look
from bots.settings import load_settings
from bots.slack.manifest import SCOPES
from playground.slack import Answer, Error, GarbageBody, ResetBefore, Slack


@pytest.fixture
async def slack() -> AsyncIterator[Slack]:
    async with Slack(scopes=frozenset(SCOPES)) as server:
        yield server


async def looked(slack: Slack, folder: Path, **environ: str) -> list[Finding]:
    settings = load_settings(
        _config(folder),
        {
            "SLACK_BOT_TOKEN": slack.token,
            "SLACK_APP_TOKEN": slack.app_token,
            "CHINWAG_SLACK__BASE_URL": f"{slack.url}/api",
            **environ,
        },
    )
    return [finding async for finding in look(settings.slack)]


def _config(folder: Path) -> Path:
    file = folder / "config.toml"
    file.write_text("")
    return file


async def test_all_is_well(slack: Slack, tmp_path: Path) -> None:
    found = await looked(slack, tmp_path)
    assert exit_code(found) == 0
    assert [finding.text for finding in found] == [
        f"@Playground in Acme, {slack.team.id}",
        "all scopes are there",
        "Socket Mode is open to us",
    ]
    assert not slack.connected


async def test_nothing_is_asked_where_slack_is_not_used(slack: Slack, tmp_path: Path) -> None:
    assert await looked(slack, tmp_path, SLACK_BOT_TOKEN="") == []
    assert slack.calls == []


@pytest.mark.parametrize(
    ("method", "variable"),
    [("auth.test", "SLACK_BOT_TOKEN"), ("apps.connections.open", "SLACK_APP_TOKEN")],
)
async def test_a_token_that_is_refused(
    slack: Slack, tmp_path: Path, method: str, variable: str
) -> None:
    slack.fault(method, Error("invalid_auth"))
    found = await looked(slack, tmp_path)
    assert exit_code(found) == 4
    assert found[-1].text == f"{variable} is refused: invalid_auth"


@pytest.mark.parametrize("fault", [Answer(502, html=True), ResetBefore(), GarbageBody()], ids=str)
async def test_no_answer(
    slack: Slack, tmp_path: Path, fault: Answer | ResetBefore | GarbageBody
) -> None:
    slack.fault("auth.test", fault)
    (found,) = await looked(slack, tmp_path)
    assert exit_code([found]) == 4 and "no answer from" in found.text


async def test_a_missing_app_token(slack: Slack, tmp_path: Path) -> None:
    found = await looked(slack, tmp_path, SLACK_APP_TOKEN="")
    assert exit_code(found) == 2
    assert found[-1].text == "SLACK_APP_TOKEN is missing"


async def test_by_http_a_signing_secret_is_wanted(slack: Slack, tmp_path: Path) -> None:
    by_http = {"CHINWAG_SLACK__TRANSPORT": "http", "SLACK_APP_TOKEN": ""}
    found = await looked(slack, tmp_path, **by_http)
    assert exit_code(found) == 2 and found[-1].text == "SLACK_SIGNING_SECRET is missing"
    assert exit_code(await looked(slack, tmp_path, SLACK_SIGNING_SECRET="0" * 32, **by_http)) == 0


@pytest.mark.parametrize(
    ("missing", "code"), [("im:history", 4), ("assistant:write", 0)], ids=["needed", "useful"]
)
async def test_scopes(tmp_path: Path, missing: str, code: int) -> None:
    async with Slack(scopes=frozenset(SCOPES) - {missing}) as slack:
        found = await looked(slack, tmp_path)
    assert exit_code(found) == code
    (about,) = [finding for finding in found if missing in finding.text]
    assert "chinwag slack manifest" in about.cure
