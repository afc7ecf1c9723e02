"""The mutation check: without any one save, and without any one check of the fencing, a test fails.

This tests the tests, not the program. Each mutant is one small edit of the syntax tree, written
into a temporary copy of the sources; the working tree is never touched. What is edited: calls that
save (taken away), and conditions in the functions that guard a conversation (taken away, operand by
operand). A mutant that no test notices survives, and the command ends with 1.

::

    make mutate
    python -m tests.mutate core/delivery.py       only these files
    python -m tests.mutate --first 57             go on where it was ended
    python -m tests.mutate --list                 what would be done
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
COPIED: Final = ("bots", "core", "docs", "playground", "stores", "tests", "pyproject.toml")
TIME_LIMIT: Final = 600.0

# Calls that make something durable, or forget what is not, by the last name in them.
SAVES: Final = frozenset(
    {"save", "update", "move", "set_aside", "_change", "_fail", "_mark", "_move", "_moved"}
    | {"_put_back", "_save", "_set_aside", "_apologise", "_commit", "answered", "results"}
    | {"forget", "forget_all", "_mark_fresh", "_wake", "begin", "stored", "end"}
)
# The tests that reach a file, those that are most likely to notice first.
_BOT: Final = ("tests/core/test_conversations.py", "tests/faults/test_narrow_gaps.py")
_REST: Final = ("tests/core/test_engine.py", "tests/core/test_gate.py", "tests/faults")
# What a turn can do, one file each.
_TURNS: Final = tuple(
    f"tests/core/test_{name}.py"
    for name in (
        *("albums", "approvals", "attachments", "branches", "budget", "compaction", "edits"),
        *("entrance", "feedback", "forget", "moves", "outgoing", "overheard", "requested"),
        *(
            "results",
            "retention",
            "rooms",
            "sharing",
            "sharing_budget",
            "spending",
            "summary",
            "suspended_turns",
        ),
        *("untold",),
    )
)
_APPROVALS: Final = (
    *("tests/core/test_changes_approvals.py", "tests/core/test_approvals.py"),
    *("tests/core/test_suspended_turns.py", "tests/core/test_conversations.py"),
    "tests/faults/test_nth_failure.py",
)
TESTS: Final = {
    "core/changes.py": ("tests/core/test_changes.py", *_BOT, *_REST, "tests/stores"),
    "core/outbox.py": (
        *("tests/core/test_changes.py", "tests/core/test_branches.py"),
        *("tests/core/test_changes_approvals.py", *_BOT, *_REST),
    ),
    "core/answering.py": (*_BOT, *_TURNS, *_REST),
    "core/conversations.py": (*_BOT, *_TURNS, *_REST),
    "core/moves.py": ("tests/core/test_moves.py", *_BOT, *_REST),
    "core/approvals.py": _APPROVALS,
    "core/decisions.py": _APPROVALS,
    "core/edits.py": ("tests/core/test_edits.py", "tests/core/test_overheard.py"),
    "core/access.py": ("tests/core/test_access.py", "tests/core/test_entrance.py"),
    "core/entrance.py": ("tests/core/test_entrance.py",),
    "core/rooms.py": ("tests/core/test_rooms.py", "tests/core/test_overheard.py"),
    "core/suspending.py": _APPROVALS,
    "core/delivery.py": (*_BOT, *_TURNS, *_REST),
    "core/session.py": ("tests/core/test_session.py", "tests/core/test_runtime.py"),
    "core/snapshots.py": (*_BOT, *_REST, "tests/core/test_sharing.py"),
    "stores/disk/files.py": ("tests/stores/test_disk.py",),
    "stores/memory.py": ("tests/stores/test_memory.py", *_BOT, *_REST),
    "stores/sqlite/save.py": ("tests/stores/test_sqlite.py", "tests/stores"),
}
# What takes minutes: for those that nothing else has noticed.
SLOW: Final = ("tests/faults", "tests/faults/test_nth_failure.py", "tests/stores")
# In which functions conditions are taken away; in these files every save is.
GUARDS: Final = {
    "core/changes.py": (*("_current", "holds", "knows", "accept", "reply", "stop"),),
    "core/outbox.py": ("sending", "delivered", "_with_state", "_put_away", "gone"),
    "core/answering.py": ("answer", "_run_once", "_commit", "change", "_save", "_postpone"),
    "core/conversations.py": (
        *("_accept", "change", "_called", "_wake", "_work", "_deliver_beside"),
        *("_work_or_begin_anew", "_begin_anew", "_move", "accept", "work"),
    ),
    "core/approvals.py": ("needed", "suspended", "is_open", "approved", "decided", "results"),
    "core/decisions.py": ("press", "told", "_meant", "go_on"),
    "core/edits.py": ("edit", "again", "press", "_waiting", "_changed", "_same", "_with_text"),
    "core/access.py": ("change", "ask", "decide", "forget"),
    "core/entrance.py": ("ask", "press", "change"),
    "core/rooms.py": ("concerns", "refusal", "spoke_last"),
    "core/suspending.py": ("suspend", "decide", "go_on", "over", "over_where_pressed"),
    "core/moves.py": ("now_at", "is_leaving", "unfinished"),
    "core/delivery.py": ("deliver", "_send", "_put_back", "_must_hold"),
    "core/session.py": ("_append", "_catch_up", "_reload", "_one_turn"),
    "core/snapshots.py": ("load", "update", "take_fresh", "_ended", "_mark_fresh"),
    "stores/disk/files.py": ("save",),
    "stores/memory.py": ("save",),
    "stores/sqlite/save.py": ("save",),
}
# Mutants that change nothing that anybody could see, and why: by file, and the beginning of what
# is done there.
EQUIVALENT: Final = {
    "core/answering.py _run_once: without not applied in": "the other two operands say it too",
    "core/answering.py _run_once: without snapshot is None in": "then nothing was applied",
    "core/answering.py _run_once: without snapshot.turn is None in": "then nothing was applied",
    "core/conversations.py _accept: without command is None in": "a command has a text",
    "core/conversations.py change: without before is None in before is None and self._options": (
        "then it looks where it need not"
    ),
    "core/conversations.py change: without self._options.shared in before is None": (
        "alone there is nothing to be seen there"
    ),
    "core/conversations.py change: without command is None in command is None or": "both or none",
    "core/conversations.py change: without call is None in command is None or": "both or none",
    "core/conversations.py _accept: without snapshot is not None in": "for the type checker",
    "core/conversations.py _set_aside: without self._snapshots.forget": (
        "what cannot be read was never remembered, and reading it outdated what was on its way"
    ),
    "core/conversations.py _is_unreadable: without self._snapshots.forget": (
        "what cannot be read was never remembered"
    ),
    "core/conversations.py _leave_one: without self._snapshots.forget": (
        "the next save finds it out, and nobody is there to be sent anything"
    ),
    "core/conversations.py work: without not busy.turn.done()": "it cancels what is over",
    "core/conversations.py work: never busy.turn and (not busy.turn.cancelled())": (
        "asyncio would complain of an error that nobody heard"
    ),
    "core/conversations.py _work: without tenure is not None in tenure is not None and self._un": (
        "alone it was looked at already"
    ),
    "core/conversations.py _work: never (wait := approvals.wait": "it is asked below, too",
    "core/conversations.py _move: without is_under(key, new) in": "the next save finds it out",
    "core/conversations.py _work: without not (snapshot.inbox": "its start finds nothing to take",
    "core/conversations.py _work: without snapshot.turn in": "what a turn answers is in the inbox",
    "core/conversations.py _work: never wait is not None": "the next call of work answers it",
    "core/conversations.py _work: without snapshot.unfinished in": "then nothing is left to do",
    "core/conversations.py _deliver_beside: without busy.woken.done() in": "one of two is so",
    "core/conversations.py _deliver_beside: without not turn.done() in": "delivered below, too",
    "core/approvals.py is_open: without suspension is None in": "who asks has looked",
    "core/decisions.py press: without suspension is None in": "`is_open` says it, too",
    "core/decisions.py go_on: without before.turn is None in": "for the type checker",
    "core/suspending.py suspend: without turn is None in": "then nobody holds it",
    "core/delivery.py deliver: never tenure is not None": "what comes next asks the store",
    "core/delivery.py deliver: without tenure is not None in tenure is not None and (not await": (
        "alone it is always ours"
    ),
    "core/conversations.py _work: never not (snapshot and": "the next call finds nothing to do",
    "core/conversations.py _work: without approvals.wait": "the next call asks it",
    "core/conversations.py _work: without 0.0 in": "false is no seconds, too",
    "core/conversations.py _deliver_beside: never turn.done()": "it looks once more",
    "core/snapshots.py load: without newest in": "what a save has outdated is not valid",
    "stores/disk/files.py save: without spent in": "then nothing is added",
    "stores/disk/files.py save: without marker in marker and was": "no key, no blobs",
    "stores/memory.py save: without kept in": "a first save erases nothing",
    "stores/memory.py save: without snapshot.erase or": "it looks through all, and ends none",
    "core/access.py change: without encoded == before in": "then the same is written again",
    "core/access.py forget: without encoded == before in": "then the same is written again",
    "core/snapshots.py update: without after is None in": "a change gives None for None only",
    "core/snapshots.py update: without self.forget(key)": "until then the old value is as true",
    "core/snapshots.py _mark_fresh: without part.state != 'sending' in": "asked when it is only",
    "stores/disk/files.py save: without unfinished in": "the marker is removed again below",
    "stores/disk/files.py save: without not marker.exists() in": "the marker is always the same",
    "stores/sqlite/save.py save: never was": "in the text of an error",
}


class Mutant(NamedTuple):
    """
    :param source: the whole file after the edit
    """

    file: str
    line: int
    what: str
    source: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.what}"


class Verdict(NamedTuple):
    """
    :param killer: the first test that failed; None: the mutant survived
    """

    mutant: Mutant
    killer: str | None
    seconds: float


# ---------------------------------------------------------------------- making mutants


Edit = Callable[[ast.AST], str | None]


def mutants_of(file: str, root: Path = ROOT) -> Iterator[Mutant]:
    """All of one file, in the order of its lines."""
    tree = ast.parse((root / file).read_text())
    made: list[Mutant] = []
    for number, (node, function) in enumerate(_nodes(tree)):
        for edit in _edits(node, function in GUARDS[file]):
            changed = copy.deepcopy(tree)
            target, _ = list(_nodes(changed))[number]
            what = edit(target)
            if what is not None:
                source = ast.unparse(ast.fix_missing_locations(changed))
                made.append(Mutant(file, getattr(node, "lineno", 0), f"{function}: {what}", source))
    yield from sorted(made, key=lambda mutant: mutant.line)


def _nodes(tree: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Each node, with the name of the function around it."""
    for child in ast.iter_child_nodes(tree):
        inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else None
        yield child, function
        yield from _nodes(child, inside or function)


