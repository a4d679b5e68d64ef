"""Anomaly: one thing in a history that a promise forbids.

Owns        the noun, and the names of all kinds
Leaves      finding them to the checks
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_PER_KIND: Final = 20  # one cause has thousands of effects, and nobody reads them all


class Kind(StrEnum):
    """Kinds of anomalies, named as in Jepsen's workload for Kafka where that has a name."""

    LOST = "lost"
    """an acknowledged record, or one that somebody read, is not in the log at the end"""
    UNSEEN = "unseen"
    """a reader of everything never came to an acknowledged record"""
    SKIPPED = "skipped"
    """a reader went on behind a record that it was never given"""
    DUPLICATE = "duplicate"
    """a record that was sent once stands at two offsets"""
    DUPLICATE_NONZERO = "duplicate-nonzero"
    """a record was acknowledged at another offset than the one at which it stands"""
    SPURIOUS_ZERO = "spurious-zero"
    """the same, where the acknowledgement said 0, -1 or nothing"""
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    """an offset holds one record for one client and another for the next"""
    REORDERED = "reordered"
    """records stand, or were acknowledged, in another order than the one in which they were sent"""
    PHANTOM = "phantom"
    """a record was read that nobody sent"""
    CORRUPT = "corrupt"
    """bytes were read that are no record of ours"""
    POLL_WENT_BACK = "poll-went-back"
    """a reader was given offsets that don't grow"""
    CHANGED_LOG = "changed-log"
    """records appeared below the end of a log that had been read to the end"""
    ABORTED_READ = "aborted-read"
    """a reader of committed records was given one of an aborted transaction (G1a)"""
    PRECOMMITTED_READ = "precommitted-read"
    """a reader of committed records was given one before the commit was asked for"""
    TORN = "torn-transaction"
    """some of the records of a transaction are committed, and others aren't"""
    ZOMBIE_COMMIT = "zombie-commit"
    """a producer committed after another with its transactional id was ready"""
    G0 = "G0"
    """transactions of one transactional id wrote around each other"""
    G1C = "G1c"
    """transactions read each other's records in a circle"""
    G_SINGLE = "G-single"
    """a transaction read an input that another had already consumed: both are committed"""
    COMMIT_WENT_BACK = "commit-went-back"
    """a committed offset, or a commit, is below an earlier one"""
    COMMIT_LOST = "commit-lost"
    """an accepted commit is not there, or one is there that nobody made"""
    TWO_OWNERS = "two-owners"
    """a partition has two owners in one generation"""
    STUCK_LSO = "stuck-lso"
    """the last stable offset does not come to the end of the log"""
    UNANSWERED = "unanswered"
    """a record was never acknowledged nor refused"""
    STARVED = "starved"
    """a client that tried after the faults had no success"""
    STOPPED_READER = "stopped-reader"
    """a reader read nothing after the faults"""
    NOTHING_READ = "nothing-read"
    """a reader never read anything, though there was something"""
    NO_EVIDENCE = "no-evidence"
    """too little happened for a pass to mean anything"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    kind: str
    text: str
    at: float | None = None

    def __str__(self) -> str:
        when = "" if self.at is None else f" at {self.at:.3f} s"
        return f"{self.kind}{when}: {self.text}"


def limited(anomalies: Iterable[Anomaly], most: int = MAX_PER_KIND) -> Iterator[Anomaly]:
    """The first of each kind, and how many more there are."""
    seen: dict[str, int] = defaultdict(int)
    for each in anomalies:
        seen[each.kind] += 1
        if seen[each.kind] <= most:
            yield each
    for kind, count in seen.items():
        if count > most:
            yield Anomaly(kind=kind, text=f"… and {count - most} more")
