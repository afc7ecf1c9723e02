"""The seam to a language model: ModelClient, and what goes in and comes out.

Protocols and values only. An implementation is one file, proved by the contract suite in
`tests/core/model_contract.py`. A client makes one attempt: retries, deadlines and what a person is
told are the turn's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from core.messages import Message
from core.snapshot import Usage

OnText = Callable[[str], None]


class Request(msgspec.Struct, frozen=True):
    """One question to a model.

    :param model: the provider's name of it, without a provider prefix
    :param provider: which of several clients it is for (`core.providers`); a client itself does
        not look at it
    :param system: texts of the system parameter, in order
    :param messages: a valid history that ends with a user message
    :param tools: the provider's JSON of each tool
    :param use_tools: False: the tools stand in the prompt, but must not be called
    :param thinking: ``adaptive``, ``disabled``, or None for the model's own default
    :param effort: ``low`` ... ``max``, or None for the model's own default
    :param container: where the provider has run code for this turn already
    :param compact_at: input tokens from which on the service shall compact the conversation by
        itself; a client whose service cannot ignores it
    """

    model: str
    system: tuple[str, ...]
    messages: Sequence[Message]
    tools: tuple[msgspec.Raw, ...] = ()
    use_tools: bool = True
    max_tokens: int = 4096
    thinking: str | None = None
    effort: str | None = None
    provider: str = ""
    container: str | None = None
    compact_at: int | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A tool that the model wants to be run; `input` is as the model wrote it."""

    id: str
    name: str
    input: dict[str, Any]


class Answer(msgspec.Struct, frozen=True):
    """What the model said.

    :param blocks: the content blocks, verbatim: a JSON array
    :param text: the text blocks, joined
    :param stop_reason: as the provider names it; may be one we do not know
    :param container: where the provider runs code for this turn
    """

    blocks: msgspec.Raw
    text: str
    calls: tuple[ToolCall, ...]
    stop_reason: str
    usage: Usage
    container: str | None = None


@runtime_checkable
class ModelClient(Protocol):
    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        """One attempt, streamed.

        :param on_text: called with each piece of text as it arrives
        :raises ModelUnavailable: overloaded, rate limit, network, a stream that was cut or fell
            silent: another attempt may succeed
        :raises ModelRefusedKey: no key, wrong key, no credit
        :raises ModelNotFound: no such model
        :raises ModelRejected: this request, as it is
        """
        ...

    async def close(self) -> None: ...
