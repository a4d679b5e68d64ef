"""Transactions: list and describe them, and abort a hanging one; any agent serves all of them.

GET  /v1/transactions?state=…&open_for_ms=…&limit=…&cursor=…   by transactional id, page by page
GET  /v1/transactions/{transactional_id}                       one of them
POST /v1/transactions/{transactional_id}/abort  {}             fence its producer and abort its open transaction
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.needs import lists, needs
from streamhouse.model.transaction import StoredTransaction, TransactionState
from streamhouse.wire.authorization import RequestAccess
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
    """A transactional id, its producer, and its current or last transaction. `started_at_ms`, `open_for_ms` and
    partitions are set while a transaction is open or being completed."""

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
    """Without fields; JSON, because a page of another site can't make a browser send it."""


class AbortDone(msgspec.Struct, frozen=True, kw_only=True):
    """`before` is the state before the request, `after` the state now, with a new epoch that no producer has."""

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
    """Operations on transactions; every agent knows all of them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def list_transactions(self, call: Call[TransactionsQuery, None]) -> Response:
        query, cursor = call.query, call.query.cursor
        views: list[TransactionView] = []
        while True:
            page = await self._broker.transactions.page(
                after=cursor,
                limit=query.limit,
                states=[query.state] if query.state is not None else (),
                min_duration_ms=query.open_for_ms,
            )
            shown = [each for each in page.transactions if _shows(call.access, each)]
            views += [await self._view(each, call.access, now_ms=page.now_ms) for each in shown]
            cursor = page.next
            if cursor is None or call.access.is_unrestricted:
                break
            if views:
                cursor = views[-1].transactional_id  # a cursor names an id: one that the caller may see
                break
        return json_response(TransactionViews(transactions=views, cursor=cursor))

    async def get_transaction(self, call: Call[NoQuery, None]) -> Response:
        return json_response(await self._described(call.path["transactional_id"], call.access))

    async def abort_transaction(self, call: Call[NoQuery, Abort]) -> Response:
        transactional_id = call.path["transactional_id"]
        now_ms = await self._broker.transactions.now_ms()
        fenced = await self._broker.transactions.fence(transactional_id)
        before = await self._view(fenced, call.access, now_ms=now_ms)
        aborted = before.state in (TransactionState.ONGOING, TransactionState.PREPARE_ABORT)
        after = await self._described(transactional_id, call.access)
        return json_response(AbortDone(aborted=aborted, before=before, after=after))

    async def _described(self, transactional_id: str, access: RequestAccess) -> TransactionView:
        now_ms = await self._broker.transactions.now_ms()
        transaction = (await self._broker.transactions.describe([transactional_id]))[transactional_id]
        if isinstance(transaction, StreamhouseError):
            raise transaction
        return await self._view(transaction, access, now_ms=now_ms)

    async def _view(self, transaction: StoredTransaction, access: RequestAccess, *, now_ms: int) -> TransactionView:
        is_open = transaction.state is TransactionState.ONGOING or transaction.state.is_prepared
        return TransactionView(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer.producer_id,
            epoch=transaction.producer.epoch,
            state=transaction.state,
            timeout_ms=transaction.timeout_ms,
            started_at_ms=transaction.started_at_ms if is_open else None,
            open_for_ms=max(now_ms - transaction.started_at_ms, 0) if is_open else None,
            changed_at_ms=transaction.changed_at_ms,
            partitions=await self._names(transaction.partitions, access) if is_open else [],
        )

    async def _names(self, partitions: Iterable[PartitionId], access: RequestAccess) -> list[EnlistedPartition]:
        """Partition names; deleted topics, and those that the caller may not describe, are left out."""
        names: dict[TopicId, str | None] = {}
        for topic_id in {each.topic_id for each in partitions}:
            try:
                names[topic_id] = (await self._broker.catalog.find_by_id(topic_id)).name
            except StreamhouseError:
                names[topic_id] = None
        named = sorted((name, each.partition) for each in partitions if (name := names[each.topic_id]) is not None)
        return [
            EnlistedPartition(topic=topic, partition=number)
            for topic, number in named
            if access.allows_topic(AclOperation.DESCRIBE, topic)
        ]


def _shows(access: RequestAccess, transaction: StoredTransaction) -> bool:
    return access.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    calls = TransactionCalls(broker)
    return [
        Operation(
            method="GET",
            path="/v1/transactions",
            handler=calls.list_transactions,
            needs=lists(
                AclOperation.DESCRIBE,
                ResourceType.TRANSACTIONAL_ID,
                about="with partitions of topics that may be described",
            ),
            summary="List transactional producers and their transactions",
            about="By transactional id. Every agent returns those of the whole cluster.",
            tag=TAG,
            query=TransactionsQuery,
            response=TransactionViews,
        ),
        Operation(
            method="POST",
            path=ONE + "/abort",
            handler=calls.abort_transaction,
            needs=needs(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
            summary="Fence the producer of a transactional id and abort its transaction",
            about="A transaction that is already decided ends as decided. The producer can continue with a new epoch, "
            "which every client requests when it starts.",
            tag=TAG,
            query=NoQuery,
            body=Abort,
            max_body_bytes=MAX_BODY_BYTES,
            response=AbortDone,
            problems=(404, 422),
        ),
        Operation(
            method="GET",
            path=ONE,
            handler=calls.get_transaction,
            needs=needs(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
            summary="A transactional producer and its transaction",
            tag=TAG,
            query=NoQuery,
            response=TransactionView,
            problems=(404, 422),
        ),
    ]
