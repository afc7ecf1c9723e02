"""What Slack checks of blocks before it takes a message: kinds, counts and lengths.

The limits are those of docs.slack.dev (Block Kit reference) and of slack_sdk's models; Slack counts
all markdown blocks of a message together, and answers msg_blocks_too_long beyond 12,000
(slackapi/bolt-js issue 2509 found the edge a little above). Not a full schema: what it does not
know of a block it lets pass.
"""

from playground.slack_chats import Json, Refused
from playground.slack_text import MAX_MARKDOWN

MAX_BLOCKS = 50
MAX_VIEW_BLOCKS = 100
_KINDS = frozenset(
    "actions alert card carousel container context context_actions divider file header image input "
    "markdown plan rich_text section table task_card video".split()
)
# What stands in messages only (docs.slack.dev, "Blocks", the surfaces of each).
_OF_MESSAGES = frozenset("context_actions file markdown plan task_card".split())
_CONFIRM = {"title": 100, "text": 300, "confirm": 30, "deny": 30}
_ELEMENTS = {"actions": 25, "context": 10, "context_actions": 5}


def checked(blocks: object, most: int = MAX_BLOCKS) -> list[Json]:
    """The blocks of a call. Raises `Refused`: invalid_blocks_format, invalid_blocks or
    msg_blocks_too_long."""
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise Refused("invalid_blocks_format")
    faults = [f"[ERROR] no more than {most} items allowed [json-pointer:/blocks]"]
    faults = faults if len(blocks) > most else []
    for number, block in enumerate(blocks):
        faults += [f"[ERROR] {fault} [json-pointer:/blocks/{number}]" for fault in _faults(block)]
    ids = [block["block_id"] for block in blocks if block.get("block_id")]
    if len(ids) != len(set(ids)):
        faults.append("[ERROR] block_id already exists [json-pointer:/blocks]")
    if faults:
        raise Refused("invalid_blocks", errors=faults, response_metadata={"messages": faults})
    markdown = sum(len(b["text"]) for b in blocks if b["type"] == "markdown")
    if markdown > MAX_MARKDOWN:
        raise Refused("msg_blocks_too_long")
    return blocks


def checked_view(blocks: object) -> list[Json]:
    """The blocks of a view. Raises `Refused`, as `checked`."""
    shown = checked(blocks, MAX_VIEW_BLOCKS)
    wrong = [block["type"] for block in shown if block["type"] in _OF_MESSAGES]
    if wrong:
        faults = [f"[ERROR] unsupported type: {kind} [json-pointer:/view/blocks]" for kind in wrong]
        raise Refused("invalid_arguments", response_metadata={"messages": faults})
    return shown


def _faults(block: Json) -> list[str]:
    kind = block.get("type")
    if kind not in _KINDS:
        return [f"unsupported type: {kind}"]
    faults = []
    if len(str(block.get("block_id", ""))) > 255:
        faults.append("must be less than 256 characters: block_id")
    match kind:
        case "markdown":
            if not isinstance(block.get("text"), str) or not block["text"]:
                faults.append("missing required field: text")
        case "section":
            fields = block.get("fields") or []
            if block.get("text") is None and not fields:
                faults.append("missing required field: text")
            if len(fields) > 10:
                faults.append("no more than 10 items allowed: fields")
            faults += [f for text in [block.get("text"), *fields] for f in _text(text, 3000)]
        case "header":
            faults += _text(block.get("text"), 150, plain=True)
        case "image":
            if not block.get("alt_text"):
                faults.append("missing required field: alt_text")
        case "actions" | "context" | "context_actions":
            elements = block.get("elements")
            if not isinstance(elements, list) or not elements:
                return [*faults, "missing required field: elements"]
            if len(elements) > _ELEMENTS[str(kind)]:
                faults.append(f"no more than {_ELEMENTS[str(kind)]} items allowed: elements")
            faults += [f for element in elements for f in _element(element)]
    return faults


def _element(element: object) -> list[str]:
    if not isinstance(element, dict) or "type" not in element:
        return ["missing required field: type"]
    faults = []
    if len(str(element.get("action_id", ""))) > 255:
        faults.append("must be less than 256 characters: action_id")
    if element["type"] == "button":
        faults += _text(element.get("text"), 75, plain=True)
        if len(str(element.get("value", ""))) > 2000:
            faults.append("must be less than 2001 characters: value")
        if confirm := element.get("confirm"):
            for name, most in _CONFIRM.items():
                faults += _text(confirm.get(name), most, plain=name != "text")
    return faults


def _text(text: object, most: int, *, plain: bool = False) -> list[str]:
    if text is None and not plain:
        return []
    if not isinstance(text, dict) or not isinstance(text.get("text"), str) or not text["text"]:
        return ["missing required field: text"]
    if plain and text.get("type") != "plain_text":
        return ["must be plain_text: text"]
    if text.get("type") not in ("plain_text", "mrkdwn"):
        return ["unsupported type: text"]
    if len(text["text"]) > most:
        return [f"must be less than {most + 1} characters: text"]
    return []
