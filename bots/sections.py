"""What there is to set: each section of config.toml, its keys, defaults and bounds.

Frozen values that read nothing from anywhere; `bots.settings` does the reading. A secret is a
`SecretStr`, and no `repr` shows one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from bots.secrets import redacting
from core.memory import COMPACT_AT, LEAST_COMPACT_AT, SUMMARY_MODEL, ConversationMemory
from core.seal import keys_of

PREFIX: Final = "CHINWAG_"

INSTRUCTIONS: Final = (
    "You are a helpful assistant in a chat. Answer in the language of the person who writes, "
    "briefly and plainly, as one does in a chat. Say so when you do not know something."
)
# The engine of these rules is Rust's: "$" is the very end.
A_NAME: Final = "^[a-z][a-z0-9-]{0,39}$"
# Letters at both ends, so that it can be seen where the name ends.
A_CALL: Final = r"^\w(?:[^\n]{0,62}\w)?$"
A_WORD: Final = r"^\S+$"
A_COMMAND: Final = "^[a-z][a-z0-9_]{0,31}$"
A_SLASH: Final = "^/[a-z0-9_-]{1,31}$"
A_VARIABLE: Final = "^[A-Za-z_][A-Za-z0-9_]*$"
A_SCHEME: Final = "^[a-z][a-z0-9+-]*:"


def _check_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", value):
        raise ValueError("want http://host or https://host, with a port and a path if need be")
    return value.rstrip("/")


def _check_http(value: str) -> None:
    if not re.fullmatch(r"https?://[^\s/?#]+\S*", value):
        raise ValueError("url: want http://host/path or https://host/path")


def check_sender(value: str) -> str:
    platform, colon, person = value.partition(":")
    if not colon or not platform or not person or any(char.isspace() for char in value):
        raise ValueError('want a platform and an id, such as "telegram:42" or "slack:T1/U1"')
    if platform == "telegram" and not person.isdecimal():
        raise ValueError(
            'want the numeric id, "telegram:42": a user name can pass to somebody else'
        )
    return value


def _check_tool(value: str) -> str:
    file, colon, name = value.rpartition(":")
    if colon and file.endswith(".py") and name.isidentifier():
        return value
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", value):
        return value
    raise ValueError(
        'want "path/to/file.py:name", web_search, web_fetch, code_execution, or the name of an'
        " installed one"
    )


def _check_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ValueError, KeyError, OSError):
        raise ValueError('want a time zone, such as "UTC" or "Europe/Brussels"') from None
    return value


def _check_amount(value: str) -> str:
    if not re.fullmatch(r"\s*\d[\d_]*(\.\d{1,6})? +[A-Za-z]{1,8}\s*", value):
        raise ValueError('want an amount, such as "5 USD" or "200_000 tokens"')
    return value


def _listed(value: Any) -> Any:
    """One text is a list, its items parted by commas."""
    return tuple(value.split(",")) if isinstance(value, str) else value


def _check_token(secret: SecretStr) -> SecretStr:
    token = secret.get_secret_value().strip()
    if not re.fullmatch(r"\d+:[A-Za-z0-9_-]+", token):
        raise ValueError("does not look like a token of @BotFather, 123456:ABC-DEF...")
    return SecretStr(token)


def _check_slack(secret: SecretStr, shape: str, like: str) -> SecretStr:
    token = secret.get_secret_value().strip()
    if not re.fullmatch(shape, token):
        raise ValueError(f"does not look like one of Slack's, {like}")
    return SecretStr(token)


def _check_bot_token(secret: SecretStr) -> SecretStr:
    return _check_slack(secret, r"(?:xoxe\.)?xox[bp]-[A-Za-z0-9-]+", "xoxb-...")


def _check_app_token(secret: SecretStr) -> SecretStr:
    return _check_slack(secret, r"xapp-[A-Za-z0-9-]+", "xapp-...")


def _check_team(value: str) -> str:
    if not re.fullmatch(r"[TE][A-Z0-9]+", value):
        raise ValueError('want the id of a workspace, such as "T0123456789"')
    return value


def _check_webhook_secret(secret: SecretStr) -> SecretStr:
    value = secret.get_secret_value().strip()
    if not re.fullmatch(r"[A-Za-z0-9_-]{32,256}", value):
        raise ValueError("want 32 to 256 letters, digits, _ and -, made at random")
    return SecretStr(value)


def _check_key(secret: SecretStr) -> SecretStr:
    key = secret.get_secret_value().strip()
    if not re.fullmatch(r"[!-~]+", key):
        raise ValueError("want one line of letters, digits and signs without a blank")
    return SecretStr(key)


def _check_keys(secret: SecretStr) -> SecretStr:
    keys_of(secret.get_secret_value())
    return secret


Text = Annotated[str, StringConstraints(min_length=1)]
Name = Annotated[str, StringConstraints(pattern=A_NAME)]
CommandName = Annotated[str, StringConstraints(pattern=A_COMMAND)]
Url = Annotated[str, AfterValidator(_check_url)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


Amounts = Annotated[
    tuple[Annotated[str, AfterValidator(_check_amount)], ...], BeforeValidator(_listed)
]


class Section(BaseModel):
    """One table of config.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    def __repr__(self) -> str:
        return redacting()(super().__repr__())

    __str__ = __repr__


