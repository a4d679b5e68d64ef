"""Replacement: which runs may stand in for others.

Data path   compaction or a merge -> **replacement** -> rows
Owns        what no caller may ask: other offsets, other epochs, another partition
Leaves      whether the old rows are still there to `transactions.replacements`
"""

from collections.abc import Sequence
from itertools import pairwise

from streamhouse.errors import Internal
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.stores.metadata.guard import check_shape


def check_replacement(expected: Sequence[Run], commit: SegmentCommit) -> None:
    """Raise `Internal` unless the new runs cover exactly the offsets of the old ones, each offset under its epoch.
    A gap between old runs (what a lost disk or a damaged log may have given away) may stay one."""
    check_shape([commit])
    if not expected or any(run.partition != expected[0].partition for run in (*expected, *commit.runs)):
        raise Internal(f"runs of exactly one partition must be replaced; key={commit.segment.key}")
    if any(one.end > other.base for one, other in pairwise(expected)):
        raise Internal(f"runs to be replaced are out of order; first={expected[0]}")
    if any(_is_hole(one.end, other.base, expected) for one, other in pairwise(commit.runs)):
        raise Internal(f"replacing runs leave a hole; first={commit.runs[0]}")
    if (commit.runs[0].base, commit.runs[-1].end) != (expected[0].base, expected[-1].end):
        raise Internal(f"replacing runs cover other offsets; first={commit.runs[0]} last={commit.runs[-1]}")
    for new in commit.runs:
        if any(old.epoch != new.epoch for old in expected if old.base < new.end and new.base < old.end):
            raise Internal(f"a replacing run would move the end of an epoch; run={new} epoch={new.epoch}")


def _is_hole(start: int, end: int, expected: Sequence[Run]) -> bool:
    """Whether old runs cover any of these offsets, or they go back."""
    return end < start or any(old.base < end and start < old.end for old in expected)
