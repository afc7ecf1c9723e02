"""What others bring along: from a file beside the config, or from an installed package."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from bots.plugins import load_adapter, load_command, load_object, load_tools
from core.command import Command
from core.errors import ConfigError

SHAPE = """
    name = "mine"
    limits = Limits()
    def serves(self, key): return False
    async def run(self, accept): ...
    def render(self, markdown): return ()
    async def send(self, key, part, *, uncertain): ...
    def live(self, key, inbound, shown, showing): ...
"""

ADAPTERS = f"""
import msgspec
import pydantic
from core.adapter import Limits

class Base:
{SHAPE}

class Plain(Base):
    pass

class Strict(Base):
    class Settings(pydantic.BaseModel):
        port: int = 7070
        token: pydantic.SecretStr = pydantic.SecretStr("")
    def __init__(self, settings):
        self.settings = settings

class Talkative(Base):
    class Settings(pydantic.BaseModel):
        api_key: str
        @pydantic.field_validator("api_key")
        def check(cls, value):
            raise ValueError("what is " + value + "?")

class Quick(Base):
    class Settings(msgspec.Struct):
        port: int = 7070
        token: str = ""
    def __init__(self, settings):
        self.settings = settings

class Free(Base):
    class Settings(pydantic.BaseModel, extra="allow"):
        pass
    def __init__(self, settings):
        self.settings = settings

class Breaks(Base):
    class Settings(msgspec.Struct):
        password: str
    def __init__(self, settings):
        raise RuntimeError("cannot log in with " + settings.password)

class Odd(Base):
    Settings = {{"port": int}}

class Nothing:
    pass

