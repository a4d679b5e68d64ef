"""Mutations: the product with one guard taken out, to see whether the simulator notices.

Owns        how each guard is taken out, and in which profile its absence shows soonest
Leaves      running seeds until one fails to `test_mutations`
"""

import asyncio
import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from crc32c import crc32c

from streamhouse.broker.maintenance import retention
from streamhouse.broker.maintenance.retention import RetentionManager
from streamhouse.broker.partition.log import PartitionLog, PendingAppend
from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.broker.segments import reader
from streamhouse.broker.session import flush, recovered_segments
from streamhouse.broker.session.flush import Flusher
from streamhouse.broker.wal.disk_wal import DiskWal
from streamhouse.errors import AppendFailed, Overloaded, Unavailable
from streamhouse.format import block, wal_file
from streamhouse.format.producer_snapshot import encode_producers
from streamhouse.model import log_cleanup
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.stores.metadata.store import SqlMetadataStore

from .mutation import Mutation, Patch


def wal_truncated_before_registration(patch: Patch) -> None:
    register = Flusher._register

    async def early(self: Flusher, commit: Any, taken: Any) -> Any:
        await self._wal.truncate({share.log.partition: share.end for share in taken})
        return await register(self, commit, taken)

    patch.setattr(Flusher, "_register", early)


def tail_dropped_when_an_upload_fails(patch: Patch) -> None:
    store = Flusher._store

    async def once(self: Flusher, act: Callable[[], Any]) -> Any:
        return await act()

    async def careless(self: Flusher, shares: Any) -> None:
        try:
            await store(self, shares)
        except Unavailable:
            now = self._dependencies.agreed_time()
            taken, *_ = flush._encode(shares, now=now, settings=self._settings, read=(), decompress_bytes=0)
            for share in taken:
                self._budget.release(share.log.flushed(share.end, share.producers))
            await self._wal.truncate({share.log.partition: share.end for share in taken})

    patch.setattr(Flusher, "_retry", once)
    patch.setattr(Flusher, "_store", careless)


def sequence_advanced_though_the_append_failed(patch: Patch) -> None:
    append = PartitionLog.append

    def careless(self: PartitionLog, header: Any, data: Any, *, now: float, now_ms: int) -> PendingAppend:
        try:
            return append(self, header, data, now=now, now_ms=now_ms)
        except Overloaded:
            if header.producer_id >= 0:
                self._producers.record(header, self.next_offset, now_ms=now_ms)
            raise

    patch.setattr(PartitionLog, "append", careless)


def high_watermark_moved_before_the_commit(patch: Patch) -> None:
    append = PartitionLog.append

    def early(self: PartitionLog, header: Any, data: Any, *, now: float, now_ms: int) -> PendingAppend:
        placed = append(self, header, data, now=now, now_ms=now_ms)
        self.advance_high_watermark(placed.end)
        return placed

    patch.setattr(PartitionLog, "append", early)


def dedupe_state_lost_in_recovery(patch: Patch) -> None:
    rescue = recovered_segments._RecoveredPartition

    def run_input(self: Any, *, now: Any) -> Any:
        return replace(original(self, now=now), producers=encode_producers([]))

    original = rescue.run_input
    patch.setattr(rescue, "run_input", run_input)


def dedupe_state_of_recovered_entries_lost(patch: Patch) -> None:
    def take(self: Any, entry: Any) -> int:
        self.batches.append(entry.batch)
        self.next_offset = entry.end
        return 1

    patch.setattr(recovered_segments._RecoveredPartition, "take", take)


def acknowledged_though_the_wal_failed(patch: Patch) -> None:
    durable = PendingAppend.wait_durable

    async def careless(self: PendingAppend) -> None:
        try:
            await durable(self)
        except AppendFailed:
            return

    patch.setattr(PendingAppend, "wait_durable", careless)


