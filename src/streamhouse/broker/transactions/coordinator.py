"""Transactions: what transactional producers may ask; the one door for every protocol.

Data path   wire -> **transactions** -> metadata store (decides), ending (markers)
Owns        the public calls, which names and timeouts are accepted, the life of the parts
Leaves      each change of a row to the metadata store, codes and versions to the wires, offsets to `groups`

Nothing is cached: every call is one guarded change of a row, so any agent may serve it, and whoever is killed in the
middle leaves a row that says what is still to do.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from streamhouse.broker.cluster.cluster import wait_either
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
    """Some transactions by transactional id, of the whole cluster, and the id behind which the next page begins."""

    transactions: Sequence[StoredTransaction]
    next: str | None
    now_ms: int  # by the clock that they began by


class TransactionCoordinator:
    def __init__(self, context: BrokerContext, *, allocate: Callable[[], Awaitable[int]]) -> None:
        """`allocate` gives a producer id that nobody ever had."""
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
        self.marking = MarkerWriter(
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
            marking=self.marking,
            own=lambda: current_session().session,
        )
        self.strays = HangingTransactions(dependencies, current_session=current_session, marking=self.marking)
        self.watch = TransactionSweeper(
            dependencies,
            endings=self.endings,
            strays=self.strays,
            is_ours=self._is_ours,
            forgets=lambda: cluster.does("transactions"),
        )

    def __repr__(self) -> str:
        return f"<TransactionCoordinator {self.endings!r} {self.marking!r} {self.watch!r}>"

    # --- life

    async def run(self) -> None:
        """End what is decided and abort what took too long, until cancelled; then others find what is left."""
        await self.endings.run(self.watch.run)

    async def coordinator_of(self, transactional_id: str) -> Session:
        """The session that clients should ask. Any other would serve them as well."""
        check_id(transactional_id, self._settings)
        if self._dependencies.alone:
            return self._current_session().session
        found = self._cluster.preferred_leader(shard(transactional_id, self._settings))
        if found is None:
            raise TransactionUnavailable(transactional_id, why="no agent takes transactions now")
        return found

    def _is_ours(self, transactional_id: str) -> bool:
        return self._dependencies.alone or self._cluster.is_ours(shard(transactional_id, self._settings))

    @property
    def _by(self) -> SessionId | None:
        """Who is asked. A paused agent that wakes up finds calls which producers have long made to another one: the end
        of a transaction then, taken for the end of the next, would tear that one apart."""
        return None if self._dependencies.alone else self._current_session().session.session_id

    # --- calls of producers

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Be the only producer of this transactional id: whoever was it before is fenced, and what it left open is
        aborted. Raises `ConcurrentTransactions` when that takes too long: the same call may succeed soon."""
        check_id(transactional_id, self._settings)
        check_timeout(timeout_ms, self._settings)
        deadline = self._dependencies.deadline(self._settings.end_wait_s)
        with coordinator_errors(transactional_id):
            asked = InitProducerRequest(
                transactional_id=transactional_id, timeout_ms=timeout_ms, fresh_id=await self._allocate(), known=known
            )
            while True:
                found = await self._metadata.init_producer(asked, by=self._by)
                if not found.state.is_prepared:
                    return found.producer
                asked = replace(asked, after=found.producer)
                if not await self._ended(found, wait_s=deadline.left_s):
                    await deadline.wait_to_retry(ConcurrentTransactions(transactional_id))

    async def add_partitions(self, call: TransactionCall, names: Sequence[TopicPartition]) -> Outcomes:
        """Have partitions take part in the transaction, which begins with the first of them. If one of them can't, the
        answer says so and none was added."""
        check_id(call.transactional_id, self._settings)
        with coordinator_errors(call.transactional_id):
            places = {name: await self._place(name) for name in names}
            partitions = [place for place in places.values() if isinstance(place, PartitionId)]
            if len(partitions) == len(places):
                await self._enlist(call, partitions)
        return {name: place if isinstance(place, StreamhouseError) else None for name, place in places.items()}

    async def add_offsets(self, call: TransactionCall, group_id: str) -> None:
        """Have a group's offsets take part in the transaction. They are rows beside its own: it only has to begin."""
        check_id(call.transactional_id, self._settings)
        with coordinator_errors(call.transactional_id):
            await self._enlist(call, ())

    async def end(self, call: TransactionCall, *, commit: bool, bump: bool) -> ProducerIdentity:
        """Decide, which holds when this returns, and wait a while for the markers. Returns who the producer is in its
        next transaction."""
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
        """Whether a decided transaction was over in time; its end goes on if not."""
        ending = self.endings.begin(decided)
        if ending is None:
            return False
        await wait_either(ending, self._dependencies.clock.sleep(wait_s))
        return ending.done() and not ending.cancelled() and ending.exception() is None and ending.result()

    async def _enlist(self, call: TransactionCall, partitions: Sequence[PartitionId]) -> None:
        await self._metadata.add_transaction_partitions(call, partitions, limit=self._settings.max_partitions)

    async def _place(self, name: TopicPartition) -> PartitionId | StreamhouseError:
        if name.topic == OFFSETS_TOPIC:
            return InvalidTopicName(f"an internal topic can't be written to by clients; name={name.topic}")
        return await self._catalog.find_partition(name)

    # --- for the leaders of partitions

    async def verify(
        self, partitions: Sequence[PartitionId], transactional_id: str, producer: ProducerIdentity, enlists: bool
    ) -> None:
        """Raise unless the producer has a transaction under way that all of the partitions take part in; with `enlists`
        they do from now on."""
        check_id(transactional_id, self._settings)
        call = TransactionCall(transactional_id, producer)
        if enlists:
            await self._enlist(call, partitions)
        elif (
            error := describe_rejection(await self._metadata.find_transaction(transactional_id), call, partitions)
        ) is not None:
            raise error

    async def mark(self, marker: Marker, names: Sequence[TopicPartition], *, only_due: bool = False) -> Outcomes:
        """Write the end of a transaction into partitions that this agent leads; durable when it returns. With
        `only_due`, not if the transaction is over: agents may come late, administrators know what they do."""
        return await self.marking.mark(marker, names, only_due=only_due)

    # --- topic_admin

    async def describe(self, transactional_ids: Collection[str]) -> Mapping[str, StoredTransaction | StreamhouseError]:
        answers: dict[str, StoredTransaction | StreamhouseError] = {}
        for transactional_id in dict.fromkeys(transactional_ids):
            try:
                answers[transactional_id] = await self._describe(transactional_id)
            except StreamhouseError as error:
                answers[transactional_id] = error
        return answers

    async def _describe(self, transactional_id: str) -> StoredTransaction:
        check_id(transactional_id, self._settings)
        with coordinator_errors(transactional_id):
            found = await self._metadata.find_transaction(transactional_id)
        if found is None:
            raise TransactionalIdNotFound(transactional_id)
        return found

    async def list(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int = -1,
    ) -> Sequence[StoredTransaction]:
        """Those that this agent coordinates, by transactional id, up to `max_listed`; empty filters let everything
        through."""
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
        """Those of all agents. At most `max_listed` are looked at, so that a page may have fewer than there are."""
        found: list[StoredTransaction] = []
        looked_at, is_over = 0, False
        with coordinator_errors(""):
            now_ms = await self._metadata.now_ms()
            while len(found) < limit and looked_at < self._settings.max_listed and not is_over:
                rows = await self._metadata.transactions(after=after, limit=PAGE)
                is_over, looked_at = len(rows) < PAGE, looked_at + len(rows)
                after = rows[-1].transactional_id if rows else after
                found += [
                    each
                    for each in rows
                    if is_listed(each, states=states, producer_ids=(), min_duration_ms=min_duration_ms, now_ms=now_ms)
                ]
        if len(found) > limit:
            return TransactionPage(transactions=found[:limit], next=found[limit - 1].transactional_id, now_ms=now_ms)
        return TransactionPage(transactions=found, next=None if is_over else after, now_ms=now_ms)

    async def now_ms(self) -> int:
        """The time by the clock that transactions begin and end by."""
        return await self._metadata.now_ms()

    async def fence(self, transactional_id: str) -> StoredTransaction:
        """Replace the producer of a transactional id by nobody: whoever it is may write nothing more, what it has open
        is aborted, what is decided is ended as it was decided. Returns what there was before."""
        found = await self._describe(transactional_id)
        longest_ms = round(self._settings.max_timeout_s * 1000)  # it may have been lowered since
        await self.init_producer(transactional_id, min(found.timeout_ms, longest_ms))
        return found


@contextmanager
def coordinator_errors(transactional_id: str) -> Iterator[None]:
    """A store that doesn't answer is a coordinator that can't: clients look for one again and ask once more."""
    try:
        yield
    except (Unavailable, SessionLost) as error:
        raise TransactionUnavailable(transactional_id, why=str(error)) from None
