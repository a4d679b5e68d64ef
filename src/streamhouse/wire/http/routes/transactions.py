"""Transactions: what transactional producers are doing, and ending what one of them left open; by any agent.

GET  /v1/transactions?state=…&open_for_ms=…&limit=…&cursor=…   by transactional id, page by page
GET  /v1/transactions/{transactional_id}                       one of them
POST /v1/transactions/{transactional_id}/abort  {}             its producer is fenced, what it has open is aborted
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.errors import StreamhouseError
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.transaction import StoredTransaction, TransactionState
from streamhouse.wire.http.operations import (
    DEFAULT_LIMIT,
    MAX_BODY_BYTES,
    MAX_LIMIT,
    MAX_LONG,
    Call,
    NoQuery,
    Operation,
    json_response,
)

TAG: Final = "transactions"
ONE: Final = "/v1/transactions/{transactional_id:path}"


class EnlistedPartition(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int


class TransactionView(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id, its producer, and its transaction that is under way or was the last.

    `started_at_ms`, `open_for_ms` and partitions are those of one that is under way or being ended, else null and none.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: TransactionState
    timeout_ms: int
    started_at_ms: int | None
    open_for_ms: int | None
    changed_at_ms: int
    partitions: list[EnlistedPartition]


class TransactionViews(msgspec.Struct, frozen=True, kw_only=True):
    """`cursor` is for the next page, null when there is none; a page may have fewer than the limit, or none."""

    transactions: list[TransactionView]
    cursor: str | None


class Abort(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing to say; JSON because a page of another site can't make a browser send it."""


class AbortDone(msgspec.Struct, frozen=True, kw_only=True):
    """`before` is what there was, `after` what there is: another epoch, which nobody has."""

    aborted: bool
    before: TransactionView
    after: TransactionView


class TransactionsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: Annotated[TransactionState | None, Meta(description="only those in this state")] = None
    open_for_ms: Annotated[
        int, Meta(description="only those that have been open, or being ended, for longer; -1: any", ge=-1, le=MAX_LONG)
    ] = -1
    limit: Annotated[int, Meta(description="transactions in the answer, at most", ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    cursor: Annotated[str, Meta(description="where the answer before stopped, as it says itself")] | None = None


class TransactionCalls:
    """What is asked of transactions, answered by the broker; every agent knows all of them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def list_transactions(self, call: Call[TransactionsQuery, None]) -> Response:
        asked = call.query
        page = await self._broker.transactions.page(
            after=asked.cursor,
            limit=asked.limit,
            states=[asked.state] if asked.state is not None else (),
            min_duration_ms=asked.open_for_ms,
        )
        views = [await self._view(each, now_ms=page.now_ms) for each in page.transactions]
        return json_response(TransactionViews(transactions=views, cursor=page.next))

    async def get_transaction(self, call: Call[NoQuery, None]) -> Response:
        return json_response(await self._described(call.path["transactional_id"]))

    async def abort_transaction(self, call: Call[NoQuery, Abort]) -> Response:
        transactional_id = call.path["transactional_id"]
        now_ms = await self._broker.transactions.now_ms()
        before = await self._view(await self._broker.transactions.fence(transactional_id), now_ms=now_ms)
        aborted = before.state in (TransactionState.ONGOING, TransactionState.PREPARE_ABORT)
        return json_response(AbortDone(aborted=aborted, before=before, after=await self._described(transactional_id)))

    async def _described(self, transactional_id: str) -> TransactionView:
        now_ms = await self._broker.transactions.now_ms()
        found = (await self._broker.transactions.describe([transactional_id]))[transactional_id]
        if isinstance(found, StreamhouseError):
            raise found
        return await self._view(found, now_ms=now_ms)

    async def _view(self, found: StoredTransaction, *, now_ms: int) -> TransactionView:
        is_open = found.state is TransactionState.ONGOING or found.state.is_prepared
        return TransactionView(
            transactional_id=found.transactional_id,
            producer_id=found.producer.producer_id,
            epoch=found.producer.epoch,
            state=found.state,
            timeout_ms=found.timeout_ms,
            started_at_ms=found.started_at_ms if is_open else None,
            open_for_ms=max(now_ms - found.started_at_ms, 0) if is_open else None,
            changed_at_ms=found.changed_at_ms,
            partitions=await self._names(found.partitions) if is_open else [],
        )

    async def _names(self, partitions: Iterable[PartitionId]) -> list[EnlistedPartition]:
        """Topics that were deleted meanwhile have no name any more, and are passed over."""
        names: dict[TopicId, str | None] = {}
        for topic_id in {each.topic_id for each in partitions}:
            try:
                names[topic_id] = (await self._broker.catalog.find_by_id(topic_id)).name
            except StreamhouseError:
                names[topic_id] = None
        found = sorted((name, each.partition) for each in partitions if (name := names[each.topic_id]) is not None)
        return [EnlistedPartition(topic=topic, partition=number) for topic, number in found]


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    calls = TransactionCalls(broker)
    return [
        Operation(
            method="GET",
            path="/v1/transactions",
            handler=calls.list_transactions,
            summary="Transactional producers, and what each of them has open",
            about="By transactional id. Those of the whole cluster, whichever agent is asked.",
            tag=TAG,
            query=TransactionsQuery,
            answer=TransactionViews,
        ),
        Operation(
            method="POST",
            path=ONE + "/abort",
            handler=calls.abort_transaction,
            summary="Fence the producer of a transactional id, and abort what it has open",
            about="What is decided already is ended as it was decided. The producer may go on after it asked for a new "
            "epoch, as any client does when it starts.",
            tag=TAG,
            query=NoQuery,
            body=Abort,
            max_body_bytes=MAX_BODY_BYTES,
            answer=AbortDone,
            problems=(404, 422),
        ),
        Operation(
            method="GET",
            path=ONE,
            handler=calls.get_transaction,
            summary="A transactional producer, and what it has open",
            tag=TAG,
            query=NoQuery,
            answer=TransactionView,
            problems=(404, 422),
        ),
    ]
