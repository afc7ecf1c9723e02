"""What the bot has asked of Slack: one `Call` for each request, in the order of their arrival."""

import time
from dataclasses import dataclass, replace

from starlette.responses import Response

from playground.slack_chats import Json
from playground.slack_http import HungUp


@dataclass(frozen=True, slots=True)
class Call:
    """One request of the bot: a method of the Web API, or response_url, files.upload,
    files.download, oauth.authorize.

    `status` is that of HTTP, None while unanswered, 0 when the connection broke; `error` is Slack's
    code when the answer was one.
    """

    method: str
    params: Json
    at: float  # time.monotonic() of its arrival
    team: str | None = None
    status: int | None = None
    error: str | None = None


class Calls(list[Call]):
    """The record of them."""

    def begin(self, method: str) -> int:
        """Notes a request; returns the number by which it is known."""
        self.append(Call(method, {}, time.monotonic()))
        return len(self) - 1

    def read(self, number: int, params: Json, team: str | None = None) -> None:
        self[number] = replace(self[number], params=params, team=team)

    def end(self, number: int, response: Response, error: str | None) -> Call:
        status = 0 if isinstance(response, HungUp) else response.status_code
        self[number] = replace(self[number], status=status, error=error)
        return self[number]
