"""Dependencies: what the broker needs from outside (stores, WAL, clock, other agents), in one value.

`agent.py` or a simulation opens and closes it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from streamhouse.broker.heartbeat import HeartbeatRunner
from streamhouse.broker.record_traces import RecordTraces
from streamhouse.broker.wal.base import Wal, WalRecovery
from streamhouse.clock import AgreedTime, Clock, Ids, StoreClock
from streamhouse.config import Settings
from streamhouse.config.fields import Address
from streamhouse.config.secrets import Secrets
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.format.batch import Buffer
from streamhouse.model.access import Caller
from streamhouse.model.external_commit import FreezeRequest, FrozenPartition, Outcome
from streamhouse.model.names import PartitionId, SessionId, TopicPartition
from streamhouse.model.transaction import Marker
from streamhouse.retry import Backoff, RetryDeadline
from streamhouse.stores.encryption.data_keys import DataKeys
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.signed_reads import ReadSigner
from streamhouse.stores.objects.watched import PutWatch

if TYPE_CHECKING:
    from streamhouse.model.fetch import FetchResult, OffsetResult, PartitionFetch
    from streamhouse.model.group_requests import DescribedGroup, ListedGroup, OffsetToCommit, Outcomes


class WalFactory(WalRecovery, Protocol):
    """Opens write-ahead logs, and finds those of dead sessions."""

    @property
    def kind(self) -> str:
        """The kind of its logs, "disk" or "object"; stored with each session, for its recovery."""
        ...

    async def open(self, session: SessionId, *, before_removal: Callable[[], Awaitable[None]] = ...) -> Wal:
        """Open the log of a new session. `before_removal` comes before a call to `truncate` removes something; what it
        was for stays when it raises, and is removed later."""
        ...


class AppendResult(NamedTuple):
    """Another agent's response to a batch; `append_time_ms` is -1 unless the topic uses log append time."""

    offset: int
    append_time_ms: int = -1


class AgentClient(Protocol):
    """Requests to other agents, over the Kafka protocol.

    Raises `Retriable` if the request may succeed later or at another agent, and `Rejected` if it would fail again. No
    call takes longer than `timeout_s`.
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
        """Append a batch to a partition that another agent leads; returns its offset once it is acknowledged.

        After a `Retriable` the batch may or may not have been stored. With `request_flush` the leader flushes at once.
        """
        ...

    async def fetch(
        self,
        at: Address,
        fetches: "Sequence[tuple[PartitionId, PartitionFetch]]",
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_s: float,
        timeout_s: float,
    ) -> "Sequence[FetchResult]":
        """`Broker.fetch` at another agent; when it is cancelled, no long poll remains there."""
        ...

    async def offset(
        self, at: Address, name: TopicPartition, timestamp_ms: int, *, committed: bool = False, timeout_s: float
    ) -> "OffsetResult | None":
        """The offset of a time, or an end of the log for `LATEST_TIME` and `EARLIEST_TIME`; with `committed`, as
        readers with read_committed see it."""
        ...

    async def list_groups(self, at: Address, *, timeout_s: float) -> "Sequence[ListedGroup]":
        """The groups that another agent coordinates."""
        ...

    async def describe_group(self, at: Address, group_id: str, *, timeout_s: float) -> "DescribedGroup": ...

    async def commit(
        self, at: Address, group_id: str, offsets: "Mapping[TopicPartition, OffsetToCommit]", *, timeout_s: float
    ) -> "Outcomes":
        """Commit offsets without being a member of the group."""
        ...

    async def delete_group(self, at: Address, group_id: str, *, timeout_s: float) -> None: ...

    async def mark(
        self, at: Address, marker: Marker, partitions: Sequence[PartitionId], *, timeout_s: float
    ) -> Mapping[PartitionId, StreamhouseError | None]:
        """`Transactions.mark` at another agent: None for each partition whose marker is durable there.

        Idempotent: a partition appends a marker once, however often and however late it is sent.
        """
        ...


class TokenVerifier(Protocol):
    """An OpenID provider whose bearer tokens are accepted."""

    async def verify(self, token: str) -> Caller:
        """The caller that a token identifies; raise `NotAuthenticated` if it isn't valid here and now."""
        ...

    async def run(self) -> None:
        """Keep the provider's keys up to date, until cancelled."""
        ...


