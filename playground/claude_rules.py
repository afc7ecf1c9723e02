"""What the Messages API refuses: the checks a request must pass before it is answered.

As strict as the real service about everything that a bot can get wrong (order of roles, tool calls
and their results, empty texts, changed thinking, unknown fields), with its own words where they are
known, because people search for them. Not a schema: what a bot never sends is not looked at.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection
from typing import Any

from playground.claude_blocks import Invalid, check_block, check_name, check_text, names
from playground.claude_compaction import BETA, LEAST_TRIGGER, edit_of
from playground.claude_images import HEAD, LONGEST_OF_MANY, MANY, TOO_LONG, size_of

Json = dict[str, Any]

MOST_MESSAGES = 100_000
MOST_IMAGES = 600
MOST_BREAKPOINTS = 4

_TOP = names(
    "model max_tokens messages system tools tool_choice thinking output_config stream metadata"
    " stop_sequences cache_control container diagnostics inference_geo service_tier speed"
    " temperature top_p top_k user_profile_id workspace_id"
    # Fields of the beta API, which shares the address.
    " billing_policy compaction context_management fallback_credit_token fallbacks mcp_servers"
    " thread"
)


def check(request: Any, paused: Collection[str] = ()) -> None:
    """Raise `Invalid` unless the real service would take the request.

    `paused` holds the texts of answers that ended with `pause_turn`: an assistant message with one
    of them may end the request, any other is a prefill, which current models refuse.
    """
    if not isinstance(request, dict):
        raise Invalid("The request body must be a JSON object.")
    for name in ("model", "max_tokens", "messages"):
        if name not in request:
            raise Invalid(f"{name}: Field required")
    for name in request:
        if name not in _TOP:
            raise Invalid(f"{name}: Extra inputs are not permitted")
    _check_numbers(request)
    _check_thinking(request)
    _check_system(request.get("system"))
    _check_tools(request)
    _check_messages(request["messages"])
    _check_pairs(request["messages"])
    _check_end(request["messages"], paused)
    marks = _count(request, lambda value: bool(value.get("cache_control")))
    if marks > MOST_BREAKPOINTS:
        raise Invalid(
            f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided."
            f" Found {marks}."
        )
    _check_images(request["messages"])


def check_betas(request: Json, betas: str) -> None:
    """What is in beta is refused without its header."""
    management = request.get("context_management")
    if management is None:
        return
    if BETA not in betas:
        raise Invalid("context_management: Extra inputs are not permitted")
    edit = edit_of(request)
    trigger = (edit or {}).get("trigger") or {"value": LEAST_TRIGGER}
    if trigger["value"] < LEAST_TRIGGER:
        raise Invalid(
            "context_management.edits.0.trigger.value: should be greater than or equal to"
            f" {LEAST_TRIGGER}"
        )


def _check_numbers(request: Json) -> None:
    if not isinstance(request["model"], str) or not request["model"]:
        raise Invalid("model: Input should be a valid string")
    limit = request["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise Invalid("max_tokens: Input should be a valid integer")
    if limit < 0:
        raise Invalid("max_tokens: must be greater than or equal to 0")
    if not isinstance(request.get("stream", False), bool):
        raise Invalid("stream: Input should be a valid boolean")
    for name, default in (("temperature", 1), ("top_p", None), ("top_k", None)):
        if request.get(name) not in (None, default):
            raise Invalid(f"`{name}` is not supported by this model")
    for index, stop in enumerate(request.get("stop_sequences") or ()):
        if not isinstance(stop, str) or not stop.strip():
            raise Invalid(f"stop_sequences.{index}: each stop sequence must contain non-whitespace")
    metadata = request.get("metadata") or {}
    for name in metadata:
        if name != "user_id":
            raise Invalid(f"metadata.{name}: Extra inputs are not permitted")
    if len(metadata.get("user_id") or "") > 256:
        raise Invalid("metadata.user_id: String should have at most 256 characters")


def _check_thinking(request: Json) -> None:
    thinking = request.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("adaptive", "enabled", "disabled", "between_tools"):
        raise Invalid(f"thinking.type: unknown value {kind!r}")
    if kind == "enabled":
        version = re.search(r"-(\d+)(?=-|\Z)", request["model"])
        if version and int(version[1]) >= 5:
            raise Invalid(
                '"thinking.type.enabled" is not supported for this model.'
                ' Use "thinking.type.adaptive" and "output_config.effort".'
            )
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or budget < 1024:
            raise Invalid("thinking.enabled.budget_tokens: should be greater than or equal to 1024")
        if budget >= request["max_tokens"]:
            raise Invalid("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        raise Invalid("system: Input should be a valid string or list")
    for index, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise Invalid(f"system.{index}: only text blocks are allowed")
        check_block(f"system.{index}", block, role="system")


def _check_tools(request: Json) -> None:
    tools = request.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise Invalid("tools: Input should be a valid list")
    names: set[str] = set()
    for index, tool in enumerate(tools or ()):
        if not isinstance(tool, dict):
            raise Invalid(f"tools.{index}: Input should be a valid dictionary")
        name = tool.get("name", "")
        if tool.get("type") in (None, "custom"):
            check_name(f"tools.{index}.custom.name", name)
            schema = tool.get("input_schema")
            if not isinstance(schema, dict):
                raise Invalid(f"tools.{index}.custom.input_schema: Field required")
            if schema.get("type") != "object":
                raise Invalid(f"tools.{index}.custom.input_schema.type: should be 'object'")
        if name in names:
            raise Invalid("tools: Tool names must be unique.")
        names.add(name)
    choice = request.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        raise Invalid(f"tool_choice.type: unknown value {kind!r}")
    if not tools and kind != "none":
        raise Invalid("tool_choice may only be specified while providing tools.")
    if kind == "tool" and choice.get("name") not in names:
        raise Invalid(f"Tool '{choice.get('name')}' not found in provided tools")


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list):
        raise Invalid("messages: Input should be a valid list")
    if not messages:
        raise Invalid("messages: at least one message is required")
    if len(messages) > MOST_MESSAGES:
        raise Invalid(f"messages: at most {MOST_MESSAGES} messages are allowed")
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        if not isinstance(message, dict):
            raise Invalid(f"{where}: Input should be a valid dictionary")
        if message.get("role") not in ("user", "assistant"):
            raise Invalid(f"{where}.role: Input should be 'user' or 'assistant'")
        for name in message:
            if name not in ("role", "content"):
                raise Invalid(f"{where}.{name}: Extra inputs are not permitted")
        if "content" not in message:
            raise Invalid(f"{where}.content: Field required")
        content = message["content"]
        if not isinstance(content, str | list):
            raise Invalid(f"{where}.content: Input should be a valid string or list")
        if not content:
            raise Invalid(
                f"{where}: all messages must have non-empty content"
                " except for the optional final assistant message"
            )
        if isinstance(content, str):
            check_text("messages", content)
            continue
        for number, block in enumerate(content):
            if not isinstance(block, dict):
                raise Invalid(f"{where}.content.{number}: Input should be a valid dictionary")
            check_block(f"{where}.content.{number}", block, role=message["role"])
    if messages[0]["role"] != "user":
        raise Invalid('messages: first message must use the "user" role')


def _check_pairs(messages: list[Json]) -> None:
    seen: set[str] = set()
    for index, message in enumerate(messages):
        used = _ids(message, "tool_use", "id")
        for id in used:
            if id in seen:
                raise Invalid(f"messages.{index}: `tool_use` ids must be unique: {id}")
            seen.add(id)
        if used:
            following = messages[index + 1] if index + 1 < len(messages) else {}
            answered = _leading_results(following)
            missing = [id for id in used if id not in answered]
            if missing:
                raise Invalid(
                    f"messages.{index}: `tool_use` ids were found without `tool_result` blocks"
                    f" immediately after: {', '.join(missing)}. Each `tool_use` block must have a"
                    " corresponding `tool_result` block in the next message."
                )
        results = _ids(message, "tool_result", "tool_use_id")
        asked = _ids(messages[index - 1], "tool_use", "id") if index else []
        for id in results:
            if id not in asked:
                raise Invalid(
                    f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks:"
                    f" {id}. Each `tool_result` block must have a corresponding `tool_use` block"
                    " in the previous message."
                )
            if results.count(id) > 1:
                raise Invalid(
                    f"messages.{index}: each tool_use must have a single result."
                    f" Found multiple `tool_result` blocks with id: {id}"
                )


def _blocks(message: Json) -> list[Json]:
    content = message.get("content", ())
    return [] if isinstance(content, str) else list(content)


def _ids(message: Json, kind: str, name: str) -> list[str]:
    return [block[name] for block in _blocks(message) if block["type"] == kind]


def _leading_results(message: Json) -> list[str]:
    ids = []
    for block in _blocks(message):
        if block["type"] != "tool_result":
            break
        ids.append(block["tool_use_id"])
    return ids


def _check_end(messages: list[Json], paused: Collection[str]) -> None:
    last = messages[-1]
    if last["role"] == "user":
        return
    content = last["content"]
    if not isinstance(content, str):
        content = "".join(block.get("text", "") for block in content)
    if content not in paused:
        raise Invalid(
            "This model does not support assistant message prefill."
            " The conversation must end with a user message."
        )


def _check_images(messages: list[Json]) -> None:
    sources: list[Json] = []

    def is_image(value: Json) -> bool:
        image = value.get("type") == "image"
        if image:
            sources.append(value["source"])
        return image

    count = _count(messages, is_image)
    if count > MOST_IMAGES:
        raise Invalid(f"messages: too many images; at most {MOST_IMAGES} are allowed")
    if count <= MANY:
        return
    for source in sources:
        head = base64.b64decode(source["data"][:HEAD]) if source["type"] == "base64" else b""
        if max(size_of(head)) > LONGEST_OF_MANY:
            raise Invalid(f"{TOO_LONG} for many-image requests: {LONGEST_OF_MANY} pixels")


def _count(value: Any, counts: Callable[[Json], bool]) -> int:
    """How many objects meet the condition; arguments and schemas of tools are not looked into."""
    if isinstance(value, list):
        return sum(_count(item, counts) for item in value)
    if isinstance(value, dict):
        inner = (item for key, item in value.items() if key not in ("input", "input_schema"))
        return counts(value) + sum(_count(item, counts) for item in inner)
    return 0
