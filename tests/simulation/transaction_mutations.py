"""Transaction mutations: one guard of transactions taken out, to see whether the simulator notices.

Owns        how each guard of rows, markers and stable offsets is taken out
Leaves      running seeds until one fails to `test_mutations`
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.broker.transactions import TransactionCoordinator
from streamhouse.broker.transactions.completion import TransactionCompletion
from streamhouse.broker.transactions.sweeper import HangingTransactions
from streamhouse.model import transaction_transitions
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.segment import SegmentCommit
from streamhouse.model.transaction import Marker, StoredTransaction, TransactionCall
from streamhouse.stores.metadata.engine import Transaction
from streamhouse.stores.metadata.engine import write as store_write
from streamhouse.stores.metadata.procedures import transactions
from streamhouse.stores.metadata.store import SqlMetadataStore

from .mutation import Mutation, Patch


def markers_are_taken_however_late_they_come(patch: Patch) -> None:
    patch.setattr(ProducerTable, "has_marker", lambda self, partition, marker: False)


def an_answer_counts_though_a_marker_came_meanwhile(patch: Patch) -> None:
    """Some answers take their time, so that markers come. Nobody looks for strays, which covers for it: what was placed
    too late is found there, and ended as its transaction was."""
    verify = TransactionCoordinator.verify

    async def slowly(self: TransactionCoordinator, *given: Any) -> None:
        await verify(self, *given)
        if self._dependencies.ids.jitter(1.0) < 0.65:
            await self._dependencies.clock.sleep(0.8)

    async def nothing(self: HangingTransactions) -> None:
        return

    patch.setattr(HangingTransactions, "sweep", nothing)
    patch.setattr(TransactionCoordinator, "verify", slowly)
    patch.setattr(PartitionLog, "verify", lambda self, header, token: True)


def nobody_asks_whether_a_transaction_is_under_way(patch: Patch) -> None:
    patch.setattr(PartitionLog, "needs_verification", lambda self, header: False)


def any_epoch_speaks_for_a_transactional_id(patch: Patch) -> None:
    def whoever(
        row: StoredTransaction | None, call: TransactionCall, *, or_previous: bool = False
    ) -> StoredTransaction:
        return speaker(row, call._replace(producer=row.producer) if row is not None else call, or_previous=or_previous)

    speaker = transaction_transitions._check_caller
    patch.setattr(transaction_transitions, "_check_caller", whoever)


def offsets_count_before_their_transaction_is_decided(patch: Patch) -> None:
    put = transactions.put_pending_offsets

    async def early(
        tx: Transaction, session_id: SessionId, shard: Any, epoch: Any, call: TransactionCall, *rest: Any, begins: bool
    ) -> None:
        await put(tx, session_id, shard, epoch, call, *rest, begins=begins)
        await tx.change(tx.sql.commit_pending_offsets, {"transactional_id": call.transactional_id})

    patch.setattr(SqlMetadataStore, "put_pending_offsets", store_write(early))


def offsets_are_dropped_whatever_is_decided(patch: Patch) -> None:
    write = transactions._write

    async def careless(tx: Transaction, row: Any, changed: StoredTransaction) -> StoredTransaction:
        await tx.change(tx.sql.drop_pending_offsets, {"transactional_id": changed.transactional_id})
        return await write(tx, row, changed)

    patch.setattr(transactions, "_write", careless)


def open_transactions_do_not_hold_readers_back(patch: Patch) -> None:
    patch.setattr(PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark))


def transactions_are_over_before_their_markers_are_written(patch: Patch) -> None:
    async def nothing_left(
        self: TransactionCompletion, marker: Marker, partitions: Sequence[PartitionId]
    ) -> Sequence[PartitionId]:
        return ()

    patch.setattr(TransactionCompletion, "_round", nothing_left)


def half_ended_transactions_are_not_looked_for(patch: Patch) -> None:
    async def nothing(self: Any) -> None:
        return

    patch.setattr("streamhouse.broker.transactions.sweeper.TransactionSweeper.sweep", nothing)


def what_was_aborted_is_not_written_down(patch: Patch) -> None:
    made = SegmentCommit.__init__

    def without(self: SegmentCommit, **given: Any) -> None:
        made(self, **{**given, "aborted": {}})

    patch.setattr(SegmentCommit, "__init__", without)


TRANSACTING: Final[Mapping[str, Any]] = {
    "transactors": 3,
    "transactional_ids": 2,
    "committed_followers": 1,
    "transaction_trouble": 0.1,
    "marker_loss": 0.3,
    "groups": (),
    "placers": 0,
    "churns": False,
}
PATIENT: Final[Mapping[str, Any]] = {**TRANSACTING, "transactional_ids": 3, "transaction_timeout_s": 20.0}
RIVALS: Final[Mapping[str, Any]] = {**TRANSACTING, "transactional_ids": 1}

TRANSACTION_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "a marker is taken however late it comes": Mutation(
        breaks=(
            "a transaction counts that nobody has committed",
            "a committed transaction does not count",
        ),
        apply=markers_are_taken_however_late_they_come,
        profile="transactions",
        tweaks=TRANSACTING,
    ),
    "an answer counts though a marker came meanwhile": Mutation(
        breaks=("stuck",),
        apply=an_answer_counts_though_a_marker_came_meanwhile,
        profile="calm",
        tweaks=PATIENT,
        seeds=400,
        is_rare=True,
    ),
    "nobody asks whether a transaction is under way": Mutation(
        breaks=(
            "a producer that was replaced could write",
            "stuck",
            "a committed transaction does not count",
        ),
        apply=nobody_asks_whether_a_transaction_is_under_way,
        profile="transactions",
        tweaks=RIVALS,
    ),
    "any epoch speaks for a transactional id": Mutation(
        breaks=(
            "a producer that was replaced could write",
            "a producer that was replaced could end a transaction",
        ),
        apply=any_epoch_speaks_for_a_transactional_id,
        profile="transactions",
        tweaks=RIVALS,
    ),
    "offsets count before their transaction is decided": Mutation(
        breaks=("a transaction counts that nobody has committed",),
        apply=offsets_count_before_their_transaction_is_decided,
        profile="transactions",
        tweaks=TRANSACTING,
    ),
    "offsets are dropped whatever is decided": Mutation(
        breaks=("an offset that was committed with a transaction is not there",),
        apply=offsets_are_dropped_whatever_is_decided,
        profile="calm",
        tweaks=TRANSACTING,
    ),
    "open transactions don't hold readers back": Mutation(
        breaks=("a record of an open transaction was read",),
        apply=open_transactions_do_not_hold_readers_back,
        profile="calm",
        tweaks=TRANSACTING,
    ),
    "a transaction is over before its markers are written": Mutation(
        breaks=("a committed transaction does not count",),
        apply=transactions_are_over_before_their_markers_are_written,
        profile="calm",
        tweaks=TRANSACTING,
    ),
    "half-ended transactions are not looked for": Mutation(
        breaks=("stuck",), apply=half_ended_transactions_are_not_looked_for, profile="transactions", tweaks=TRANSACTING
    ),
    "what was aborted is not written down": Mutation(
        breaks=("a transaction counts that nobody has committed",),
        apply=what_was_aborted_is_not_written_down,
        profile="kills",
        tweaks=TRANSACTING,
    ),
}
