"""The window: how much of a history a request may hold, and how it is made to fit. Pure functions.

Not what makes a history valid (`history.py`), and nothing is deleted here: rows that leave the
window stay stored, and what is cleared is a marker in the request only.

Four bounds hold for history and newest message together, when a turn starts: messages, tokens,
bytes, images. Over one of the last three, old images and files leave first, then old tool results,
then whole exchanges. Each time more goes than must, down to a share of the bound, and it is
remembered from where on nothing was cleared: so the beginning of the prompt stays the same, byte
for byte, for many turns, and the provider's cache keeps serving it.

Tokens are estimated: the bytes of the text by how many of them made a token in the last answer's
usage (English has about 4, Chinese 3), and a fixed number for each image or file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from core.history import begins_exchange
from core.messages import Message, decode_blocks, encode_blocks, is_one_text, text_block
from core.model import Request
from core.snapshot import Fit
from core.usage import Usage

BYTES_PER_TOKEN: Final = 3.0  # until an answer has told; rather too few than too many
IMAGE_TOKENS: Final = 1_600  # of an image as large as the service reads it
FILE_TOKENS: Final = 6_000  # a few pages
# Of one whose bytes are elsewhere and whose size is not named.
IMAGE_BYTES: Final = 500_000
FILE_BYTES: Final = 2_000_000

IMAGE_LEFT: Final = "[An image was here. It is too old to be sent again.]"
FILE_LEFT: Final = "[A file was here. It is too old to be sent again.]"
RESULT_LEFT: Final = "[This result is too old to be sent again.]"

_encode: Final = msgspec.json.Encoder().encode
_BULKY: Final = (b'"image"', b'"document"')

Block = dict[str, Any]


class Weight(NamedTuple):
    """What a message adds to a request.

    :param text: bytes of all that is no image and no file
    :param held: tokens of images and files
    :param bytes: of the whole, as it is sent
    :param images: and files, for the service counts them together
    """

    text: int = 0
    held: int = 0
    bytes: int = 0
    images: int = 0

    def plus(self, other: Weight) -> Weight:
        return Weight(
            self.text + other.text,
            self.held + other.held,
            self.bytes + other.bytes,
            self.images + other.images,
        )

    def minus(self, other: Weight) -> Weight:
        return Weight(*(one - two for one, two in zip(self, other, strict=True)))


class Bounds(NamedTuple):
    """What a request may hold; None: no bound."""

    tokens: int | None = None
    bytes: int | None = None
    images: int | None = None

    def hold(self, weight: Weight, bytes_per_token: float) -> bool:
        """Whether so much fits."""
        tokens = weight.text / (bytes_per_token or BYTES_PER_TOKEN) + weight.held
        return (
            (self.tokens is None or tokens <= self.tokens)
            and (self.bytes is None or weight.bytes <= self.bytes)
            and (self.images is None or weight.images <= self.images)
        )

    def times(self, factor: float) -> Bounds:
        return Bounds(*(None if bound is None else int(bound * factor) for bound in self))

    def beside(self, weight: Weight, bytes_per_token: float) -> Bounds:
        """What is left of them; nothing may be."""
        tokens = weight.text / (bytes_per_token or BYTES_PER_TOKEN) + weight.held
        return Bounds(
            None if self.tokens is None else max(-1, int(self.tokens - tokens)),
            None if self.bytes is None else max(-1, self.bytes - weight.bytes),
            # So many in the newest message are its own affair: no words that leave change that.
            None if self.images is None else max(0, self.images - weight.images),
        )


def fitted(
    messages: Sequence[Message], newest: Sequence[Message], bounds: Bounds, share: float, fit: Fit
) -> tuple[int, Fit]:
    """How a history that is too heavy is made to fit beside what is newest.

    :param share: of the room beside the newest, to which it goes down
    :returns: index of the first message that stays, and what is cleared in those
    """
    room = bounds.beside(total(newest), fit.bytes_per_token)
    goal = room.times(share)
    if not messages or room.hold(total(lightened(messages, fit)), fit.bytes_per_token):
        return 0, fit
    # Boundaries between exchanges, as numbers of rows; all that is older goes.
    places = [*_beginnings(messages), len(messages)]
    seqs = [messages[at].seq if at < len(messages) else _after(messages) for at in places]
    cleared = fit
    for kind in ("images", "results"):
        least = getattr(fit, kind)
        further = [replace(cleared, **{kind: max(least, seq)}) for seq in seqs]
        before = _sums(lightened(messages, cleared))
        after = _sums(lightened(messages, further[-1]))
        if after[-1] == before[-1]:
            continue
        weights = [after[at].plus(before[-1].minus(before[at])) for at in places]
        which = _first(goal, weights, fit)
        cleared = further[which]
        if which >= 0 or room.hold(weights[-1], fit.bytes_per_token):
            return 0, cleared
    sums = _sums(lightened(messages, cleared))
    # What is newest is sent whatever it weighs: the service shall say that it is too much.
    return places[_first(goal, [sums[-1].minus(sums[at]) for at in places], fit)], cleared


def _first(goal: Bounds, weights: Sequence[Weight], fit: Fit) -> int:
    """The first that fits; -1: none does."""
    fitting = (i for i, weight in enumerate(weights) if goal.hold(weight, fit.bytes_per_token))
    return next(fitting, -1)


def _sums(messages: Sequence[Message]) -> list[Weight]:
    return list(accumulate(map(weigh, messages), Weight.plus, initial=Weight()))


def _beginnings(messages: Sequence[Message]) -> Iterator[int]:
    return (index for index, message in enumerate(messages) if index and begins_exchange(message))


def _after(messages: Sequence[Message]) -> int:
    return max(message.seq for message in messages) + 1


def compacted(messages: Sequence[Message]) -> int:
    """Index of the exchange in which the service has last compacted: it reads nothing of what
    stands before its own summary. 0 when it never has."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "assistant" and _compacts(messages[index]):
            beginnings = (at for at in range(index, -1, -1) if begins_exchange(messages[at]))
            return next(beginnings, 0)
    return 0