def sync_errors_ignored(patch: Patch) -> None:
    write = DiskWal._write

    def careless(self: DiskWal, group: Any, finished: Any) -> None:
        try:
            write(self, group, finished)
        except OSError as error:
            if error.errno != errno.EIO:
                raise

    patch.setattr(DiskWal, "_write", careless)
    patch.setattr(DiskWal, "_synced", lambda self, _: setattr(self, "_sync_job", None))


def sync_forgotten(patch: Patch) -> None:
    def write(self: DiskWal, group: Any, finished: Any) -> None:
        policy, self._settings = self._settings, _NeverSync(self._settings)
        try:
            original(self, group, finished)
        finally:
            self._settings = policy

    original = DiskWal._write
    patch.setattr(DiskWal, "_write", write)


class _NeverSync:
    fsync = "never"

    def __init__(self, settings: Any) -> None:
        self.fsync_interval_ms = settings.fsync_interval_ms
        self.file_bytes = settings.file_bytes
        self.spare_files = settings.spare_files
        self.max_pending_bytes = settings.max_pending_bytes
        self.inline_bytes = settings.inline_bytes


def producers_missing_in_segments(patch: Patch) -> None:
    run_input = flush._FlushShare.run_input

    def without(self: Any, **how: Any) -> Any:
        return replace(run_input(self, **how), producers=encode_producers([]))

    patch.setattr(flush._FlushShare, "run_input", without)


def log_not_sealed(patch: Patch) -> None:
    patch.setattr(PartitionLog, "seal", lambda self: None)


def recovery_ignores_the_wal(patch: Patch) -> None:
    async def publish(self: Any, reading: Any, held: Any) -> Sequence[Any]:
        return []

    patch.setattr(recovered_segments.RecoveredSegments, "publish", publish)


def wal_removed_before_the_recovery_is_finished(patch: Patch) -> None:
    publish = recovered_segments.RecoveredSegments.publish

    async def early(self: Any, reading: Any, held: Any) -> Any:
        result = await publish(self, reading, held)
        await reading.remove()
        return result

    patch.setattr(recovered_segments.RecoveredSegments, "publish", early)


def stopped_without_flush(patch: Patch) -> None:
    async def nothing(self: Flusher) -> None:
        return

    patch.setattr(Flusher, "flush_all", nothing)


def duplicates_answered_before_the_original_is_durable(patch: Patch) -> None:
    async def at_once(self: PartitionLog, end: int) -> None:
        return

    patch.setattr(PartitionLog, "wait_high_watermark", at_once)


def duplicates_answered_with_offset_zero(patch: Patch) -> None:
    check_sequence = ProducerTable.check_sequence

    def forgetful(self: ProducerTable, partition: object, header: Any) -> Any:
        span = check_sequence(self, partition, header)
        return span and span._replace(base_offset=0, end_offset=header.last_offset_delta + 1)

    patch.setattr(ProducerTable, "check_sequence", forgetful)


def duplicates_not_recognised(patch: Patch) -> None:
    patch.setattr(ProducerTable, "check_sequence", lambda self, partition, header: None)


def reads_beyond_the_high_watermark(patch: Patch) -> None:
    def dirty(self: PartitionLog, offset: int, **_: object) -> list[Any]:
        return [item.data for item in self._tail if item.end > offset]

    patch.setattr(PartitionLog, "read_tail", dirty)


def young_records_are_old(patch: Patch) -> None:
    patch.setattr(retention, "is_past", lambda run, config, *, now_ms: True)
    patch.setattr(log_cleanup, "is_past", lambda run, config, *, now_ms: True)


def log_start_moved_too_far(patch: Patch) -> None:
    """Whoever moves a log start moves it some records further."""
    advance = SqlMetadataStore.advance_log_start

    async def too_far(self: SqlMetadataStore, starts: Mapping[PartitionId, int]) -> bool:
        ends = {
            state.partition: state.flushed_end for state in await self.partitions([each.topic_id for each in starts])
        }
        return await advance(self, {each: min(start + 5, ends.get(each, start)) for each, start in starts.items()})

    patch.setattr(SqlMetadataStore, "advance_log_start", too_far)


