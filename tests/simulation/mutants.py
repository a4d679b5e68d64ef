"""Mutants: `python -m tests.simulation.mutants` runs every mutation with its control run and writes the table of them.

Owns        the command line, the table in `docs/reliability.md`
Leaves      mutations to their modules, which seeds to try to `noticing`

Each row is a seed that violates the rule without the guard, and passes with it. A mutation without such a seed is a
failure: either no rule sees that the guard is gone, or the rule sees something else.
"""

import argparse
import logging
import sys
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from .noticing import ALL, notice, run

PAGE: Final = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN: Final = "<!-- written by `make mutants`: begin -->\n"
END: Final = "<!-- written by `make mutants`: end -->\n"
HEAD: Final = "| guard taken out | profile | seed | rule that is violated without it |\n|---|---|---|---|\n"


class Row(NamedTuple):
    name: str
    seed: int | None
    rules: tuple[str, ...]
    control: str
    """what the same seed says with the guard in place; empty: it passes"""

    @property
    def problem(self) -> str:
        if self.seed is None:
            return f"{self.name}: no seed violates any of {ALL[self.name].breaks}"
        return f"{self.name}: seed {self.seed} fails with the guard as well: {self.control}" if self.control else ""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutations; all, unless named")
    parser.add_argument("--write", action="store_true", help="write the table of all of them to docs/reliability.md")
    parser.add_argument("--jobs", type=int, default=2, help="processes to use")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if unknown := [name for name in options.names if name not in ALL]:
        sys.stderr.write(f"error: no such mutation; {', '.join(unknown)}\n")
        return 2
    rows: list[Row] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(try_one, options.names or sorted(ALL)):
            rows.append(row)
            sys.stdout.write(row.problem + "\n" if row.problem else line(row))
            sys.stdout.flush()
    failed = sum(bool(row.problem) for row in rows)
    sys.stdout.write(f"{len(rows) - failed} of {len(rows)} mutations are noticed, and pass with their guard\n")
    if options.write and not options.names and not failed:
        PAGE.write_text(with_table(PAGE.read_text(), rows))
    return 1 if failed else 0


def try_one(name: str) -> Row:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")  # coroutines of the dead were never awaited
    with pytest.MonkeyPatch.context() as patch:
        noticed = notice(name, patch)
    if noticed is None:
        return Row(name, None, (), "")
    rules = tuple(sorted(noticed.violations & set(ALL[name].breaks)))
    return Row(name, noticed.seed, rules, run(name, noticed.seed).failure or "")


def line(row: Row) -> str:
    return f"| {row.name} | {ALL[row.name].profile} | {row.seed} | {'; '.join(row.rules)} |\n"


def table(rows: Iterable[Row]) -> str:
    return HEAD + "".join(map(line, rows))


def with_table(page: str, rows: Iterable[Row]) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table(rows) + END + after


def names_in(page: str) -> dict[str, str]:
    """Of each mutation in the page's table the rule that it violates."""
    text = page.partition(BEGIN)[2].partition(END)[0].removeprefix(HEAD)
    rows = (row.strip("| ").split(" | ") for row in text.splitlines())
    return {row[0]: row[-1] for row in rows}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
