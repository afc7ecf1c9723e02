"""The fixed sentences that people read when it is not the model that speaks.

Whatever goes wrong, a person is told one of these: never the text of an exception. They stand here
in English; a `Wording` may say each of them in other words, and whoever speaks asks it.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from core.errors import BudgetReached

WELCOME: Final = "Hello! Write to me and I will answer. /help says what else I can do."
HELP: Final = "Write to me and I will answer."
HELP_START: Final = "what I am"
HELP_HELP: Final = "this text"
HELP_RESET: Final = "forget everything we said and begin anew"
HELP_STOP: Final = "stop what I am answering now"
HELP_ID: Final = "show your id and the id of this conversation"
HELP_USAGE: Final = "what was used here, and what is left"
HELP_UNDO: Final = "take back what you said last, and my answer"
HELP_RETRY: Final = "have me answer again what you said last"
HELP_MODEL: Final = "show or choose the model that answers here"
HELP_MENTION: Final = "whether I answer here only when I am addressed"
MENTION_NOT_HERE: Final = "Here I answer everything: that is for groups."
MENTION_IS_ON: Final = (
    "Here I answer when I am addressed. Send /mention off, and I answer everything."
)
MENTION_IS_OFF: Final = (
    "Here I answer everything. Send /mention on, and I answer only when I am addressed."
)
MENTION_ON: Final = "From now on I answer here only when I am addressed."
MENTION_OFF: Final = (
    "From now on I answer everything that is said here, as far as I am shown it. /mention on ends "
    "that."
)
HELP_APPROVE: Final = "allow the call that I asked about"
HELP_DECLINE: Final = "do not allow it, and say why"
HELP_FORGET: Final = "delete everything of yours, wherever you wrote to me"
FORGET_YES: Final = "yes"
FORGET_ASK: Final = """\
This deletes everything that you ever said to me and my answers, here and wherever else you wrote to
me, with files and images; it cannot be undone. If that is what you want, send /forget {yes}"""
FORGET_ASK_GROUP: Final = """\
This deletes whole exchanges that you began, here and wherever else you wrote to me; where others
repeat your words a marker will stand. What others said to me stays. It cannot be undone. If that is
what you want, send /forget {yes}"""
FORGET_LATER: Final = (
    "I have deleted somebody's words only just now, and cleaning up after that takes me a while. "
    "Please send it again in {minutes} minutes."
)
FORGET_WENT: Final = """\
Done. What went:

* {conversations} conversations as a whole, with all files and images
* {exchanges} exchanges that you began in groups
* your words in {marked} messages of others: a marker stands there now
* your name from {uses} records of what answers cost
* all of it from the free space of my files, too"""
FORGET_REMAINS: Final = """\
What remains:

