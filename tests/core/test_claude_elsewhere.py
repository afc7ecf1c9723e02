"""Claude on Bedrock, Vertex and Foundry: the SDK's own clients, over a real socket, against the
stand-in at the addresses that these platforms have.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.claude import Claude, Platform
from core.errors import ModelNotFound, ModelRefusedKey, ModelUnavailable
from core.model import Request
from playground.claude import Claude as StandIn
from playground.claude_answers import Fail, Say
from tests.core.model_contract import spoken

MODEL = "claude-opus-5-5"
VARIABLES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AWS_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION"),
    *("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    *("CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID", "ANTHROPIC_FOUNDRY_API_KEY"),
    *("ANTHROPIC_FOUNDRY_RESOURCE", "ANTHROPIC_BEDROCK_MANTLE_API_KEY"),
)
GIVEN: dict[Platform, dict[str, Any]] = {
    "bedrock": {"api_key": "bearer-of-aws"},
    "vertex": {
        "options": {"region": "eu", "project_id": "my-project", "access_token": "token-of-google"}
    },
    "foundry": {"api_key": "key-of-azure"},
}


class Vertex:
    """What Google puts before the Messages API: the model in the path, a version in the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.bodies: list[Mapping[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        before = "/projects/my-project/locations/eu/publishers/anthropic/models/"
        if not path.startswith(before):
            await self._app(scope, receive, send)
            return
        model, _, verb = path.removeprefix(before).partition(":")
        assert verb == "streamRawPredict"
        body = b""
        more = True
        while more:
            event = await receive()
            body += event.get("body", b"")
            more = event.get("more_body", False)
        given = json.loads(body)
        self.bodies.append(given)
        version = given.pop("anthropic_version")
        whole = json.dumps({**given, "model": model}).encode()
        sent = False

        async def replayed() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": whole, "more_body": False}

        headers = [
            (name, value)
            for name, value in scope["headers"]
            if name not in (b"anthropic-version", b"content-length")
        ]
        headers.append((b"anthropic-version", version.encode()))
        asked = {**scope, "path": "/v1/messages", "headers": headers}
        await self._app(asked, replayed, send)


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")


@pytest.fixture
async def stand_in() -> AsyncIterator[StandIn]:
    server = StandIn()
    server.app.add_middleware(Vertex)
    async with server:
        yield server


def client(platform: Platform, stand_in: StandIn, **more: Any) -> Claude:
    return Claude(base_url=stand_in.url, platform=platform, **{**GIVEN[platform], **more})


def ask() -> Request:
    return Request(model=MODEL, system=("Be brief.",), messages=(spoken("user", "Hello"),))


@pytest.mark.parametrize("platform", GIVEN)
async def test_it_answers(platform: Platform, stand_in: StandIn) -> None:
    stand_in.script(Say("Guten Tag."))
    claude = client(platform, stand_in)
    shown: list[str] = []
    answer = await claude.answer(ask(), shown.append)
    await claude.close()
    assert (answer.text, "".join(shown)) == ("Guten Tag.", "Guten Tag.")
    assert answer.usage.output_tokens > 0
    (sent,) = stand_in.requests
    assert sent["model"] == MODEL
    assert sent["messages"][0]["content"][0]["text"] == "Hello"


@pytest.mark.parametrize("platform", GIVEN)
async def test_its_errors_are_ours(platform: Platform, stand_in: StandIn) -> None:
    claude = client(platform, stand_in)
    for failure, error in (
        (Fail(404, "not_found_error"), ModelNotFound),
        (Fail(403, "permission_error"), ModelRefusedKey),
        (Fail(529, "overloaded_error"), ModelUnavailable),
    ):
        stand_in.script(failure)
        with pytest.raises(error):
            await claude.answer(ask())
    await claude.close()
    assert len(stand_in.requests) == 3


@pytest.mark.parametrize("platform", GIVEN)
async def test_a_key_of_anthropic_itself_is_not_shown_to_it(
    platform: Platform, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-anthropic")
    claude = client(platform, stand_in)
    await claude.answer(ask())
    await claude.close()
    assert "of-anthropic" not in str(stand_in.headers)


@pytest.mark.parametrize(
    ("platform", "given", "missing"),
    [
        ("bedrock", {"api_key": "x"}, "region"),
        ("vertex", {}, "region"),
        ("foundry", {}, "credentials"),
        ("foundry", {"api_key": "x"}, "resource"),
    ],
)
async def test_what_is_missing_is_named(
    platform: Platform, given: dict[str, Any], missing: str
) -> None:
    with pytest.raises(ModelRefusedKey, match=missing):
        await Claude(platform=platform, **given).answer(ask())


async def test_credentials_that_cannot_be_had(stand_in: StandIn) -> None:
    claude = client("bedrock", stand_in, api_key=None, options={"aws_region": "eu-central-1"})
    with pytest.raises(ModelRefusedKey, match="bedrock: no credentials could be had"):
        await claude.answer(ask())
    await claude.close()
    assert stand_in.requests == []