number = 17
"""

TOOLS = '''
from core.tools import tool

def weather(city: str) -> str:
    """What the weather is like."""
    return "fine in " + city

@tool
def clock() -> str:
    """What time it is."""
    return "noon"

class Counter:
    """Counts."""

    def __call__(self) -> int:
        return 1

all_of_them = [clock, weather]
some_of_them = [clock, 17]

def unclear(what) -> str:
    """Takes anything."""
    return ""

number = 17
'''

SECRET = "the-secret-that-nobody-sees"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "adapters.py").write_text(ADAPTERS)
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


def adapter(folder: Path, name: str, **options: Any) -> Any:
    return load_adapter("mine", f"adapters.py:{name}", options, folder)


class TestFiles:
    def test_by_path_and_without_the_folder_on_the_path(self, folder: Path) -> None:
        assert load_object("tools.py:number", folder) == 17
        assert load_object(f"{folder / 'tools.py'}:number", Path("/")) == 17
        assert load_object(f"../{folder.name}/tools.py:number", folder) == 17
        assert str(folder) not in sys.path
        assert "tools" not in sys.modules

    def test_two_files_of_one_name_are_two_modules(self, folder: Path) -> None:
        other = folder / "other"
        other.mkdir()
        (other / "tools.py").write_text("number = 18")
        assert load_object("tools.py:number", folder) == 17
        assert load_object("tools.py:number", other) == 18
        first, second = (load_object("tools.py:weather", folder) for _ in range(2))
        assert first is second, "one file is one module"

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            ("import no_such_package_anywhere", "ModuleNotFoundError"),
            ("def broken(:", "SyntaxError"),
            ("1 / 0", "ZeroDivisionError: division by zero"),
        ],
    )
    def test_a_file_that_cannot_be_loaded(self, folder: Path, content: str, why: str) -> None:
        (folder / "bad.py").write_text(content)
        for _ in range(2):
            with pytest.raises(ConfigError, match=f"bad.py: cannot be loaded: {why}"):
                load_object("bad.py:number", folder)
        (folder / "bad.py").write_text("number = 17 # and longer than before, for the cache")
        assert load_object("bad.py:number", folder) == 17

    @pytest.mark.parametrize(
        ("place", "why"),
        [
            ("missing.py:name", "missing.py: no such file"),
            ("tools.py:missing", "there is no 'missing' in it"),
            ("tools.py", 'want "path/to/file.py:name"'),
            ("tools:number", 'want "path/to/file.py:name"'),
            (".:number", 'want "path/to/file.py:name"'),
        ],
    )
    def test_a_place_where_there_is_nothing(self, folder: Path, place: str, why: str) -> None:
        with pytest.raises(ConfigError) as caught:
            load_object(place, folder)
        assert why in str(caught.value)


class TestEntryPoints:
    @pytest.fixture(autouse=True)
    def installed(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "adapters", raising=False)
        points = EntryPoints(
            [
                EntryPoint("irc", "adapters:Quick", "chinwag.adapters"),
                EntryPoint("old", "adapters:Renamed", "chinwag.adapters"),
                EntryPoint("gone", "no_such_package_anywhere:Gone", "chinwag.adapters"),
                EntryPoint("irc", "adapters:Plain", "chinwag.stores"),
            ]
        )

        def entry_points(group: str, name: str) -> EntryPoints:
            return points.select(group=group, name=name)

        monkeypatch.setattr("bots.plugins.entry_points", entry_points)

    def test_by_name(self, folder: Path) -> None:
        made: Any = load_adapter("mine", "irc", {"port": 6667}, folder)
        assert type(made).__name__ == "Quick"
        assert made.settings.port == 6667

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("old", "old: cannot be loaded: AttributeError"),
            ("gone", "gone: cannot be loaded: ModuleNotFoundError"),
            ("missing", "an entry point of chinwag.adapters"),
        ],
    )
    def test_one_that_cannot_be_loaded(self, folder: Path, name: str, why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            load_adapter("mine", name, {}, folder)


class TestAdapters:
    def test_without_settings_of_its_own(self, folder: Path) -> None:
        assert adapter(folder, "Plain").name == "mine"
        with pytest.raises(ConfigError, match=r"\[adapters.mine\]: no such key: port; .* has no"):
            adapter(folder, "Plain", port=1)

    @pytest.mark.parametrize("name", ["Strict", "Quick"])
    def test_its_own_settings(self, folder: Path, name: str) -> None:
        assert adapter(folder, name).settings.port == 7070
        assert adapter(folder, name, port=6667, token=SECRET).settings.port == 6667

    @pytest.mark.parametrize("name", ["Strict", "Quick"])
    def test_wrong_settings_are_named_and_no_value_is(self, folder: Path, name: str) -> None:
        with pytest.raises(ConfigError) as caught:
            adapter(folder, name, port=SECRET, token=SECRET)
        assert str(caught.value).startswith("[adapters.mine]")
        assert "port" in str(caught.value)
        assert SECRET not in str(caught.value)
        with pytest.raises(ConfigError) as caught:
            adapter(folder, name, prot=6667)
        assert str(caught.value) == "[adapters.mine] prot: no such key"

    def test_who_wants_all_keys_gets_them(self, folder: Path) -> None:
        assert adapter(folder, "Free", anything=1).settings.anything == 1

    @pytest.mark.parametrize(("name", "key"), [("Talkative", "api_key"), ("Breaks", "password")])
    def test_what_others_say_of_a_secret_is_not_passed_on(
        self, folder: Path, name: str, key: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            adapter(folder, name, **{key: SECRET})
        assert "[secret]" in str(caught.value)
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize("name", ["Nothing", "number", "Odd"])
    def test_what_is_no_adapter(self, folder: Path, name: str) -> None:
        with pytest.raises(ConfigError, match=r"\[adapters.mine\]"):
            adapter(folder, name)


class TestTools:
    def test_a_tool_a_function_a_class_and_several(self, folder: Path) -> None:
        def names(name: str) -> list[str]:
            return [tool.name for tool in load_tools(f"tools.py:{name}", folder)]

        assert names("clock") == ["clock"]
        assert names("weather") == ["weather"]
        assert names("Counter") == ["Counter"]
        assert names("all_of_them") == ["clock", "weather"]
        (clock,) = load_tools("tools.py:clock", folder)
        assert clock.origin == "tools.py:clock"

    @pytest.mark.parametrize("name", ["number", "unclear", "missing", "some_of_them"])
    def test_what_cannot_be_one(self, folder: Path, name: str) -> None:
        with pytest.raises(ConfigError, match=r"tools\.py"):
            load_tools(f"tools.py:{name}", folder)

    def test_an_installed_one(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "tools", raising=False)
        points = EntryPoints([EntryPoint("time", "tools:clock", "chinwag.tools")])
        monkeypatch.setattr(
            "bots.plugins.entry_points", lambda group, name: points.select(group=group, name=name)
        )
        assert [tool.name for tool in load_tools("time", folder)] == ["clock"]
        with pytest.raises(ConfigError, match=r"an entry point of chinwag\.tools"):
            load_tools("weather", folder)


COMMANDS = '''
from core.command import Command, Outcome

def roll(call):
    """roll a die"""
    return "4"

shout = Command("ignored", "say it loud", lambda snapshot, call: Outcome(call.argument.upper()))
number = 5
'''


def test_a_command_is_a_function_or_a_command_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "commands.py").write_text(COMMANDS)
    roll = load_command("dice", "commands.py:roll", tmp_path)
    assert isinstance(roll, Command) and (roll.name, roll.help) == ("dice", "roll a die")
    shout = load_command("shout", "commands.py:shout", tmp_path)
    assert (shout.name, shout.help) == ("shout", "say it loud")


def test_a_command_is_an_entry_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "installed_commands.py").write_text(COMMANDS)
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("dice", "installed_commands:roll", "chinwag.commands")
    monkeypatch.setattr("bots.plugins.entry_points", lambda **_: EntryPoints([entry]))
    assert load_command("roll", "dice", tmp_path).help == "roll a die"


@pytest.mark.parametrize(
    ("name", "place", "why"),
    [
        ("roll", "commands.py:number", "[commands] roll: commands.py:number is neither a command"),
        ("Roll", "commands.py:roll", "[commands] Roll: 'Roll' cannot be a command"),
        ("Roll", "commands.py:shout", "[commands] Roll: 'Roll' cannot be a command"),
        ("roll", "roll", "chinwag.commands"),
    ],
)
def test_what_is_no_command_is_refused(name: str, place: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "commands.py").write_text(COMMANDS)
    with pytest.raises(ConfigError) as raised:
        load_command(name, place, tmp_path)
    assert why in str(raised.value)
