"""Where settings come from, who wins, and what is said when one is wrong."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bots.app import build_commands
from bots.sections import AdapterSection, is_secret, known_keys
from bots.settings import VARIABLES, Settings, load_settings
from core.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"
# Put together here, so that no scanner of sources takes them for real ones.
TOKEN = "123456789:" + "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
KEY = "sk-ant-" + "api03-abcdefghijklmnop"


def config(folder: Path, text: str = "", *, dotenv: str = "") -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    (folder / ".env").write_text(dotenv)
    return path


def problems(path: Path | None, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_settings(path, environ or {})
    text = str(caught.value)
    return text.replace(str(path.parent) + "/" if path else "\0", "").splitlines()


# --- the example ------------------------------------------------------------------------------


PROMPT = "{ title = 'x', message = 'y' }, "


def test_the_example_says_the_defaults() -> None:
    assert load_settings(EXAMPLE, {}).model_dump() == Settings().model_dump()


def test_the_example_has_every_key() -> None:
    tables: dict[str, Any] = tomllib.loads(EXAMPLE.read_text())
    sections = re.split(r"^\[(\w+)\]$", EXAMPLE.read_text(), flags=re.MULTILINE)
    texts = dict(zip(sections[1::2], sections[2::2], strict=True))
    for section, keys in known_keys().items():
        for key, field in keys.items():
            if is_secret(field):
                assert key not in tables[section]
            elif field.default is None:
                assert re.search(rf"^# {key} = ", texts[section], re.MULTILINE), (section, key)
            else:
                assert key in tables[section], (section, key)
    assert "# [adapters." in EXAMPLE.read_text()


def test_what_the_example_has_in_comments_is_right(tmp_path: Path) -> None:
    text = re.sub(r"^# (?=\w+ = |\[)", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    dotenv = (
        "FILES_LOG_TOKEN=one-secret\nTRACKER_TOKEN=two-secret\nSUPPORT_BOT_TOKEN=12:support-token"
    )
    settings = load_settings(config(tmp_path, text, dotenv=dotenv), {})
    assert settings.mcp["files"].env == {"LOG_TOKEN": "one-secret"}
    assert settings.mcp["tracker"].headers == {"Authorization": "Bearer two-secret"}
    assert settings.telegram.account == "main"
    assert [(bot.account, bot.scope) for bot in settings.telegram.each()] == [("support", "user")]
    assert settings.adapters["irc"].options == {"server": "irc.example.org"}


def test_every_secret_has_a_variable_of_its_own() -> None:
    secret = {
        (section, key)
        for section, keys in known_keys().items()
        for key, field in keys.items()
        if is_secret(field)
    }
    assert secret == {
        ("telegram", "token"),
        ("slack", "bot_token"),
        ("slack", "app_token"),
        ("slack", "signing_secret"),
        ("slack", "client_secret"),
        ("encryption", "keys"),
        ("telegram", "webhook_secret"),
        ("anthropic", "api_key"),
        ("openai", "api_key"),
        ("foundry", "api_key"),
    }
    assert secret <= set(VARIABLES.values())


# --- where they come from ---------------------------------------------------------------------


def test_without_any_file_there_are_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(None, {})
    assert settings.model_dump() == Settings().model_dump()
    assert settings.path is None
    assert settings.folder == tmp_path


def test_the_default_file_is_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, '[agent]\nname = "bob"')
    monkeypatch.chdir(tmp_path)
    settings = load_settings(None, {})
    assert settings.agent.name == "bob"
    assert settings.path == Path("config.toml")


def test_the_environment_names_a_file(tmp_path: Path) -> None:
    path = config(tmp_path, '[agent]\nname = "bob"')
    settings = load_settings(None, {"CHINWAG_CONFIG": str(path)})
    assert settings.agent.name == "bob"
    assert (settings.path, settings.folder) == (path, tmp_path)


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    missing = tmp_path / "other.toml"
    assert problems(missing) == ["other.toml: no such file; `chinwag init` writes one"]
    assert (
        "(named by CHINWAG_CONFIG): no such file"
        in problems(None, {"CHINWAG_CONFIG": str(missing)})[0]
    )


def test_environment_over_dotenv_over_file_over_default(tmp_path: Path) -> None:
    path = config(
        tmp_path,
        '[agent]\nname = "file"\nmodel = "file"\neffort = "low"',
        dotenv="CHINWAG_AGENT__NAME=dotenv\nexport CHINWAG_AGENT__MODEL='dotenv'\nOTHER=1\n",
    )
    agent = load_settings(path, {"CHINWAG_AGENT__NAME": "environment", "OTHER": "1"}).agent
    assert (agent.name, agent.model, agent.effort) == ("environment", "dotenv", "low")
    assert agent.max_tokens == 4096


def test_secrets_come_from_their_usual_variables(tmp_path: Path) -> None:
    path = config(tmp_path, dotenv=f"TELEGRAM_BOT_TOKEN={TOKEN}\nANTHROPIC_API_KEY=\n")
    settings = load_settings(
        path, {"ANTHROPIC_API_KEY": f" {KEY}\n", "ANTHROPIC_BASE_URL": "http://127.0.0.1:8/"}
    )
    assert settings.secrets() == (TOKEN, KEY)
    assert settings.anthropic.base_url == "http://127.0.0.1:8"


def test_our_own_name_of_a_variable_wins(tmp_path: Path) -> None:
    environ = {
        "CHINWAG_ANTHROPIC__BASE_URL": "http://ours",
        "ANTHROPIC_BASE_URL": "http://usual",
        "SLACK_CONFIG_TOKEN": "is nothing to us",
    }
    assert load_settings(config(tmp_path), environ).anthropic.base_url == "http://ours"


def test_variables_hold_lists_numbers_and_whole_sections(tmp_path: Path) -> None:
    settings = load_settings(
        config(tmp_path, "[access]\nopen = true"),
        {
            "CHINWAG_ACCESS__ALLOW": "telegram:1, slack:T1/U1",
            "CHINWAG_AGENT__TOOLS": '["a.py:b"]',
            "CHINWAG_LOG__JSON": "true",
            "CHINWAG_ENGINE__DRAIN_SECONDS": "0",
            "CHINWAG_MEMORY": '{"max_messages": 10}',
            "CHINWAG_ADAPTERS__IRC__USE": "irc",
            "CHINWAG_ADAPTERS__IRC__PASSWORD": "hunter2hunter2",
        },
    )
    assert settings.access.allow == ("telegram:1", "slack:T1/U1")
    assert settings.access.open
    assert settings.agent.tools == ("a.py:b",)
    assert settings.log.json_lines
    assert settings.engine.drain_seconds == 0
    assert (settings.memory.max_messages, settings.memory.trim_to) == (10, 5)
    assert settings.adapters == {
        "irc": AdapterSection.model_validate({"use": "irc", "password": "hunter2hunter2"})
    }
    assert settings.secrets() == ("hunter2hunter2",)


def test_an_empty_variable_is_one_that_was_not_filled_in(tmp_path: Path) -> None:
    path = config(tmp_path, '[telegram]\nscope = "user"', dotenv="TELEGRAM_BOT_TOKEN= \n")
    telegram = load_settings(path, {"CHINWAG_TELEGRAM__SCOPE": ""}).telegram
    assert (telegram.token, telegram.scope) == (None, "user")


def test_dotenv_values_are_taken_as_they_are(tmp_path: Path) -> None:
    path = config(tmp_path, dotenv="CHINWAG_AGENT__NAME='a ${HOME} $b'\n")
    assert load_settings(path, {"HOME": "/root"}).agent.name == "a ${HOME} $b"


def test_editors_may_begin_files_with_a_mark(tmp_path: Path) -> None:
    path = config(tmp_path)
    path.write_bytes(b'\xef\xbb\xbf[agent]\nname = "bob"')
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfCHINWAG_AGENT__MODEL=m\n")
    agent = load_settings(path, {}).agent
    assert (agent.name, agent.model) == ("bob", "m")


def test_settings_cannot_be_changed_and_read_nothing_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHINWAG_AGENT__NAME", "from outside")
    settings = Settings()
    assert settings.agent.name == "assistant"
    with pytest.raises(ValueError, match="frozen"):
        settings.agent.name = "bob"
    with pytest.raises(ValueError, match="frozen"):
        settings.agent = settings.agent


# --- what is said -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[acess]\nopen = true", "[acess] is not a section; did you mean [access]?"),
        (
            "[zebra]",
            "[zebra] is not a section; there are [agent], [tools], [memory], [access], [budget],"
            " [store], [retention], [http], [media],"
            " [telegram], [slack], [encryption], [anthropic], [openai], [bedrock], [vertex],"
            " [foundry], [engine],"
            " [telemetry], [log], [commands], [adapters], [mcp]",
        ),
        ("[agent]\nmodle = 'x'", "[agent] modle: no such key; did you mean model?"),
        ("[log]\nzebra = 1", "[log] zebra: no such key; there are json, level"),
        ("[log]\njson_lines = true", "[log] json_lines: no such key; there are json, level"),
        ("model = 'x'", "model stands outside of any section; put it below [agent]"),
        ("zebra = 'x'", "zebra stands outside of any section"),
        ("agent = 5", "[agent]: want a section with keys of its own"),
        ("agent = 'x'", "[agent]: want a section with keys of its own"),
        ("[agent]\nmax_rounds = 'many'", "[agent] max_rounds: want a whole number"),
        ("[agent]\nmax_rounds = 1.5", "[agent] max_rounds: want a whole number"),
        ("[agent]\nmax_rounds = 0", "[agent] max_rounds: want 1 or more"),
        ("[agent]\nturn_timeout = 0", "[agent] turn_timeout: want more than 0"),
        ("[agent]\nturn_timeout = nan", "[agent] turn_timeout: want a number"),
        ("[agent]\nturn_timeout = inf", "[agent] turn_timeout: want a number"),
        ("[agent]\nturn_timeout = 'long'", "[agent] turn_timeout: want a number"),
        ("[agent]\nname = 5", "[agent] name: want text in quotes"),
        ("[agent]\nname = ''", "[agent] name: must not be empty"),
        (f"[slack]\nprompts = [{PROMPT * 5}]", "[slack] prompts: want 4 at most"),
        (f"[slack]\nhome = '{'x' * 3_001}'", "[slack] home: want 3,000 characters at most"),
        (
            "[slack]\nprompts = [{ title = 'x', message = 'y', text = 'z' }]",
            "[slack] prompts, entry 1.text: no such key; there are title, message",
        ),
        (
            "[agent]\nmodel = 'my model'",
            '[agent] model: want a name without blanks, such as "anthropic/claude-sonnet-5-5"',
        ),
        (
            "[agent]\nthinking = 'deep'",
            '[agent] thinking: want "adaptive" or "disabled"',
        ),
        ("[agent]\ntools = 'a.py:b'", "[agent] tools: want a list of texts"),
        (
            "[agent]\ntools = ['a:b']",
            '[agent] tools, entry 1: want "path/to/file.py:name", web_search, web_fetch,'
            " code_execution, or the name of an installed one",
        ),
        ("[mcp.a]\ncomand = 'x'", "[mcp.a] comand: no such key; did you mean command?"),
        ("[mcp.a]\ntimeout = 1", "[mcp.a]: want either a command or a url"),
        ("[mcp.a]\ncommand = 'x'\nurl = 'http://x'", "[mcp.a]: want either a command or a url"),
        ("[mcp.a]\nurl = 'x'", "[mcp.a]: url: want http://host/path or https://host/path"),
        (
            "[mcp.a_b]\ncommand = 'x'",
            "[mcp.a_b]: want a small letter, then small letters, digits or -",
        ),
        (
            "[mcp.a]\ncommand = 'x'\nenv = { A_TOKEN = 'abc' }",
            '[mcp.a] env.A_TOKEN does not belong in this file; write "${NAME}" for it, and put NAME'
            " into .env or the environment",
        ),
        (
            "[mcp.a]\ncommand = 'x'\nargs = ['--at', '${NOWHERE}']",
            "[mcp.a] args, entry 2: NOWHERE is not set; put it into .env or the environment",
        ),
        ("[memory]\ntrim_to = 41", "[memory]: trim_to must not be above max_messages"),
        ("[access]\nopen = 'perhaps'", "[access] open: want true or false"),
        ("[access]\nallow = ['telegram:1', 2]", "[access] allow, entry 2: want text in quotes"),
        (
            "[access]\nallow = ['42']",
            '[access] allow, entry 1: want a platform and an id, such as "telegram:42" or'
            ' "slack:T1/U1"',
        ),
        (
            "[access]\nallow = ['telegram:@alice']",
            '[access] allow, entry 1: want the numeric id, "telegram:42": a user name can pass to'
            " somebody else",
        ),
        ("[store]\nurl = 'chinwag.db'", '[store] url: want a URL, such as "sqlite:chinwag.db"'),
        ("[telegram]\npoll_timeout = 60", "[telegram] poll_timeout: want 50 or less"),
        (
            "[telegram]\naccount = 'Two Words'",
            "[telegram] account: want a small letter, then small letters, digits or -",
        ),
        (
            "[slack]\ncommand = 'chinwag'",
            "[slack] command: want a slash, then small letters, digits, - or _, 32 in all",
        ),
        (
            "[slack]\nteams = ['acme']",
            '[slack] teams, entry 1: want the id of a workspace, such as "T0123456789"',
        ),
        (
            "[telegram]\nbase_url = 'api.telegram.org'",
            "[telegram] base_url: want http://host or https://host, with a port and a path if need"
            " be",
        ),
        ("commands = 1", '[commands]: want lines such as ping = "commands.py:ping"'),
        ("[commands]\nping = ''", "[commands] ping: must not be empty"),
        (
            "[commands]\nPing = 'a.py:b'",
            "[commands] Ping: want a small letter, then small letters, digits or _, 32 in all",
        ),
        ("adapters = 1", "[adapters]: want sections, such as [adapters.irc]"),
        ("[adapters]\nirc = 1", "[adapters.irc]: want a section with keys of its own"),
        ("[adapters.irc]\nport = 1", "[adapters.irc] use: is missing"),
        (
            "[adapters.IRC]\nuse = 'irc'",
            "[adapters.IRC]: want a small letter, then small letters, digits or -",
        ),
    ],
)
def test_a_wrong_file_gets_one_line(tmp_path: Path, text: str, line: str) -> None:
    assert problems(config(tmp_path, text)) == [f"config.toml: {line}"]


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    path = config(
        tmp_path,
        "[agent]\nmax_rounds = 'x'\n[acess]\n",
        dotenv="CHINWAG_LOG__LEVEL=loud\nCHINWAG_CONFIG=x\n",
    )
    assert problems(path, {"CHINWAG_AGENT__MAX_TOKENS": "x", "CHINWAG_ZEBRA": "x"}) == [
        ".env: CHINWAG_CONFIG has no effect here; set it in the environment",
        "CHINWAG_ZEBRA: no such setting; config.example.toml has all settings",
        "CHINWAG_AGENT__MAX_TOKENS: [agent] max_tokens: want a whole number",
        "config.toml: [agent] max_rounds: want a whole number",
        '.env: CHINWAG_LOG__LEVEL: [log] level: want "debug", "info", "warning" or "error"',
        "config.toml: [acess] is not a section; did you mean [access]?",
    ]


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("CHINWAG_AGENT__MODLE", "x", ": no such setting; did you mean CHINWAG_AGENT__MODEL?"),
        ("CHINWAG_AGENT_MODEL", "x", ": no such setting; did you mean CHINWAG_AGENT__MODEL?"),
        ("CHINWAG_CONFG", "x", ": no such setting; did you mean CHINWAG_CONFIG?"),
        ("CHINWAG_X", "x", ": no such setting; config.example.toml has all settings"),
        ("CHINWAG_AGENT__NAME__X", "x", ": no such setting; did you mean CHINWAG_AGENT__NAME?"),
        ("CHINWAG_AGENT", "x", ": [agent]: want a section with keys of its own"),
        ("CHINWAG_AGENT", '{"modle": 1}', ": [agent] modle: no such key; did you mean model?"),
        ("CHINWAG_ACCESS__ALLOW", '["x', ": [access] allow: want a list of texts"),
        ("CHINWAG_ADAPTERS__IRC__PORT", "1", ": [adapters.irc] use: is missing"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, name: str, value: str, line: str) -> None:
    assert problems(config(tmp_path), {name: value}) == [name + line]


def test_other_variables_of_ours_are_fine(tmp_path: Path) -> None:
    load_settings(config(tmp_path), {"CHINWAG_FAILPOINT": "sent:1", "CHINWAG_REQUIRE": "redis"})


def test_a_rule_between_two_keys_names_all_who_set_them(tmp_path: Path) -> None:
    path = config(tmp_path, "[memory]\nmax_messages = 10")
    assert problems(path, {"CHINWAG_MEMORY__TRIM_TO": "20"}) == [
        "config.toml, CHINWAG_MEMORY__TRIM_TO: [memory]: trim_to must not be above max_messages"
    ]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = config(tmp_path, "[agent]\nname = ")
    assert problems(path)[0].startswith("config.toml: not TOML: Invalid value (at ")
    path.write_text("a = " + "[" * 100_000)
    assert problems(path)[0].startswith("config.toml: not TOML: ")
    path.write_bytes(b"# \xff")
    assert problems(path) == ["config.toml: not UTF-8 text, at byte 2"]
    path.unlink()
    path.mkdir()
    assert problems(path) == ["config.toml: cannot be read: Is a directory"]


def test_a_line_of_dotenv_that_is_none(tmp_path: Path) -> None:
    path = config(tmp_path, dotenv=f"# fine\nTELEGRAM_BOT_TOKEN '{TOKEN}'\n")
    assert problems(path) == [".env: line 2: want NAME=value"]


# --- secrets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "variable"),
    [
        (f"[agent]\ninstructions = 'Use {TOKEN}.'", "[agent] instructions", "TELEGRAM_BOT_TOKEN"),
        (f"[agent]\ntools = ['{KEY}']", "[agent] tools, entry 1", "ANTHROPIC_API_KEY"),
        (f"[adapters.x]\nuse = 'x'\na.b = '{KEY}'", "[adapters.x] a.b", "ANTHROPIC_API_KEY"),
        ("[agent]\nname = 'xoxb-1-2-abcdef'", "[agent] name", "SLACK_BOT_TOKEN"),
        ("[agent]\nname = 'xapp-1-A1-abc'", "[agent] name", "SLACK_APP_TOKEN"),
        (f"[agent]\n'{TOKEN}' = 1", "[agent] [secret]", "TELEGRAM_BOT_TOKEN"),
    ],
)
def test_what_looks_like_a_token_is_refused(
    tmp_path: Path, text: str, place: str, variable: str
) -> None:
    lines = problems(config(tmp_path, text))
    assert lines[0] == (
        f"config.toml: {place} holds what looks like a secret; put it into .env or the environment"
        f" as {variable}, and have it renewed if others saw this file"
    )
    assert TOKEN not in "".join(lines)
    assert KEY not in "".join(lines)


@pytest.mark.parametrize("value", ["'1:x'", "5", f"'{TOKEN}'", "{ a = 1 }"])
def test_a_secret_has_no_place_in_the_file(tmp_path: Path, value: str) -> None:
    assert problems(config(tmp_path, f"[telegram]\ntoken = {value}")) == [
        "config.toml: [telegram] token does not belong in this file;"
        " put it into .env or the environment as TELEGRAM_BOT_TOKEN"
    ]


@pytest.mark.parametrize("bad", ["hunter2hunter2", f"{TOKEN} {TOKEN}", f'["{TOKEN}"]', "1:ä"])
def test_a_bad_secret_is_not_repeated(tmp_path: Path, bad: str) -> None:
    path = config(tmp_path)
    assert problems(path, {"TELEGRAM_BOT_TOKEN": bad}) == [
        "TELEGRAM_BOT_TOKEN: [telegram] token: does not look like a token of @BotFather,"
        " 123456:ABC-DEF..."
    ]
    lines = problems(path, {"CHINWAG_TELEGRAM": json.dumps({"token": [bad]})})
    assert lines == ["CHINWAG_TELEGRAM: [telegram] token: want text in quotes"]
    assert problems(path, {"ANTHROPIC_API_KEY": "a b"}) == [
        "ANTHROPIC_API_KEY: [anthropic] api_key: want one line of letters, digits and signs"
        " without a blank"
    ]


@pytest.mark.parametrize("bad", ["hunter2hunter2", "xoxb 1", "xapp_1", "ä"])
def test_a_bad_token_of_slack_is_not_repeated(tmp_path: Path, bad: str) -> None:
    path = config(tmp_path)
    assert problems(path, {"SLACK_BOT_TOKEN": bad, "SLACK_APP_TOKEN": bad}) == [
        "SLACK_BOT_TOKEN: [slack] bot_token: does not look like one of Slack's, xoxb-...",
        "SLACK_APP_TOKEN: [slack] app_token: does not look like one of Slack's, xapp-...",
    ]


def test_showing_settings_shows_no_secret(tmp_path: Path) -> None:
    settings = load_settings(
        config(tmp_path, "[adapters.irc]\nuse = 'irc'\npassword = 'hunter2'"),
        {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "ANTHROPIC_API_KEY": KEY,
            "CHINWAG_STORE__URL": "postgres://me:hunter2@db/chinwag",
        },
    )
    shown = "".join(
        (repr(settings), str(settings), f"{settings}", repr(settings.store), str(settings.adapters))
    )
    shown += settings.model_copy(update={"store": Settings().store}).model_dump_json()
    assert TOKEN not in shown
    assert KEY not in shown
    assert "hunter2" not in shown
    assert "claude-sonnet" in shown


# --- tools ------------------------------------------------------------------------------------


def test_variables_are_filled_in_where_a_server_is_described(tmp_path: Path) -> None:
    text = (
        "[agent]\ninstructions = 'Say ${HOME}.'\n"
        "[mcp.a]\ncommand = 'run-${WHAT}'\nargs = ['${WHAT}', 'plain', '${WHAT}/${WHAT}']\n"
        "env = { A_KEY = '${KEY_OF_A}', PLAIN = '$WHAT' }\n"
    )
    path = config(tmp_path, text, dotenv="KEY_OF_A=from-dotenv\nWHAT=one")
    settings = load_settings(path, {"WHAT": "${KEY_OF_A}"})
    server = settings.mcp["a"]
    assert server.command == "run-${KEY_OF_A}"  # what is filled in is not looked at again
    assert server.args == ("${KEY_OF_A}", "plain", "${KEY_OF_A}/${KEY_OF_A}")
    assert server.env == {"A_KEY": "from-dotenv", "PLAIN": "$WHAT"}
    assert settings.agent.instructions == "Say ${HOME}."
    assert "from-dotenv" in settings.secrets()
    for shown in (repr(settings), str(settings), json.dumps(settings.model_dump(mode="json"))):
        assert "from-dotenv" not in shown


def test_a_server_may_come_from_the_environment(tmp_path: Path) -> None:
    environ = {"CHINWAG_MCP__A__COMMAND": "x", "CHINWAG_MCP__A__ARGS": '["-v"]'}
    assert load_settings(config(tmp_path), environ).mcp["a"].args == ("-v",)
    assert problems(config(tmp_path), {"CHINWAG_MCP__A__URL": "x"}) == [
        "CHINWAG_MCP__A__URL: [mcp.a]: url: want http://host/path or https://host/path"
    ]


def test_lists_of_a_platform_and_of_its_chats(tmp_path: Path) -> None:
    text = (
        "[telegram]\ntools = ['a', 'b*']\nchat_tools = { '-100' = [], '42' = ['*'] }\n"
        "[adapters.irc]\nuse = 'a.py:B'\ntools = []\nserver = 'x'\n"
    )
    settings = load_settings(config(tmp_path, text), {})
    assert settings.telegram.tools == ("a", "b*")
    assert settings.telegram.chat_tools == {"-100": (), "42": ("*",)}
    assert settings.adapters["irc"].tools == ()
    assert settings.adapters["irc"].options == {"server": "x"}


def test_approvals(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[agent]\napprovers = ["telegram:42", "slack:T1/U1"]\napproval_timeout = 60\n'
    )
    agent = load_settings(tmp_path / "config.toml", {}).agent
    assert (agent.approvers, agent.approval_timeout) == (("telegram:42", "slack:T1/U1"), 60.0)


# --- several bots -----------------------------------------------------------------------------

BOTS = """\
[telegram]
scope = "user"
poll_timeout = 9
[[telegram.bots]]
account = "support"
token_env = "SUPPORT_BOT_TOKEN"
[[telegram.bots]]
account = "sales"
token_env = "SALES_BOT_TOKEN"
scope = "chat"
mode = "webhook"
"""
TOKENS = {"SUPPORT_BOT_TOKEN": "21:support-token", "SALES_BOT_TOKEN": "22:sales-token"}


def test_several_bots(tmp_path: Path) -> None:
    dotenv = "SALES_BOT_TOKEN=22:sales-token"
    environ = {"SUPPORT_BOT_TOKEN": "21:support-token", "TELEGRAM_BOT_TOKEN": "20:main-token"}
    settings = load_settings(config(tmp_path, BOTS, dotenv=dotenv), environ)
    assert [
        (
            bot.account,
            bot.scope,
            bot.mode,
            bot.poll_timeout,
            bot.token and bot.token.get_secret_value(),
        )
        for bot in settings.telegram.each()
    ] == [
        (None, "user", "polling", 9, "20:main-token"),
        ("support", "user", "polling", 9, "21:support-token"),
        ("sales", "chat", "webhook", 9, "22:sales-token"),
    ]
    shown = repr(settings) + settings.model_dump_json()
    for token in ("main-token", "support-token", "sales-token"):
        assert token not in shown
        assert any(token in secret for secret in settings.secrets())


def test_bots_alone_are_enough(tmp_path: Path) -> None:
    settings = load_settings(config(tmp_path, BOTS), TOKENS)
    assert [bot.account for bot in settings.telegram.each()] == ["support", "sales"]


@pytest.mark.parametrize(
    ("text", "environ", "line"),
    [
        (
            BOTS,
            {"SALES_BOT_TOKEN": "22:x"},
            "[telegram] bots, entry 1: SUPPORT_BOT_TOKEN is not set; put the bot's token there, in"
            " .env or the environment",
        ),
        (
            BOTS + 'token = "22:secret"',
            TOKENS,
            "[telegram] bots, entry 2: token does not belong in this file; put it into .env or the"
            " environment, and name that variable in token_env",
        ),
        (
            BOTS.replace("sales", "support"),
            TOKENS,
            "[telegram]: there are two bots with the account 'support'",
        ),
        (
            BOTS,
            dict.fromkeys(TOKENS, "21:x"),
            "[telegram]: two bots have one token: who of them would be brought a message?",
        ),
        (
            BOTS + "tools = []",
            TOKENS,
            "[telegram] bots, entry 2: tools is the same for all bots: set it in [telegram]",
        ),
        (
            BOTS.replace('account = "sales"', ""),
            TOKENS,
            "[telegram] bots, entry 2.account: is missing",
        ),
        (
            BOTS.replace("SALES_BOT_TOKEN", "sales bot"),
            {**TOKENS, "sales bot": "22:x"},
            "[telegram] bots, entry 2.token_env: want the name of a variable, such as"
            ' "SUPPORT_BOT_TOKEN"',
        ),
        (BOTS + "zebra = 1", TOKENS, "[telegram] bots, entry 2.zebra: no such key"),
        ("[telegram]\nbots = 1", {}, "[telegram] bots: want a list of texts"),
        ("[telegram]\nmode = 'push'", {}, '[telegram] mode: want "polling" or "webhook"'),
        ("[telegram]\nmax_connections = 101", {}, "[telegram] max_connections: want 100 or less"),
        (
            "[telegram]\nwebhook_secret = 'abc'",
            {},
            "[telegram] webhook_secret does not belong in this file; put it into .env or the"
            " environment as TELEGRAM_WEBHOOK_SECRET",
        ),
        ("[http]\nport = 0", {}, "[http] port: want 1 or more"),
    ],
)
def test_bots_and_webhooks_that_cannot_be(
    tmp_path: Path, text: str, environ: dict[str, str], line: str
) -> None:
    (said,) = problems(config(tmp_path, text), environ)
    assert said.startswith(f"config.toml: {line}")


@pytest.mark.parametrize("secret", ["short", "x" * 31, "x" * 257, "x" * 31 + "!", "x " * 20])
def test_a_webhook_secret_that_is_none(tmp_path: Path, secret: str) -> None:
    (said,) = problems(config(tmp_path, ""), {"TELEGRAM_WEBHOOK_SECRET": secret})
    assert said == (
        "TELEGRAM_WEBHOOK_SECRET: [telegram] webhook_secret: want 32 to 256 letters, digits, _"
        " and -, made at random"
    )


def test_a_webhook_secret_is_one(tmp_path: Path) -> None:
    settings = load_settings(config(tmp_path, ""), {"TELEGRAM_WEBHOOK_SECRET": "s" * 32})
    assert "s" * 32 in settings.secrets()
    assert "s" * 32 not in repr(settings) + settings.model_dump_json()


def test_what_a_chat_may_choose_is_the_owner_s_choice(tmp_path: Path) -> None:
    def names(text: str) -> set[str]:
        return {each.name for each in build_commands(load_settings(config(tmp_path, text), {}))}

    only = names('[agent]\nchat_settings = ["model"]\n')
    assert "model" in only and "mention" not in only
    assert {"model", "mention"} <= names("")
