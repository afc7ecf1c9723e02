"""The model's Markdown as bodies of messages. Pure.

Slack reads Markdown itself; what is done here is to cut it, and to make inert what would call
people: a mention of everybody is made by a person, never by a model. Body: the JSON of `Body`, from
which `blocks` makes what Slack is told.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from bots.slack.acts import APPROVAL, BAD, FEEDBACK, GOOD
from bots.slack.plain import plain
from bots.slack.press import value_for
from bots.slack.split import split
from core.adapter import Card
from core.messages import clean

MAX_LABEL: Final = 75

# Signs that turn the direction of what follows, by which an address could be made to look like
# another.
_TURNS: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
# What Slack makes a mention, a call of everybody, or a date with a link of.
_CALLS: Final = re.compile(r"<(?=[@#][A-Z0-9]|!(?:here|channel|everyone|subteam|date)\b)")
_JOINER: Final = "\u2060"  # nobody sees it


class Button(msgspec.Struct, frozen=True):
    label: str
    data: str


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    markdown: str
    buttons: tuple[Button, ...] = ()
    feedback: bool = False


_decode: Final = msgspec.json.Decoder(Body).decode


def render(markdown: str) -> tuple[str, ...]:
    """() when there is nothing but white space. Never raises."""
    return tuple(_encode(Body(part)) for part in split(inert(markdown)))


def render_card(card: Card) -> str:
    # A card is short, so that it is one message.
    buttons = tuple(Button(choice.label, choice.data) for choice in card.choices)
    return _encode(Body(inert(card.text), buttons))


def asking(bodies: tuple[str, ...]) -> tuple[str, ...]:
    """The last one with two buttons: whether the answer was good."""
    *others, last = bodies
    return (*others, _encode(msgspec.structs.replace(body_of(last), feedback=True)))


def body_text(markdown: str) -> str:
    """The body of a part that says this, which is inert and fits into one."""
    return _encode(Body(markdown))


def body_of(text: str) -> Body:
    """
    :raises msgspec.DecodeError: not a body that was rendered here
    """
    return _decode(text)


def inert(markdown: str) -> str:
    """Only what can be encoded and seen, and nobody is called by it."""
    return _CALLS.sub(f"<{_JOINER}", _TURNS.sub("", clean(markdown)))


def blocks(body: Body, key: str) -> list[dict[str, Any]]:
    """What Slack shows.

    :param key: of the conversation; its buttons know whose they are
    """
    shown: list[dict[str, Any]] = [{"type": "markdown", "text": body.markdown}]
    if body.buttons:
        shown.append({"type": "actions", "elements": _buttons(body, key)})
    if body.feedback:
        shown.append({"type": "context_actions", "elements": [_feedback(key)]})
    return shown


def fallback(body: Body) -> str:
    """What a notification says, and who cannot show the blocks."""
    return plain(body.markdown)


def _buttons(body: Body, key: str) -> list[dict[str, Any]]:
    return [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": button.label[:MAX_LABEL], "emoji": False},
            "action_id": f"{APPROVAL}_{number}",
            "value": value_for(key, button.data),
        }
        for number, button in enumerate(body.buttons)
    ]


def _feedback(key: str) -> dict[str, Any]:
    def button(label: str, data: str) -> dict[str, Any]:
        text = {"type": "plain_text", "text": label, "emoji": False}
        return {"text": text, "value": value_for(key, data)}

    return {
        "type": "feedback_buttons",
        "action_id": FEEDBACK,
        "positive_button": button("Good answer", GOOD),
        "negative_button": button("Bad answer", BAD),
    }


def _encode(body: Body) -> str:
    return msgspec.json.encode(body).decode()
