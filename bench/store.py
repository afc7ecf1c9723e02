"""``make bench``: the figures of the store, beside the machine's floor and beside other libraries.

Each run is a process of its own. Tables go to the standard output, progress to the other; a run of
everything also writes docs/benchmarks.md. Exit code 1 means that something came out wrong (a turn
lost, a message missing), never that something was slow.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from bench.figures import FIGURES, FULL, PEERS, QUICK, Effort, Failed
from bench.measure import machine
from bench.report import Figure
from bench.subject import Numbers, Spec

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "benchmarks.md"
PACKAGES: Final = (
    "aiosqlite",
    "msgspec",
    "openai-agents",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "python-telegram-bot",
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
UNLIKE: Final = 1.4  # how much busier the machine may be for one run than for another beside it
TRIES: Final = 4
SPARE: Final = 150.0  # seconds that repeated runs may take in all


class Processes:
    """Runs, one process after the other."""

    def __init__(self, effort: Effort, work: Path) -> None:
        self.effort = effort
        self.wrong: list[str] = []
        self.spins: list[float] = []
        self.syncs: list[float] = []
        self._work = work
        self._began = time.monotonic()
        self._spare = SPARE
        self.repeated = 0

    def beside(self, *runs: Callable[[], Numbers]) -> list[Numbers]:
        # What decides is how busy the machine was, never what came out.
        found: list[tuple[float, list[Numbers]]] = []
        while True:
            began = time.monotonic()
            numbers = [run() for run in runs]
            unlike = max(_unlike(numbers, name) for name in ("spin", "sync"))
            found.append((unlike, numbers))
            took = time.monotonic() - began
            if unlike <= UNLIKE or len(found) == TRIES or took > self._spare:
                return min(found, key=lambda each: each[0])[1]
            self._say(f"the machine was {unlike:.1f} times busier for one of these: once more")
            self._spare -= took
            self.repeated += 1

    def folder(self, name: str) -> Path:
        folder = self._work / name
        folder.mkdir(exist_ok=True)
        return folder

    def run(
        self,
        kind: str,
        who: str,
        *,
        chats: int = 1,
        history: int = 0,
        turns: int = 0,
        cap: float = 60.0,
        descriptors: int = 0,
        folder: Path | None = None,
    ) -> Numbers:
        told = f"{kind}: {who}" + (f", {history:,} messages" if kind == "turns" else "")
        self._say(told)
        place = folder or Path(tempfile.mkdtemp(dir=self._work))
        spec = Spec(
            kind=kind,
            who=who,
            folder=str(place),
            chats=chats,
            history=history,
            turns=turns,
            cap=cap,
            descriptors=descriptors,
        )
        try:
            numbers = self._numbers(spec)
        except Failed as error:
            self._say(f"{told}: {error}")
            if who in PEERS:
                raise
            self.wrong.append(f"{told}: {error}")
            raise
        finally:
            if folder is None:
                shutil.rmtree(place)
        self.spins.append(numbers.get("spin", 0.0))
        self.syncs.append(numbers.get("sync", 0.0))
        if numbers.get("lost") and who not in PEERS:
            self.wrong.append(f"{told}: {numbers['lost']:.0f} acknowledged turns are lost")
        return numbers

    def _numbers(self, spec: Spec) -> Numbers:
        """
        :raises Failed: the last thing that the process said
        """
        line = msgspec.json.encode(spec).decode()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "bench.runs", line],
                cwd=ROOT,
                env={**os.environ, **QUIET},
                capture_output=True,
                text=True,
                timeout=spec.cap + BEYOND,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"no end after {spec.cap + BEYOND:.0f} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise Failed(said[-1].replace(str(ROOT), ".").replace(spec.folder, "."))
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=dict[str, float])

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:6.0f} s  {what}", file=sys.stderr, flush=True)


def _unlike(numbers: Sequence[Numbers], name: str) -> float:
    values = [each[name] for each in numbers]
    return max(values) / min(values)


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
    spins = sorted(filter(None, runs.spins))
    syncs = sorted(filter(None, runs.syncs))
    versions = ", ".join(f"{name} {version}" for name in PACKAGES if (version := _version(name)))
    lines = "\n".join(f"* {fact}" for fact in (*facts, versions))
    text = f"""# Benchmarks

`make bench` measured all of this in one run of {minutes:.0f} minutes, and wrote this page. \
{sum(met)} of {len(met)} goals are met.

{lines}

How to read it:

* Every run is a process of its own with a database of its own, and checks what it gets back: what
  each turn saw, and what is there when the database is opened again.
* *Floor* is the least that this machine can do, measured again beside each group. Ratios compare
  runs of the same round. Numbers are medians over {effort.rounds} rounds, unless a table says that
  there was one. When the machine was busier for one run of a group than for another (by a loop and
  a sync before and after each), the group was run again: {runs.repeated} times in all.
* Absolute times are those of this machine at that time. While it ran, the loop in the list above
  took {spins[0]:.0f} to {spins[-1]:.0f} us and a sync {syncs[0]:.0f} to {syncs[-1]:.0f} us: read
  differences below such a spread as ties, and p99 as a hint.
* A turn says about 200 bytes and answers about 800. Everything that syncs does so before it says
  that it is done (SQLite with `synchronous=FULL`), except where a table says otherwise.
"""
    return "\n\n".join((text.rstrip(), *map(str, figures))) + "\n"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
