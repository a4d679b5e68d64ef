"""Wire mutations: one guard of Kafka's server taken out, to see whether clients that speak its protocol notice.

Owns        how each guard of framing, connection and handlers is taken out
Leaves      running seeds until one fails to `test_mutations`
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from streamhouse.errors import StreamhouseError
from streamhouse.wire.kafka import connection as connection_module
from streamhouse.wire.kafka.connection import Connection, InFlightRequest
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.framing import FrameReader
from streamhouse.wire.kafka.handlers import end_txn, produce
from streamhouse.wire.kafka.messages.end_txn import EndTxnResponse
from streamhouse.wire.kafka.messages.produce import PartitionProduceResponse
from streamhouse.wire.kafka.schema import Response
from streamhouse.wire.kafka.transaction_errors import transaction_call

from .mutation import Mutation, Patch


def refused_batches_are_answered_without_their_codes(patch: Patch) -> None:
    response = produce._partition

    def without(outcome: Any) -> PartitionProduceResponse:
        answered = response(outcome)
        answered.error_code = ErrorCode.NONE
        return answered

    patch.setattr(produce, "_partition", without)


def duplicates_are_called_out_of_order(patch: Patch) -> None:
    acknowledge = produce.Acknowledgement._acknowledge

    async def refuse(self: Any, outcome: Any) -> Any:
        if outcome.pending_append is not None and outcome.pending_append.commit is None:
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            return produce.Outcome(outcome.partition, None, code, "a batch is not the next of its producer")
        return await acknowledge(self, outcome)

    patch.setattr(produce.Acknowledgement, "_acknowledge", refuse)


def responses_go_out_when_they_are_ready(patch: Patch) -> None:
    enqueue = Connection._enqueue_response

    def at_once(self: Connection, in_flight: InFlightRequest) -> None:
        if self._is_lost or in_flight.decoded is None or not isinstance(in_flight.result, Response):
            enqueue(self, in_flight)
            return
        self._finish(in_flight, connection_module._encoded(in_flight))
        self._send()

    patch.setattr(Connection, "_enqueue_response", at_once)


def frames_are_used_again(patch: Patch) -> None:
    """The next request of the same size is received into the buffer of the one before, whose batch is in the log."""
    following = FrameReader.next_frame
    frames: dict[int, bytearray] = {}

    def shared(self: FrameReader, admit: Callable[[int], bool], *, has_room: bool = True) -> bytearray | None:
        frame = following(self, admit, has_room=has_room)
        if frame is None:
            return None
        used = frames.setdefault(len(frame), frame)
        used[:] = frame
        return used

    patch.setattr(FrameReader, "next_frame", shared)


def failed_ends_of_transactions_are_answered_as_done(patch: Patch) -> None:
    async def end(context: Any, request: Any) -> Response:
        call = transaction_call(request.transactional_id, request.producer_id, request.producer_epoch)
        bump = context.version >= end_txn.BUMPS_SINCE
        try:
            producer = await context.broker.transactions.end(call, commit=request.committed, bump=bump)
        except StreamhouseError:
            return EndTxnResponse(producer_id=request.producer_id, producer_epoch=request.producer_epoch + bump)
        return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)

    patch.setattr(end_txn, "_end", end)


NO_GROUPS: Final[Mapping[str, Any]] = {"groups": ()}

WIRE_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "a refused batch is answered without its error code": Mutation(
        breaks=("a batch was acknowledged without an offset",),
        apply=refused_batches_are_answered_without_their_codes,
        profile="wire",
        tweaks=NO_GROUPS,
    ),
    "a duplicate is called out of order": Mutation(
        breaks=("a batch in order was refused",),
        apply=duplicates_are_called_out_of_order,
        profile="wire",
        tweaks=NO_GROUPS,
    ),
    "a response goes out when it is ready": Mutation(
        breaks=("a response belongs to another request",),
        apply=responses_go_out_when_they_are_ready,
        profile="team-wire",
        tweaks=NO_GROUPS,
    ),
    "a frame's buffer is used again": Mutation(
        breaks=(
            "a batch was read that was never sent",
            "offsets went back in a read",
            "a response belongs to another request",
        ),
        apply=frames_are_used_again,
        profile="wire",
        tweaks=NO_GROUPS,
    ),
    "a failed end of a transaction is answered as done": Mutation(
        breaks=(
            "a committed transaction does not count",
            "a transaction was void, and its commit is acknowledged",
            "a producer that was replaced could end a transaction",
        ),
        apply=failed_ends_of_transactions_are_answered_as_done,
        profile="wire",
        tweaks={**NO_GROUPS, "transactors": 2, "transactional_ids": 1, "committed_followers": 1},
    ),
}