* what this platform and the provider of the language model keep themselves, and what you see here
* backups that were made before, until whoever runs me deletes them
* what others said about you in words of their own
* that there was a conversation here, and the numbers of your last messages, so that none of them is
  answered twice; who may speak to me"""
FORGET_UNREADABLE: Final = (
    "{count} conversations could not be read, and are as they were: whoever runs me must look."
)
FORGOTTEN_MARK: Final = "[removed, because who wrote it wanted to be forgotten]"
HELP_EXPORT: Final = "send you all that we said as a file"
EXPORTED: Final = "Here is what we said."
NOTHING_TO_EXPORT: Final = "We have not said anything yet."
EXPORT_HOW: Final = "I can do that as one of these: {forms}."
FILE_NOT_SENT: Final = "[{name} could not be sent here.]"
EXPORT_CUT: Final = "[… earlier messages do not fit here]"
UNDONE: Final = "Taken back."
NOTHING_TO_UNDO: Final = "There is nothing that I could take back."
NOTHING_TO_RETRY: Final = "There is nothing that I could answer again."
RETRY_WAITS: Final = "I have not answered your last message yet; I am about to."
EDITED: Final = "You have changed your message. Shall I answer it again?"
EDITED_TEXT: Final = (
    "You have changed your message. Send /retry, and I will answer it again as it is now."
)
ANSWER_AGAIN: Final = "Answer again"
EDIT_ANSWERED: Final = "I answer your message as it is now."
EDIT_OVER: Final = "I cannot answer that again: something else was said since, or I did already."
EDIT_NOT_YOURS: Final = "Only who wrote the message may ask for that."
MODEL_ONLY: Final = "Here `{model}` answers; there is no other to choose."
MODEL_NOW: Final = "Here `{model}` answers. To choose, send /model and one of these:"
MODEL_UNKNOWN: Final = "`{wanted}` cannot be chosen here. Send /model and one of these:"
MODEL_CHOSEN: Final = "From now on `{model}` answers here."
IDS: Final = "Your id is `{id}`. This conversation is `{key}`."
NOT_FOR_YOU: Final = "Only my owner may do that."
ADMIN_ONLY: Final = "Only an administrator of this group may do that."
ADMIN_OR_LAST: Final = (
    "Only an administrator of this group may do that, or who alone has said what it is about."
)
ADMIN_UNKNOWN: Final = (
    "I could not find out whether you are an administrator of this group, so I did not do that. "
    "Please try again in a while."
)
COMMAND_FAILED: Final = "I am sorry: that did not work."
RESET: Final = "Done. I have forgotten what we said; we begin anew."
STOPPED: Final = "Stopped."
NOTHING_TO_STOP: Final = "There is nothing to stop."
PAIRED: Final = "You are my owner now. " + WELCOME

STRANGER: Final = "This bot is private; your id is {id}."
STRANGER_ASKED: Final = (
    "This bot is private; your id is {id}. I have asked my owner whether you may speak to me."
)
ACCESS_ASK: Final = "{person} (`{id}`) wants to speak to me."
ACCESS_ALLOW: Final = "Allow"
ACCESS_DENY: Final = "Deny"
ACCESS_ALLOWED: Final = "{person} (`{id}`) may speak to me now."
ACCESS_DENIED: Final = "{person} (`{id}`) may not speak to me."
ACCESS_OVER: Final = "Nobody waits for that any more."
ACCESS_LET_IN: Final = "You may speak to me now. " + WELCOME
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
    "I am sorry: the language model did not take your message as it is. It may be too long, or "
    "hold something that it cannot read. What we said before is kept: please send it shorter, or "
    "put it differently."
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

# The page of the bot, where a platform has one; {start} is a command, as it is written there.
PAGE_COMMANDS: Final = "What you can tell me"
PAGE_USED: Final = "What you have used"
PAGE_RESET: Final = "Reset direct messages"
PAGE_RESET_ASK: Final = (
    "I forget everything that we said in direct messages, in all their threads. It cannot be "
    "undone. What was said in channels stays, and what you see does not go."
)
PAGE_RESET_YES: Final = "Forget it"
PAGE_RESET_NO: Final = "Keep it"
PAGE_WAS_RESET: Final = "Done. I have forgotten what we said in direct messages; we begin anew."
PAGE_RESET_MORE: Final = (
    "I have forgotten the newest of our direct messages. There are older ones: please press again."
)
PAGE_GET_IN: Final = "To be let in, write {start} to me: I will ask my owner."
PAGE_NO_OWNER: Final = "Whoever runs me can let you in by that id."

ONE_HOUR: Final = "1 hour"
HOURS: Final = "{count} hours"
ONE_MINUTE: Final = "1 minute"
MINUTES: Final = "{count} minutes"
SECONDS: Final = "{count} seconds"
TOKENS: Final = "{count} tokens"
MONTHS: Final = (
    "January February March April May June July August September October November December"
)

# Budgets. {period} is one of the next two, or nothing; {until} is BUDGET_DATE.
BUDGET_TODAY: Final = " today"
BUDGET_THIS_MONTH: Final = " this month"
BUDGET_SENDER: Final = "You have used up what you may spend with me{period}."
BUDGET_CHAT: Final = "This conversation has used up what it may spend{period}."
BUDGET_ALL: Final = "I have used up what I may spend{period}."
BUDGET_DATE: Final = "{time} on {day} {month}"
BUDGET_STOPPED: Final = "I had to stop here."
BUDGET_NOT_BEFORE: Final = "I may still spend nothing before {until}."
BUDGET_NOTHING: Final = "I may spend nothing more."
BUDGET_RAISE: Final = "Whoever runs me can raise that."
BUDGET_GO_ON: Final = "I can go on after {until}."
BUDGET_AGAIN: Final = (
    "I can answer again after {until}. I did not keep your message: please send it again then."
)
BUDGET_UNPRICED: Final = (
    "I cannot use this model: I have a budget to keep, and nobody has told me what it costs. "
    "Whoever runs me must look after it."
)

_ENGLISH: Final = MappingProxyType(
    {name: text for name, text in vars().items() if name.isupper() and isinstance(text, str)}
)


def names() -> Mapping[str, str]:
    """All sentences by their name."""
    return _ENGLISH


def fields(text: str) -> frozenset[str]:
    """The names in braces, which are replaced when it is said.

    :raises ValueError: a brace that is not closed, or one that holds more than a name
    """
    found = [field for field in string.Formatter().parse(text) if field[1] is not None]
    if any(spec or conversion or not name for _, name, spec, conversion in found):
        raise ValueError("want a name alone in braces, and {{ for a brace")
    return frozenset(str(name) for _, name, _, _ in found)


class Wording:
    """How a bot says the sentences: in English, but for those that are given in other words.

    :param own: other words, by the sentence's name
    :raises ValueError: there is no such sentence, or what is in braces is not the same
    """

    def __init__(self, own: Mapping[str, str] = MappingProxyType({})) -> None:
        for name, text in own.items():
            if name not in _ENGLISH:
                raise ValueError(f"{name}: there is no such sentence")
            try:
                found = fields(text)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            if found != fields(_ENGLISH[name]):
                want = " ".join(f"{{{each}}}" for each in sorted(fields(_ENGLISH[name])))
                raise ValueError(f"{name}: want {want or 'nothing'} in braces, and nothing else")
        self._own = {_ENGLISH[name]: text for name, text in own.items()}

    def __call__(self, sentence: str, **values: object) -> str:
        """
        :param sentence: one of this file, or any other text, which is then said as it is
        :param values: what stands in braces; they are not looked into for braces of their own
        """
        said = self._own.get(sentence, sentence)
        return said.format(**values) if values else said


ENGLISH: Final = Wording()

_BUDGETS: Final = {"sender": BUDGET_SENDER, "chat": BUDGET_CHAT, "all": BUDGET_ALL}
_PERIODS: Final = {"day": BUDGET_TODAY, "month": BUDGET_THIS_MONTH}


def _months(say: Wording) -> list[str]:
    # Who forgot one is not told a wrong one.
    own, english = say(MONTHS).split(), MONTHS.split()
    return own if len(own) == len(english) else english


def budget_reached(
    reached: BudgetReached, say: Wording = ENGLISH, *, again: bool = False, midway: bool = False
) -> str:
    """What is said when nothing more may be spent.

    :param again: it was said before, so that a few words are enough
    :param midway: an answer was under way already
    """
    said = [say(BUDGET_STOPPED)] if midway else []
    if reached.unpriced:
        return " ".join([*said, say(BUDGET_UNPRICED)])
    until = reached.until and say(
        BUDGET_DATE,
        time=f"{reached.until:%H:%M %Z}",
        day=reached.until.day,
        month=_months(say)[reached.until.month - 1],
    )
    if again:
        return say(BUDGET_NOT_BEFORE, until=until) if until else say(BUDGET_NOTHING)
    period = _PERIODS.get(reached.period)
    said.append(say(_BUDGETS[reached.scope], period=(period and say(period)) or ""))
    if until is None:
        said.append(say(BUDGET_RAISE))
    else:
        said.append(say(BUDGET_GO_ON if midway else BUDGET_AGAIN, until=until))
    return " ".join(said)
