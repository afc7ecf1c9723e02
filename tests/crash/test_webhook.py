"""SIGKILL with a webhook: what Telegram was not told to have arrived it brings again, and it is
answered once; and the program behind a webhook as people and operators meet it.
"""

from __future__ import annotations

import random
from pathlib import Path

import aiohttp
import pytest

from core import failpoints
from playground.telegram import TOKEN, ResetAfter, Telegram
from tests.crash.program import CONFIG, World, said
from tests.crash.record import Recorded
from tests.crash.test_kill import converse
from tests.examples.test_echo_adapter import free_port
from tests.history_checker import tell

SECRET = "the-webhook-secret-of-the-playground_1"
OTHER = "654321:TEST-token_of_another_bot_0000000"
# Between the arrival of a message and the answer that says so.
BEFORE_THE_ANSWER = ("received", "before_accept", "accepted", "submitted")


def webhooked(folder: Path, *more: str, telegram: Telegram | None = None) -> World:
    """A world whose bot is brought its updates, by a Telegram that does not wait for long."""
    port = free_port()
    http = f'[http]\nport = {port}\npublic_url = "http://127.0.0.1:{port}"\n'
    world = World(folder, CONFIG.replace("[telegram]", '[telegram]\nmode = "webhook"') + http)
    (folder / ".env").write_text("\n".join((f"TELEGRAM_WEBHOOK_SECRET={SECRET}", *more)))
    world.telegram = telegram or Telegram(second=0.05)
    return world


def url_of(world: World) -> str:
    return world.telegram.webhook.url


@pytest.mark.parametrize("name", BEFORE_THE_ANSWER)
async def test_killed_before_telegram_was_told(name: str, tmp_path: Path) -> None:
    async with webhooked(tmp_path) as world:
        await converse(world, f"{name}:1")
        set_up = [call for call in world.telegram.calls if call.method == "setWebhook"]
        assert len(set_up) == 1, "the second start has found it as it should be"
        again = [each.update_id for each in world.telegram.deliveries]
        assert len(again) > len(set(again)), "and what was not confirmed came again"
        assert not any(call.method == "getUpdates" for call in world.telegram.calls)
        assert SECRET not in world.log()


@pytest.mark.crash
@pytest.mark.timeout(120)
@pytest.mark.parametrize("hit", [1, 2, 4])
@pytest.mark.parametrize("name", failpoints.NAMES)
async def test_killed_anywhere(name: str, hit: int, tmp_path: Path) -> None:
    if name in ("before_tools", "tools_done"):
        hit = min(hit, 2)
    async with webhooked(tmp_path) as world:
        await converse(world, f"{name}:{hit}")


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
async def test_killed_again_and_again_with_many_chats(seed: int, tmp_path: Path) -> None:
    """40 chats at once, six kills and more at random points, and answers that are lost."""
    chance = random.Random(seed)
    port = free_port()
    variables = {
        "TELEGRAM_WEBHOOK_SECRET": SECRET,
        "CHINWAG_TELEGRAM__MODE": "webhook",
        "CHINWAG_HTTP__PORT": port,
        "CHINWAG_HTTP__PUBLIC_URL": f"http://127.0.0.1:{port}",
    }
    (tmp_path / ".env").write_text(
        "\n".join(f"{name}={value}" for name, value in variables.items())
    )
    async with Recorded(tmp_path, chance) as world:
        world.telegram.second = 0.05
        people = [world.friend(f"P{number}") for number in range(40)]
        for _ in range(6):
            await world.start(f"{chance.choice(failpoints.NAMES)}:{chance.randint(1, 60)}")
            world.telegram.fault("webhook", ResetAfter(), times=3, after=chance.randint(1, 20))
            for person in people:
                world.say_so(person)
            await world.until(lambda: not world.telegram.unconfirmed(), "all updates confirmed")
            await world.kill()
        await world.start()
        for person in people:
            world.say_so(person)
        await world.quiet()
        assert await world.terminate() == 0
        findings = await world.judge()
        assert not findings, tell(findings)


