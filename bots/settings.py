"""Settings: what config.toml, .env and the environment say, checked before anything starts.

Environment over .env over config.toml over defaults. Files are read, nothing else is opened,
imported or asked. Secrets come from the environment or .env alone: config.toml is refused when it
holds one. Every problem is one line of a `ConfigError` that names the file or variable, the key and
the cure, and never the value.
"""

from __future__ import annotations

import difflib
import io
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource

from bots.secrets import redacting, variable_for
from bots.sections import (
    A_COMMAND,
    A_NAME,
    A_SCHEME,
    A_SLASH,
    A_VARIABLE,
    A_WORD,
    PREFIX,
    McpSection,
    PromptSection,
    Settings,
    is_secret,
    known_keys,
)
from bots.variables import Filling, fill_tokens, literal_secrets, literal_tokens
from core.errors import ConfigError

__all__ = ["Settings", "load_settings"]

# Names that other tools use too, and what they mean here.
VARIABLES: Final[Mapping[str, tuple[str, str]]] = {
    "TELEGRAM_BOT_TOKEN": ("telegram", "token"),
    "SLACK_BOT_TOKEN": ("slack", "bot_token"),
    "SLACK_APP_TOKEN": ("slack", "app_token"),
    "SLACK_SIGNING_SECRET": ("slack", "signing_secret"),
    "SLACK_CLIENT_ID": ("slack", "client_id"),
    "SLACK_CLIENT_SECRET": ("slack", "client_secret"),
    "CHINWAG_ENCRYPTION_KEYS": ("encryption", "keys"),
    "TELEGRAM_WEBHOOK_SECRET": ("telegram", "webhook_secret"),
    "ANTHROPIC_API_KEY": ("anthropic", "api_key"),
    "ANTHROPIC_BASE_URL": ("anthropic", "base_url"),
    "OPENAI_API_KEY": ("openai", "api_key"),
    "OPENAI_BASE_URL": ("openai", "base_url"),
    "ANTHROPIC_FOUNDRY_API_KEY": ("foundry", "api_key"),
}
# Ours, but no settings: they work in the environment only.
_NO_SETTINGS: Final = ("CHINWAG_CONFIG", "CHINWAG_FAILPOINT", "CHINWAG_REQUIRE")

# Sections of sections, which have names of their own.
_OF_NAMES: Final = ("adapters", "mcp")

Trail = tuple[str | int, ...]  # to a value: ("access", "allow", 1)