def _edits(node: ast.AST, guarded: bool) -> Iterator[Edit]:
    if isinstance(node, ast.Expr | ast.Assign | ast.Return) and _is_save(node.value):
        yield _without_save
    if not guarded:
        return
    if isinstance(node, ast.If | ast.IfExp):
        yield _without_condition
    if isinstance(node, ast.BoolOp):
        for index in range(len(node.values)):
            yield partial(_without_operand, index)


def _is_save(value: ast.expr | None) -> bool:
    call = value.value if isinstance(value, ast.Await) else value
    return isinstance(call, ast.Call) and _name_of(call) in SAVES


def _name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _without_save(target: ast.AST) -> str | None:
    """Nothing is made durable; a caller who wants to know is told that it was."""
    assert isinstance(target, ast.Expr | ast.Assign | ast.Return)
    saving = target.value
    what = f"without {_short(saving)}" if saving else ""
    if isinstance(target, ast.Expr):
        target.value = ast.Constant(None)
        return what
    call = saving.value if isinstance(saving, ast.Await) else saving
    if not isinstance(call, ast.Call) or _name_of(call) != "update":
        return None
    assert isinstance(call.func, ast.Attribute)
    key, change = map(ast.unparse, call.args)
    told = f"(({change})(await {ast.unparse(call.func.value)}.load({key})), True)"
    target.value = ast.parse(told, mode="eval").body
    return what


