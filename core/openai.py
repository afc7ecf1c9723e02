"""OpenAI: the ModelClient over Chat Completions, and the only file that imports openai.

It speaks to OpenAI, and to every server that is compatible with it, on this machine or elsewhere,
by its base URL. The official client does credentials, headers, transport and errors; what goes in
and out is `core.openai_chat`. The SDK is an optional extra, imported with the first request.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

from core.errors import ModelNotFound, ModelRefusedKey, ModelRejected, ModelUnavailable
from core.model import Answer, OnText, Request
from core.openai_chat import Assembly, encode_request
from core.usage import Usage

if TYPE_CHECKING:
    import openai

CONNECT_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 60.0

# Of a 429: the account has nothing left, so waiting will not help.
_USED_UP: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})


class OpenAI:
    """
    :param api_key: None: the environment's ``OPENAI_API_KEY``. A server at a `base_url` of its own
        may want none
    :param base_url: None: the environment's ``OPENAI_BASE_URL``, else OpenAI's own
    :param silence: seconds without a byte after which a stream is given up
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._api_key = (api_key or os.environ.get("OPENAI_API_KEY", "")).strip()
        self._base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        self._silence = silence
        self._client: openai.AsyncOpenAI | None = None
        self._importing = asyncio.Lock()

    async def warm(self) -> None:
        """Import the SDK now, in a thread, so that the first question need not wait for it.

        :raises ModelRefusedKey: it is not installed
        """
        async with self._importing:
            try:
                await asyncio.to_thread(importlib.import_module, "openai")
            except ImportError as error:
                # For whoever runs the bot to look after, like a key that is missing.
                raise ModelRefusedKey(
                    'models "openai/..." need the openai package: install chinwag[openai]'
                ) from error

    async def answer(self, request: Request, on_text: OnText | None = None) -> Answer:
        client = await self._connected()
        # Its own models know this name only, most others only the older one.
        limit = "max_tokens" if self._base_url else "max_completion_tokens"
        assembly = Assembly(on_text)
        with _errors():
            response = await self._open(client, encode_request(request, limit=limit))
            try:
                chunks = response.aiter_bytes()
                while not assembly.done:
                    async with asyncio.timeout(self._silence):
                        chunk = await anext(chunks, None)
                    if chunk is None:
                        break
                    assembly.feed(chunk)
            finally:
                await response.aclose()
        return assembly.answer()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _open(self, client: openai.AsyncOpenAI, body: bytes) -> Any:
        import openai

        stream = await client.post(
            "/chat/completions",
            content=body,
            cast_to=object,
            options={"headers": {"Content-Type": "application/json"}},
            stream=True,
            stream_cls=openai.AsyncStream[object],
        )
        return stream.response

    async def _connected(self) -> openai.AsyncOpenAI:
        if not self._api_key and self._base_url is None:
            raise ModelRefusedKey("there is no OPENAI_API_KEY")
        if self._client is None:
            await self.warm()
        # Asked again: somebody else may have waited for the same import.
        if self._client is None:
            import httpx2
            import openai

            timeout = httpx2.Timeout(self._silence, connect=CONNECT_SECONDS)
            self._client = openai.AsyncOpenAI(
                api_key=self._api_key or "none",
                base_url=self._base_url,
                max_retries=0,
                timeout=timeout,
            )
        return self._client

    def __repr__(self) -> str:
        return f"OpenAI(base_url={self._base_url!r})"


@contextmanager
def _errors() -> Iterator[None]:
    """Everything that the SDK and its transport raise, as errors of our own."""
    import httpx2
    import openai

    try:
        yield
    except openai.APIStatusError as error:
        _raise_status(error)
    except (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError) as error:
        # What never left costs nothing.
        nowhere = httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout
        usage = Usage() if isinstance(error.__cause__, nowhere) else None
        raise ModelUnavailable(f"no answer: {type(error).__name__}", usage=usage) from error
    except TimeoutError as error:
        raise ModelUnavailable("no answer: silence") from error


def _raise_status(error: openai.APIStatusError) -> NoReturn:
    status = error.status_code
    text = f"{status} {error.code or error.type or 'error'}"
    detail = f"{text}: {str(error.message)[:300]}"
    # The sentence to a wrong key may hold the key.
    if status in (401, 402, 403) or (status == 429 and error.code in _USED_UP):
        raise ModelRefusedKey(text) from None
    if status == 404:
        raise ModelNotFound(detail) from error
    if status in (400, 413, 422):
        raise ModelRejected(detail) from error
    raise ModelUnavailable(text, _retry_after(error), Usage()) from error


def _retry_after(error: openai.APIStatusError) -> float | None:
    try:
        return max(0.0, float(error.response.headers.get("retry-after", "")))
    except ValueError:
        return None
