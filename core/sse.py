"""From the bytes of a Messages API stream to an Answer. No network here, no SDK.

The official client's own stream builds a model object and a snapshot per delta, which costs 11 to
27 ms of processor time per answer of 100 deltas; this reads the same events in a tenth of that. The
SDK's reader is the oracle of its tests. Format: the streaming page of the API's documentation, and
the SDK's own types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from core.errors import ModelUnavailable
from core.messages import encode_blocks
from core.model import Answer, OnText, ToolCall
from core.snapshot import Usage


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Start(msgspec.Struct):
    usage: _Usage = msgspec.field(default_factory=_Usage)


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    citation: dict[str, Any] | None = None
    stop_reason: str | None = None


class _Error(msgspec.Struct):
    type: str = "error"
    message: str = ""


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    content_block: dict[str, Any] | None = None
    delta: _Delta | None = None
    message: _Start | None = None
    usage: _Usage | None = None
    error: _Error | None = None


_decode: Final = msgspec.json.Decoder(_Event).decode


class Lines:
    """Cuts a byte stream into the `data` of its events, wherever the chunks end."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        buffer = self._rest + chunk
        if b"\r" in buffer:
            # A carriage return at the very end may be half of a line end.
            held = b"\r" if buffer.endswith(b"\r") else b""
            buffer = buffer[: len(buffer) - len(held)].replace(b"\r\n", b"\n")
            buffer = buffer.replace(b"\r", b"\n") + held
        *events, self._rest = buffer.split(b"\n\n")
        for event in events:
            data = [
                line[5:].removeprefix(b" ")
                for line in event.split(b"\n")
                if line.startswith(b"data:")
            ]
            if data:
                yield b"\n".join(data)


class Assembly:
    """Builds one Answer from its events.

    :param on_text: called with each piece of text as it arrives
    """

    def __init__(self, on_text: OnText | None = None) -> None:
        self._on_text = on_text
        self._lines = Lines()
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._usage = _Usage()
        self._stop_reason: str | None = None
        self.done = False

    def feed(self, chunk: bytes) -> None:
        """
        :raises ModelUnavailable: an error event, or what is no event at all
        """
        for data in self._lines.feed(chunk):
            try:
                event = _decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ModelUnavailable(f"the stream holds what is no event: {error}") from error
            self._take(event)

    def answer(self) -> Answer:
        """
        :raises ModelUnavailable: the stream ended before its end
        """
        if not self.done:
            raise ModelUnavailable("the stream ended before its message did")
        blocks = [self._finished(index) for index in sorted(self._blocks)]
        # A blank text block cannot be sent back: the API refuses it.
        kept = [block for block in blocks if block["type"] != "text" or block["text"].strip()]
        return Answer(
            blocks=encode_blocks(kept),
            text="".join(block["text"] for block in kept if block["type"] == "text"),
            calls=tuple(
                ToolCall(id=block["id"], name=block["name"], input=block["input"])
                for block in kept
                if block["type"] == "tool_use"
            ),
            stop_reason=self._stop_reason or "unknown",
            usage=Usage(
                self._usage.input_tokens or 0,
                self._usage.output_tokens or 0,
                self._usage.cache_creation_input_tokens or 0,
                self._usage.cache_read_input_tokens or 0,
            ),
        )

    def _take(self, event: _Event) -> None:
        if event.type == "content_block_delta" and event.delta:
            self._extend(event.index, event.delta)
        elif event.type == "content_block_start" and event.content_block:
            self._blocks[event.index] = event.content_block
            self._pieces[event.index] = {}
        elif event.type == "message_start" and event.message:
            self._count(event.message.usage)
        elif event.type == "message_delta":
            if event.delta:
                self._stop_reason = event.delta.stop_reason or self._stop_reason
            if event.usage:
                self._count(event.usage)
        elif event.type == "message_stop":
            self.done = True
        elif event.type == "error":
            error = event.error or _Error()
            raise ModelUnavailable(f"{error.type} in the middle of the answer")

    def _count(self, usage: _Usage) -> None:
        """Numbers are cumulative: a later one replaces the earlier one."""
        for field in usage.__struct_fields__:
            value = getattr(usage, field)
            if value is not None:
                setattr(self._usage, field, value)

    def _extend(self, index: int, delta: _Delta) -> None:
        pieces = self._pieces.get(index)
        if pieces is None:
            raise ModelUnavailable("the stream continues a block that it never began")
        if delta.type == "text_delta":
            pieces.setdefault("text", []).append(delta.text)
            if self._on_text and delta.text:
                self._on_text(delta.text)
        elif delta.type == "input_json_delta":
            pieces.setdefault("input", []).append(delta.partial_json)
        elif delta.type == "thinking_delta":
            pieces.setdefault("thinking", []).append(delta.thinking)
        elif delta.type == "signature_delta":
            pieces.setdefault("signature", []).append(delta.signature)
        elif delta.type == "citations_delta" and delta.citation:
            block = self._blocks[index]
            block["citations"] = [*(block.get("citations") or []), delta.citation]

    def _finished(self, index: int) -> dict[str, Any]:
        block = self._blocks[index]
        for field, pieces in self._pieces[index].items():
            joined = "".join(pieces)
            if field != "input":
                block[field] = str(block.get(field) or "") + joined
            elif joined:
                block[field] = _input(joined)
        return block


def _input(text: str) -> dict[str, Any]:
    """The arguments of a call. What was cut off in the middle is no call that anybody may run,
    so it need not be kept: the answer then stops for `max_tokens`."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}
