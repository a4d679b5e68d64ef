"""Mutations: the product with one guard taken out, to see whether the simulator notices.

Owns        how each guard is taken out, and in which profile its absence shows soonest
Leaves      running seeds until one fails to `test_mutations`
"""

import asyncio
import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from crc32c import crc32c

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
from streamhouse.model.names import TopicPartition

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

    async def careless(self: Flusher, taken: Any) -> None:
        try:
            await store(self, taken)
        except Unavailable:
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
        self.max_pending_bytes = settings.max_pending_bytes


def producers_missing_in_segments(patch: Patch) -> None:
    run_input = flush._FlushShare.run_input

    def without(self: Any, *, now_ms: int) -> Any:
        return replace(run_input(self, now_ms=now_ms), producers=encode_producers([]))

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
        found = [meta.key async for meta in self._dependencies.objects.list("segments/")]
        for key in found:
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

    def __call__(self, *_: object) -> "_Agreeable":
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


def one_partition_in_two_flushes(patch: Patch) -> None:
    due = Flusher._due

    def eager(self: Flusher, *, pressed: bool, among: Any) -> Any:
        for item in self._logs():
            item.flushing = False
        return due(self, pressed=pressed, among=among)

    patch.setattr(Flusher, "_due", eager)


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
        apply=wal_truncated_before_registration, profile="kills"
    ),
    "a failed upload drops the tail": Mutation(apply=tail_dropped_when_an_upload_fails, profile="stores"),
    "sequences advance though the append failed": Mutation(
        apply=sequence_advanced_though_the_append_failed, profile="stores"
    ),
    "the high watermark moves before the commit": Mutation(
        apply=high_watermark_moved_before_the_commit, profile="power"
    ),
    "recovered segments lack the producers": Mutation(apply=dedupe_state_lost_in_recovery, profile="kills"),
    "recovered entries are not replayed for producers": Mutation(
        apply=dedupe_state_of_recovered_entries_lost, profile="kills"
    ),
    "an append is acknowledged though the WAL failed": Mutation(
        apply=acknowledged_though_the_wal_failed, profile="disk"
    ),
    "errors of sync are ignored": Mutation(apply=sync_errors_ignored, profile="disk"),
    "nothing is synced": Mutation(apply=sync_forgotten, profile="power"),
    "segments lack the producers": Mutation(apply=producers_missing_in_segments, profile="kills"),
    "a closed log is not sealed": Mutation(
        apply=log_not_sealed,
        profile="disk",
        tweaks={"starve": 0.05, "unlucky": ("PartitionLog.append.<locals>.<lambda>", "responder")},
        seeds=150,
    ),
    "recovery ignores the WAL": Mutation(apply=recovery_ignores_the_wal, profile="kills"),
    "a WAL is removed before its recovery is finished": Mutation(
        apply=wal_removed_before_the_recovery_is_finished, profile="kills", tweaks={"restart_fuse": 0.9}
    ),
    "an agent stops without flushing": Mutation(apply=stopped_without_flush, profile="kills"),
    "a duplicate is answered before its original is durable": Mutation(
        apply=duplicates_answered_before_the_original_is_durable, profile="power"
    ),
    "a duplicate is answered with offset 0": Mutation(apply=duplicates_answered_with_offset_zero, profile="kills"),
    "duplicates are not recognised": Mutation(apply=duplicates_not_recognised, profile="kills"),
    "reads pass the high watermark": Mutation(apply=reads_beyond_the_high_watermark, profile="calm"),
    "the log start moves in memory only": Mutation(apply=log_start_moved_in_memory_only, profile="kills"),
    "the sweep takes objects of live sessions": Mutation(apply=sweep_takes_objects_of_live_sessions, profile="calm"),
    "WAL entries are not checked": Mutation(apply=wal_entries_not_checked, profile="power"),
    "blocks are not checked": Mutation(apply=blocks_not_checked, profile="stores"),
    "memory is not given back": Mutation(apply=memory_not_given_back, profile="calm"),
    "a partition is in two flushes at once": Mutation(apply=one_partition_in_two_flushes, profile="stores"),
    "a refused batch is overtaken": Mutation(
        apply=refused_batches_overtaken, profile="stores", tweaks={"restart_fuse": 0.0, "calm_between_s": 0.1}
    ),
    "a flush gives up after a failure": Mutation(apply=flush_stops_trying, profile="stores"),
}
