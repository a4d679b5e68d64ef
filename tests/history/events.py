"""Events: what clients asked for and were told, whatever kind of run made them.

Data path   simulation, chaos -> **events** -> checks
Owns        the nouns of a history: records sent, polls, commits, transactions, generations, logs read at the end
Leaves      recording to the runs, judging to `checker`

A record is a text that nobody else sends. Times are seconds of one clock; two events are in order only if one was
answered before the other was sent. Only what clients did and saw is in a history: nothing that the product says of
itself excuses it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple


class Outcome(StrEnum):
    """What a client was told of a commit or of a transaction."""

    UNKNOWN = "unknown"
    COMMITTED = "committed"
    REFUSED = "refused"
    """of a transaction: aborted"""


@dataclass(slots=True, kw_only=True)
class Write:
    """One record on its way."""

    producer: str
    partition: str
    value: str
    number: tuple[int, ...]
    """where it stands among what its producer sent to the partition"""
    begun: float
    ended: float | None = None
    """when it was acknowledged or given up; None: never"""
    offset: int | None = None
    """where it was acknowledged; None of an acknowledged record: the client was not told"""
    is_acked: bool = False
    transaction: str | None = None
    once: bool = True
    """whether it must be stored once: its producer is idempotent, or sends nothing again"""
    in_order: bool = True
    """whether its producer is idempotent, so that its records stand in the order in which it sent them"""
    acks_in_order: bool = True
    """whether its producer has one request under way, so that acknowledged offsets grow"""
    may_wait: bool = False
    """whether its producer waits for no answer"""


class Item(NamedTuple):
    """A record at its offset; `value` is None when its bytes are none of ours."""

    offset: int
    value: str | None


@dataclass(slots=True, kw_only=True)
class Poll:
    """What a reader got from one partition: it asked from `start` and goes on at `end`."""

    reader: str
    partition: str
    start: int
    end: int
    items: Sequence[Item]
    begun: float
    ended: float
    is_committed: bool = False
    """whether it asked for committed records only"""
    transaction: str | None = None
    """the transaction that its records went into"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A consumer, or a group of them, and what is expected of it."""

    name: str
    topics: tuple[str, ...] = ()
    """whose partitions, `topic/number`, it reads; empty: all"""
    is_complete: bool = True
    """whether it begins at 0, passes over nothing and comes to the end"""
    comes_to_the_end: bool = True
    in_order: bool = False
    """whether offsets grow from poll to poll"""
    is_committed: bool = False
    must_read: bool = True
    """whether it must have read something at all"""
    reads_after_healing: bool = False
    """whether it must have read something when the faults were over, if something was acknowledged then"""

    def reads(self, partition: str) -> bool:
        return not self.topics or partition.rpartition("/")[0] in self.topics


@dataclass(slots=True, kw_only=True)
class Commit:
    """A commit of one partition's offset for a group."""

    group: str
    member: str
    partition: str
    offset: int
    begun: float
    ended: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    generation: int = -1


class CommittedSeen(NamedTuple):
    """What the cluster said is committed; an offset of -1 means nothing."""

    group: str
    partition: str
    offset: int
    begun: float
    ended: float


class Assignment(NamedTuple):
    """What a member of a generation was given."""

    group: str
    generation: int
    member: str
    partitions: tuple[str, ...]
    at: float = 0.0


class Range(NamedTuple):
    """The input that a transaction consumed of one partition, for a group: offsets in [start, end)."""

    group: str
    partition: str
    start: int
    end: int


@dataclass(slots=True, kw_only=True)
class Transaction:
    label: str
    transactional_id: str
    order: tuple[int, ...]
    """where it stands among the transactions of its id"""
    begun: float
    commit_begun: float | None = None
    """when its commit was asked for; None: never, so nothing of it may be seen"""
    ended: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    fenced: float | None = None
    """when another producer with its id was ready: no commit that is asked for later may succeed"""
    consumed: Sequence[Range] = ()
    is_given_up: bool = False
    """whether a power failure may have taken something of it that was not promised to survive"""

    @property
    def may_be_committed(self) -> bool:
        return self.commit_begun is not None and self.outcome is not Outcome.REFUSED


@dataclass(slots=True, kw_only=True)
class LogRead:
    """A partition, read from its start to its end when all was quiet. The last ones are the truth."""

    partition: str
    items: Sequence[Item]
    is_committed: bool = False


class StableSeen(NamedTuple):
    """How far readers of committed records come when all clients have ended."""

    partition: str
    last_stable: int
    high_watermark: int


@dataclass(slots=True, kw_only=True)
class History:
    writes: list[Write] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed: list[CommittedSeen] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    logs: list[LogRead] = field(default_factory=list)
    stable: list[StableSeen] = field(default_factory=list)
    healed_at: float | None = None
    """when the faults were over"""
    deletable: dict[str, int] = field(default_factory=dict)
    """by partition: below this offset records may be deleted, by a model of retention"""
    given_up: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """by partition: offsets of which a power failure may have taken what was not promised to survive it, and which
    other records may have taken since"""
    must_succeed: list[str] = field(default_factory=list)
    """transactional ids that must commit something after the faults"""
    min_acks: int = 0
    min_faults: int = 0
    faults: int = 0

    def power_failed(self, partition: str, survives: Callable[[str], bool], *, markers: Iterable[int] = ()) -> None:
        """The policy did not promise everything: what does not survive was never acknowledged, and nobody read it.
        `markers` are the offsets of those that were lost: readers have gone on behind them."""
        lost = list(markers)
        end = max(lost, default=-1) + 1
        for write in self.writes:
            if write.partition == partition and write.is_acked and not survives(write.value):
                lost.append(write.offset or 0)
                end = max(end, lost[-1] + 1)
                write.is_acked, write.offset = False, None
        for poll in self.polls:
            if poll.partition == partition:
                end = max(end, poll.end)
                gone = [item for item in poll.items if item.value is None or not survives(item.value)]
                lost += [item.offset for item in gone]
                poll.items = [item for item in poll.items if item not in gone]
        if lost:
            self.given_up.setdefault(partition, []).append((min(lost), end))

    def final_logs(self, *, is_committed: bool) -> dict[str, LogRead]:
        """The last reading of each partition at this isolation level."""
        return {each.partition: each for each in self.logs if each.is_committed is is_committed}


def answered(ended: float | None) -> float:
    return inf if ended is None else ended
