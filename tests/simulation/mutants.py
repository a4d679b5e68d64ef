"""Mutants: `python -m tests.simulation.mutants` runs every mutation with its control run and writes the table of them.

Owns        the command line, the table in `docs/reliability.md`
Leaves      mutations to their modules, which seeds to try to `noticing`

Each row is a seed that violates the rule without the guard, and passes with it. A mutation for which the budget finds
no such seed is a failure: either no rule sees that the guard is gone, or the rule sees something else. So is a seed
that fails with the guard in place.
"""

import argparse
import logging
import sys
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from .noticing import ALL, NOTICED, cheapest, remember, search

PAGE: Final = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN: Final = "<!-- written by `make mutants`: begin -->\n"
END: Final = "<!-- written by `make mutants`: end -->\n"
HEAD: Final = "| guard taken out | profile | seed | rule that is violated without it |\n|---|---|---|---|\n"


class Row(NamedTuple):
    name: str
    seed: int | None
    tried: int
    rules: tuple[str, ...]
    controls: tuple[str, ...]
    """what seeds say that fail with the guard in place"""

    @property
    def problems(self) -> list[str]:
        results = [f"{self.name}: fails with the guard as well: {control}" for control in self.controls]
        if self.seed is None:
            results.append(f"{self.name}: none of {self.tried} seeds violates any of {ALL[self.name].breaks}")
        return results

    @property
    def has_moved(self) -> bool:
        return self.seed is not None and [self.seed] != list(NOTICED.get(self.name, ())[:1])


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutations; all, unless named")
    parser.add_argument("--write", action="store_true", help="write seeds to noticed.json, rows to docs/reliability.md")
    parser.add_argument(
        "--budget-s", type=float, default=300, help="seconds of CPU to look for a seed of each mutation"
    )
    parser.add_argument("--cheapest", action="store_true", help="try all seeds of a mutation and take the shortest run")
    parser.add_argument("--jobs", type=int, default=2, help="processes to use")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if unknown := [name for name in options.names if name not in ALL]:
        sys.stderr.write(f"error: no such mutation; {', '.join(unknown)}\n")
        return 2
    attempt = partial(try_one, budget_s=None if options.cheapest else options.budget_s)
    rows: list[Row] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(attempt, options.names or sorted(ALL)):
            rows.append(row)
            sys.stdout.write("".join(problem + "\n" for problem in row.problems))
            sys.stdout.write(line(row) if row.seed is not None else "")
            sys.stdout.flush()
    failed = sum(bool(row.problems) for row in rows)
    moved = [row for row in rows if row.has_moved]
    sys.stdout.write(f"{len(rows) - failed} of {len(rows)} mutations are noticed, and pass with their guard; ")
    sys.stdout.write(f"{len(moved)} by another seed than before\n")
    if options.write:
        remember({row.name: row.seed for row in moved if row.seed is not None})
        PAGE.write_text(with_rows(PAGE.read_text(), rows))
    return 1 if failed else 0


def try_one(name: str, budget_s: float | None) -> Row:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")  # coroutines of the dead were never awaited
    noticed, tried, fails = cheapest(name) if budget_s is None else search(name, budget_s=budget_s)
    controls = tuple(f"seed {each.seed}: {each.failure}" for each in fails)
    if noticed is None:
        return Row(name, None, tried, (), controls)
    return Row(name, noticed.seed, tried, tuple(sorted(noticed.violations & set(ALL[name].breaks))), controls)


def line(row: Row) -> str:
    return f"| {row.name} | {ALL[row.name].profile} | {row.seed} | {'; '.join(row.rules)} |\n"


def with_rows(page: str, rows: Iterable[Row]) -> str:
    """The page with these rows in its table: others stay, but for those of mutations that are no more."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    lines = {name: text for name, text in _lines(old) if name in ALL}
    lines |= {row.name: line(row) for row in rows if row.seed is not None}
    return before + BEGIN + HEAD + "".join(lines[name] for name in sorted(lines)) + END + after


class Listed(NamedTuple):
    profile: str
    seed: int
    rules: tuple[str, ...]


def rows_in(page: str) -> dict[str, Listed]:
    """What the page's table says of each mutation."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    cells = {name: text.strip("|\n ").split(" | ")[1:] for name, text in _lines(table)}
    return {
        name: Listed(profile, int(seed), tuple(rules.split("; "))) for name, (profile, seed, rules) in cells.items()
    }


def _lines(table: str) -> list[tuple[str, str]]:
    lines = table.removeprefix(HEAD).splitlines(keepends=True)
    return [(text.strip("| ").partition(" | ")[0], text) for text in lines]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
