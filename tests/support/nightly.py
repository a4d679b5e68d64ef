"""`make nightly`: everything that takes too long for every change, step by step, and a page of it at the end.

Owns        the steps, what each may spend and a time limit for each, their logs in `.cache/nightly`, the summary
Leaves      what a step does to the Makefile, the page to `nightly_page`

A step that fails or takes too long doesn't end the run. With names, only the steps of these names are run. With a share
below 1, the lanes have the depth of `make test`, and the others so much of their seeds, frames, kills and minutes.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from tests.chaos.faults import PROFILES
from tests.support.depth import SEED_VARIABLE, base_seed
from tests.support.nightly_page import CHAOS, StepResult, as_json, collect, write_page

ROOT: Final = Path(__file__).parents[2]
LOGS: Final = ROOT / ".cache" / "nightly"
TAIL_LINES: Final = 40
GRACE_S: Final = 15.0
PAGE: Final = "nightly.html"
MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    command: tuple[str, ...]
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    step: Step
    seconds: float
    failure: str = ""


def made(target: str, *variables: str, minutes: float, name: str = "") -> Step:
    command = ("make", "--no-print-directory", target, *variables)
    return Step(name=name or target, command=command, limit_s=minutes * MINUTE_S)


DEEP: Final = ("TEST_DEPTH=nightly", "MARKS=not java and not chaos")
CHAOS_MINUTES: Final = 10
"""Of faults, for each profile."""
LEFT: Final = (".log", ".json", ".html")
"""What a step writes under its name."""


def steps(share: float = 1.0) -> tuple[Step, ...]:
    """All steps, with so much of their budgets. Seeds begin at a random one, from which on the run can be repeated."""
    depth = DEEP if share >= 1 else ()
    first = base_seed()

    def part(variable: str, number: int, *, least: int = 1) -> str:
        return f"{variable}={max(least, round(number * share))}"

    return (
        made("lint", minutes=5),
        made("types", minutes=10),
        made("test-unit", *depth, minutes=60),
        made("test-spark", *depth, minutes=120),
        made("test-services", *depth, minutes=90),
        made("simulate", part("SEEDS", 4000), f"ARGS=--start {first} --keep-going", minutes=90),
        made("mutants", part("ARGS=--budget-s", 300, least=20), minutes=90),
        made("view-queries", part("SEEDS", 200), f"ARGS=--first {first}", minutes=60),
        made("fuzz", part("FRAMES", 1_000_000), minutes=30),
        made("fuzz-decoders", part("FUZZ_SECONDS", 120, least=5), minutes=45),
        made("fuzz-native", minutes=30),
        made("crash", part("KILLS", 50, least=3), minutes=60),
        *(chaos(profile, part("MINUTES", CHAOS_MINUTES)) for profile in PROFILES),
        made("soak", part("MINUTES", 60, least=5), "SOAK=--spark", "REPORT=.cache/nightly/soak.html", minutes=110),
        made("test-java", minutes=45),
    )


def chaos(profile: str, minutes: str) -> Step:
    name = f"{CHAOS}-{profile}"
    return made(
        CHAOS,
        minutes,
        f"PROFILE={profile}",
        f"REPORT=.cache/nightly/{name}.html",
        minutes=CHAOS_MINUTES + 15,
        name=name,
    )


def run_steps(steps: Sequence[Step], *, logs: Path, out: TextIO) -> list[Outcome]:
    """Run them one after the other; what they print goes to a log each, of which a failure shows the end. What an
    earlier run has left of a step goes first: a step that comes to nothing must not show that. The page is written
    after each step, so that there is one of a run that is ended early."""
    logs.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    for number, step in enumerate(steps, 1):
        print(f"{step.name}: {' '.join(step.command)}", file=out, flush=True)
        for suffix in LEFT:
            (logs / f"{step.name}{suffix}").unlink(missing_ok=True)
        log = logs / f"{step.name}.log"
        outcomes.append(outcome := run_step(step, log))
        if outcome.failure:
            tail = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
            print(*tail, f"{step.name}: {outcome.failure}; log={log}", sep="\n", file=out, flush=True)
        report(outcomes, logs, left=[each.name for each in steps[number:]])
    return outcomes


def run_step(step: Step, log: Path) -> Outcome:
    start = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(step.command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
        try:
            code = process.wait(step.limit_s)
            failure = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            failure = f"no end within {step.limit_s:.0f} s"
        finally:
            end_group(process)
    return Outcome(step=step, seconds=time.monotonic() - start, failure=failure)


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End the step and what it started: SIGTERM, then SIGKILL."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, sign)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    lines = [f"{each.step.name:18} {each.seconds:7.0f} s  {each.failure or 'passed'}" for each in outcomes]
    failed = sum(1 for each in outcomes if each.failure)
    return [*lines, f"{len(outcomes) - failed} of {len(outcomes)} steps passed; {SEED_VARIABLE}={base_seed()}"]


def report(outcomes: Sequence[Outcome], folder: Path, *, left: Sequence[str] = ()) -> None:
    """Write the page, and what it was made of; steps that are `left` were not run yet."""
    results = [StepResult(each.step.name, " ".join(each.step.command), each.seconds, each.failure) for each in outcomes]
    (folder / "nightly.json").write_text(as_json(results, base_seed()))
    write_page(folder / PAGE, collect(results, folder=folder, seed=base_seed(), left=left))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.nightly", description=__doc__)
    parser.add_argument("names", nargs="*", help="steps; all, unless named")
    parser.add_argument("--share", type=float, default=1.0, help="how much of their budgets the steps have")
    return parser.parse_args(arguments)


def chosen(names: Sequence[str], share: float) -> list[Step]:
    """The steps of these names; `chaos` means all of its profiles. Raises `KeyError` for a name that no step has."""
    known: dict[str, list[Step]] = {}
    for step in steps(share):
        known.setdefault(step.command[2], []).append(step)
        known.setdefault(step.name, [step])
    return [step for name in names for step in known[name]] or list(steps(share))


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        picked = chosen(options.names, options.share)
    except KeyError as error:
        names = ", ".join(step.name for step in steps())
        sys.stderr.write(f"error: no such step; step={error.args[0]} known={names}\n")
        return 2
    base_seed()  # the steps inherit it
    outcomes = run_steps(picked, logs=LOGS, out=sys.stdout)
    sys.stdout.write("\n".join(summary(outcomes)) + f"\nthe page is {LOGS / PAGE}\n")
    return 1 if any(each.failure for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