def _without_condition(target: ast.AST) -> str:
    assert isinstance(target, ast.If | ast.IfExp)
    what = f"never {_short(target.test)}"
    target.test = ast.Constant(False)
    return what


def _without_operand(index: int, target: ast.AST) -> str:
    assert isinstance(target, ast.BoolOp)
    what = f"without {_short(target.values[index])} in {_short(target)}"
    target.values[index] = ast.Constant(isinstance(target.op, ast.And))
    return what


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:69]}…"


# ---------------------------------------------------------------------- trying them


def copied(place: Path) -> Path:
    """The sources as they are now, in a place of their own."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(source, place / name, ignore=ignored)
        else:
            shutil.copy(source, place / name)
    return place


def run_tests(place: Path, tests: Sequence[str]) -> str | None:
    """The first test that fails in this copy."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no"]
    command += ["-p", "no:cacheprovider", "-m", "not crash and not slow", *tests]
    environment = {**os.environ, "PYTHONPATH": str(place)}
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "(no end within the time limit)"
    if done.returncode == 0:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else f"(pytest ended with {done.returncode})"


def try_out(mutant: Mutant, place: Path) -> Verdict:
    file = place / mutant.file
    original = file.read_text()
    began = time.monotonic()
    try:
        file.write_text(mutant.source)
        tests = TESTS[mutant.file]
        killer = run_tests(place, [test for test in tests if test not in SLOW])
        slow = [test for test in tests if test in SLOW]
        if killer is None and slow and excuse_for(mutant) is None:
            killer = run_tests(place, slow)
    finally:
        file.write_text(original)
    return Verdict(mutant, killer, time.monotonic() - began)


