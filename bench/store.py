"""``make bench``: the figures of the store and of whole bots, beside floors and other libraries.

Each run is a process of its own. Tables go to the standard output, progress to the other; a run of
everything also writes docs/benchmarks.md. Exit code 1 means that something came out wrong (a turn
lost, a message missing), never that something was slow.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from bench.effort import FULL, QUICK, Effort, Failed
from bench.figures import FIGURES, PEERS
from bench.measure import Calibration, calibrate, machine, median
from bench.report import WIDTH, Figure
from bench.subject import READY, Numbers, Spec

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "benchmarks.md"
PACKAGES: Final = (
    "aiosqlite",
    "msgspec",
    "openai-agents",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "python-telegram-bot",
    "anthropic",
    "aiohttp",
    "agno",
    "sqlalchemy",
)
# None of them shall call home while it is measured.
QUIET: Final = {
    "AGNO_TELEMETRY": "false",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}
BEYOND: Final = 120.0  # seconds after its own time limit when a run is given up
BUSY: Final = 1.5  # how much slower than at its best the machine may be, for runs that count
TRIES: Final = 4


class Process:
    """One run."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._said = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.runs", msgspec.json.encode(spec).decode()],
            cwd=ROOT,
            env={**os.environ, **QUIET},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        self._limit = threading.Timer(spec.cap + BEYOND, self._process.kill)
        self._limit.start()

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """What it prints next: `READY`, or its numbers.

        :raises Failed: it ended without; the last thing that it said
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line and not self._process.poll():
            return line
        code = self._process.wait()
        self._said.seek(0)
        said = self._said.read().strip().splitlines() or [f"exit code {code}"]
        raise Failed(said[-1].replace(str(ROOT), ".").replace(self.spec.folder, "."))

    def end(self) -> None:
        self._limit.cancel()
        self._process.kill()
        self._process.communicate()
        self._said.close()


class Processes:
    """Runs, in processes of their own."""

    def __init__(self, effort: Effort, work: Path) -> None:
        self.effort = effort
        self.wrong: list[str] = []
        self.calibrations = [calibrate(work)]
        self.repeated = 0
        self._work = work
        self._began = time.monotonic()
        self._spare = effort.spare

    def folder(self, name: str) -> Path:
        folder = self._work / name
        folder.mkdir(exist_ok=True)
        return folder

    def run(self, spec: Spec) -> Numbers:
        (numbers,) = self._together([spec])
        return numbers

    def beside(self, specs: Sequence[Spec]) -> list[Numbers]:
        # What decides is how busy the machine was, never what came out.
        found: list[tuple[float, list[Numbers]]] = []
        while True:
            began = time.monotonic()
            before = calibrate(self._work)
            if all(spec.block for spec in specs):
                numbers = self._together(specs)
            else:
                numbers = [self.run(spec) for spec in specs]
            after = calibrate(self._work)
            self.calibrations += (before, after)
            busy = max(self._busy(before), self._busy(after))
            found.append((busy, numbers))
            took = time.monotonic() - began
            if busy <= BUSY or len(found) == TRIES or took > self._spare:
                return min(found, key=lambda each: each[0])[1]
            self._say(f"the machine was {busy:.1f} times as slow as at its best: once more")
            self._spare -= took
            self.repeated += 1

    def _busy(self, now: Calibration) -> float:
        spin = min(each.spin for each in self.calibrations)
        sync = min(each.sync for each in self.calibrations)
        return max(now.spin / spin, now.sync / sync)

    def _together(self, specs: Sequence[Spec]) -> list[Numbers]:
        """At most one of them is at work at any time, once all are ready."""
        told = "; ".join(_told(spec) for spec in specs)
        self._say(told if len(specs) < 4 else f"{len(specs)} runs in turns: {told}")
        with ExitStack() as stack:
            processes = []
            for spec in specs:
                place = spec.folder or stack.enter_context(
                    tempfile.TemporaryDirectory(dir=self._work)
                )
                processes.append(Process(msgspec.structs.replace(spec, folder=str(place))))
                stack.callback(processes[-1].end)
            try:
                lines = [process.line() for process in processes]
                while READY in lines:
                    for which, process in enumerate(processes):
                        if lines[which] == READY:
                            process.go_on()
                            lines[which] = process.line()
            except Failed as error:
                self._say(f"{told}: {error}")
                if specs[0].who not in PEERS:
                    self.wrong.append(f"{told}: {error}")
                raise
        return [self._numbers(spec, line) for spec, line in zip(specs, lines, strict=True)]

    def _numbers(self, spec: Spec, line: str) -> Numbers:
        given = msgspec.json.decode(line, type=dict[str, float | None])
        # JSON knows no NaN.
        numbers = {name: math.nan if value is None else value for name, value in given.items()}
        if numbers.get("lost") and spec.who not in PEERS:
            self.wrong.append(f"{_told(spec)}: {numbers['lost']:.0f} acknowledged turns are lost")
        return numbers

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:6.0f} s  {what}", file=sys.stderr, flush=True)


def _told(spec: Spec) -> str:
    history = f" at {spec.history:,}" if spec.kind == "turns" else ""
    few = f", ulimit -n {spec.descriptors}" if spec.descriptors else ""
    return f"{spec.kind}{history}: {spec.who}{few}"


def main() -> int:
    options = _options()
    effort = QUICK if options.quick else FULL
    if options.rounds:
        effort = effort._replace(rounds=options.rounds)
    names = options.only or [
        name for name in FIGURES if effort.peers or not name.startswith("peers")
    ]
    began = time.monotonic()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="chinwag-bench-", dir=options.dir) as work:
        processes = Processes(effort, Path(work))
        facts = machine(Path(work))
        print("\n".join(facts), flush=True)
        for name in names:
            try:
                figure = FIGURES[name](processes)
            except Failed:
                continue  # it is among what is wrong
            figures.append(figure)
            print(f"\n{figure}", flush=True)
    minutes = (time.monotonic() - began) / 60
    for wrong in processes.wrong:
        print(f"WRONG: {wrong}", file=sys.stderr)
    if not options.quick and not options.only and not processes.wrong:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(_page(figures, facts, effort, minutes, processes))
    return 1 if processes.wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=(__doc__ or "").partition("\n")[2].strip()
    )
    parser.add_argument("--quick", action="store_true", help="a minute, one round, no peers")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(FIGURES),
        metavar="NAME",
        help=f"one figure, or several: {', '.join(FIGURES)}",
    )
    parser.add_argument("--rounds", type=int, help="how often each run is repeated")
    parser.add_argument(
        "--dir", type=Path, help="where the databases are made, on the disk to be measured"
    )
    return parser.parse_args()


def _page(
    figures: list[Figure], facts: list[str], effort: Effort, minutes: float, runs: Processes
) -> str:
    met = [goal.met for figure in figures for goal in figure.goals if goal.met is not None]
    spins, syncs = (sorted(values) for values in zip(*runs.calibrations, strict=True))
    versions = ", ".join(f"{name} {version}" for name in PACKAGES if (version := _version(name)))
    notes = (
        "Every run is a process of its own with a database of its own, and checks what it gets "
        "back: what each turn saw, and what is there when the database is opened again.",
        "*Floor* is the least that this machine can do, measured again beside each group. Ratios "
        f"compare runs of the same round. Numbers are medians over {effort.rounds} rounds, unless "
        "a table says that there was one.",
        "What is compared turn by turn runs in processes that take turns, a few at a time, so that "
        "all of them meet the same machine. What is compared as a whole runs one after the other.",
        "Absolute times are those of this machine at that time. Before and after each group a loop "
        f"and a sync tell how busy it is: they took {spins[0]:.0f} to {spins[-1]:.0f} us (median "
        f"{median(spins):.0f}) and {syncs[0]:.0f} to {syncs[-1]:.0f} us (median "
        f"{median(syncs):.0f}). A group that met a busy machine was run again if there was time, "
        f"{runs.repeated} times in all. Read differences within such a spread as ties, and p99 as "
        "a hint.",
        "A turn says about 200 bytes and answers about 800, of varying length. Whatever syncs does "
        "so before it says that it is done (SQLite with `synchronous=FULL`), except where a table "
        "says otherwise.",
    )
    opening = (
        f"`make bench` measured all of this in one run of {minutes:.0f} minutes, and wrote this "
        f"page. {sum(met)} of {len(met)} goals are met."
    )
    parts = (
        "# Benchmarks",
        _filled(opening),
        _listed((*facts, versions)),
        "How to read it:",
        _listed(notes),
        *map(str, figures),
    )
    return "\n\n".join(parts) + "\n"


def _filled(text: str, lead: str = "") -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_on_hyphens=False,
    )


def _listed(items: Sequence[str]) -> str:
    return "\n".join(_filled(item, "* ") for item in items)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