PROVIDERS: Final = ("anthropic", "openai", "bedrock", "vertex", "foundry")


def _check_model(value: str) -> str:
    provider, slash, _ = value.partition("/")
    if slash and provider not in PROVIDERS:
        raise ValueError(
            f"no provider {provider!r}: want one of {', '.join(PROVIDERS)} before the /"
        )
    return value


ModelName = Annotated[str, StringConstraints(pattern=A_WORD), AfterValidator(_check_model)]


class AgentSection(Section):
    """
    :param fallback: the model that takes over when the first cannot answer
    :param models: those that people may choose by /model, besides `model`
    :param chat_settings: what a chat may choose for itself, by the commands of these names
    :param tools: ``path/to/file.py:name``, relative to the config file; a server tool; an entry
        point of the group ``chinwag.tools``
    :param phrases: a file with the bot's fixed sentences in other words
    :param approvers: who may allow the calls of tools that need it; empty: the person who asked
    :param approval_timeout: seconds after which such a call is declined
    """

    name: Text = "assistant"
    model: ModelName = "anthropic/claude-sonnet-5-5"
    fallback: ModelName | None = None
    models: tuple[ModelName, ...] = ()
    instructions: str = INSTRUCTIONS
    thinking: Literal["adaptive", "disabled"] | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    tell_time: bool = False
    max_tokens: Count = 4096
    max_rounds: Count = 8
    turn_timeout: Seconds = 120.0
    approvers: tuple[Annotated[str, AfterValidator(check_sender)], ...] = ()
    approval_timeout: Seconds = 3600.0
    phrases: Text | None = None
    chat_settings: tuple[Literal["model", "mention"], ...] = ("model", "mention")
    tools: tuple[Annotated[str, AfterValidator(_check_tool)], ...] = ()