def load_settings(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """
    :param path: the config file. None: the one that CHINWAG_CONFIG names, else ./config.toml,
        which may be absent. `.env` is looked for beside it
    :raises ConfigError: one line per problem; also when a file that was named is missing
    """
    file, data = _read_config(path, environ)
    problems = list(_take_out_secrets(data, file))
    origins: dict[Trail, str] = dict.fromkeys(_leaves(data), str(file))
    dotenv = file.parent / ".env"
    # Lowest first, so that what comes later wins.
    in_dotenv = _read_dotenv(dotenv)
    for where, variables in ((f"{dotenv}: ", in_dotenv), ("", environ)):
        used, unknown = _sort_out(variables, where)
        problems += unknown
        values = _Variables({_long_name(name): value for name, value in used.items()})()
        origins |= {leaf: where + _name_for(leaf, used) for leaf in _leaves(values)}
        data = _merged(data, values)
    problems += (
        f"{_origin(('telegram', 'bots'), origins)}: [telegram] bots, entry {number}: {name} is not"
        " set; put the bot's token there, in .env or the environment"
        for number, name in fill_tokens(data.get("telegram"), {**in_dotenv, **environ})
    )
    filling = Filling({**in_dotenv, **environ})
    if "mcp" in data:
        data["mcp"] = filling.fill_in(data["mcp"], ("mcp",))
        problems += (
            f"{_origin(trail, origins)}: {_place(trail)}: {name} is not set; put it into .env or"
            " the environment"
            for trail, name in filling.missing
        )
    try:
        settings = Settings(**data)
    except ValidationError as error:
        problems += (_sentence(detail, origins) for detail in error.errors(include_url=False))
    if problems:
        raise ConfigError(redacting()("\n".join(dict.fromkeys(problems))))
    settings._path = file if file.exists() else None
    settings._folder = file.parent.absolute()
    settings._filled_in = tuple(filling.values)
    return settings


# --- reading ----------------------------------------------------------------------------------


def _read_config(path: Path | None, environ: Mapping[str, str]) -> tuple[Path, dict[str, Any]]:
    variable = environ.get("CHINWAG_CONFIG")
    named = path or (Path(variable) if variable else None)
    file = named or Path("config.toml")
    text = _read(file)
    if text is None:
        if named:
            how = "" if path else " (named by CHINWAG_CONFIG)"
            raise ConfigError(f"{file}{how}: no such file; `chinwag init` writes one")
        return file, {}
    try:
        return file, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(redacting()(f"{file}: not TOML: {error}")) from None


def _read_dotenv(file: Path) -> dict[str, str]:
    from dotenv.parser import parse_stream

    bindings = list(parse_stream(io.StringIO(_read(file) or "")))
    bad = [binding.original.line for binding in bindings if binding.error]
    if bad:
        raise ConfigError("\n".join(f"{file}: line {line}: want NAME=value" for line in bad))
    return {binding.key: binding.value or "" for binding in bindings if binding.key}


def _read(file: Path) -> str | None:
    """The text of a file; None when there is none."""
    try:
        # Some editors begin a file with a byte order mark.
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text, at byte {error.start}") from None


class _Variables(EnvSettingsSource):
    """Variables that were given, as nested values. A list may be JSON or ``a,b``."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in variables.items()}
        super().__init__(Settings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return dict(self._given)

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        if value.lstrip().startswith(("[", "{")):
            try:
                return super().decode_complex_value(field_name, field, value)
            except ValueError:
                return value  # not a list and not a table: refused later, with its name
        if isinstance(field, FieldInfo) and get_origin(field.annotation) is tuple:
            return [item.strip() for item in value.split(",")]
        return value


def _sort_out(variables: Mapping[str, str], where: str) -> tuple[dict[str, str], list[str]]:
    """What to use, and a line for each CHINWAG_ variable that means nothing."""
    used: dict[str, str] = {}
    problems: list[str] = []
    for name, value in variables.items():
        if not name.startswith(PREFIX) and name not in VARIABLES:
            continue
        if name in _NO_SETTINGS:
            if where:
                problems.append(f"{where}{name} has no effect here; set it in the environment")
        elif not _is_known(_trail(name)):
            problems.append(f"{where}{name}: no such setting{_variable_hint(name)}")
        # An empty one is a variable that was not filled in; the longer name is meant for us alone.
        elif value.strip() and not (name in VARIABLES and _long_name(name) in variables):
            used[name] = value
    return used, problems


def _trail(name: str) -> Trail:
    return VARIABLES.get(name) or tuple(name.removeprefix(PREFIX).lower().split("__"))


def _long_name(name: str) -> str:
    return PREFIX + "__".join(map(str, _trail(name))).upper()


def _name_for(leaf: Trail, names: Iterable[str]) -> str:
    """The variable that set this value: the one with the longest trail towards it."""
    fitting = [name for name in names if leaf[: len(_trail(name))] == _trail(name)]
    return max(fitting, key=lambda name: len(_trail(name)))


def _is_known(trail: Trail) -> bool:
    section, *rest = trail
    if section in _OF_NAMES:
        return True
    keys = known_keys().get(str(section))
    return keys is not None and (not rest or (len(rest) == 1 and rest[0] in keys))


def _leaves(data: Mapping[str, Any], above: Trail = ()) -> Iterator[Trail]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = _merged(below[key], above[key])
    return both


# --- secrets in the wrong file ----------------------------------------------------------------


def _take_out_secrets(data: dict[str, Any], file: Path) -> Iterator[str]:
    """Remove what must not be in the file's values; a line for each."""
    for variable, (section, key) in VARIABLES.items():
        table = data.get(section)
        if is_secret(known_keys()[section][key]) and isinstance(table, dict) and key in table:
            del table[key]
            yield (
                f"{file}: [{section}] {key} does not belong in this file;"
                f" put it into .env or the environment as {variable}"
            )
    for number, key in literal_tokens(data.get("telegram")):
        yield (
            f"{file}: [telegram] bots, entry {number}: {key} does not belong in this file; put it"
            " into .env or the environment, and name that variable in token_env"
        )
    for server, field, name in list(literal_secrets(data.get("mcp"))):
        del data["mcp"][server][field][name]
        yield (
            f"{file}: [mcp.{server}] {field}.{name} does not belong in this file; write"
            f' "${{NAME}}" for it, and put NAME into .env or the environment'
        )
    for trail, text in _texts(data):
        home = variable_for(text)
        if home:
            yield (
                f"{file}: {_place(trail)} holds what looks like a secret; put it into .env or"
                f" the environment as {home}, and have it renewed if others saw this file"
            )


def _texts(value: Any, trail: Trail = ()) -> Iterator[tuple[Trail, str]]:
    """Every text in the file, names of keys included."""
    if isinstance(value, str):
        yield trail, value
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _texts(item, (*trail, number))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield (*trail, key), key
            yield from _texts(item, (*trail, key))


# --- saying what is wrong ---------------------------------------------------------------------


def _sentence(detail: ErrorDetails, origins: Mapping[Trail, str]) -> str:
    trail = detail["loc"]
    if detail["type"] == "extra_forbidden":
        what = _unknown(trail, detail["input"])
    else:
        what = f"{_place(trail)}: {_wanted(detail)}"
    return f"{_origin(trail, origins)}: {what}"


def _origin(trail: Trail, origins: Mapping[Trail, str]) -> str:
    for length in range(len(trail), 0, -1):
        if trail[:length] in origins:
            return origins[trail[:length]]
        # Wrong is a section as a whole: whoever wrote a part of it.
        parts = [where for leaf, where in origins.items() if leaf[:length] == trail[:length]]
        if parts:
            return ", ".join(dict.fromkeys(parts))
    return "settings"


def _place(trail: Trail) -> str:
    """``[access] allow, entry 2``; pydantic says "[key]" where the name of a table is wrong."""
    depth = 2 if trail[0] in _OF_NAMES else 1
    head = ".".join(map(str, trail[:depth]))
    rest = [part for part in trail[depth:] if part != "[key]"]
    words = [f", entry {part + 1}" if isinstance(part, int) else f".{part}" for part in rest]
    return f"[{head}] {''.join(words).removeprefix('.')}".rstrip()


def _unknown(trail: Trail, value: object) -> str:
    sections = [*known_keys(), "commands", *_OF_NAMES]
    section, name = str(trail[0]), str(trail[-1])
    if len(trail) > 1:
        if trail[:2] == ("slack", "prompts"):
            return (
                f"{_place(trail)}: no such key; there are {', '.join(PromptSection.model_fields)}"
            )
        keys = list(McpSection.model_fields if section == "mcp" else known_keys()[section])
        hint = _meant(name, keys) or f"; there are {', '.join(keys)}"
        return f"{_place(trail)}: no such key{hint}"
    if isinstance(value, dict):
        hint = _meant(name, sections, "[{}]".format) or f"; there are [{'], ['.join(sections)}]"
        return f"[{name}] is not a section{hint}"
    homes = [section for section, keys in known_keys().items() if name in keys]
    return f"{name} stands outside of any section" + (
        f"; put it below [{homes[0]}]" if homes else ""
    )


def _variable_hint(name: str) -> str:
    names = [f"{section}__{key}".upper() for section, keys in known_keys().items() for key in keys]
    others = [other.removeprefix(PREFIX) for other in _NO_SETTINGS]
    hint = _meant(name.removeprefix(PREFIX), [*names, *others], (PREFIX + "{}").format)
    return hint or "; config.example.toml has all settings"


def _meant(wrong: str, known: Iterable[str], shape: Callable[[str], str] = str) -> str:
    close = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.7)
    return f"; did you mean {shape(close[0])}?" if close else ""


