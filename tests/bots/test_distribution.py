"""What is missing, or too much, in the settings of a Slack app that others install."""

from __future__ import annotations

from pathlib import Path

import pytest

from bots.app import build_adapters
from bots.settings import load_settings
from core.clock import SystemClock
from core.errors import ConfigError
from core.seal import new_key

ALL = {
    "SLACK_CLIENT_ID": "1.2",
    "SLACK_CLIENT_SECRET": "client-secret",
    "SLACK_APP_TOKEN": "xapp-1-A1-1-abcdef",
    "CHINWAG_ENCRYPTION_KEYS": new_key(),
    "CHINWAG_HTTP__PUBLIC_URL": "https://bot.example.org",
}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"SLACK_CLIENT_SECRET": ""}, "SLACK_CLIENT_SECRET is missing"),
        ({"CHINWAG_ENCRYPTION_KEYS": ""}, "CHINWAG_ENCRYPTION_KEYS is missing: the tokens"),
        ({"CHINWAG_HTTP__PUBLIC_URL": ""}, r"\[http\] public_url is missing"),
        ({"SLACK_BOT_TOKEN": "xoxb-1-abcdefgh"}, "are both set"),
        ({"SLACK_APP_TOKEN": ""}, "SLACK_APP_TOKEN is missing"),
    ],
)
def test_one_line_with_its_cure(tmp_path: Path, changed: dict[str, str], what: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    settings = load_settings(config, ALL | changed)
    with pytest.raises(ConfigError, match=what) as error:
        build_adapters(settings, None, SystemClock())
    assert "\n" not in str(error.value)


def test_all_that_it_takes(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    settings = load_settings(config, ALL)
    (adapter,) = build_adapters(settings, "slack", SystemClock())
    assert adapter.name == "slack"
    assert set(ALL["CHINWAG_ENCRYPTION_KEYS"].split(",")) <= set(settings.secrets())


def test_what_is_no_key_is_not_shown(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    with pytest.raises(ConfigError, match="want 32 random bytes in base64") as error:
        load_settings(config, ALL | {"CHINWAG_ENCRYPTION_KEYS": "my-very-secret-key"})
    assert "my-very-secret-key" not in str(error.value)
