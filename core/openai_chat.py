"""Chat Completions, the format that most other servers of models speak: from a Request to its body,
from the bytes of its stream to an Answer. No network here, no SDK.

Histories are stored as the Messages API writes them, whoever answered; so a conversation may change
its model at any time. What has no place in this format is left out of a request, never of the
store: thinking, and what a server tool of the other provider did. Format: the API reference of Chat
Completions, and the SDK's own types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import uuid4

import msgspec

from core.errors import ModelUnavailable
from core.messages import Message, decode_blocks, encode_blocks, text_block
from core.model import Answer, OnText, Request, ToolCall
from core.snapshot import Usage
from core.sse import Lines

Json = dict[str, Any]

_encode: Final = msgspec.json.Encoder().encode
_decode_object: Final = msgspec.json.Decoder(dict[str, Any]).decode

_STOPS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_EFFORTS: Final = {"xhigh": "high", "max": "high"}


# ---------------------------------------------------------------------- what is asked


def encode_request(request: Request, *, limit: str = "max_completion_tokens") -> bytes:
    """The body of ``POST /chat/completions``.

    :param limit: what the server calls the bound of one answer
    """
    body: Json = {
        "model": request.model,
        limit: request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            *({"role": "system", "content": text} for text in request.system),
            *(each for message in request.messages for each in _messages(message)),
        ],
    }
    tools = [tool for raw in request.tools for tool in _tool(_decode_object(raw))]
    if tools:
        body["tools"] = tools
        if not request.use_tools:
            body["tool_choice"] = "none"
    if request.effort:
        body["reasoning_effort"] = _EFFORTS.get(request.effort, request.effort)
    return _encode(body)


def _tool(tool: Json) -> Iterator[Json]:
    if "input_schema" not in tool:
        return  # a tool that the other provider runs itself
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    yield {"type": "function", "function": function}


def _messages(message: Message) -> Iterator[Json]:
    blocks = decode_blocks(message.blocks)
    if message.role == "assistant":
        yield from _said(blocks)
        return
    spoken: list[Json] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            texts, others = _apart(_content(block.get("content")))
            yield {
                "role": "tool",
                "tool_call_id": block.get("tool_use_id"),
                "content": "\n".join(texts) or "(see the next message)",
            }
            # A result can be text only; what else there is can only be shown by the user.
            spoken += others
        else:
            spoken += _parts((block,))
    if spoken:
        yield {"role": "user", "content": spoken}


def _said(blocks: Iterable[Json]) -> Iterator[Json]:
    """None at all when there is nothing that this format can hold."""
    said: Json = {"role": "assistant"}
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    calls = [
        {
            "id": block.get("id"),
            "type": "function",
            "function": {
                "name": block.get("name"),
                "arguments": _encode(block.get("input") or {}).decode(),
            },
        }
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    if texts:
        said["content"] = "".join(texts)
    if calls:
        said["tool_calls"] = calls
    if len(said) > 1:
        yield said


def _content(content: object) -> list[Json]:
    if isinstance(content, list):
        return [block for block in content if isinstance(block, dict)]
    return [text_block(str(content or ""))]


def _apart(blocks: list[Json]) -> tuple[list[str], list[Json]]:
    parts = list(_parts(blocks))
    texts = [part["text"] for part in parts if part["type"] == "text"]
    return texts, [part for part in parts if part["type"] != "text"]


def _parts(blocks: Iterable[Json]) -> Iterator[Json]:
    for block in blocks:
        kind, source = block.get("type"), block.get("source")
        if kind == "text":
            yield {"type": "text", "text": str(block.get("text", ""))}
        elif kind in ("image", "document") and isinstance(source, Mapping):
            yield _file(str(kind), block, source)


def _file(kind: str, block: Json, source: Mapping[str, Any]) -> Json:
    name = str(block.get("title") or kind)
    if source.get("type") == "text":
        return {"type": "text", "text": f"{name}:\n{source.get('data', '')}"}
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
        if kind == "image":
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "file", "file": {"filename": name, "file_data": url}}
    if kind == "image" and source.get("type") == "url":
        return {"type": "image_url", "image_url": {"url": source.get("url")}}
    return {"type": "text", "text": f"[a {kind} that cannot be shown here]"}


# ---------------------------------------------------------------------- what is answered


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: object = None


class _Pieces:
    """A call as it grows."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


_decode: Final = msgspec.json.Decoder(_Chunk).decode


class Assembly:
    """Builds one Answer from its chunks.

    :param on_text: called with each piece of text as it arrives
    """

    def __init__(self, on_text: OnText | None = None) -> None:
        self._on_text = on_text
        self._lines = Lines()
        self._texts: list[str] = []
        self._calls: dict[int, _Pieces] = {}
        self._refused = False
        self._finish: str | None = None
        self._usage = Usage()
        self.done = False

    def feed(self, chunk: bytes) -> None:
        """
        :raises ModelUnavailable: an error in the middle, or what is no chunk at all
        """
        for data in self._lines.feed(chunk):
            if data.strip() == b"[DONE]":
                self.done = True
                return
            self._take(_chunk(data))

    def answer(self) -> Answer:
        """
        :raises ModelUnavailable: the stream ended before its end, or made no sense
        """
        # Some servers leave the last line out; but none the reason why it ended.
        if self._finish is None:
            raise ModelUnavailable("the stream ended before its message did")
        text = "".join(self._texts)
        calls = tuple(self._called())
        blocks = [text_block(text)] if text.strip() else []
        for call in calls:
            blocks.append(
                {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
            )
        stop = _STOPS.get(self._finish, self._finish)
        if calls and stop == "end_turn":
            stop = "tool_use"  # so say some servers that are merely compatible
        return Answer(
            blocks=encode_blocks(blocks),
            text=text if text.strip() else "",
            calls=calls,
            stop_reason="refusal" if self._refused else stop,
            usage=self._usage,
        )

    def _take(self, chunk: _Chunk) -> None:
        if chunk.error:
            raise ModelUnavailable("an error in the middle of the answer")
        if chunk.usage:
            self._usage = _usage(chunk.usage)
        for choice in chunk.choices[:1]:
            self._finish = choice.finish_reason or self._finish
            if choice.delta:
                self._extend(choice.delta)

    def _extend(self, delta: _Delta) -> None:
        if delta.content:
            self._texts.append(delta.content)
            if self._on_text:
                self._on_text(delta.content)
        if delta.refusal:
            self._refused = True
        for each in delta.tool_calls or ():
            call = self._calls.setdefault(each.index, _Pieces())
            call.id = call.id or each.id or ""
            if each.function:
                call.name += each.function.name or ""
                call.arguments.append(each.function.arguments or "")

    def _called(self) -> Iterator[ToolCall]:
        for _, call in sorted(self._calls.items()):
            try:
                given = _decode_object("".join(call.arguments) or "{}")
            except (msgspec.DecodeError, RecursionError) as error:
                if self._finish == "length":
                    continue  # cut off in the middle: nobody may run it
                raise ModelUnavailable("the arguments of a call are no JSON object") from error
            # A history may not hold the same id twice, nor none.
            yield ToolCall(id=call.id or f"call_{uuid4().hex[:24]}", name=call.name, input=given)


def _usage(usage: _Usage) -> Usage:
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens if details else None) or 0
    return Usage(
        input_tokens=max(0, (usage.prompt_tokens or 0) - cached),
        output_tokens=usage.completion_tokens or 0,
        cache_read_input_tokens=cached,
    )


def _chunk(data: bytes) -> _Chunk:
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelUnavailable(f"the stream holds what is no chunk: {error}") from error
