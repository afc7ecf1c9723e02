"""Parts on their way to Slack: said, edited, deleted, or found where they are already.

Nothing is repeated here: what a failed request means is told, as the core's errors.
"""

from __future__ import annotations

import msgspec

from bots.slack.failures import MISSING_SCOPE, NOTHING_TO_EDIT, failure, says, why
from bots.slack.files import shows
from bots.slack.keys import Address, is_ts
from bots.slack.post import Post
from bots.slack.render import Body, body_of
from bots.slack.wires import Wires
from core.adapter import Receipt
from core.delivery import OnUnknownOutcome
from core.errors import SendError, Undeliverable
from core.events import trouble
from core.messages import File, Outbound


async def send(
    wires: Wires,
    to: Address,
    key: str,
    part: Outbound,
    *,
    uncertain: bool,
    on_unknown_outcome: OnUnknownOutcome,
) -> Receipt:
    """See `core.adapter.Adapter.send`.

    :param on_unknown_outcome: what to do with what may have been sent when we may not look
    """
    try:
        body = None if part.body is None else body_of(part.body)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Undeliverable("not a body that this adapter has rendered") from error
    replaces = part.replaces if is_ts(part.replaces) else None
    try:
        post = await wires.post(to)
        if body is None:
            if replaces is not None:
                await post.delete(to, replaces)
            return Receipt(())
        if replaces is not None and await _edited(post, to, key, replaces, body, part.id):
            return Receipt((replaces,))
        if uncertain:
            found = await _found(post, to, part, on_unknown_outcome)
            if found is not None:
                return Receipt((found,))
        return Receipt((await post.say(to, key, body, part.id),))
    except SendError:
        raise
    except Exception as error:
        # Any: an answer that is none of Slack's comes out of the SDK as anything.
        raise failure(error) from error


async def send_file(
    wires: Wires, to: Address, file: File, data: bytes, after: str | None, *, uncertain: bool
) -> Receipt:
    """See `core.adapter.SendsFiles.send_file`.

    :param after: ts of a message that is older; None: nobody knows
    """
    try:
        post = await wires.post(to)
        if uncertain:
            # Such a message carries no name; but its file has one.
            async for message in post.own(to, after):
                if shows(message, file.name, len(data)):
                    return Receipt((str(message["ts"]),))
        await wires.files.send(to, file.name, data, post.token)
    except SendError:
        raise
    except Exception as error:
        raise failure(error) from error
    # Slack makes the message by and by, and does not say which.
    return Receipt(())


async def _edited(post: Post, to: Address, key: str, ts: str, body: Body, name: str) -> bool:
    """False: there is nothing to edit any more."""
    try:
        await post.edit(to, key, ts, body, name)
    except Exception as error:
        if not says(error, NOTHING_TO_EDIT):
            raise
        return False
    return True


async def _found(
    post: Post, to: Address, part: Outbound, on_unknown_outcome: OnUnknownOutcome
) -> str | None:
    try:
        return await post.find(to, part.id, part.reply_to)
    except Exception as error:
        if not says(error, MISSING_SCOPE):
            raise
        trouble("slack.cannot_look", part=part.id, why=why(error))
        if on_unknown_outcome == "hold":
            raise Undeliverable("it may have been sent already, and we may not look") from error
        return None
