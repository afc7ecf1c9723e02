"""Random conversations, as a bot comes to have them: questions with images and files, tools in
parallel, errors, turns that were stopped or died half-way, thoughts, odd texts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from core import history
from core.messages import Message, Role, encode_blocks, text_block
from playground.claude_answers import sign

Block = dict[str, Any]

PNG = "iVBORw0KGgo" + "A" * 4_001  # together a multiple of four: base64
PDF = "JVBERi0xLjQK" + "B" * 8_000
ODD = ('"tool_use" "tool_result"', '"image"', "compaction", "<conversation>", "\u00fc" * 200)

TEXTS = st.one_of(st.sampled_from(ODD), st.integers(1, 400).map(lambda n: "words " * n))
IMAGE: Block = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PNG},
}
FILE: Block = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
}
SPOKEN = st.one_of(TEXTS.map(text_block), st.just(IMAGE), st.just(FILE))
CONTENTS = st.one_of(TEXTS, st.just([text_block("so"), IMAGE]))


def thought(text: str) -> Block:
    return {"type": "thinking", "thinking": text, "signature": sign(text)}


class Rows:
    """Numbers the rows, and the calls, one after the other."""

    def __init__(self) -> None:
        self.rows: list[Message] = []
        self.calls = 0

    def add(self, role: Role, *blocks: Block) -> None:
        row = Message(seq=len(self.rows) + 1, role=role, blocks=encode_blocks(blocks), at=0)
        self.rows.append(row)

    def call(self) -> Block:
        self.calls += 1
        return {"type": "tool_use", "id": f"c{self.calls}", "name": "look", "input": {"x": "y"}}


@st.composite
def conversations(draw: st.DrawFn, most: int = 20) -> tuple[Message, ...]:
    """Whole exchanges, as they are stored: every call is answered."""
    rows = Rows()
    for _ in range(draw(st.integers(0, most))):
        _exchange(draw, rows)
    return tuple(rows.rows)


def _exchange(draw: st.DrawFn, rows: Rows) -> None:
    rows.add("user", *draw(st.lists(SPOKEN, min_size=1, max_size=3)))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2, 3)))):
        spoken = [thought("hm")] if draw(st.booleans()) else []
        asked = [rows.call() for _ in range(draw(st.sampled_from((1, 1, 2, 5))))]
        rows.add("assistant", *spoken, *asked)
        given = [
            history.result(call["id"], "it failed", error=True)
            if draw(st.booleans())
            else history.result(call["id"], draw(CONTENTS))
            for call in asked
        ]
        # Somebody may have spoken in between, when turns can be interrupted.
        joined = [text_block("wait")] if draw(st.integers(0, 5)) == 0 else []
        rows.add("user", *given, *joined)
    if draw(st.integers(0, 9)):
        rows.add("assistant", text_block(draw(TEXTS)))
    elif draw(st.booleans()):
        rows.add("user", text_block("and another thing"))
        rows.add("assistant", text_block("yes"))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Message, ...]:
    """A conversation of which rows are missing, empty, or out of place: old data, a bug."""
    rows = list(draw(conversations(8)))
    for _ in range(draw(st.integers(0, 4))):
        if not rows:
            break
        at = draw(st.integers(0, len(rows) - 1))
        match draw(st.sampled_from(("lose", "empty", "swap"))):
            case "lose":
                del rows[at]
            case "empty":
                rows[at] = Message(rows[at].seq, rows[at].role, encode_blocks([]), 0)
            case _:
                other = draw(st.integers(0, len(rows) - 1))
                rows[at], rows[other] = rows[other], rows[at]
    return tuple(rows)
