"""Transactions: what transactional clients did and were told, what readers saw of it, and what the log holds of it.

Data path   transacting, copying, isolation, roles -> **transactions** (in the history) -> checker, report
Owns        the nouns of transactions; values that say which transaction they belong to, and all that belongs to it
Leaves      judging them to `transaction_checker`
"""

import zlib
from dataclasses import dataclass, field
from typing import Final, NamedTuple

DEALS: Final = "transactions"
"""the topic that transactional producers write to, and copiers read from"""
COPIES: Final = "copies"
"""the topic that copiers write to"""
TOPICS: Final = (DEALS, COPIES)
COPIERS: Final = "copiers"
"""their group"""

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
UNKNOWN: Final = "unknown"


class Entry(NamedTuple):
    """One record of a transaction. `producer` is one instance, `name#number`, of a transactional id."""

    producer: str
    transaction: int
    ordinal: int
    size: int
    partition: int
    partitions: tuple[int, ...]
    """of the whole transaction, one for each record"""
    source: tuple[int, int] = (-1, -1)
    """of a copy: the partition and the offset that it is a copy of"""

    def __str__(self) -> str:
        copied = f" of {self.source[0]}@{self.source[1]}" if self.source[0] >= 0 else ""
        return f"{self.producer}/{self.transaction}[{self.ordinal} of {self.size}]{copied}"

    def value(self) -> bytes:
        fields = (*self[:5], ".".join(map(str, self.partitions)), *self.source)
        name = "/".join(map(str, fields)).encode()
        seed = zlib.crc32(name)
        return name + b"/" + (b"%08x" % seed) * (1 + seed % 37)

    @property
    def family(self) -> str:
        return self.producer.partition("#")[0]

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands among all records of its transactional id."""
        return int(self.producer.partition("#")[2]), self.transaction, self.ordinal

    @property
    def deal(self) -> tuple[str, int]:
        """Which transaction it belongs to."""
        return self.producer, self.transaction


def parse_entry(value: bytes | None) -> Entry | None:
    """Which record this is; None when it is none of ours, or was changed."""
    try:
        producer, transaction, ordinal, size, partition, partitions, *source, _ = (value or b"").decode().split("/")
        all_of_it = tuple(map(int, partitions.split(".")))
        from_partition, from_offset = map(int, source)
        numbers = int(transaction), int(ordinal), int(size), int(partition)
    except ValueError:
        return None
    entry = Entry(producer, *numbers, all_of_it, (from_partition, from_offset))
    return entry if entry.value() == value else None


@dataclass(slots=True, kw_only=True)
class Deal:
    """One transaction, or one record without a transaction: that one is whole when it is there."""

    topic: str
    entries: list[Entry]
    begun_at: float
    requested_at: float | None = None
    """when its commit was asked for; None: never, so nothing of it may be seen whatever its fate"""
    fenced_at: float | None = None
    """when another instance with the same transactional id was ready; no commit asked for after that may succeed"""
    ended_at: float | None = None
    outcome: str = UNKNOWN
    error: str = ""
    offsets: dict[int, int] = field(default_factory=dict)
    """what it commits for the group, by partition"""

    @property
    def key(self) -> tuple[str, int]:
        return self.entries[0].deal


class Seen(NamedTuple):
    """What a reader of committed records was given; one that starts over has another name."""

    at: float
    reader: str
    topic: str
    partition: int
    offset: int
    entry: Entry | None


class Kept(NamedTuple):
    offset: int
    entry: Entry | None


class Told(NamedTuple):
    """What the cluster said is committed for the copiers; -1 means nothing."""

    sent_at: float
    answered_at: float
    partition: int
    offset: int


class Struck(NamedTuple):
    """Somebody was killed, stopped or paused while a transaction was under way that he had a part in."""

    at: float
    kind: str
    agent: str
    role: str
    state: str


View = dict[str, dict[int, list[Kept]]]
"""topic -> partition -> records"""


@dataclass(slots=True, kw_only=True)
class Transactional:
    """All of it."""

    partitions: int = 0
    deals: list[Deal] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    open_for_s: dict[str, float | None] = field(default_factory=dict)
    """by topic and partition: how long after all clients had ended readers of committed records were held back; None:
    until somebody gave up waiting"""
    committed: View = field(default_factory=dict)
    uncommitted: View = field(default_factory=dict)
    committed_again: View = field(default_factory=dict)
    """after every agent was killed and started again"""
    uncommitted_again: View = field(default_factory=dict)
