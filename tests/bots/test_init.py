"""What `chinwag init` writes, asks, and leaves alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bots.init import init
from bots.settings import Settings, load_settings
from core.errors import ConfigError

TOKEN = "123456789:" + "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
KEY = "sk-ant-" + "api03-abcdefghijklmnop"


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def nobody(*_: Any, **__: Any) -> str:
    raise AssertionError("nothing was to be asked")


def test_both_files_with_what_was_asked(tmp_path: Path) -> None:
    answers = iter((TOKEN, KEY))
    lines = list(init(tmp_path, ask=lambda *_, **__: next(answers), environ={}))
    config, dotenv = tmp_path / "config.toml", tmp_path / ".env"
    assert lines == [
        f"{config} written",
        f"{dotenv} written, readable by you alone",
        "",
        "Next:",
        f"  chinwag check --config {config}",
        f"  chinwag run --config {config}",
        "  send your bot the code that it prints, and it is yours",
    ]
    assert dotenv.stat().st_mode & 0o777 == 0o600
    assert config.stat().st_mode & 0o777 == 0o644
    settings = load_settings(config, {})
    assert settings.secrets() == (TOKEN, KEY)
    assert settings.model_dump(exclude={"telegram", "anthropic"}) == Settings().model_dump(
        exclude={"telegram", "anthropic"}
    )


def test_yes_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = list(init(Path("."), yes=True, ask=nobody, environ={}))
    assert "  put TELEGRAM_BOT_TOKEN and ANTHROPIC_API_KEY into .env" in lines
    assert "  chinwag check" in lines
    assert load_settings(None, {}).secrets() == ()


def test_what_the_environment_has_is_not_asked(tmp_path: Path) -> None:
    environ = {"TELEGRAM_BOT_TOKEN": TOKEN, "ANTHROPIC_API_KEY": KEY}
    lines = list(init(tmp_path, ask=nobody, environ=environ))
    assert not any("put" in line for line in lines)
    assert TOKEN not in (tmp_path / ".env").read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    config, dotenv = tmp_path / "config.toml", tmp_path / ".env"
    config.write_text("mine")
    dotenv.symlink_to("elsewhere")  # a link that leads nowhere is something too
    lines = list(init(tmp_path, ask=nobody, environ={}))
    assert lines[:2] == [
        f"{config} is there already and stays as it is",
        f"{dotenv} is there already and stays as it is",
    ]
    assert config.read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_is_made(tmp_path: Path) -> None:
    list(init(tmp_path / "new" / "bot", yes=True))
    assert (tmp_path / "new" / "bot" / "config.toml").is_file()


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"config\.toml: cannot be written: Not a directory"):
        list(init(tmp_path / "file" / "bot", yes=True))


def test_input_is_hidden_and_checked(tmp_path: Path) -> None:
    @click.command()
    def command() -> None:
        for line in init(tmp_path, environ={}):
            click.echo(line)

    typed = f"hunter2\n {TOKEN} \n\n"
    result = CliRunner().invoke(command, input=typed)
    assert result.exit_code == 0
    assert result.output.count("Telegram token") == 2
    assert "Error" in result.output
    assert "hunter2" not in result.output
    assert TOKEN not in result.output
    assert f"  put ANTHROPIC_API_KEY into {tmp_path / '.env'}" in result.output
    assert load_settings(tmp_path / "config.toml", {}).secrets() == (TOKEN,)
