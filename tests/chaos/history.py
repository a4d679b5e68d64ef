"""History: what clients did and were told, what was done to the cluster, and what the log holds at the end.

Data path   clients, nemesis, watch -> **history** -> checker, figures, report
Owns        the nouns of a run; values that say which record they are and that nobody changed them
Leaves      judging them to `checker`

All times are seconds of the monotonic clock since the run began. `None` as the time of an answer: there was none.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from .transactions import Transactional

LIMIT_OF_NOTES: Final = 2000


class RecordId(NamedTuple):
    """Which record: its producer counts from 0 in each partition."""

    producer: str
    partition: int
    number: int

    def __str__(self) -> str:
        return f"{self.producer}/{self.partition}/{self.number}"

    def value(self) -> bytes:
        """The bytes of the record: its name and a filler that follows from it, of some length between 0 and 300."""
        name = str(self).encode()
        seed = zlib.crc32(name)
        return name + b"/" + (b"%08x" % seed) * (seed % 38)


def parse_value(value: bytes | None) -> RecordId | None:
    """Which record this is; None when it is none of ours, or was changed."""
    try:
        producer, partition, number, _ = (value or b"").decode().split("/")
        record = RecordId(producer, int(partition), int(number))
    except ValueError:
        return None
    return record if record.value() == value else None


@dataclass(slots=True, kw_only=True)
class Send:
    """One record on its way. `offset` without `error` is an acknowledgement."""

    record: RecordId
    sent_at: float
    answered_at: float | None = None
    offset: int | None = None
    error: str = ""
    by: str = ""
    """the agent that was asked, where that is known"""

    @property
    def acked(self) -> bool:
        return self.answered_at is not None and not self.error


class Stored(NamedTuple):
    """One record of the log; `record` is None when its bytes are none of ours."""

    offset: int
    record: RecordId | None


class Consumed(NamedTuple):
    at: float
    group: str
    member: str
    partition: int
    offset: int
    record: RecordId | None


@dataclass(slots=True, kw_only=True)
class Commit:
    """A commit of one partition. `accepted` is None as long as nobody knows."""

    group: str
    member: str
    partition: int
    offset: int
    sent_at: float
    answered_at: float | None = None
    accepted: bool | None = None


class Observed(NamedTuple):
    """What the cluster said is committed; -1 means nothing."""

    sent_at: float
    answered_at: float
    group: str
    partition: int
    offset: int


@dataclass(slots=True, kw_only=True)
class Fault:
    kind: str
    targets: Sequence[str]
    begun_at: float
    ended_at: float | None = None
    """when the cause is gone: the process runs again, the connection is back"""
    healed_at: float | None = None
    """when everybody it touched was ready again"""
    note: str = ""
    hits: int = 1
    """how often it was felt: connections cut or kept waiting, answers spoiled, times told wrongly; a process that was
    killed or paused felt it once"""


class Leader(NamedTuple):
    """From this time on the metadata store names this holder of a partition; an empty agent means nobody."""

    at: float
    partition: int
    agent: str
    epoch: int


class Life(NamedTuple):
    """From this time on a process is `starting`, `ready`, `paused`, `waking`, `stopping` or `down`."""

    at: float
    agent: str
    state: str


class Note(NamedTuple):
    at: float
    who: str
    text: str


Log = Mapping[int, Sequence[Stored]]


@dataclass(slots=True, kw_only=True)
class History:
    seed: int
    minutes: float
    lease_ttl_s: float
    partitions: int
    profile: str = "everything"
    min_acks: int = 0
    min_faults: int = 0
    """a run with fewer is no pass"""
    groups: list[str] = field(default_factory=list)
    """that must read as long as something is written"""
    followers: list[str] = field(default_factory=list)
    """the same of readers of committed records"""
    agents: list[str] = field(default_factory=list)
    idempotent: list[str] = field(default_factory=list)
    """producers whose records are stored once and in order"""
    unordered: list[str] = field(default_factory=list)
    """plain producers that may have several requests under way in a partition"""
    stubborn: list[str] = field(default_factory=list)
    """those of them that talk to one agent only, and wait for nobody"""
    sends: list[Send] = field(default_factory=list)
    consumed: list[Consumed] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    leaders: list[Leader] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    troubles: list[Note] = field(default_factory=list)
    """what a run can see by itself that must not happen: a client that gave up, a process that ended by itself"""
    healed_at: float | None = None
    """when the faults were over and every agent was ready"""
    ended_at: float = 0.0
    log: dict[int, list[Stored]] = field(default_factory=dict)
    """read from zero when all was quiet"""
    log_again: dict[int, list[Stored]] = field(default_factory=dict)
    """read once more, after every agent was killed and started again"""
    transactional: Transactional = field(default_factory=Transactional)
    exchanged: "History | None" = None
    """what happened when the database was exchanged, after all that"""

    def note(self, at: float, who: str, text: str) -> None:
        if len(self.notes) < LIMIT_OF_NOTES:
            self.notes.append(Note(at, who, text))

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(self))


def load_history(path: Path) -> History:
    return msgspec.json.decode(path.read_bytes(), type=History)
