"""Compare: what changed between two runs, such as those of two commits.

Data path   two JSON files of `results` -> **compare** -> the terminal
Owns        `python -m benchmarks.compare BEFORE.json AFTER.json`
Leaves      medians to `results`

Each number of StreamHouse is also divided by Kafka's of the same run where there is one, so that a noisy hour doesn't
look like a change.
"""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import METRICS
from benchmarks.results import Row, Run, is_better, load, rows
from benchmarks.table import OURS, THEIRS, number


def change(before: Row, after: Row) -> float | None:
    """After divided by before: of the ratios to Kafka where both runs have it, else of our own numbers."""
    old, new = before.ratio(OURS, THEIRS), after.ratio(OURS, THEIRS)
    if old and new:
        return new / old
    return after.medians[OURS] / before.medians[OURS] if before.medians.get(OURS) and OURS in after.medians else None


def compared(before: Run, after: Run) -> list[tuple[Row, Row]]:
    known = {(row.measure, row.scenario, row.metric): row for row in rows(before)}
    pairs = [(known.get((row.measure, row.scenario, row.metric)), row) for row in rows(after)]
    return [(old, new) for old, new in pairs if old is not None and METRICS[new.metric].shown]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="What changed between two runs.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    asked = parser.parse_args()
    before, after = load(asked.before), load(asked.after)
    table = Table("measure", "scenario", "metric", before.commit, after.commit, "change", title="StreamHouse")
    for old, new in compared(before, after):
        factor = change(old, new)
        colour = "" if factor is None or abs(factor - 1) < 0.1 else "green" if is_better(new.metric, factor) else "red"
        shown = f"[{colour or 'default'}]{factor:.2f}[/]" if factor is not None else "-"
        metric = f"{new.metric} ({METRICS[new.metric].unit})"
        table.add_row(
            new.measure, new.scenario, metric, number(old.medians.get(OURS)), number(new.medians.get(OURS)), shown
        )
    Console().print(table)


if __name__ == "__main__":
    main()
