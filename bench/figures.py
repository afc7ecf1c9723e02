"""The figures one by one: which runs they need, in which order, and what they must come to.

The goals are those of the design (docs/architecture.md); whatever is printed beside them was
measured in this run. A floor runs again beside each group, and ratios never cross a round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from bench import whole_figures
from bench.effort import Bench, Failed
from bench.report import Figure, Goal, at_least, at_most, fixed, middle, ms, ratio, size, times
from bench.subject import Numbers, Spec

HISTORIES: Final = (0, 100, 1_000, 10_000)
CHATS: Final = {0: 200, 100: 20, 1_000: 4, 10_000: 1}
PEERS: Final = (
    "openai-agents SQLiteSession",
    "openai-agents SQLiteSession, limit=40",
    "LangGraph AsyncSqliteSaver",
    "PTB PicklePersistence",
    "agno AsyncSqliteDb",
)
FEW_DESCRIPTORS: Final = 256
BLOCK: Final = 5  # turns, or loads, after which the run beside goes on
GROWTH: Final = 500  # turns after which a chat has 1,000 messages


# ---------------------------------------------------------------------- a turn


def turn(bench: Bench) -> Figure:
    runs: defaultdict[tuple[str, int], list[Numbers]] = defaultdict(list)
    stores = ("bare floor", "floor", "chinwag", "append")
    specs = {
        (who, history): _turns(who, history, bench.effort.turns)
        for history in HISTORIES
        for who in stores
    }
    for _ in range(bench.effort.rounds):
        for name, numbers in zip(specs, bench.beside(list(specs.values())), strict=True):
            runs[name].append(numbers)
    goals = []
    for history in HISTORIES:
        ours, floor = runs["chinwag", history], runs["floor", history]
        bare = runs["bare floor", history]
        what = f"p50 at {history:,} messages"
        goals.append(_against_floor(what, ours, floor, "p50", 1.5, ms, bare))
    first, last = HISTORIES[0], HISTORIES[-1]
    growth = ratio(runs["chinwag", last], runs["chinwag", first], "p50")
    floor_ratio = ratio(runs["floor", last], runs["floor", first], "p50")
    goals.append(
        Goal(
            f"p50 at {last:,} messages against p50 at {first}",
            "<= 1.15x",
            times(growth),
            f"floor {times(floor_ratio)}",
            met=at_most(growth, 1.15),
        )
    )
    for history in HISTORIES:
        ours, floor = runs["chinwag", history], runs["floor", history]
        what = f"written per turn at {history:,} messages"
        bare = runs["bare floor", history]
        goals.append(_against_floor(what, ours, floor, "written", 1.5, size, bare))
    rows = []
    for history in HISTORIES:
        for who in stores:
            all_of_it = runs[who, history]
            rows.append(
                (
                    f"{history:,}",
                    who,
                    ms(middle(all_of_it, "p50")),
                    ms(middle(all_of_it, "p99")),
                    ms(middle(all_of_it, "cpu")),
                    size(middle(all_of_it, "written")),
                    size(middle(all_of_it, "size")),
                )
            )
    return Figure(
        "A turn: one load and four saves",
        "One turn after the other, each with a load of the window (40 messages at most) that finds "
        "nothing in memory, and the four saves of an ordinary turn: accepted, started, committed, "
        "delivered, each durable before the next one begins. The floor is the standard library's "
        "sqlite3 in one worker thread, making the same four transactions with the same rows, all "
        "encoded beforehand: heads and messages with their checksums, the ids seen, what the model "
        "call used, the index of unfinished conversations. The *bare floor* leaves all of these "
        "out but heads and messages: it would answer a message twice, and could not say what it "
        "has cost. *append* is one transaction with both messages, in the event loop's own thread, "
        "history never read: the least that a durable turn can cost, not a way to build a bot. At "
        "0 messages each turn is the first one of its chat.",
        goals,
        ("messages", "store", "p50", "p99", "CPU", "written", "database"),
        rows,
    )


def _turns(who: str, history: int, turns: int) -> Spec:
    return Spec(
        kind="turns", who=who, chats=CHATS[history], history=history, turns=turns, block=BLOCK
    )


def _against_floor(
    what: str,
    ours: Sequence[Numbers],
    floor: Sequence[Numbers],
    name: str,
    bound: float,
    show: Callable[[float], str],
    bare: Sequence[Numbers] = (),
) -> Goal:
    """
    :param bare: runs of the bare floor, to be told beside it
    """
    against = ratio(ours, floor, name)
    beside = f"floor {show(middle(floor, name))}"
    if bare:
        beside += f"; bare {show(middle(bare, name))}, {times(ratio(ours, bare, name))}"
    return Goal(
        what,
        f"<= {bound:g}x floor",
        show(middle(ours, name)),
        beside,
        times(against),
        at_most(against, bound),
    )


def _or_floor(
    what: str,
    design: tuple[str, bool | None],
    against: tuple[Sequence[Numbers], Sequence[Numbers], str, float],
    told: tuple[Callable[[float], str], str],
    bare: Sequence[Numbers] = (),
) -> Goal:
    """A figure that the design names for itself, from a floor that saves once a turn. Where the
    floor of this run, which does what we do, leaves no room for it, what counts is that floor.

    :param design: the figure, and whether it is met
    :param against: runs, those of the floor, the number's name, and how often the floor it may be
    :param told: how the number is written, and what the floor is called
    :param bare: runs of the bare floor, to be told beside it
    """
    ours, floor, name, bound = against
    show, who = told
    share = ratio(ours, floor, name)
    beside = f"{who} {show(middle(floor, name))}"
    if bare:
        beside += f"; bare {show(middle(bare, name))}, {times(ratio(ours, bare, name))}"
    return Goal(
        what,
        f"{design[0]}, or {bound:g}x floor",
        show(middle(ours, name)),
        beside,
        times(share),
        design[1] or at_most(share, bound),
    )


# ---------------------------------------------------------------------- a whole history


def load(bench: Bench) -> Figure:
    spec = Spec(kind="load", who="floor", chats=4, history=1_000, turns=bench.effort.loads)
    specs = [replace(spec, who=who, block=BLOCK) for who in ("bare floor", "floor", "chinwag")]
    runs = [bench.beside(specs) for _ in range(bench.effort.rounds)]
    bare, floor, ours = zip(*runs, strict=True)
    goals = [
        _or_floor(
            f"1,000 messages ready to send, {name}",
            (f"<= {bound} ms", at_most(middle(ours, name), bound)),
            (ours, floor, name, factor),
            (ms, "floor"),
            bare,
        )
        for name, bound, factor in (("cold", 1.5, 1.5), ("warm", 0.7, 1.5))
    ]
    rows = [
        ("chinwag", name, ms(middle(ours, f"{name}_load")), ms(middle(ours, name)))
        for name in ("cold", "warm")
    ]
    for who, each in (("floor", floor), ("bare floor", bare)):
        rows += [(who, name, "", ms(middle(each, name))) for name in ("cold", "warm")]
    return Figure(
        "Load of 1,000 messages, ready to send",
        "The window lifted (`ConversationMemory(None)`). *Ready to send* means the body of the "
        "request: loaded, repaired where needed, spliced. Cold is a load through the store, warm "
        "one through the cache of snapshots. The floor reads request-ready rows in one hop to a "
        "thread, holds each against its checksum, and joins them; no row becomes a value. The bare "
        "floor looks at no checksum.",
        goals,
        ("store", "", "loaded", "ready to send"),
        rows,
    )


# ---------------------------------------------------------------------- bytes


def written(bench: Bench) -> Figure:
    runs: defaultdict[str, list[Numbers]] = defaultdict(list)
    for _ in range(bench.effort.rounds):
        for who in ("bare floor", "floor", "chinwag"):
            runs[who].append(bench.run(Spec(kind="turns", who=who, turns=GROWTH)))
        for who in ("bare group", "group", "chinwag"):
            many_at_once = Spec(kind="crowd", who=who, chats=50, turns=50)
            runs[f"{who}, 50 chats"].append(bench.run(many_at_once))
    alone, floor = runs["chinwag"], runs["floor"]
    many, group = runs["chinwag, 50 chats"], runs["group, 50 chats"]
    goals = [
        _against_floor(
            "written per turn, one chat", alone, floor, "written", 1.5, size, runs["bare floor"]
        ),
        _or_floor(
            "written per turn, 50 chats at once",
            ("<= 8 KB", at_most(middle(many, "written"), 8_000)),
            (many, group, "written", 1.5),
            (size, "group floor"),
        ),
        _size_goal("database, one chat of 1,000 messages", alone, floor),
        _size_goal("database, 50 chats of 100 messages", many, group),
    ]
    rows = [
        (
            name,
            size(middle(each, "written")),
            size(middle(each, "size")),
            size(middle(each, "payload")),
            times(_to_payload(each)),
        )
        for name, each in runs.items()
    ]
    return Figure(
        "Bytes",
        "*Written* is what the process gives to write(2): the log, and the database when SQLite "
        "folds the log into it. *Payload* is the messages as a request carries them. One chat "
        f"grows by {GROWTH} turns, one after the other; then 50 chats grow by 50 turns each, all "
        "at once. The database is measured after it was closed. Where the floor itself, making the "
        "same four saves a turn, writes more than the 8 KB that the design hoped for, or needs "
        "about 1.25 times the payload, it is the floor that we are held against.",
        goals,
        ("store", "written per turn", "database", "payload", "ratio"),
        rows,
    )


def _to_payload(runs: Sequence[Numbers]) -> float:
    return ratio([{"": run["size"]} for run in runs], [{"": run["payload"]} for run in runs], "")


def _size_goal(what: str, ours: Sequence[Numbers], floor: Sequence[Numbers]) -> Goal:
    return _or_floor(
        what,
        ("<= 1.25x payload", at_most(_to_payload(ours), 1.25)),
        (ours, floor, "size", 1.1),
        (size, "floor"),
    )


# ---------------------------------------------------------------------- all at once


def crowd(bench: Bench) -> Figure:
    chats, each = 200, bench.effort.each
    runs: defaultdict[str, list[Numbers]] = defaultdict(list)
    few = f"chinwag, ulimit -n {FEW_DESCRIPTORS}"
    spec = Spec(kind="crowd", who="group", chats=chats, turns=each)
    ours = replace(spec, who="chinwag")
    groups = (
        {
            "bare group": replace(spec, who="bare group"),
            "group": spec,
            "chinwag": ours,
            few: replace(ours, descriptors=FEW_DESCRIPTORS),
        },
        {
            name: replace(spec, who=name)
            for name in ("bare group, kept", "group, kept", "chinwag, kept")
        },
    )
    for _ in range(bench.effort.rounds):
        for group in groups:
            for name, numbers in zip(group, bench.beside(list(group.values())), strict=True):
                runs[name].append(numbers)
    goals = []
    for name, floor in (("chinwag", "group"), (few, "group"), ("chinwag, kept", "group, kept")):
        share = ratio(runs[name], runs[floor], "per_second")
        bare = runs[f"bare {floor}"]
        of_bare = ratio(runs[name], bare, "per_second")
        failed = sum(run["failed"] for run in runs[name])
        lost = sum(run["lost"] for run in runs[name])
        stall = middle(runs[name], "stall")
        goals += [
            Goal(
                f"{name}: turns per second",
                ">= 50 % of the floor",
                fixed(middle(runs[name], "per_second")),
                f"{floor} {fixed(middle(runs[floor], 'per_second'))}; "
                f"bare {fixed(middle(bare, 'per_second'))}, {of_bare:.0%}",
                f"{share:.0%}",
                at_least(share, 0.5),
            ),
            Goal(
                f"{name}: failed, lost", "0, 0", f"{failed:.0f}, {lost:.0f}", met=failed + lost == 0
            ),
            Goal(
                f"{name}: longest stall of the loop",
                "<= 30 ms",
                ms(stall),
                f"{floor} {ms(middle(runs[floor], 'stall'))}",
                met=at_most(stall, 30.0),
            ),
        ]
    return Figure(
        f"{chats} chats at once, {each} turns each",
        "The same turns, all chats at once in one process. The floor is a thread that writes "
        "whatever waits in one transaction (*group*), with loads on a second connection in the "
        "loop's own thread; it writes the same rows, and *bare* only heads and messages, as above. "
        "*kept*: nothing is loaded, for the conversations are still in memory. "
        "A stall is how late the event loop was at worst. *Lost* counts turns that were "
        "acknowledged and are not there when the database is opened again.",
        goals,
        CROWD_COLUMNS,
        [_crowd_row(name, each_run) for name, each_run in runs.items()],
    )


CROWD_COLUMNS: Final = (
    "store",
    "turns/s",
    "p50",
    "p99",
    "CPU",
    "written",
    "failed",
    "lost",
    "stall",
    "descriptors",
    "memory",
)


def _crowd_row(name: str, runs: Sequence[Numbers]) -> tuple[str, ...]:
    return (
        name,
        fixed(middle(runs, "per_second")),
        ms(middle(runs, "p50")),
        ms(middle(runs, "p99")),
        ms(middle(runs, "cpu")),
        size(middle(runs, "written")),
        f"{sum(run['failed'] for run in runs):.0f}",
        f"{sum(run['lost'] for run in runs):.0f}",
        ms(middle(runs, "stall")),
        fixed(middle(runs, "descriptors")),
        fixed(middle(runs, "memory"), " MiB"),
    )


# ---------------------------------------------------------------------- start


def start(bench: Bench) -> Figure:
    chats = bench.effort.stored
    runs: defaultdict[str, list[Numbers]] = defaultdict(list)
    specs = {
        who: Spec(kind="start", who=who, chats=chats, folder=str(bench.folder(who)))
        for who in ("floor", "chinwag")
    }
    built = {who: bench.run(replace(spec, kind="build", cap=300.0)) for who, spec in specs.items()}
    for _ in range(bench.effort.rounds):
        for name, numbers in zip(specs, bench.beside(list(specs.values())), strict=True):
            runs[name].append(numbers)
    ours, floor = runs["chinwag"], runs["floor"]
    goals = [
        Goal(
            f"{what}, {chats:,} conversations",
            f"<= {bound:g} ms",
            ms(middle(ours, name)),
            f"floor {ms(middle(floor, name))}",
            met=at_most(middle(ours, name), bound),
        )
        for what, name, bound in (
            ("ready after", "ready", 300.0),
            ("first load of a chat, p99", "p99", 20.0),
        )
    ]
    rows = [
        (
            who,
            ms(middle(each, "opened")),
            ms(middle(each, "ready")),
            ms(middle(each, "p50")),
            ms(middle(each, "p99")),
            fixed(middle(each, "memory"), " MiB"),
            size(built[who]["size"]),
        )
        for who, each in runs.items()
    ]
    return Figure(
        f"Start with {chats:,} conversations",
        "A new process with its imports done, and a file that the kernel does not hold in memory. "
        "*Ready* means opened, and the conversations known that have something to do (one in a "
        "thousand). Then random chats are loaded for the first time. Memory is what all that "
        "added.",
        goals,
        ("store", "opened", "ready", "first load p50", "p99", "memory", "database"),
        rows,
    )


# ---------------------------------------------------------------------- peers


def peers(bench: Bench) -> Figure:
    rows = []
    for history in HISTORIES:
        # The floor twice: before and after the slow ones.
        for who in ("floor", "chinwag", *PEERS, "floor"):
            rows.append((f"{history:,}", who, *_peer(bench, who, history)))
    return Figure(
        "What people use instead",
        "A turn loads the conversation and makes one more exchange durable, as each library's "
        "documentation shows it. They do other things besides; PicklePersistence never syncs, and "
        "reads its file only at start. chinwag and the floor save four times a turn and see the "
        "window, the others save once or twice and see all of the history unless a limit is "
        "given. One round; slow ones stop at a time limit and get fewer turns.",
        (),
        ("messages", "store", "p50", "p99", "CPU", "written", "database", "memory", "turns"),
        rows,
    )


def _peer(bench: Bench, who: str, history: int) -> tuple[str, ...]:
    spec = replace(_turns(who, history, turns=100), block=0, cap=5.0)
    if who.startswith("PTB") and history:
        # It rewrites all chats whenever one has changed: one is enough to see it.
        spec = replace(spec, chats=1)
    try:
        run = bench.run(spec)
    except Failed as error:
        return (str(error), "", "", "", "", "", "")
    return (
        ms(run["p50"]),
        ms(run["p99"]),
        ms(run["cpu"]),
        size(run["written"]),
        size(run["size"]),
        fixed(run["memory"], " MiB"),
        f"{run['turns']:.0f}",
    )


def peers_at_once(bench: Bench) -> Figure:
    chats, each = 200, 5
    rows = []
    plan = [(who, 0) for who in ("group", "chinwag", *PEERS)]
    plan += [("chinwag", FEW_DESCRIPTORS), (PEERS[0], FEW_DESCRIPTORS)]
    for who, descriptors in plan:
        name = f"{who}, ulimit -n {descriptors}" if descriptors else who
        spec = Spec(kind="crowd", who=who, chats=chats, turns=each, cap=20.0)
        try:
            run = bench.run(replace(spec, descriptors=descriptors))
        except Failed as error:
            rows.append((name, str(error), *("" for _ in CROWD_COLUMNS[2:])))
        else:
            rows.append(_crowd_row(name, [run]))
    return Figure(
        f"What people use instead, {chats} chats at once, {each} turns each",
        "As above, all chats at once. One round.",
        (),
        CROWD_COLUMNS,
        rows,
    )


FIGURES: Final[dict[str, Callable[[Bench], Figure]]] = {
    "turn": turn,
    "load": load,
    "bytes": written,
    "crowd": crowd,
    "start": start,
    **whole_figures.FIGURES,
    "peers": peers,
    "peers-crowd": peers_at_once,
}
