"""The figures of whole bots: a turn end to end, the first text, what is our own, memory, the
command."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from bench.effort import Bench
from bench.report import Figure, Goal, at_least, at_most, fixed, middle, ms, ratio, size, times
from bench.subject import Numbers, Spec

OURS: Final = "chinwag"
TYPICAL: Final = "PTB + Anthropic stream + LangGraph"
BY_HAND: Final = "by hand, same SDKs"
BARE: Final = "bare sockets"
FLOORS: Final = (
    OURS,
    "chinwag, log at warning",
    "chinwag, growing answers",
    BY_HAND,
    BARE,
)
HISTORY: Final = 20  # messages that each chat has said before
HISTORIES: Final = (0, 1_000)


def _rounds(bench: Bench, specs: dict[str, Spec]) -> dict[str, list[Numbers]]:
    runs: defaultdict[str, list[Numbers]] = defaultdict(list)
    for _ in range(bench.effort.rounds):
        for name, numbers in zip(specs, bench.beside(list(specs.values())), strict=True):
            runs[name].append(numbers)
    return runs


def whole(bench: Bench) -> Figure:
    # One message a second and chat is what Telegram takes, and what chinwag keeps to: there are so
    # many chats that none of them waits for that.
    chats = 600 if bench.effort.peers else 50
    spec = Spec(kind="whole", who="", chats=chats, history=HISTORY, turns=1, block=1)
    names = (*FLOORS, TYPICAL) if bench.effort.peers else FLOORS
    runs = _rounds(bench, {who: replace(spec, who=who) for who in names})
    ours = runs[OURS]
    goals = []
    if TYPICAL in runs:
        more = ratio(ours, runs[TYPICAL], "per_core")
        goals.append(
            Goal(
                "turns per second and core, against the typical stack",
                ">= 4x",
                fixed(middle(ours, "per_core")),
                f"{TYPICAL} {fixed(middle(runs[TYPICAL], 'per_core'))}",
                times(more),
                at_least(more, 4.0),
            )
        )
    share = ratio(ours, runs[BY_HAND], "cpu")
    goals.append(
        Goal(
            "CPU of a turn, against one written by hand",
            "<= 1.25x",
            ms(middle(ours, "cpu")),
            f"by hand {ms(middle(runs[BY_HAND], 'cpu'))}",
            times(share),
            at_most(share, 1.25),
        )
    )
    rows = [
        (
            who,
            ms(middle(each, "cpu")),
            fixed(middle(each, "per_core")),
            fixed(middle(each, "per_second")),
            ms(middle(each, "p50")),
            ms(middle(each, "p99")),
            fixed(middle(each, "memory"), " MiB"),
        )
        for who, each in runs.items()
    ]
    return Figure(
        "A whole turn: an update in, a streamed answer, a reply out",
        f"Telegram and Claude are another process on loopback; its CPU does not count. {chats} "
        f"chats that have said {HISTORY} messages each, 50 of them waiting for a reply at any "
        "time; the answer is 100 deltas, sent in one piece. *chinwag* is the program as `chinwag "
        'run` starts it, with its log, and `streaming = "off"` as nobody beside it shows an answer '
        "that grows; *growing answers* is with drafts, its default. The typical stack is "
        "python-telegram-bot's Application, AsyncAnthropic.messages.stream and LangGraph's "
        "AsyncSqliteSaver, as their documentation shows them. *By hand* is what is left when only "
        "the same SDKs, set up in the same way, a "
        "loop over the deltas and four durable saves with group commit remain: no commands, no "
        "Markdown, no pace, no log, no error handling. *Bare sockets* is that without SDKs and "
        "HTTP clients. The time of a turn is from the update to its reply, all 50 at once.",
        goals,
        ("bot", "CPU", "turns/s of a core", "turns/s", "p50", "p99", "memory"),
        rows,
    )


def first(bench: Bench) -> Figure:
    names = (BARE, OURS, "Anthropic stream")
    goals = []
    rows = []
    for history in HISTORIES:
        spec = Spec(kind="first", who="", history=history, turns=bench.effort.loads, block=5)
        runs = _rounds(bench, {who: replace(spec, who=who) for who in names})
        more = _difference(runs[OURS], runs[BARE], "p50")
        goals.append(
            Goal(
                f"first text above a bare socket, {history + 1:,} messages",
                "<= 2.5 ms",
                ms(more),
                f"SDK's stream {ms(_difference(runs[names[2]], runs[BARE], 'p50'))}",
                met=at_most(more, 2.5),
            )
        )
        rows += [
            (f"{history + 1:,}", who, ms(middle(each, "p50")), ms(middle(each, "p99")))
            for who, each in runs.items()
        ]
    return Figure(
        "Time to the first text",
        "From a history in memory to the first delta of the answer, one question after the other. "
        "chinwag repairs and encodes the history each time; the bare socket sends a body that was "
        "made before. The other side reads all of it before it answers, which is in each of them.",
        goals,
        ("messages", "client", "p50", "p99"),
        rows,
    )


def _difference(ours: Sequence[Numbers], floor: Sequence[Numbers], name: str) -> float:
    return middle([{"": a[name] - b[name]} for a, b in zip(ours, floor, strict=True)], "")


def own(bench: Bench) -> Figure:
    turns = 10 if bench.effort.peers else 5
    names = {"core": "the core", "edges": "and parse, request, stream, Markdown"}
    spec = Spec(kind="own", who="", chats=200, turns=turns)
    runs = _rounds(bench, {who: replace(spec, who=who) for who in names})
    goals = [
        Goal(
            "our own CPU of a turn, no SDK, no I/O",
            "<= 0.2 ms",
            ms(middle(runs["core"], "cpu")),
            met=at_most(middle(runs["core"], "cpu"), 0.2),
        )
    ]
    return Figure(
        "What is our own in a turn",
        "One turn after the other with the store in memory, an adapter whose messages arrive at "
        "once, and a model that answers at once in 100 pieces: admit, accept, start, turn, commit, "
        "pace, deliver, and the event loop under them. The second row adds what meets the SDKs: "
        "the update parsed, the request encoded, the bytes of the stream read, Markdown rendered.",
        goals,
        ("what", "CPU"),
        [(what, ms(middle(runs[who], "cpu"))) for who, what in names.items()],
    )


def memory(bench: Bench) -> Figure:
    idle = bench.run(Spec(kind="idle", who=OURS, chats=10_000 if bench.effort.peers else 2_000))
    busy = bench.run(Spec(kind="busy", who=OURS, chats=200, history=HISTORY))
    beyond = busy["memory"] - busy["history"]
    goals = [
        Goal("an idle conversation", "<= 1 KB", size(idle["memory"]), met=idle["memory"] <= 1_000),
        Goal(
            "one more, when there are many",
            "0",
            size(idle["more"]),
            met=at_most(idle["more"], 50.0),
        ),
        Goal(
            "tasks and descriptors of idle conversations",
            "0, 0",
            f"{idle['tasks']:.0f}, {idle['descriptors']:.0f}",
            met=idle["tasks"] <= 0 and idle["descriptors"] <= 0,
        ),
        Goal(
            "a busy conversation, beyond its history",
            "<= 128 KB",
            size(beyond),
            met=at_most(beyond, 128_000.0),
        ),
    ]
    rows = [
        ("idle", size(idle["memory"]), f"{idle['tasks']:.0f}", f"{idle['descriptors']:.0f}"),
        (
            "busy",
            size(busy["memory"]),
            fixed(busy["tasks"]),
            fixed(busy["descriptors"]),
        ),
    ]
    return Figure(
        "Memory of a conversation",
        "What the process has grown by, for each conversation. Idle: a turn was had and all is "
        "silent; then so many others had theirs that what is kept of silent ones, which is "
        "bounded, was full, and then as many more (below 50 bytes is nothing). Busy: the whole "
        "program with 200 answers under way, of which the first piece has come: connection, SDK, "
        "turn, and what was sent. One round.",
        goals,
        ("conversation", "memory", "tasks", "descriptors"),
        rows,
    )


def command(bench: Bench) -> Figure:
    runs = [bench.run(Spec(kind="command", who=OURS, turns=10)) for _ in range(bench.effort.rounds)]
    version, nothing = middle(runs, "version"), middle(runs, "nothing")
    more = _difference(
        [{"": run["version"]} for run in runs], [{"": run["nothing"]} for run in runs], ""
    )
    return Figure(
        "The command",
        "`chinwag --version` and `python -c pass`, processes that take turns.",
        [
            Goal(
                "`chinwag --version` above `python -c pass`",
                "<= 100 ms",
                ms(more),
                met=at_most(more, 100.0),
            )
        ],
        ("what", "took"),
        [("chinwag --version", ms(version)), ("python -c pass", ms(nothing))],
    )


FIGURES: Final[dict[str, Callable[[Bench], Figure]]] = {
    "whole": whole,
    "first": first,
    "own": own,
    "memory": memory,
    "command": command,
}
