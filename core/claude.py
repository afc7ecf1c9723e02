"""Claude: the ModelClient over the Messages API, and the only file that imports anthropic.

At Anthropic itself, or on Amazon Bedrock, Google Vertex and Microsoft Foundry, by their clients.

The official client does what it does well: credentials, headers, transport, errors. The request is
spliced from the stored JSON and passed as bytes (its own `create` deep-copies the history), and the
stream is read by `core.sse`. The SDK is imported with the first request, for it takes 1.6 s.
Facts about the SDK (2.14): `client.post(content=bytes)` is public; an error inside a stream is no
APIStatusError of its own; broken connections are httpx2 errors, not anthropic ones. Of its two
clients for Bedrock the newer speaks the plain format (`BedrockMantle`), and the one for Vertex
makes its address from a body that it can look into.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import msgspec

from core.errors import ModelNotFound, ModelRefusedKey, ModelRejected, ModelUnavailable
from core.marks import MARK, marked, marked_rows, marked_tools
from core.model import Answer, OnText, Request
from core.sse import Assembly
from core.usage import Usage

if TYPE_CHECKING:
    import anthropic

CONNECT_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 60.0
END_SECONDS: Final = 0.1

COMPACTION: Final = "compact-2026-01-12"
_COMPACT: Final = "compact_20260112"

_encode: Final = msgspec.json.Encoder().encode
# Each ends the message before it.
_BEGINNINGS: Final = {
    "user": b'},{"role":"user","content":',
    "assistant": b'},{"role":"assistant","content":',
}


Platform = Literal["anthropic", "bedrock", "vertex", "foundry"]
_CLIENTS: Final[Mapping[Platform, str]] = {
    "anthropic": "AsyncAnthropic",
    "bedrock": "AsyncAnthropicBedrockMantle",
    "vertex": "AsyncAnthropicVertex",
    "foundry": "AsyncAnthropicFoundry",
}


class Claude:
    """
    :param api_key: None: the environment's ``ANTHROPIC_API_KEY``; on another platform, what its own
        client finds
    :param base_url: None: the platform's own
    :param platform: on another than Anthropic's, models have that platform's names
    :param options: further arguments of the platform's client, such as `region` and `project_id`
    :param silence: seconds without a byte after which a stream is given up
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        platform: Platform = "anthropic",
        options: Mapping[str, Any] = {},
        silence: float = SILENCE_SECONDS,
    ) -> None:
        # A key of Anthropic's is nothing that another platform should see.
        found = os.environ.get("ANTHROPIC_API_KEY", "") if platform == "anthropic" else ""
        # Out of a file it often comes with a line end, which no header can hold.
        self._api_key = (api_key or found).strip()
        self._base_url = base_url
        self._platform: Platform = platform
        self._options = dict(options)
        self._silence = silence
        self._client: Any = None  # the four clients have no common base
        self._importing = asyncio.Lock()

    async def warm(self) -> None:
        """Import the SDK now, in a thread, so that the first question need not wait for it."""
        async with self._importing:
            await asyncio.to_thread(importlib.import_module, "anthropic")

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        client = await self._connected()
        assembly = Assembly(on_text)
        with _billed(assembly), _errors():
            response = await self._open(client, request)
            try:
                chunks = response.aiter_bytes()
                while not assembly.done:
                    async with asyncio.timeout(self._silence):
                        chunk = await anext(chunks, None)
                    if chunk is None:
                        break
                    assembly.feed(chunk)
                else:
                    await _read_to_the_end(chunks)
            finally:
                await response.aclose()
            return assembly.answer()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _open(self, client: Any, request: Request) -> Any:
        import anthropic
        import httpx2

        body = encode_request(request)
        given: dict[str, Any] = {"content": body}
        if self._platform == "vertex":
            given = {"body": msgspec.json.decode(body)}
        betas = {} if request.compact_at is None else {"anthropic-beta": COMPACTION}
        try:
            stream = await client.post(
                "/v1/messages",
                **given,
                cast_to=object,
                options={"headers": betas},
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
        except (anthropic.APIError, httpx2.HTTPError, TimeoutError):
            raise
        except Exception as error:
            # Before anything is sent, other platforms look for credentials in many places, with
            # libraries of their own. What those say may hold anything.
            what = f"{self._platform}: no credentials could be had: {type(error).__name__}"
            raise ModelRefusedKey(what) from None
        return stream.response

    async def _connected(self) -> Any:
        if self._platform == "anthropic" and not self._api_key:
            raise ModelRefusedKey("there is no ANTHROPIC_API_KEY")
        if self._client is None:
            await self.warm()
        # Asked again: somebody else may have waited for the same import.
        if self._client is None:
            import anthropic
            import httpx2

            timeout = httpx2.Timeout(self._silence, connect=CONNECT_SECONDS)
            given = {"api_key": self._api_key, "base_url": self._base_url, **self._options}
            try:
                self._client = getattr(anthropic, _CLIENTS[self._platform])(
                    **{name: value for name, value in given.items() if value},
                    max_retries=0,
                    timeout=timeout,
                    http_client=anthropic.DefaultAioHttpClient(timeout=timeout),
                    open_telemetry=False,
                )
            except (anthropic.AnthropicError, ValueError) as error:
                # No region, no key, no project: its sentence names what is missing, not a value.
                raise ModelRefusedKey(f"{self._platform}: {error}") from error
        return self._client

    def __repr__(self) -> str:
        return f"Claude(platform={self._platform!r}, base_url={self._base_url!r})"


def encode_request(request: Request) -> bytes:
    """The body of ``POST /v1/messages``: stored blocks go in as they are, cache marks aside."""
    options: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "stream": True,
    }
    if request.system:
        system: list[dict[str, Any]] = [{"type": "text", "text": text} for text in request.system]
        system[-1]["cache_control"] = MARK
        options["system"] = system
    if request.tools:
        # Tools come before the system texts: a mark behind those holds them too.
        options["tools"] = request.tools if request.system else marked_tools(request.tools)
        if not request.use_tools:
            options["tool_choice"] = {"type": "none"}
    if request.thinking:
        options["thinking"] = {"type": request.thinking}
    if request.container:
        options["container"] = request.container
    if request.effort:
        options["output_config"] = {"effort": request.effort}
    if request.compact_at is not None:
        trigger = {"type": "input_tokens", "value": request.compact_at}
        options["context_management"] = {"edits": [{"type": _COMPACT, "trigger": trigger}]}
    # A history may have a thousand rows: two pieces for each, in one go, and joined once.
    pieces: list[bytes | msgspec.Raw] = [
        piece
        for message in request.messages
        for piece in (_BEGINNINGS[message.role], message.blocks)
    ]
    for index in marked_rows(request.messages):
        pieces[2 * index + 1] = marked(request.messages[index].blocks)
    if pieces:
        pieces[0] = _BEGINNINGS[request.messages[0].role].removeprefix(b"},")
        pieces.append(b"}")
    return b"".join((_encode(options)[:-1], b',"messages":[', *pieces, b"]}"))


