"""What the stand-in for Claude says when nobody told it what to say.

It remembers nothing. Every answer comes from the request at hand, so what it knows of a
conversation is what the client really sent: a bot that loses a message is found out by asking it
for your name. It is not a language model, nor does it try to look like one for long.
"""

from __future__ import annotations

import json
import re
from typing import Any

from playground.claude_answers import Answer, Say, ToolUse, UseTools

Json = dict[str, Any]

_LONGEST_ECHO = 1_000
_MOST_WORDS = 20_000
_SENDER = re.compile(r"\A<from>.*?</from>\n?")
_NAME = re.compile(
    # "I am tired" tells no name: without "my name is", a name needs its capital letter.
    r"(?:(?i:\bmy name is|\bcall me)\s+(?P<told>\w[\w'’-]*)"
    r"|(?:\b[Ii] am|\b[Ii]['’]m)\s+(?P<said>[^\W\d_a-z][\w'’-]*))"
)
_ASKS_NAME = re.compile(r"(?i)\bwhat(?:['’]s| is) my name\b|\bwho am i\b")
_ASKS_COUNT = re.compile(r"(?i)\bhow many messages\b")
_ASKS_QUOTE = re.compile(r"(?i)\bwhat did i say (first|last)\b")
_ASKS_WORDS = re.compile(r"(?i)\bsay (\d{1,9}) words\b")
_ASKS_TIME = re.compile(r"(?i)\bwhat time is it\b")
_ASKS_TOOL = re.compile(r"(?i)\buse ([\w-]+)(?:\s+with\s+(?=\{))?")
_HINTS = (
    "Tell me your name, and ask me later what it is.",
    "Ask me what you said first, or how many messages I can see.",
    "Ask me to say 200 words to see a long answer grow.",
)


def answer(request: Json) -> Answer:
    """The answer to a valid request; never longer than its `max_tokens`."""
    reply = _reply(request)
    if isinstance(reply, Say):
        room = 4 * int(request["max_tokens"])
        if len(reply.text) > room:
            return Say(reply.text[:room], stop_reason="max_tokens")
    return reply


def _reply(request: Json) -> Answer:
    messages: list[Json] = request["messages"]
    results = _tool_results(messages[-1])
    if not results:
        return _reply_to_words(request)
    if not _said(messages[-1]):
        return Say("\n".join(results))
    # Somebody spoke while the tools ran.
    reply = _reply_to_words(request)
    return Say("\n".join([*results, reply.text])) if isinstance(reply, Say) else reply


def _reply_to_words(request: Json) -> Answer:
    messages: list[Json] = request["messages"]
    said = [(index, text) for index, m in enumerate(messages) if (text := _said(m))]
    # Several user messages at the end are one turn: they arrived while nobody was answering.
    turn = _start_of_last_turn(messages)
    now = "\n".join(text for index, text in said if index >= turn)
    before = [text for index, text in said if index < turn]

    if _ASKS_NAME.search(now):
        name = next((n for _, text in reversed(said) if (n := _name(text))), None)
        return Say(f"Your name is {name}." if name else "I do not know your name yet.")
    if _ASKS_COUNT.search(now):
        count = len(messages)
        return Say(f"I can see {count} message{'' if count == 1 else 's'} in this conversation.")
    if quote := _ASKS_QUOTE.search(now):
        return Say(_quote(quote[1].lower(), before))
    if calls := _tool_calls(request, now):
        return UseTools(calls)
    if words := _ASKS_WORDS.search(now):
        # Numbered, so that a lost or a doubled piece shows.
        return Say(" ".join(f"word{n}" for n in range(1, min(int(words[1]), _MOST_WORDS) + 1)))
    if name := _name(now):
        return Say(f"Nice to meet you, {name}.")
    return Say(_echo(now, messages, turn))


def _start_of_last_turn(messages: list[Json]) -> int:
    index = len(messages)
    while index > 0 and messages[index - 1]["role"] == "user":
        index -= 1
    return index


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _said(message: Json) -> str:
    if message["role"] != "user":
        return ""
    texts = [block["text"] for block in _blocks(message) if block["type"] == "text"]
    return "\n".join(_SENDER.sub("", text) for text in texts).strip()


def _name(text: str) -> str | None:
    found = list(_NAME.finditer(text))
    if not found:
        return None
    name = found[-1]["told"] or found[-1]["said"]
    return name.rstrip("'’-")


def _quote(which: str, before: list[str]) -> str:
    if not before:
        return "This is the first thing you said."
    if which == "first":
        return f"You first said: “{before[0]}”"
    return f"Before this you said: “{before[-1]}”"


def _tools(request: Json) -> set[str]:
    if request.get("tool_choice", {}).get("type") == "none":
        return set()
    return {tool["name"] for tool in request.get("tools", []) if "name" in tool}


def _tool_calls(request: Json, text: str) -> tuple[ToolUse, ...]:
    tools = _tools(request)
    calls = []
    for match in _ASKS_TOOL.finditer(text):
        if match[1] not in tools:
            continue
        arguments: Any = {}
        if text[match.end() : match.end() + 1] == "{":
            try:
                arguments, _ = json.JSONDecoder().raw_decode(text, match.end())
            except ValueError:
                continue
        calls.append(ToolUse(match[1], arguments))
    if not calls and "clock" in tools and _ASKS_TIME.search(text):
        calls.append(ToolUse("clock", {}))
    forced = request.get("tool_choice", {})
    if not calls and forced.get("type") == "tool":
        calls.append(ToolUse(forced["name"], {}))
    return tuple(calls)


def _tool_results(message: Json) -> list[str]:
    said = []
    for block in _blocks(message):
        if block["type"] == "tool_result":
            content = block.get("content") or ""
            if not isinstance(content, str):
                content = "\n".join(b.get("text", f"({b['type']})") for b in content)
            verb = "failed" if block.get("is_error") else "says"
            said.append(f"The tool {verb}: {content}")
    return said


def _echo(text: str, messages: list[Json], turn: int) -> str:
    others = sum(
        block["type"] != "text" for message in messages[turn:] for block in _blocks(message)
    )
    sentences = []
    if text:
        shown = text if len(text) <= _LONGEST_ECHO else text[:_LONGEST_ECHO] + "…"
        sentences.append(f"You said: “{shown}”")
    if others:
        sentences.append(f"You sent {others} attachment{'' if others == 1 else 's'}.")
    if not text and not others:
        sentences.append("I go on where I paused.")
    sentences.append(_HINTS[len(messages) // 2 % len(_HINTS)])
    return " ".join(sentences)
