"""Dependencies: everything outside the broker that it needs (stores, WAL, clock, other agents), in one value.

`agent.py` or a simulation opens and closes what is in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from streamhouse.broker.cluster.store_clock import AgreedTime, StoreClock
from streamhouse.broker.session.heartbeat import HeartbeatRunner
from streamhouse.broker.wal.base import Wal, WalRecovery
from streamhouse.clock import Clock, Ids
from streamhouse.config import Settings
from streamhouse.config.fields import Address
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.format.batch import Buffer
from streamhouse.model.external_commit import FreezeRequest, FrozenPartition, Outcome
from streamhouse.model.group import CommittedOffset
from streamhouse.model.names import PartitionId, SessionId, TopicPartition
from streamhouse.model.transaction import Marker
from streamhouse.retry import RetryDeadline
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.watched import PutWatch

if TYPE_CHECKING:  # they are given dependencies themselves
    from streamhouse.model.fetch import FetchResult, OffsetResult, PartitionFetch
    from streamhouse.model.group_requests import DescribedGroup, ListedGroup, OffsetToCommit, Outcomes


class WalFactory(WalRecovery, Protocol):
    """Where write-ahead logs are made, and where those of dead sessions are found."""

    @property
    def kind(self) -> str:
        """Where they are: "disk" or "object"; written down with each session, for whoever must recover it."""
        ...

    async def open(self, session: SessionId) -> Wal:
        """Begin the log of a new session."""
        ...


class AppendResult(NamedTuple):
    """What another agent says of a batch; `append_time_ms` is -1 where its records have times of their own."""

    offset: int
    append_time_ms: int = -1


class AgentClient(Protocol):
    """The other agents, as any client reaches them.

    What may be tried again, there or elsewhere, is `Retriable`; what would be refused again is `Rejected`. Nothing
    waits longer than `timeout_s`, however long another agent is silent.
    """

    async def append(
        self,
        at: Address,
        partition: PartitionId,
        batch: Buffer,
        *,
        timeout_s: float | None = None,
        request_flush: bool = False,
    ) -> AppendResult:
        """Append a batch where another agent leads; returns its offset once it is acknowledged.

        After a `Retriable` the batch may or may not have been stored. With `request_flush` the leader flushes at once.
        """
        ...

    async def fetch(
        self,
        at: Address,
        wanted: "Sequence[tuple[PartitionId, PartitionFetch]]",
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_s: float,
        timeout_s: float,
    ) -> "Sequence[FetchResult]":
        """`Broker.fetch` at another agent; cancelled, it leaves nothing waiting there."""
        ...

    async def offset(
        self, at: Address, name: TopicPartition, timestamp_ms: int, *, committed: bool = False, timeout_s: float
    ) -> "OffsetResult | None":
        """The offset of a time, or with `LATEST_TIME` and `EARLIEST_TIME` an end of the log; as those see it who read
        committed records, if asked for."""
        ...

    async def list_groups(self, at: Address, *, timeout_s: float) -> "Sequence[ListedGroup]":
        """The groups that another agent coordinates."""
        ...

    async def describe_group(self, at: Address, group_id: str, *, timeout_s: float) -> "DescribedGroup": ...

    async def committed(
        self, at: Address, group_id: str, *, timeout_s: float
    ) -> Mapping[TopicPartition, CommittedOffset]: ...

    async def commit(
        self, at: Address, group_id: str, offsets: "Mapping[TopicPartition, OffsetToCommit]", *, timeout_s: float
    ) -> "Outcomes":
        """Commit from outside the group, which may have no members."""
        ...

    async def delete_group(self, at: Address, group_id: str, *, timeout_s: float) -> None: ...

    async def mark(
        self, at: Address, marker: Marker, partitions: Sequence[PartitionId], *, timeout_s: float
    ) -> Mapping[PartitionId, StreamhouseError | None]:
        """`Transactions.mark` at another agent: None for each partition whose marker is durable there.

        However often a marker is sent, and however late it arrives, its partition takes it once.
        """
        ...


class FreezeClient(Protocol):
    """The other agents, as leaders of what a commit or a job is about; whatever goes wrong is `Retriable`."""

    async def hold(self, at: Address, asked: FreezeRequest, *, timeout_s: float) -> Sequence[FrozenPartition]:
        """`Holds.hold` at another agent. After an error the hold may be there, or not: end it."""
        ...

    async def end_hold(self, at: Address, hold_id: str, outcome: Outcome, *, timeout_s: float) -> None: ...

    async def flush(self, at: Address, topic: str, *, timeout_s: float) -> None:
        """`Flushing.flush` at another agent, of what it leads itself."""
        ...


LATEST_TIME: Final = -1
EARLIEST_TIME: Final = -2


class NoAgents:
    """For whoever has none."""

    def __getattr__(self, name: str) -> Any:
        async def nobody(at: Address, *_: object, **__: object) -> Any:
            raise Unavailable(f"other agents can't be reached from here; address={at}")

        return nobody


def no_freezes() -> FreezeClient:
    holders: Any = NoAgents()
    found: FreezeClient = holders
    return found


def no_agents() -> AgentClient:
    peers: Any = NoAgents()
    found: AgentClient = peers
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """`alone`: nobody else can use these stores (we hold the data folder's lock), so every other session is dead.

    `puts` is what is known of this agent's writes to `objects`.

    `heartbeats` run beside the event loop; None: on it, with `metadata`.

    `wals` is where this agent writes; `foreign_wals` are further ones that it can recover, by kind. `store_url` names
    the object store for readers that need no agent; it never has credentials.
    """

    settings: Settings
    objects: ObjectStore
    metadata: MetadataStore
    wals: WalFactory
    clock: Clock
    ids: Ids
    kafka: Address
    http: Address
    alone: bool
    foreign_wals: Mapping[str, WalRecovery] = field(default_factory=dict)
    peers: AgentClient = field(default_factory=no_agents)
    holders: FreezeClient = field(default_factory=no_freezes)
    heartbeats: HeartbeatRunner | None = None
    puts: PutWatch = field(default_factory=PutWatch)
    store_url: str = "memory:"
    store_time: StoreClock = field(default_factory=StoreClock)

    async def agreed_now_ms(self) -> int:
        """For whoever deletes by age what users wrote: the earlier of the agent's clock and the metadata store's, so
        that one of them that runs ahead deletes nothing. Reads the store's clock."""
        store_ms = await self.metadata.now_ms()
        self.store_time.note(store_ms, now=self.clock.monotonic())
        return self.agreed_time().earlier_ms

    def agreed_time(self) -> AgreedTime:
        """Both clocks, without asking the store: its clock was read when the session began, and every few minutes."""
        return self.store_time.agreed(self.clock.now_ms(), now=self.clock.monotonic())

    def wals_of(self, kind: str) -> WalRecovery | None:
        """Where logs of this kind can be read; None when this agent can't."""
        return self.wals if kind == self.wals.kind else self.foreign_wals.get(kind)

    def deadline(self, timeout_s: float) -> RetryDeadline:
        return RetryDeadline(self.clock, self.ids, self.settings.peers, timeout_s)
