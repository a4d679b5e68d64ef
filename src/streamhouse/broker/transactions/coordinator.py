"""TransactionCoordinator: the public calls of transactional producers and administrators.

Data path   wire -> **coordinator** -> metadata store (decides), completion (markers)
Owns        the public calls, limits on names and timeouts, building and running the parts
Leaves      each change of a row to the metadata store; codes and versions to `wire`; offsets to `groups`

Nothing is cached: every call is one guarded change of a row, so any agent may serve it. An agent that dies in the
middle leaves a row from which another agent completes the transaction.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from streamhouse.broker.context import BrokerContext
from streamhouse.broker.transactions.checks import (
    check_id,
    check_timeout,
    describe_rejection,
    is_listed,
    needs_fresh_id,
    shard,
)
from streamhouse.broker.transactions.completion import TransactionCompletion
from streamhouse.broker.transactions.markers import MarkerWriter, Outcomes
from streamhouse.broker.transactions.sweeper import HangingTransactions, TransactionSweeper
from streamhouse.clock import wait_first
from streamhouse.errors import (
    ConcurrentTransactions,
    InvalidTopicName,
    SessionLost,
    StreamhouseError,
    TransactionalIdNotFound,
    TransactionUnavailable,
    Unavailable,
)
from streamhouse.model.cluster import Session
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import PartitionId, SessionId, TopicPartition
from streamhouse.model.transaction import (
    InitProducerRequest,
    Marker,
    ProducerIdentity,
    StoredTransaction,
    TransactionCall,
    TransactionState,
)

PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPage:
    """Some transactions by transactional id, of the whole cluster, and the id after which the next page starts."""

    transactions: Sequence[StoredTransaction]
    next: str | None
    now_ms: int  # by the clock that they began by


class TransactionCoordinator:
    def __init__(self, context: BrokerContext, *, allocate: Callable[[], Awaitable[int]]) -> None:
        """`allocate` returns a producer id that was never used."""
        dependencies, catalog, cluster, open_partitions = (
            context.dependencies,
            context.catalog,
            context.cluster,
            context.open_partitions,
        )
        current_session = context.session_manager.current
        self._dependencies = dependencies
        self._settings = dependencies.settings.transactions
        self._metadata = dependencies.metadata
        self._catalog = catalog
        self._cluster = cluster
        self._current_session = current_session
        self._allocate = allocate
        self.marker_writer = MarkerWriter(
            dependencies,
            open_log=open_partitions.open_log,
            open_many=open_partitions.open_many,
            current_session=current_session,
            budget=context.budget,
        )
        self.endings = TransactionCompletion(
            dependencies,
            catalog=catalog,
            cluster=cluster,
            leaders=open_partitions.leaders,
            marker_writer=self.marker_writer,
            own=lambda: current_session().session,
        )
        self.hanging = HangingTransactions(
            dependencies, current_session=current_session, marker_writer=self.marker_writer
        )
        self.watch = TransactionSweeper(
            dependencies,
            endings=self.endings,
            hanging=self.hanging,
            is_ours=self._is_ours,
            forgets=lambda: cluster.owns_task("transactions"),
        )

    def __repr__(self) -> str:
        return f"<TransactionCoordinator {self.endings!r} {self.marker_writer!r} {self.watch!r}>"

    # --- life

    async def run(self) -> None:
        """Complete decided transactions and abort overdue ones, until cancelled."""
        await self.endings.run(self.watch.run)

    async def coordinator_of(self, transactional_id: str) -> Session:
        """The session that clients should use; any other agent would serve them as well."""
        check_id(transactional_id, self._settings)
        if self._dependencies.single_agent:
            return self._current_session().session
        leader = self._cluster.preferred_leader(shard(transactional_id, self._settings))
        if leader is None:
            raise TransactionUnavailable(transactional_id, why="no agent takes transactions now")
        return leader

    def _is_ours(self, transactional_id: str) -> bool:
        return self._dependencies.single_agent or self._cluster.is_ours(shard(transactional_id, self._settings))

    @property
    def _by(self) -> SessionId | None:
        """The session that must be valid for the change. A paused agent that resumes may still hold calls that
        producers have repeated at another agent: such an old end of a transaction must not end the next one."""
        return None if self._dependencies.single_agent else self._current_session().session.session_id

    # --- calls of producers

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Become the only producer of this transactional id: the previous one is fenced, and its open transaction is
        aborted. Raises `ConcurrentTransactions` when that takes too long: a retry may succeed soon."""
        check_id(transactional_id, self._settings)
        check_timeout(timeout_ms, self._settings)
        deadline = self._dependencies.deadline(self._settings.end_wait_s)
        with coordinator_errors(transactional_id):
            request = InitProducerRequest(
                transactional_id=transactional_id, timeout_ms=timeout_ms, fresh_id=await self._allocate(), known=known
            )
            while True:
                row = await self._metadata.init_producer(request, by=self._by)
                if not row.state.is_prepared:
                    return row.producer
                request = replace(request, after=row.producer)
                if not await self._ended(row, wait_s=deadline.left_s):
                    await deadline.wait_to_retry(ConcurrentTransactions(transactional_id))

    async def add_partitions(self, call: TransactionCall, names: Sequence[TopicPartition]) -> Outcomes:
        """Add partitions to the transaction, which starts with the first of them. If one of them is invalid, its
        outcome is an error and none is added."""
        check_id(call.transactional_id, self._settings)
        with coordinator_errors(call.transactional_id):
            resolved = {name: await self._resolve(name) for name in names}
            partitions = [each for each in resolved.values() if isinstance(each, PartitionId)]
            if len(partitions) == len(resolved):
                await self._enlist(call, partitions)
        return {name: each if isinstance(each, StreamhouseError) else None for name, each in resolved.items()}

    async def add_offsets(self, call: TransactionCall, group_id: str) -> None:
        """Start the transaction for a group's offsets, which have rows of their own."""
        check_id(call.transactional_id, self._settings)
        with coordinator_errors(call.transactional_id):
            await self._enlist(call, ())

    async def end(self, call: TransactionCall, *, commit: bool, bump: bool) -> ProducerIdentity:
        """Commit or abort, which is durable when this returns, and wait a while for the markers. Returns the producer's
        id and epoch for its next transaction."""
        check_id(call.transactional_id, self._settings)
        with coordinator_errors(call.transactional_id):
            fresh_id = await self._allocate() if needs_fresh_id(call) else -1
            decided = await self._metadata.end_transaction(
                call, commit=commit, bump=bump, fresh_id=fresh_id, by=self._by
            )
        if decided.state.is_prepared:
            await self._ended(decided, wait_s=self._settings.end_wait_s)
        return decided.producer

    async def _ended(self, decided: StoredTransaction, *, wait_s: float) -> bool:
        """Whether a decided transaction was completed in time; otherwise its completion continues."""
        ending = self.endings.begin(decided)
        if ending is None:
            return False
        await wait_first(ending, self._dependencies.clock.sleep(wait_s))
        return ending.done() and not ending.cancelled() and ending.exception() is None and ending.result()

    async def _enlist(self, call: TransactionCall, partitions: Sequence[PartitionId]) -> None:
        await self._metadata.add_transaction_partitions(call, partitions, limit=self._settings.max_partitions)

    async def _resolve(self, name: TopicPartition) -> PartitionId | StreamhouseError:
        if name.topic == OFFSETS_TOPIC:
            return InvalidTopicName(f"an internal topic can't be written to by clients; name={name.topic}")
        return await self._catalog.find_partition(name)

    # --- for the leaders of partitions

    async def verify(
        self, partitions: Sequence[PartitionId], transactional_id: str, producer: ProducerIdentity, enlists: bool
    ) -> None:
        """Raise unless the producer has an ongoing transaction with all of the partitions; with `enlists` they are
        added to it."""
        check_id(transactional_id, self._settings)
        call = TransactionCall(transactional_id, producer)
        if enlists:
            await self._enlist(call, partitions)
        elif (
            error := describe_rejection(await self._metadata.find_transaction(transactional_id), call, partitions)
        ) is not None:
            raise error

    async def mark(self, marker: Marker, names: Sequence[TopicPartition], *, only_due: bool = False) -> Outcomes:
        """Write markers into partitions that this agent leads; durable when it returns. With `only_due`, markers of a
        completed transaction are rejected: agents may be late, administrators write them on purpose."""
        return await self.marker_writer.mark(marker, names, only_due=only_due)

    # --- administration

    async def describe(self, transactional_ids: Collection[str]) -> Mapping[str, StoredTransaction | StreamhouseError]:
        results: dict[str, StoredTransaction | StreamhouseError] = {}
        for transactional_id in dict.fromkeys(transactional_ids):
            try:
                results[transactional_id] = await self._describe(transactional_id)
            except StreamhouseError as error:
                results[transactional_id] = error
        return results

    async def _describe(self, transactional_id: str) -> StoredTransaction:
        check_id(transactional_id, self._settings)
        with coordinator_errors(transactional_id):
            row = await self._metadata.find_transaction(transactional_id)
        if row is None:
            raise TransactionalIdNotFound(transactional_id)
        return row

    async def list(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int = -1,
    ) -> Sequence[StoredTransaction]:
        """The transactions that this agent coordinates, by transactional id, up to `max_listed`; an empty filter
        matches all."""
        listed: list[StoredTransaction] = []
        after: str | None = None
        with coordinator_errors(""):
            now_ms = await self._metadata.now_ms()
            while len(listed) < self._settings.max_listed:
                page = await self._metadata.transactions(after=after, limit=PAGE)
                listed += [
                    each
                    for each in page
                    if self._is_ours(each.transactional_id)
                    and is_listed(
                        each,
                        states=states,
                        producer_ids=producer_ids,
                        min_duration_ms=min_duration_ms,
                        now_ms=now_ms,
                    )
                ]
                if len(page) < PAGE:
                    break
                after = page[-1].transactional_id
        return listed[: self._settings.max_listed]

    async def page(
        self, *, after: str | None, limit: int, states: Collection[TransactionState] = (), min_duration_ms: int = -1
    ) -> TransactionPage:
        """Transactions of all agents. At most `max_listed` rows are read, so a page may have fewer than `limit`."""
        matches: list[StoredTransaction] = []
        rows_read, is_over = 0, False
        with coordinator_errors(""):
            now_ms = await self._metadata.now_ms()
            while len(matches) < limit and rows_read < self._settings.max_listed and not is_over:
                rows = await self._metadata.transactions(after=after, limit=PAGE)
                is_over, rows_read = len(rows) < PAGE, rows_read + len(rows)
                after = rows[-1].transactional_id if rows else after
                matches += [
                    each
                    for each in rows
                    if is_listed(each, states=states, producer_ids=(), min_duration_ms=min_duration_ms, now_ms=now_ms)
                ]
        if len(matches) > limit:
            return TransactionPage(
                transactions=matches[:limit], next=matches[limit - 1].transactional_id, now_ms=now_ms
            )
        return TransactionPage(transactions=matches, next=None if is_over else after, now_ms=now_ms)

    async def now_ms(self) -> int:
        """The time by the clock that transactions begin and end by."""
        return await self._metadata.now_ms()

    async def fence(self, transactional_id: str) -> StoredTransaction:
        """Fence the producer of a transactional id: its open transaction is aborted, a decided one is completed.
        Returns the row as it was before."""
        before = await self._describe(transactional_id)
        longest_ms = round(self._settings.max_timeout_s * 1000)  # it may have been lowered since
        await self.init_producer(transactional_id, min(before.timeout_ms, longest_ms))
        return before


@contextmanager
def coordinator_errors(transactional_id: str) -> Iterator[None]:
    """An unavailable store is an unavailable coordinator: clients look it up again and retry."""
    try:
        yield
    except (Unavailable, SessionLost) as error:
        raise TransactionUnavailable(transactional_id, why=str(error)) from None
