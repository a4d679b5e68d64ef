"""SqlTransactionStore: the calls for transactions of producers over an SQL engine.

Data path   broker.transactions, broker.groups, broker.reading -> **producing store** -> one transaction each
Owns        the connection between the calls and their transactions
Leaves      what happens in them to `transactions.producing`, running them to the engines
"""

from collections.abc import Mapping, Sequence, Set
from functools import partial

from streamhouse.model.group import GroupOffset
from streamhouse.model.names import Epoch, PartitionId, SessionId
from streamhouse.model.transaction import (
    AbortedTransaction,
    PendingOffset,
    ProducerAsked,
    StoredTransaction,
    TransactionCall,
)
from streamhouse.stores.metadata.engine import CountedEngine
from streamhouse.stores.metadata.producing import OffsetsAsked
from streamhouse.stores.metadata.transactions import producing


class SqlTransactionStore:
    """A `TransactionStore` over an SQL engine."""

    _engine: CountedEngine

    async def init_producer(self, asked: ProducerAsked, *, by: SessionId | None = None) -> StoredTransaction:
        return await self._engine.write(partial(producing.init_producer, asked=asked, by=by))

    async def enlist(
        self, call: TransactionCall, partitions: Sequence[PartitionId], *, limit: int
    ) -> StoredTransaction:
        return await self._engine.write(partial(producing.enlist, call=call, partitions=partitions, limit=limit))

    async def find_transaction(self, transactional_id: str) -> StoredTransaction | None:
        return await self._engine.look(partial(producing.find_transaction, transactional_id=transactional_id))

    async def transaction_of(self, producer_id: int) -> StoredTransaction | None:
        return await self._engine.look(partial(producing.transaction_of_producer, producer_id=producer_id))

    async def end_transaction(
        self, call: TransactionCall, *, commit: bool, bump: bool, fresh_id: int, by: SessionId | None = None
    ) -> StoredTransaction:
        work = partial(producing.end_transaction, call=call, commit=commit, bump=bump, fresh_id=fresh_id, by=by)
        return await self._engine.write(work)

    async def expire_transaction(self, transactional_id: str, number: int) -> StoredTransaction | None:
        work = partial(producing.expire_transaction, transactional_id=transactional_id, number=number)
        return await self._engine.write(work)

    async def complete_transaction(self, transactional_id: str, number: int) -> None:
        work = partial(producing.complete_transaction, transactional_id=transactional_id, number=number)
        await self._engine.write(work)

    async def due_transactions(
        self, *, prepared_before_ms: int, limit: int, after: StoredTransaction | None = None
    ) -> Sequence[StoredTransaction]:
        work = partial(producing.due_transactions, prepared_before_ms=prepared_before_ms, limit=limit, after=after)
        return await self._engine.read(work)

    async def transactions(self, *, after: str | None, limit: int) -> Sequence[StoredTransaction]:
        return await self._engine.look(partial(producing.list_transactions, after=after, limit=limit))

    async def forget_transactions(self, older_than_ms: int, limit: int) -> int:
        work = partial(producing.forget_transactions, older_than_ms=older_than_ms, limit=limit)
        return await self._engine.write(work)

    async def put_pending_offsets(
        self,
        session_id: SessionId,
        shard: PartitionId,
        epoch: Epoch,
        call: TransactionCall,
        group_id: str,
        offsets: Sequence[PendingOffset],
        *,
        begins: bool,
    ) -> None:
        work = partial(
            producing.put_pending_offsets,
            session_id=session_id,
            shard=shard,
            epoch=epoch,
            call=call,
            group_id=group_id,
            offsets=offsets,
            begins=begins,
        )
        await self._engine.write(work)

    async def pending_offsets(self, asked: Sequence[OffsetsAsked]) -> Set[GroupOffset]:
        return await self._engine.read(partial(producing.pending_offsets, asked=asked))

    async def aborted(
        self, wanted: Mapping[PartitionId, int], *, limit: int
    ) -> Mapping[PartitionId, Sequence[AbortedTransaction]]:
        return await self._engine.look(partial(producing.aborted, wanted=wanted, limit=limit)) if wanted else {}

    async def forget_aborted(self, partition: PartitionId, last_offsets: Sequence[int]) -> None:
        await self._engine.write(partial(producing.forget_aborted, partition=partition, last_offsets=last_offsets))