def log_start_moved_in_memory_only(patch: Patch) -> None:
    retain = RetentionManager.apply

    async def careless(self: RetentionManager) -> int:
        async def nothing(starts: object) -> None:
            return

        patch.setattr(self._dependencies.metadata, "advance_log_start", nothing, raising=False)
        return await retain(self)

    patch.setattr(RetentionManager, "apply", careless)


def sweep_takes_objects_of_live_sessions(patch: Patch) -> None:
    async def reckless(self: RetentionManager) -> int:
        known = await self._dependencies.metadata.known_objects()
        results = [meta.key async for meta in self._dependencies.objects.list("segments/")]
        for key in results:
            if key not in known:
                await self._dependencies.objects.delete(key)
        return 0

    patch.setattr(RetentionManager, "delete_orphans", reckless)


def wal_entries_not_checked(patch: Patch) -> None:
    patch.setattr(wal_file, "crc32c", _Agreeable())


def blocks_not_checked(patch: Patch) -> None:
    decode = block.decode_block

    def trusting(stored: Any, entry: Any, *, key: str = "?") -> bytes:
        checked: bytes = decode(stored, entry._replace(crc=crc32c(stored)), key=key)
        return checked

    patch.setattr(reader, "decode_block", trusting)


class _Agreeable(int):
    """A checksum that equals every other."""

    def __call__(self, *_: object, **__: object) -> "_Agreeable":
        return self

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


def memory_not_given_back(patch: Patch) -> None:
    flushed = PartitionLog.flushed
    patch.setattr(PartitionLog, "flushed", lambda self, end, producers: flushed(self, end, producers) and 0)


def refused_batches_overtaken(patch: Patch) -> None:
    def forgetful(self: object, name: TopicPartition, headers: Iterable[Any], *, now: float) -> None:
        return

    patch.setattr("streamhouse.broker.partition.sequence_gaps.SequenceGapGuard.rejected", forgetful)


def flush_stops_trying(patch: Patch) -> None:
    store = Flusher._store

    async def faint(self: Flusher, taken: Any) -> None:
        failures = self.failures
        work = asyncio.ensure_future(store(self, taken))
        while not work.done():
            await self._dependencies.clock.sleep(0.01)
            if self.failures > failures:
                await asyncio.Event().wait()
        await work

    patch.setattr(Flusher, "_store", faint)


