"""Providers: each request goes to the client of its model."""

from __future__ import annotations

import pytest

from core.errors import ModelNotFound
from core.model import Answer, ModelClient, OnText, Request
from core.providers import Providers
from tests.core.fakes import ScriptedModel
from tests.core.model_contract import spoken


class Slow(ScriptedModel):
    """One whose first question would wait."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.warmed = 0

    async def warm(self) -> None:
        self.warmed += 1


class Closing(ScriptedModel):
    closed = False

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        raise AssertionError("nobody asks")

    async def close(self) -> None:
        self.closed = True


def ask(provider: str) -> Request:
    messages = (spoken("user", "Hello"),)
    return Request(provider=provider, model="m", system=(), messages=messages)


async def test_each_request_goes_to_its_own() -> None:
    providers: ModelClient = Providers({"one": ScriptedModel("1"), "two": ScriptedModel("2")})
    assert (await providers.answer(ask("two"))).text == "2"
    assert (await providers.answer(ask("one"))).text == "1"


async def test_without_a_provider_it_is_the_default() -> None:
    providers = Providers({"one": ScriptedModel("1"), "two": ScriptedModel("2")}, default="two")
    assert (await providers.answer(ask(""))).text == "2"


async def test_a_provider_that_is_not_there_is_a_model_that_is_not_there() -> None:
    with pytest.raises(ModelNotFound, match="no provider 'three'; there is: one, two"):
        await Providers({"two": ScriptedModel(), "one": ScriptedModel()}).answer(ask("three"))


async def test_warming_is_for_those_who_need_it() -> None:
    slow = Slow()
    providers = Providers({"anthropic": slow, "quick": ScriptedModel()})
    await providers.warm("")
    await providers.warm("quick")
    await providers.warm("nobody")
    assert slow.warmed == 1


async def test_closing_closes_all() -> None:
    clients = {"one": Closing(), "two": Closing()}
    await Providers(clients).close()
    assert all(client.closed for client in clients.values())


def test_its_repr_names_them() -> None:
    assert (
        repr(Providers({"two": ScriptedModel(), "one": ScriptedModel()})) == "Providers(one, two)"
    )