async def test_an_answer_that_is_lost_is_no_second_turn(tmp_path: Path) -> None:
    async with webhooked(tmp_path) as world:
        alice = world.telegram.person("Alice")
        world.telegram.fault("webhook", ResetAfter(), times=2)
        await world.start()
        world.telegram.write(alice, "my name is Alice")
        await world.until(lambda: len(world.telegram.texts(alice)) == 1, "an answer")
        await world.quiet()
        assert await world.terminate() == 0
        assert len(world.telegram.deliveries) >= 3
        assert len(world.telegram.texts(alice)) == 1
        assert len(world.claude.requests) == 1


async def test_from_polling_to_a_webhook_and_back(tmp_path: Path) -> None:
    """Nothing that is written meanwhile is lost, and nothing is answered twice."""
    async with webhooked(tmp_path) as world:
        telegram = world.telegram
        alice = telegram.person("Alice")
        for round_, mode in enumerate(("polling", "webhook", "polling", "webhook")):
            telegram.write(alice, f"message {round_} before")
            await world.start(CHINWAG_TELEGRAM__MODE=mode)
            await world.until(
                lambda count=round_ + 1: len(telegram.texts(alice)) >= count,  # type: ignore[misc]
                "an answer",
            )
            await world.say(alice, f"message {round_} during")
            assert await world.terminate() == 0
            assert bool(url_of(world)) is (mode == "webhook"), "a webhook stays when we go"
            telegram.webhook.set_at -= 1
        assert telegram.unconfirmed() == []
        told = "".join(said((await world.snapshot(f"telegram-chat:{alice.id}")).messages, "user"))
        for round_ in range(4):
            for when in ("before", "during"):
                assert told.count(f"message {round_} {when}") == 1
        dropped = [call for call in telegram.calls if "drop_pending_updates" in call.params]
        assert dropped == []


async def test_two_bots_in_one_process_and_database(tmp_path: Path) -> None:
    """Each has its own webhook, its own conversations, and never the other's."""
    async with webhooked(tmp_path, f"SUPPORT_BOT_TOKEN={OTHER}") as world:
        async with Telegram(OTHER, username="support_bot", second=0.05) as other:
            config = (tmp_path / "config.toml").read_text()
            (tmp_path / "config.toml").write_text(
                f'{config}\n[[telegram.bots]]\naccount = "support"\n'
                f'token_env = "SUPPORT_BOT_TOKEN"\nbase_url = "{other.url}"\nscope = "user"\n'
            )
            await world.start()
            alice, same = world.telegram.person("Alice"), other.person("Alice")
            assert alice.id == same.id, "the chat of a person is the same number for every bot"
            await world.until(lambda: bool(url_of(world)), "the first webhook")
            await other.until(lambda: bool(other.webhook.url), 30)
            assert other.webhook.url == f"{url_of(world)}/support"
            await world.say(alice, "my name is Alice")
            other.write(same, "what is my name?")
            await other.wait_for(1, same, 30)
            assert "Alice" not in other.texts(same)[0]
            other.write(same, "my name is Bob")
            await other.wait_for(2, same, 30)
            await world.say(alice, "what is my name?")
            assert world.telegram.texts(alice)[-1] == "Your name is Alice."
            port = url_of(world).split(":")[2].partition("/")[0]
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                    told = await answer.json()
            assert answer.status == 200
            assert {name: each["state"] for name, each in told["adapters"].items()} == {
                "telegram": "webhook",
                "telegram@support": "webhook",
            }
            # The webhooks stay; what comes now waits at Telegram.
            assert await world.terminate() == 0
            other.write(same, "what is my name?")
            await world.start()
            await other.wait_for(3, same, 30)
            assert other.texts(same)[-1] == "Your name is Bob."
            await world.quiet()
            assert await world.terminate() == 0
            for key in (f"telegram-chat:{alice.id}", f"telegram-chat@support:{alice.id}"):
                await world.snapshot(key)
            for secret in (TOKEN, OTHER, OTHER.partition(":")[2], SECRET):
                assert secret not in world.log()
            # The database knows who is who.
            (tmp_path / ".env").write_text(
                f"TELEGRAM_WEBHOOK_SECRET={SECRET}\nSUPPORT_BOT_TOKEN=777:another-bot"
            )
            other.token = "777:another-bot"
            other._world.bot["id"] = 777
            refused = await world.command("run")
            assert refused.code == 2
            assert "telegram@support: the database belongs to bot 654321" in refused.err
