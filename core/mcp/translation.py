"""From the protocol's words to ours: what a tool of an MCP server is, and what it gave."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final

import mcp_types
import msgspec
from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]

from core.mcp import Server
from core.messages import clean
from core.results import File, Image, picture_type
from core.tools import Tool, check_name, tool_json

MAX_DESCRIPTION: Final = 4_000
MAX_SCHEMA: Final = 32_000  # bytes

_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]")
# What the API allows as the name of a property.
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
# What the API refuses at the top of a schema. The server checks for itself.
_NOT_AT_THE_TOP: Final = ("oneOf", "anyOf", "allOf", "$schema")


def tool_of(server: Server, about: mcp_types.Tool, call: Callable[..., Any]) -> Tool:
    """
    :param call: of one parameter, `arguments`
    :raises ValueError: no model could be told of it
    """
    name = check_name(f"{server.name}__{_FOREIGN.sub('_', about.name)}")
    text = clean(about.description or about.title or "")[:MAX_DESCRIPTION]
    annotations = about.annotations
    repeatable = annotations is not None and bool(
        annotations.read_only_hint or annotations.idempotent_hint
    )
    return Tool(
        name=name,
        function=call,
        arguments=None,
        context_parameter=None,
        repeatable=repeatable,
        timeout=server.timeout,
        json=tool_json(name, text, _schema(about.input_schema)),
        origin=f"mcp {server.name}",
    )


def _schema(given: dict[str, Any]) -> dict[str, Any]:
    schema = {key: value for key, value in given.items() if key not in _NOT_AT_THE_TOP}
    if schema.setdefault("type", "object") != "object":
        raise ValueError("its arguments are no object")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise ValueError("its schema is none")
    for name in properties:
        if not _PROPERTY.fullmatch(name):
            raise ValueError("the name of an argument cannot be given")
    try:
        Draft202012Validator.check_schema(schema)
        encoded = msgspec.json.encode(schema)
    except (SchemaError, msgspec.MsgspecError, TypeError, RecursionError) as error:
        raise ValueError("its schema is none") from error
    if len(encoded) > MAX_SCHEMA:
        raise ValueError(f"its schema has more than {MAX_SCHEMA} bytes")
    return schema


def values_of(result: mcp_types.CallToolResult) -> list[Any]:
    """What a tool of our own would give. Texts that follow each other are one."""
    values: list[Any] = []
    for part in result.content:
        value = _value(part)
        if isinstance(value, str) and values and isinstance(values[-1], str):
            values[-1] += "\n" + value
        else:
            values.append(value)
    if not values and result.structured_content is not None:
        values.append(result.structured_content)
    return values or [""]


def _value(part: Any) -> Any:
    match part:
        case mcp_types.TextContent():
            return part.text
        case mcp_types.ImageContent():
            data = _bytes(part.data)
            return Image(data) if picture_type(data) else File(data, "image", part.mime_type)
        case mcp_types.AudioContent():
            return File(_bytes(part.data), "audio", part.mime_type)
        case mcp_types.EmbeddedResource():
            return _resource(part.resource)
        case mcp_types.ResourceLink():
            return f"[{part.name}: {part.uri}]"
        case _:
            return f"[a part of a kind that cannot be shown: {type(part).__name__}]"


def _resource(resource: Any) -> Any:
    if isinstance(resource, mcp_types.TextResourceContents):
        return resource.text
    name = str(resource.uri).rpartition("/")[2]
    return File(_bytes(resource.blob), name, resource.mime_type or "application/octet-stream")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