class FreezeClient(Protocol):
    """Requests to the leaders of partitions that an external commit freezes or a job flushes; all errors are
    `Retriable`."""

    async def hold(self, at: Address, request: FreezeRequest, *, timeout_s: float) -> Sequence[FrozenPartition]:
        """`PartitionFreezes.hold` at another agent. After an error the freeze may exist: end it."""
        ...

    async def end_hold(self, at: Address, hold_id: str, outcome: Outcome, *, timeout_s: float) -> None: ...

    async def flush(self, at: Address, topic: str, *, timeout_s: float) -> None:
        """`TopicFlush.flush` at another agent, for the partitions that it leads."""
        ...


LATEST_TIME: Final = -1
EARLIEST_TIME: Final = -2


class NoAgents:
    """For agents that know no others: every call raises `Unavailable`."""

    def __getattr__(self, name: str) -> Any:
        async def unavailable(at: Address, *_: object, **__: object) -> Any:
            raise Unavailable(f"other agents can't be reached from here; address={at}")

        return unavailable


def no_freezes() -> FreezeClient:
    client: Any = NoAgents()
    freezes: FreezeClient = client
    return freezes


def no_agents() -> AgentClient:
    client: Any = NoAgents()
    agents: AgentClient = client
    return agents


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """`single_agent`: no other agent can use these stores (the data folder is locked), so all other sessions are dead.

    `puts` watches this agent's writes to `objects`.

    `heartbeats` run in a thread; None: on the event loop, with `metadata`.

    `wal_factory` opens this agent's WAL; `foreign_wals` are the kinds that it can recover. `store_url` is the URL of
    the object store for readers that need no agent; it never contains credentials. `data_keys`: of encryption at rest;
    None: there is none. `traces`: None if tracing is off. `signer` signs reads of `objects` for others; None: nothing
    can.
    """

    settings: Settings
    objects: ObjectStore
    metadata: MetadataStore
    wal_factory: WalFactory
    clock: Clock
    ids: Ids
    kafka: Address
    http: Address
    listeners: tuple[tuple[str, Address], ...] = ()
    single_agent: bool
    foreign_wals: Mapping[str, WalRecovery] = field(default_factory=dict)
    agents: AgentClient = field(default_factory=no_agents)
    freezes: FreezeClient = field(default_factory=no_freezes)
    heartbeats: HeartbeatRunner | None = None
    puts: PutWatch = field(default_factory=PutWatch)
    store_url: str = "memory:"
    store_time: StoreClock = field(default_factory=StoreClock)
    secrets: Secrets = field(default_factory=Secrets)
    issuer: TokenVerifier | None = None
    data_keys: DataKeys | None = None
    traces: RecordTraces | None = None
    signer: ReadSigner | None = None

    async def agreed_now_ms(self) -> int:
        """The time for deleting user data by age: the earlier of the agent's clock and the metadata store's, so that a
        clock that runs ahead deletes nothing. Reads the store's clock."""
        store_ms = await self.metadata.now_ms()
        self.store_time.note(store_ms, now=self.clock.monotonic())
        return self.agreed_time().earlier_ms

    def agreed_time(self) -> AgreedTime:
        """Both clocks without a call to the store: its clock is read when a session opens, and every few minutes."""
        return self.store_time.agreed(self.clock.now_ms(), now=self.clock.monotonic())

    def wals_of(self, kind: str) -> WalRecovery | None:
        """The recovery of this kind of logs; None if this agent can't read them."""
        return self.wal_factory if kind == self.wal_factory.kind else self.foreign_wals.get(kind)

    def backoff(self, *, first_s: float, max_s: float) -> Backoff:
        return Backoff(self.clock, self.ids, first_s=first_s, max_s=max_s)

    def deadline(self, timeout_s: float) -> RetryDeadline:
        return RetryDeadline(self.clock, self.ids, self.settings.peers, timeout_s)