async def _read_to_the_end(chunks: AsyncIterator[bytes]) -> None:
    """The answer is complete, but a connection that is closed before its response has ended cannot
    be used again. What still goes wrong here is of no interest to anybody."""
    import httpx2

    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(END_SECONDS):
            async for _ in chunks:
                pass


@contextmanager
def _billed(assembly: Assembly) -> Iterator[None]:
    """An answer that broke off is billed as far as it came."""
    try:
        yield
    except ModelUnavailable as error:
        if error.usage is None:
            error.usage = assembly.billed()
        raise


@contextmanager
def _errors() -> Iterator[None]:
    """Everything that the SDK and its transport raise, as errors of our own."""
    import anthropic
    import httpx2

    try:
        yield
    except anthropic.APIStatusError as error:
        _raise_status(error)
    except (anthropic.APIError, httpx2.HTTPError, httpx2.StreamError) as error:
        usage = Usage() if _never_left(error) else None
        raise ModelUnavailable(f"no answer: {type(error).__name__}", usage=usage) from error
    except TimeoutError as error:
        raise ModelUnavailable("no answer: silence") from error


def _never_left(error: BaseException | None) -> bool:
    """Whether no connection was had. httpx2 calls it a ConnectError, too, when the far end has hung
    up on a question; what lies below, in aiohttp, knows the difference, and only by its name can it
    be told here.
    """
    while error is not None:
        if type(error).__name__.startswith(("ClientConnector", "ConnectTimeout", "PoolTimeout")):
            return True
        error = error.__cause__
    return False


def _raise_status(error: anthropic.APIStatusError) -> NoReturn:
    status = error.status_code
    text = f"{status} {error.type or 'error'}"
    detail = f"{text}: {str(error.message)[:300]}"
    # Used-up credit comes as an ordinary 400; only its sentence tells.
    if status in (401, 402, 403) or (status == 400 and "credit balance" in str(error.message)):
        raise ModelRefusedKey(text) from error
    if status == 404:
        raise ModelNotFound(detail) from error
    if status in (400, 413, 422):
        raise ModelRejected(detail) from error
    raise ModelUnavailable(text, _retry_after(error), Usage()) from error


def _retry_after(error: anthropic.APIStatusError) -> float | None:
    try:
        return max(0.0, float(error.response.headers.get("retry-after", "")))
    except ValueError:
        return None
