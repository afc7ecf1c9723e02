"""The fixed sentences that people read when it is not the model that speaks.

Whatever goes wrong, a person is told one of these: never the text of an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from core.errors import BudgetReached

WELCOME: Final = "Hello! Write to me and I will answer. /help says what else I can do."
HELP: Final = """\
Write to me and I will answer.

* /reset – forget everything we said and begin anew
* /stop – stop what I am answering now
* /usage – what was used here, and what is left
* /id – show your id and the id of this conversation
* /help – this text"""
RESET: Final = "Done. I have forgotten what we said; we begin anew."
STOPPED: Final = "Stopped."
NOTHING_TO_STOP: Final = "There is nothing to stop."
PAIRED: Final = "You are my owner now. " + WELCOME

STRANGER: Final = "This bot is private; your id is {id}."
TOO_FAST: Final = (
    "That was too fast for me. Please wait a minute; I did not read your last messages."
)
INBOX_FULL: Final = (
    "I have not caught up with your earlier messages yet, so I did not take this one. "
    "Please send it again later."
)

UNREADABLE: Final = (
    "I am sorry: I could not read our earlier conversation any more, so we begin anew. "
    "It was set aside, not deleted. If you were waiting for an answer, please ask again."
)
TOO_NEW: Final = (
    "I am sorry: our earlier conversation was written by a newer version of me that is not "
    "running now, so we begin anew. It was set aside, not deleted."
)
UNAVAILABLE: Final = (
    "I am sorry: I could not get an answer just now. Please send your message again in a while."
)
NO_MODEL: Final = (
    "I am sorry: my access to the language model does not work right now, and whoever runs me "
    "must look after it. Your message is kept; I will answer as soon as it works again."
)
REJECTED: Final = (
    "I am sorry: our conversation could not be continued as it was, so from now on I begin anew. "
    "What we said is kept, but I do not look at it any more. Please ask again."
)
GAVE_UP: Final = (
    "I am sorry: I tried several times to answer this and failed each time, so I leave it. "
    "Please try to put it differently."
)
INTERNAL: Final = "I am sorry: something went wrong inside me. Please try again."

# Approvals. {tool} is a name of ours, {person} a name without markup.
MAY_I: Final = "May I use **{tool}**?"
LONGER: Final = (
    "[… the arguments are longer than I can show; you see their beginning and their end]"
)
ONLY: Final = "Only {person} may decide."
OPEN_FOR: Final = "I wait for that for {time}."
BY_TEXT: Final = "Say /approve, or /decline and why."
BY_NUMBER: Final = "Say /approve {number}, or /decline {number} and why."
APPROVE: Final = "Approve"
DECLINE: Final = "Decline"
APPROVED: Final = "Approved by {person}."
DECLINED: Final = "Declined by {person}."
EXPIRED: Final = "Nobody decided in time, so it was not run."
WENT_ON: Final = "Not run: {person} went on."
NOT_OPEN: Final = "This question is not open any more."
NOT_YOURS: Final = "This is not for you to decide."
NOTHING_ASKED: Final = "Nothing waits for an approval here."
WHICH: Final = "{count} calls wait. Say /approve and a number, or /approve all."

ACCOUNT_CHAT: Final = "This conversation"
ACCOUNT_YOU: Final = "You"
ACCOUNT_ALL: Final = "All together"
ACCOUNT_LEFT: Final = "Left"
ACCOUNT_TODAY: Final = "today"
ACCOUNT_MONTH: Final = "this month"
ACCOUNT_EVER: Final = "in all"
ACCOUNT_LINE: Final = "* {when}: {cost} for {tokens} tokens ({cached} from a cache)"
ACCOUNT_BEGUN: Final = "* since it began: {tokens} tokens ({cached} from a cache)"
ACCOUNT_LIMIT: Final = "* {whose}, {when}: {left} of {limit}"

_BUDGET: Final = {
    "sender": "You have used up what you may spend with me{period}.",
    "chat": "This conversation has used up what it may spend{period}.",
    "all": "I have used up what I may spend{period}.",
}
_PERIOD: Final = {"day": " today", "month": " this month", "ever": ""}
_UNPRICED: Final = (
    "I cannot use this model: I have a budget to keep, and nobody has told me what it costs. "
    "Whoever runs me must look after it."
)


def budget_reached(reached: BudgetReached, *, again: bool = False, midway: bool = False) -> str:
    """What is said when nothing more may be spent.

    :param again: it was said before, so that a few words are enough
    :param midway: an answer was under way already
    """
    begun = "I had to stop here. " if midway else ""
    if reached.unpriced:
        return begun + _UNPRICED
    until = reached.until and f"{reached.until:%H:%M %Z} on {reached.until.day} {reached.until:%B}"
    if again:
        return (
            f"I may still spend nothing before {until}." if until else "I may spend nothing more."
        )
    sentence = begun + _BUDGET[reached.scope].format(period=_PERIOD[reached.period])
    if until is None:
        return f"{sentence} Whoever runs me can raise that."
    if midway:
        return f"{sentence} I can go on after {until}."
    return (
        f"{sentence} I can answer again after {until}. "
        "I did not keep your message: please send it again then."
    )