MUTATIONS: Final = {
    "the WAL is truncated before the segment is registered": Mutation(
        breaks=(
            "the high watermark went back",
            "an offset in range was refused",
            "an offset has two records",
        ),
        apply=wal_truncated_before_registration,
        profile="kills",
    ),
    "a failed upload drops the tail": Mutation(
        breaks=(
            "a read passed over a record",
            "acknowledged though the WAL does not hold it",
        ),
        apply=tail_dropped_when_an_upload_fails,
        profile="stores",
    ),
    "sequences advance though the append failed": Mutation(
        breaks=("an offset has two records",), apply=sequence_advanced_though_the_append_failed, profile="stores"
    ),
    "the high watermark moves before the commit": Mutation(
        breaks=(
            "an offset has two records",
            "acknowledged though the WAL does not hold it",
        ),
        apply=high_watermark_moved_before_the_commit,
        profile="power",
    ),
    "recovered segments lack the producers": Mutation(
        breaks=("a batch stands at two offsets",), apply=dedupe_state_lost_in_recovery, profile="kills"
    ),
    "recovered entries are not replayed for producers": Mutation(
        breaks=(
            "a batch in order was refused",
            "a batch stands at two offsets",
        ),
        apply=dedupe_state_of_recovered_entries_lost,
        profile="kills",
    ),
    "an append is acknowledged though the WAL failed": Mutation(
        breaks=("acknowledged though the WAL does not hold it",),
        apply=acknowledged_though_the_wal_failed,
        profile="disk",
    ),
    "errors of sync are ignored": Mutation(
        breaks=("acknowledged though the WAL does not hold it",), apply=sync_errors_ignored, profile="disk"
    ),
    "nothing is synced": Mutation(
        breaks=("acknowledged though the WAL does not hold it",), apply=sync_forgotten, profile="power"
    ),
    "segments lack the producers": Mutation(
        breaks=(
            "a batch stands at two offsets",
            "a batch in order was refused",
        ),
        apply=producers_missing_in_segments,
        profile="kills",
    ),
    "a closed log is not sealed": Mutation(
        breaks=("the high watermark went back", "a read passed over a record", "an offset has two records"),
        apply=log_not_sealed,
        profile="disk",
        tweaks={"starve": 0.05, "unlucky": ("PartitionLog.append.<locals>.<lambda>", "responder")},
        seeds=1000,
        is_rare=True,
    ),
    "recovery ignores the WAL": Mutation(
        breaks=("an offset has two records",), apply=recovery_ignores_the_wal, profile="kills"
    ),
    "a WAL is removed before its recovery is finished": Mutation(
        breaks=("an offset in range was refused", "an offset has two records", "the high watermark went back"),
        apply=wal_removed_before_the_recovery_is_finished,
        profile="kills",
        tweaks={"restart_fuse": 0.9},
    ),
    "an agent stops without flushing": Mutation(
        breaks=(
            "an offset has two records",
            "an offset in range was refused",
            "the high watermark went back",
        ),
        apply=stopped_without_flush,
        profile="kills",
    ),
    "a duplicate is answered before its original is durable": Mutation(
        breaks=("acknowledged though the WAL does not hold it",),
        apply=duplicates_answered_before_the_original_is_durable,
        profile="power",
    ),
    "a duplicate is answered with offset 0": Mutation(
        breaks=(
            "a batch stands at two offsets",
            "an offset has two records",
        ),
        apply=duplicates_answered_with_offset_zero,
        profile="kills",
    ),
    "duplicates are not recognised": Mutation(
        breaks=("a batch stands at two offsets",), apply=duplicates_not_recognised, profile="kills"
    ),
    "reads pass the high watermark": Mutation(
        breaks=("a read passed the high watermark",), apply=reads_beyond_the_high_watermark, profile="calm"
    ),
    "young records are taken for old": Mutation(
        breaks=("records were deleted that must be kept",), apply=young_records_are_old, profile="calm"
    ),
    "the log start moves too far": Mutation(
        breaks=("records were deleted that must be kept",), apply=log_start_moved_too_far, profile="calm"
    ),
    "the log start moves in memory only": Mutation(
        breaks=("the log start went back",), apply=log_start_moved_in_memory_only, profile="kills"
    ),
    "the sweep takes objects of live sessions": Mutation(
        breaks=("an object was deleted that readers need",), apply=sweep_takes_objects_of_live_sessions, profile="calm"
    ),
    "WAL entries are not checked": Mutation(
        breaks=("a batch was read that was never sent",),
        apply=wal_entries_not_checked,
        profile="power",
        is_rare=True,
    ),
    "blocks are not checked": Mutation(
        breaks=(
            "a batch was read that was never sent",
            "a read passed over a record",
            "a batch was changed",
        ),
        apply=blocks_not_checked,
        profile="stores",
    ),
    "memory is not given back": Mutation(breaks=("stuck",), apply=memory_not_given_back, profile="calm"),
    "a refused batch is overtaken": Mutation(
        breaks=("a batch in order was refused",),
        apply=refused_batches_overtaken,
        profile="stores",
        tweaks={"restart_fuse": 0.0, "calm_between_s": 0.1},
    ),
    "a flush gives up after a failure": Mutation(breaks=("stuck",), apply=flush_stops_trying, profile="stores"),
}