def try_all(mutants: Sequence[Mutant], places: Sequence[Path]) -> Iterator[Verdict]:
    free: queue.Queue[Path] = queue.Queue()
    for place in places:
        free.put(place)

    def one(mutant: Mutant) -> Verdict:
        place = free.get()
        try:
            return try_out(mutant, place)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        yield from pool.map(one, mutants)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", default=list(GUARDS), metavar="file")
    parser.add_argument("--list", action="store_true", help="only say what would be done")
    parser.add_argument("--only", default="", help="only mutants whose description has this in it")
    parser.add_argument("--first", type=int, default=1, help="begin with the mutant of this number")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    mutants = [mutant for file in asked.files for mutant in mutants_of(file)]
    mutants = [mutant for mutant in mutants if asked.only in str(mutant)]
    if asked.list:
        print(*(f"{number:4} {mutant}" for number, mutant in enumerate(mutants, 1)), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        places = [copied(Path(folder) / str(number)) for number in range(asked.jobs)]
        return judge(mutants, places, asked.first)


def excuse_for(mutant: Mutant) -> str | None:
    named = f"{mutant.file} {mutant.what}"
    return next((why for what, why in EQUIVALENT.items() if named.startswith(what)), None)


def judge(mutants: Sequence[Mutant], places: Sequence[Path], first: int = 1) -> int:
    """
    :param first: number of the mutant to begin with; after others, whose tests held
    """
    tests = dict.fromkeys(test for mutant in mutants for test in TESTS[mutant.file])
    if first == 1 and (killer := run_tests(places[0], tuple(tests))):
        print(f"the tests fail without any mutant: {killer}")
        return 2
    survivors: list[Mutant] = []
    tried = try_all(mutants[first - 1 :], places)
    for number, (mutant, killer, seconds) in enumerate(tried, first):
        excuse = excuse_for(mutant)
        word = "killed" if killer else "no harm" if excuse else "SURVIVES"
        print(f"{number:4}/{len(mutants)} {word:9}{seconds:6.1f} s  {mutant}")
        print(f"   {killer or excuse or ''}")
        sys.stdout.flush()
        if killer is None and excuse is None:
            survivors.append(mutant)
    print(f"\n{len(mutants)} mutants, {len(survivors)} survived", *survivors, sep="\n  ")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