def _compacts(message: Message) -> bool:
    if b'"compaction"' not in bytes(message.blocks):
        return False
    # One without content says that it did not succeed, and stands for nothing.
    return any(
        block.get("type") == "compaction" and block.get("content")
        for block in decode_blocks(message.blocks)
    )


# ---------------------------------------------------------------------- what is sent


def sent(messages: Sequence[Message], fit: Fit) -> tuple[Message, ...]:
    """The messages as a request has them: what is cleared as markers, a summary as what it is to
    the model."""
    return tuple(
        replace(message, role="user") if message.role == "summary" else message
        for message in lightened(messages, fit)
    )


def lightened(messages: Sequence[Message], fit: Fit) -> Sequence[Message]:
    if not (fit.images or fit.results):
        return messages
    return [_light(message, fit) for message in messages]


def _light(message: Message, fit: Fit) -> Message:
    raw = bytes(message.blocks)
    bulky = message.seq < fit.images and any(kind in raw for kind in _BULKY)
    results = message.seq < fit.results and b'"tool_result"' in raw
    if message.role != "user" or not (bulky or results):
        return message
    blocks = decode_blocks(message.blocks)
    if bulky:
        blocks = [_without_bulk(block) for block in blocks]
    if results:
        blocks = [_without_result(block) for block in blocks]
    return replace(message, blocks=encode_blocks(blocks))


def _without_bulk(block: Block) -> Block:
    kind, content = block.get("type"), block.get("content")
    if kind in ("image", "document"):
        return text_block(IMAGE_LEFT if kind == "image" else FILE_LEFT)
    if kind == "tool_result" and isinstance(content, list):
        return {**block, "content": [_without_bulk(part) for part in content]}
    return block


def _without_result(block: Block) -> Block:
    if block.get("type") != "tool_result" or len(_encode(block.get("content"))) < 100:
        return block
    return {**block, "content": RESULT_LEFT}


# ---------------------------------------------------------------------- what it weighs


def total(messages: Sequence[Message]) -> Weight:
    weight, plain = Weight(), 0
    for message in messages:
        raw = bytes(message.blocks)
        if is_one_text(raw):
            plain += len(raw)
        else:
            weight = weight.plus(weigh(message))
    return weight.plus(Weight(plain, 0, plain, 0))


def weigh(message: Message) -> Weight:
    raw = bytes(message.blocks)
    if not any(kind in raw for kind in _BULKY):
        return Weight(len(raw), 0, len(raw), 0)
    weight = Weight(len(raw), 0, len(raw), 0)
    for block in _bulk(decode_blocks(message.blocks)):
        image = block["type"] == "image"
        source = block.get("source")
        data = source.get("data") if isinstance(source, dict) else None
        here = len(data) if isinstance(data, str) else 0
        there = 0 if here else _size(source, IMAGE_BYTES if image else FILE_BYTES)
        tokens = IMAGE_TOKENS if image else max(FILE_TOKENS, (here + there) // 40)
        weight = weight.plus(Weight(-here, tokens, there, 1))
    return weight


def _bulk(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        content = block.get("content")
        if block.get("type") in ("image", "document"):
            yield block
        elif block.get("type") == "tool_result" and isinstance(content, list):
            yield from _bulk([part for part in content if isinstance(part, dict)])


def _size(source: object, assumed: int) -> int:
    """Bytes, in base64, of what is kept elsewhere; nothing when the service fetches it itself."""
    if not isinstance(source, dict) or source.get("type") != "blob":
        return 0
    size = source.get("size")
    return size * 4 // 3 if isinstance(size, int) else assumed


def bytes_per_token(request: Request, usage: Usage) -> float | None:
    """What the service's count says of the text of this request; None when it says too little."""
    weight = total(request.messages)
    text = weight.text + sum(map(len, request.system)) + sum(len(bytes(t)) for t in request.tools)
    tokens = usage.prompt - weight.held
    # A short one is mostly what the service itself adds.
    return min(8.0, max(1.0, text / tokens)) if tokens >= 200 else None


def learned(fit: Fit, told: float | None) -> Fit:
    """What one more answer's usage tells, beside what those before it told."""
    if told is None:
        return fit
    known = fit.bytes_per_token
    mean = (3 * known + told) / 4 if known else told
    return replace(fit, bytes_per_token=round(mean, 2))