class MemorySection(Section):
    """What a request holds of a conversation; see `core.memory.ConversationMemory`.

    :param trim_to: half of `max_messages` when it is not given
    :param unaddressed: how many messages that are said in a group, but not to the bot, it remembers
        until it is addressed; 0: none
    """

    max_messages: Count = 40
    trim_to: Count = Field(default_factory=lambda data: max(1, data.get("max_messages", 40) // 2))
    max_tokens: Count = 150_000
    max_bytes: Count = 20_000_000
    max_images: Annotated[int, Field(ge=0)] = 20
    unaddressed: Annotated[int, Field(ge=0, le=50)] = 0
    strategy: Literal["window", "summary", "server"] = "window"
    summary_model: Annotated[str, StringConstraints(pattern=A_WORD)] = SUMMARY_MODEL
    compact_at: Annotated[int, Field(ge=LEAST_COMPACT_AT)] = COMPACT_AT

    @model_validator(mode="after")
    def _check(self) -> MemorySection:
        if self.trim_to > self.max_messages:
            raise ValueError("trim_to must not be above max_messages")
        return self

    def memory(self) -> ConversationMemory:
        """Where the service compacts, a number of messages bounds only when it was asked for:
        else they would leave before there is anything to compact."""
        given = {"max_messages", "trim_to"} & self.model_fields_set
        counted = self.strategy != "server" or bool(given)
        tokens = self.max_tokens if counted or "max_tokens" in self.model_fields_set else None
        return ConversationMemory(
            self.max_messages if counted else None,
            self.trim_to if counted else None,
            max_tokens=tokens,
            max_bytes=self.max_bytes,
            max_images=self.max_images,
            strategy=self.strategy,
            summary_model=self.summary_model,
            compact_at=self.compact_at,
        )


class AccessSection(Section):
    """
    :param allow: who may speak, besides the owner and whom they let in
    :param deny: who may not, whoever else may
    :param messages_per_minute: of each sender
    """

    open: bool = False
    allow: tuple[Annotated[str, AfterValidator(check_sender)], ...] = ()
    deny: tuple[Annotated[str, AfterValidator(check_sender)], ...] = ()
    messages_per_minute: Count = 20


class BudgetSection(Section):
    """Each amount is ``5 USD`` or ``200_000 tokens``, or a list of both; an empty list: no limit.

    :param prices: a file with prices that are not among ours, or are others
    :param timezone: in which days and months begin
    """

    prices: Text | None = None
    timezone: Annotated[str, AfterValidator(_check_zone)] = "UTC"
    sender_per_day: Amounts | None = None
    sender_per_month: Amounts | None = None
    chat_per_day: Amounts | None = None
    chat_per_month: Amounts | None = None
    per_day: Amounts | None = None
    per_month: Amounts | None = None
    total: Amounts | None = None


class ToolsSection(Section):
    """Options of server tools, as the API names them; `core.server_tools` checks them."""

    web_search: dict[str, Any] = {}
    web_fetch: dict[str, Any] = {}
    code_execution: dict[str, Any] = {}


class McpSection(Section):
    """An MCP server: a command, or a URL. See `core.mcp.Server`.

    Where a value has ``${NAME}``, the variable's value was put in its place. What may hold one is
    neither shown nor dumped.
    """

    command: Text | None = Field(default=None, repr=False, exclude=True)
    args: tuple[str, ...] = Field(default=(), repr=False, exclude=True)
    env: dict[str, str] = Field(default={}, repr=False, exclude=True)
    url: Text | None = Field(default=None, repr=False, exclude=True)
    headers: dict[str, str] = Field(default={}, repr=False, exclude=True)
    tools: tuple[str, ...] = ("*",)
    timeout: Seconds = 60.0
    start_timeout: Seconds = 15.0

    @model_validator(mode="after")
    def _check(self) -> McpSection:
        if (self.command is None) == (self.url is None):
            raise ValueError("want either a command or a url")
        if self.url is not None:
            _check_http(self.url)
        return self


class StoreSection(Section):
    """
    :param encrypted: whether what people say is sealed with the keys of `[encryption]`. Not whether
        there are keys: they may be there for the tokens of Slack workspaces alone
    """

    url: Annotated[str, StringConstraints(pattern=A_SCHEME)] = "sqlite:chinwag.db"
    encrypted: bool = False


class RetentionSection(Section):
    """What goes by itself; see `core.retention`. None: nothing does.

    :param days: without a word. No less than a platform may take to bring a message once more
    :param usage_days: no less than what a budget for a month counts
    """

    days: Annotated[int, Field(ge=2)] | None = None
    megabytes: Count | None = None
    usage_days: Annotated[int, Field(ge=62)] | None = None


class MediaSection(Section):
    """Files that people send.

    :param transcriber: ``path/to/file.py:name`` of a function that writes down what is spoken, or
        the name of an installed one; None: the bot says that it cannot hear
    """

    transcriber: Text | None = None


class TelegramKeys(Section):
    """What may be said of one bot.

    :param account: which of several bots of one database this is
    :param names: by which people call the bot in a group, besides its user name
    :param mode: whether we ask Telegram for updates, or it brings them to `[http] public_url`
    :param poll_timeout: seconds that one request for updates waits at Telegram
    :param max_connections: updates that may be on their way to our webhook at once
    :param streaming: how a growing answer is shown: drafts in private chats and edits in groups,
        edits only, or not at all
    :param long_answers: whether long code is cut into messages like the rest, or sent as a file
    :param file_above_parts: messages that code may take before it is
    :param on_unknown_outcome: of all bots, as are the lists of tools
    :param max_file_mb: what people may send; the Bot API itself gives out 20 MB at most
    :param tools: which of the agent's tools may be used here; None: all
    :param chat_tools: the same for single chats, by their ids
    """

    account: Name | None = None
    base_url: Url = "https://api.telegram.org"
    mode: Literal["polling", "webhook"] = "polling"
    poll_timeout: Annotated[int, Field(ge=1, le=50)] = 30
    max_connections: Annotated[int, Field(ge=1, le=100)] = 40
    scope: Literal["chat", "user"] = "chat"
    names: tuple[Annotated[str, StringConstraints(pattern=A_CALL)], ...] = ()
    streaming: Literal["auto", "edit", "off"] = "auto"
    long_answers: Literal["split", "file"] = "split"
    file_above_parts: Annotated[int, Field(ge=1, le=100)] = 3
    on_unknown_outcome: Literal["resend", "hold"] = "resend"
    max_file_mb: Annotated[int, Field(ge=1, le=64)] = 20
    tools: tuple[str, ...] | None = None
    chat_tools: dict[str, tuple[str, ...]] = {}
    token: Annotated[SecretStr, AfterValidator(_check_token)] | None = None
    webhook_secret: Annotated[SecretStr, AfterValidator(_check_webhook_secret)] | None = None


_OF_ALL_BOTS: Final = frozenset(("on_unknown_outcome", "tools", "chat_tools", "webhook_secret"))


class TelegramBot(TelegramKeys):
    """One of several bots: what it does not say is as in `[telegram]`.

    :param token_env: the variable that has its token
    """

    account: Name
    token_env: Annotated[str, StringConstraints(pattern=A_VARIABLE)]

    @model_validator(mode="after")
    def _check(self) -> TelegramBot:
        for name in sorted(_OF_ALL_BOTS & self.model_fields_set):
            raise ValueError(f"{name} is the same for all bots: set it in [telegram]")
        return self


class TelegramSection(TelegramKeys):
    """Telegram is used when `token` is there, or a bot in `bots`."""

    bots: tuple[TelegramBot, ...] | None = None

    @model_validator(mode="after")
    def _check(self) -> TelegramSection:
        accounts = [bot.account for bot in self.each()]
        for account in accounts:
            if accounts.count(account) > 1:
                raise ValueError(f"there are two bots with the account {account!r}")
        tokens = [bot.token for bot in self.each() if bot.token is not None]
        if len({token.get_secret_value() for token in tokens}) < len(tokens):
            raise ValueError("two bots have one token: who of them would be brought a message?")
        return self

    def each(self) -> tuple[TelegramKeys, ...]:
        """Every bot, with all that holds for it."""
        own = {name: getattr(self, name) for name in TelegramKeys.model_fields}
        all_of_them = [own] if self.token is not None else []
        all_of_them += [
            own | {name: getattr(bot, name) for name in bot.model_fields_set - {"token_env"}}
            for bot in self.bots or ()
        ]
        return tuple(TelegramKeys.model_construct(**keys) for keys in all_of_them)


Key = Annotated[SecretStr, AfterValidator(_check_key)]


class PromptSection(Section):
    """
    :param title: what people read
    :param message: what is said for them when they choose it
    """

    title: Annotated[str, StringConstraints(min_length=1, max_length=75)]
    message: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


PROMPTS: Final = (
    PromptSection(title="What can you do?", message="What can you do for me?"),
    PromptSection(
        title="Help me write",
        message="Help me write a message. Ask me first what it is about, and who it is for.",
    ),
    PromptSection(
        title="Explain something",
        message="Explain something to me in simple words. Ask me first what.",
    ),
)


class SlackSection(Section):
    """Slack is used when `bot_token` is there, or `client_id`: then anybody may install the app,
    and each workspace has a token of its own.

    :param account: which of several bots of one database this is
    :param transport: whether we connect to Slack (Socket Mode), or it comes to `[http]`
    :param scope: what has a history of its own in a channel: a thread, which a mention opens, the
        channel, or each person in it
    :param thread_follow: in a thread where the bot is, it is meant without being mentioned
    :param agent_view: the app shows as an agent: each direct message at the top begins a
        conversation of its own, its thread
    :param teams: workspaces besides the bot's own whose people may speak in shared channels
    :param command: the slash command, as it is called in the app's manifest
    :param streaming: how a growing answer is shown: by Slack's streams in threads and by edits
        elsewhere, by edits only, or not at all
    :param feedback: below an answer are two buttons: whether it was good
    :param home: what stands on the app's home tab, in Slack's marks; empty: a sentence of ours
    :param prompts: with `agent_view`: what is suggested to who has said nothing yet
    :param on_unknown_outcome: what to do when it is unknown whether a message was sent, and a
        missing scope keeps us from looking
    :param on_uninstall: what becomes of what was said in a workspace that takes the app out
    :param tools: which of the agent's tools may be used here; None: all
    :param chat_tools: the same for single channels, by their ids
    """

    account: Name | None = None
    base_url: Url = "https://slack.com/api"
    client_id: Annotated[str, StringConstraints(pattern=A_WORD)] | None = None
    on_uninstall: Literal["keep", "erase"] = "keep"
    transport: Literal["socket", "http"] = "socket"
    scope: Literal["thread", "channel", "user"] = "thread"
    thread_follow: bool = True
    agent_view: bool = False
    teams: tuple[Annotated[str, AfterValidator(_check_team)], ...] = ()
    command: Annotated[str, StringConstraints(pattern=A_SLASH)] = "/chinwag"
    streaming: Literal["auto", "edit", "off"] = "auto"
    feedback: bool = False
    home: Annotated[str, StringConstraints(max_length=3_000)] = ""
    prompts: Annotated[tuple[PromptSection, ...], Field(max_length=4)] = PROMPTS
    on_unknown_outcome: Literal["resend", "hold"] = "resend"
    tools: tuple[str, ...] | None = None
    chat_tools: dict[str, tuple[str, ...]] = {}
    bot_token: Annotated[SecretStr, AfterValidator(_check_bot_token)] | None = None
    app_token: Annotated[SecretStr, AfterValidator(_check_app_token)] | None = None
    signing_secret: Key | None = None
    client_secret: Key | None = None

    @property
    def is_used(self) -> bool:
        return self.bot_token is not None or self.client_id is not None


class EncryptionSection(Section):
    """:param keys: 32 random bytes each, in base64, with commas between; the first one seals"""

    keys: Annotated[SecretStr, AfterValidator(_check_keys)] | None = None


class AnthropicSection(Section):
    """:param base_url: None for the client's own"""

    base_url: Url | None = None
    api_key: Key | None = None


class OpenAISection(Section):
    """:param base_url: of a server that is compatible with OpenAI's; None for OpenAI's own"""

    base_url: Url | None = None
    api_key: Key | None = None


class BedrockSection(Section):
    """Credentials are found as every AWS client finds them."""

    region: Text | None = None
    base_url: Url | None = None


class VertexSection(Section):
    """Credentials are found as every Google client finds them.

    :param project: the project id
    """

    region: Text | None = None
    project: Text | None = None
    base_url: Url | None = None


class FoundrySection(Section):
    """:param resource: the name before ``.services.ai.azure.com``; not beside `base_url`"""

    resource: Text | None = None
    base_url: Url | None = None
    api_key: Key | None = None


class EngineSection(Section):
    """
    :param concurrency: how many conversations are worked on at the same time
    :param drain_seconds: how long running turns may take to finish when the program is stopped
    :param url: where several processes share their work, see `core.dbos`; None: there is one
    :param role: which part of it this process does
    :param worker_concurrency: conversations that one of several workers is at, at most
    :param queue: of several bots with one `url` each has a name of its own
    :param most_waiting: conversations that may wait before messages are taken in more slowly
    """

    concurrency: Count = 256
    url: Annotated[str, StringConstraints(pattern=A_SCHEME)] | None = None
    role: Literal["all", "intake", "worker"] = "all"
    worker_concurrency: Count = 64
    queue: Name = "chinwag"
    most_waiting: Count = 500
    when_busy: Literal["collect", "queue", "interrupt"] = "collect"
    drain_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 20.0


class AdapterSection(Section):
    """A platform that is not built in.

    :param use: ``path/to/file.py:Class``, or an entry point of the group ``chinwag.adapters``
    :param tools: which of the agent's tools may be used here; None: all
    :param chat_tools: the same for single chats
    :param options: all other keys of the table, for the class to check. They may hold secrets, so
        they are neither shown nor dumped
    """

    use: Text
    tools: tuple[str, ...] | None = None
    chat_tools: dict[str, tuple[str, ...]] = {}
    options: dict[str, Any] = Field(default={}, repr=False, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        ours = ("use", "tools", "chat_tools")
        options = {key: value for key, value in data.items() if key not in ours}
        return {**{key: data[key] for key in ours if key in data}, "options": options}


class HttpSection(Section):
    """What other programs may ask us for.

    :param host: the address that is listened on; 127.0.0.1: this machine alone
    :param port: None: none is open
    :param public_url: under which the world reaches it, by way of a reverse proxy
    :param metrics: whether `/metrics` is there, for Prometheus
    """

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    metrics: bool = False
    public_url: Url | None = None


class TelemetrySection(Section):
    """Where it goes, and in what name, is said by OpenTelemetry's own variables, ``OTEL_...``.

    :param otel: send spans and metrics
    :param content: with what was said in them; it leaves this machine then
    """

    otel: bool = False
    content: bool = False


class LogSection(Section):
    # BaseModel has a method `json`.
    json_lines: bool = Field(default=False, alias="json")
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(BaseSettings):
    """All settings. Made by `load_settings`; made by hand it reads nothing from anywhere."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    agent: AgentSection = AgentSection()
    tools: ToolsSection = ToolsSection()
    mcp: dict[Name, McpSection] = {}
    memory: MemorySection = MemorySection()
    access: AccessSection = AccessSection()
    budget: BudgetSection = BudgetSection()
    store: StoreSection = StoreSection()
    retention: RetentionSection = RetentionSection()
    http: HttpSection = HttpSection()
    media: MediaSection = MediaSection()
    telegram: TelegramSection = TelegramSection()
    slack: SlackSection = SlackSection()
    encryption: EncryptionSection = EncryptionSection()
    anthropic: AnthropicSection = AnthropicSection()
    openai: OpenAISection = OpenAISection()
    bedrock: BedrockSection = BedrockSection()
    vertex: VertexSection = VertexSection()
    foundry: FoundrySection = FoundrySection()
    engine: EngineSection = EngineSection()
    commands: dict[CommandName, Text] = {}
    adapters: dict[Name, AdapterSection] = {}
    telemetry: TelemetrySection = TelemetrySection()
    log: LogSection = LogSection()

    _path: Path | None = PrivateAttr(default=None)
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    _filled_in: tuple[str, ...] = PrivateAttr(default=())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # `load_settings` reads the others itself, because it must say where a bad value came from.
        return (init_settings,)

    def __repr__(self) -> str:
        return redacting()(super().__repr__())

    __str__ = __repr__

    @property
    def path(self) -> Path | None:
        """The config file that was read; None when there was none."""
        return self._path

    @property
    def folder(self) -> Path:
        """What relative paths in the settings are relative to."""
        return self._folder

    def secrets(self) -> tuple[str, ...]:
        """Every value that must never be shown: for the log, which takes them out."""
        known = (
            self.slack.bot_token,
            self.slack.app_token,
            self.slack.signing_secret,
            self.slack.client_secret,
            *(bot.token for bot in self.telegram.each()),
            self.telegram.webhook_secret,
            self.anthropic.api_key,
            self.openai.api_key,
            self.foundry.api_key,
        )
        return (
            *(secret.get_secret_value() for secret in known if secret is not None),
            *(self.encryption.keys.get_secret_value().split(",") if self.encryption.keys else ()),
            *(text for adapter in self.adapters.values() for text in guarded(adapter.options)),
            *self._filled_in,
        )


_SECRET_NAME: Final = re.compile(r"token|secret|passw|key|credential", re.IGNORECASE)


def guarded(options: Mapping[str, Any]) -> Iterator[str]:
    """The texts among an adapter's options whose name says that they are secret."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield from guarded(value)
        elif isinstance(value, str) and _SECRET_NAME.search(name):
            yield value


def known_keys() -> dict[str, dict[str, FieldInfo]]:
    """Section -> key -> field, for all sections but the free ``[adapters.NAME]``."""
    return {
        name: {field.alias or key: field for key, field in section.model_fields.items()}
        for name, info in Settings.model_fields.items()
        if isinstance(section := info.annotation, type) and issubclass(section, Section)
    }


def is_secret(field: FieldInfo) -> bool:
    """Whether the value must not be written into config.toml."""
    # However the type is annotated or made optional.
    return SecretStr.__name__ in str(field.annotation)
