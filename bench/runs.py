"""One run in a process of its own: ``python -m bench.runs '{"kind": "turns", ...}'``.

Prints one line of JSON: its numbers by name. Whoever gives back something else than was put in ends
the process with `WRONG`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from bench import loads, peers
from bench.floors import Append, Floor, Group
from bench.measure import bind
from bench.ours import Chinwag
from bench.subject import Numbers, Spec, Subject, Wrong
from bench.turns import crowd, turns

WRONG: Final = 3  # exit code

WHO: Final[dict[str, Callable[[Path], Subject]]] = {
    "chinwag": Chinwag,
    "chinwag, kept": partial(Chinwag, keeps=True),
    "floor": Floor,
    "bare floor": partial(Floor, bare=True),
    "append": Append,
    "group": Group,
    "group, kept": partial(Group, keeps=True),
    "bare group": partial(Group, bare=True),
    "bare group, kept": partial(Group, keeps=True, bare=True),
    "openai-agents SQLiteSession": peers.OpenAISession,
    "openai-agents SQLiteSession, limit=40": partial(peers.OpenAISession, limit=peers.WINDOW),
    "LangGraph AsyncSqliteSaver": peers.LangGraph,
    "PTB PicklePersistence": peers.Pickle,
    "agno AsyncSqliteDb": peers.Agno,
}


OF_THE_STORE: Final = {"load": loads.load, "build": loads.build, "start": loads.start}


async def run(spec: Spec) -> Numbers:
    if spec.kind in ("turns", "crowd"):
        make = partial(WHO[spec.who], Path(spec.folder, "db"))
        return await (turns if spec.kind == "turns" else crowd)(spec, make)
    if spec.kind in OF_THE_STORE:
        return await OF_THE_STORE[spec.kind](spec)
    # It imports the whole program, without which the memory of a store is measured.
    kinds: dict[str, Callable[[Spec], Awaitable[Numbers]]]
    kinds = importlib.import_module("bench.whole").KINDS
    return await kinds[spec.kind](spec)


def main(line: str) -> int:
    spec = msgspec.json.decode(line, type=Spec)
    if spec.descriptors:
        bind(spec.descriptors)
    try:
        numbers = asyncio.run(run(spec))
    except Wrong as error:
        print(f"wrong: {error}", file=sys.stderr)
        return WRONG
    except Exception:
        traceback.print_exc()
        return 1
    print(msgspec.json.encode(numbers).decode())
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    # A store that failed may have left a thread that never ends.
    os._exit(code)