_WANTED: Final = {
    "missing": "is missing",
    "int_": "want a whole number",
    "float_": "want a number",
    "finite_number": "want a number",
    "bool_": "want true or false",
    "string_type": "want text in quotes",
    "string_too_short": "must not be empty",
    "tuple_type": "want a list of texts",
    "model_": "want a section with keys of its own",
    "dict_": "want sections, such as [adapters.irc]",
}
_PATTERNS: Final = {
    A_SLASH: "want a slash, then small letters, digits, - or _, 32 in all",
    A_NAME: "want a small letter, then small letters, digits or -",
    A_COMMAND: "want a small letter, then small letters, digits or _, 32 in all",
    A_VARIABLE: 'want the name of a variable, such as "SUPPORT_BOT_TOKEN"',
    A_WORD: 'want a name without blanks, such as "anthropic/claude-sonnet-5-5"',
    A_SCHEME: 'want a URL, such as "sqlite:chinwag.db"',
}


def _wanted(detail: ErrorDetails) -> str:
    """What would be right. Made from the rule alone: the value may be a secret."""
    kind, rule = detail["type"], detail.get("ctx", {})
    if kind == "dict_type" and detail["loc"][0] == "commands":
        return 'want lines such as ping = "commands.py:ping"'
    for beginning, words in _WANTED.items():
        if kind.startswith(beginning):
            return words
    match kind:
        case "value_error":
            return str(rule["error"])
        case "string_pattern_mismatch":
            return _PATTERNS[rule["pattern"]]
        case "literal_error":
            return f"want {rule['expected']}".replace("'", '"')
        case "greater_than_equal":
            return f"want {rule['ge']:g} or more"
        case "greater_than":
            return f"want more than {rule['gt']:g}"
        case "less_than_equal":
            return f"want {rule['le']:g} or less"
        case "too_long":
            return f"want {rule['max_length']} at most"
        case "string_too_long":
            return f"want {rule['max_length']:,} characters at most"
        case _:
            return detail["msg"]
