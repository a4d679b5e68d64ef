"""Readme: the numbers in `benchmarks/README.md`, written from a run's JSON and never by hand.

Data path   `results` -> `table` -> **readme** -> the page
Owns        the part of the page between its two marks
Leaves      everything else on the page to people
"""

import statistics
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import table
from benchmarks.results import CROWDED_CORES, Run

PAGE: Final = Path(__file__).resolve().parent / "README.md"
LINE: Final = 120
RATIOS: Final = "Ratios are StreamHouse : Kafka, bold where StreamHouse is ahead."


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Between which lines of the page a run's numbers stand, what is said about all of them, and a picture of them."""

    begin: str
    end: str
    remark: str = ""
    picture: str = ""


BROKERS: Final = Marks(
    begin="<!-- numbers: begin (written by --write-readme) -->", end="<!-- numbers: end -->", remark=RATIOS
)
CLUSTER: Final = Marks(
    begin="<!-- cluster numbers: begin (written by --write-readme) -->", end="<!-- cluster numbers: end -->"
)
SPARK: Final = Marks(
    begin="<!-- spark numbers: begin (written by --write-readme) -->", end="<!-- spark numbers: end -->"
)
SEGMENTS: Final = Marks(
    begin="<!-- segment numbers: begin (written by --write-readme) -->", end="<!-- segment numbers: end -->"
)
SPARK_WRITE: Final = Marks(
    begin="<!-- spark write numbers: begin (written by --write-readme) -->", end="<!-- spark write numbers: end -->"
)
REPLAY: Final = Marks(
    begin="<!-- replay numbers: begin (written by --write-readme) -->", end="<!-- replay numbers: end -->"
)
TRANSACTIONS: Final = Marks(
    begin="<!-- transaction numbers: begin (written by --write-readme) -->",
    end="<!-- transaction numbers: end -->",
    remark=RATIOS,
)
PUBLISHED: Final = Marks(
    begin="<!-- numbers: begin (written by make bench-full) -->",
    end="<!-- numbers: end -->",
    remark=RATIOS,
    picture="![Plot of the run](images/benchmarks.png)",
)
NEXMARK: Final = Marks(
    begin="<!-- nexmark numbers: begin (written by --write-readme) -->", end="<!-- nexmark numbers: end -->"
)


def write(run: Run, page: Path = PAGE, marks: Marks = BROKERS) -> None:
    page.write_text(with_numbers(page.read_text(), run, marks))


def with_numbers(page: str, run: Run, marks: Marks = BROKERS) -> str:
    before, _, rest = page.partition(marks.begin)
    _, mark, after = rest.partition(marks.end)
    if not mark:
        raise ValueError(f"no marks for the numbers; page={PAGE.name}")
    return f"{before}{marks.begin}\n{_numbers(run, marks)}\n{marks.end}{after}"


def _numbers(run: Run, marks: Marks) -> str:
    versions = " and ".join(run.peers.values())
    busy = statistics.median(run.busy_cores) if run.busy_cores else 0.0
    head = (
        f"{versions}; {run.machine}; {run.plan} run of {run.began_at[:10]} at commit {run.commit}, {run.took_s:.0f} s; "
        f"others kept {busy:.1f} cores busy (median, looked at before each turn). {marks.remark}"
    ).rstrip()
    if busy > CROWDED_CORES:
        head += (
            " **Provisional: the machine was crowded, so rates and tails say little; measure again when it is quiet.**"
        )
    notes = [f"- {note}" for note in [*run.notes, *table.busy_clients(run)]]
    parts = [textwrap.fill(head, LINE, break_long_words=False, break_on_hyphens=False), marks.picture]
    return "\n\n".join(part for part in [*parts, table.markdown(run), "\n".join(notes)] if part)
