"""ListOffsets: the start and end of a log, and the offset of a time or of a leader epoch.

Data path   wire -> **list_offsets** -> log, runs, and for times one batch that is decoded
Owns        ListOffsets and OffsetForLeaderEpoch
Leaves      record timestamps inside a batch to `format.records`
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from streamhouse.broker.partition.batch_decoder import BatchDecoder, StoredSize
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.format.batch import Buffer, read_header
from streamhouse.format.records import first_record_at
from streamhouse.model.fetch import OffsetResult
from streamhouse.model.segment import Run
from streamhouse.stores.metadata.base import MetadataStore

TRIES: Final = 5
ANY_TIME: Final = -(2**63)


class ListOffsets:
    def __init__(self, decoder: BatchDecoder, *, reader: SegmentReader, metadata: MetadataStore) -> None:
        self._decoder = decoder
        self._reader = reader
        self._metadata = metadata

    @staticmethod
    def earliest(log: PartitionLog) -> OffsetResult:
        return OffsetResult(log.log_start, leader_epoch=log.epoch)

    @staticmethod
    def latest(log: PartitionLog, *, committed: bool = False) -> OffsetResult:
        """The high watermark, or with `committed` the last stable offset."""
        end = log.last_stable_offset if committed else log.high_watermark
        return OffsetResult(end, leader_epoch=log.epoch)

    async def at_time(self, log: PartitionLog, timestamp_ms: int, *, committed: bool = False) -> OffsetResult | None:
        """The first record with this timestamp or a later one; None when there is none, or with `committed` none below
        the last stable offset."""
        until = log.last_stable_offset if committed else None
        result = await self._at_time(log, timestamp_ms)
        return result if result is None or until is None or result.offset < until else None

    async def _at_time(self, log: PartitionLog, timestamp_ms: int) -> OffsetResult | None:
        log.require_tail()
        # Both at one moment: a flush that ends meanwhile moves batches from the one to the other.
        flushed_end, tail = log.flushed_end, log.durable_tail()
        offset = log.log_start
        while offset < flushed_end:
            run = await self._metadata.run_at_time(log.partition, timestamp_ms=timestamp_ms, from_offset=offset)
            if run is None:
                break
            if (result := await self._in_run(run, offset, timestamp_ms)) is not None:
                return result
            offset = run.end
        late = (item.data for item in tail if item.header.max_timestamp_ms >= timestamp_ms)
        result = await self._in_batches(late, log.log_start, timestamp_ms)
        return result._replace(leader_epoch=log.epoch) if result is not None else None

    async def at_max_timestamp(self, log: PartitionLog) -> OffsetResult | None:
        """The first record that has the largest timestamp of the whole log; None for an empty log.

        If the log starts inside a run whose latest records were deleted, the rest of that run is considered only if
        there is nothing else.
        """
        from_offset = log.log_start
        for _ in range(TRIES):
            log.require_tail()
            times = [item.header.max_timestamp_ms for item in log.durable_tail()]
            run = await self._metadata.latest_run(log.partition, from_offset=from_offset)
            if run is not None:
                times.append(run.max_timestamp_ms)
            if not times:
                break
            if (result := await self.at_time(log, max(times))) is not None:
                return result
            # Retention has just deleted that run, or the log starts behind the record.
            from_offset = run.end if run is not None and run.base < log.log_start else log.log_start
        return await self.at_time(log, ANY_TIME)

    async def epoch_end(self, log: PartitionLog, epoch: int) -> OffsetResult | None:
        """The last epoch at or before `epoch` in this log, and the start of the next one; None if the log has none.

        Between the two may be a gap, if acknowledged records were lost with a disk. If the epoch ended before the gap,
        a consumer that had read there would see the log as truncated, and reset its position.
        """
        if epoch == log.epoch:
            return OffsetResult(log.high_watermark, leader_epoch=epoch)
        if epoch > log.epoch:
            return None
        previous = await self._metadata.epoch_end(log.partition, epoch)
        after = await self._metadata.runs(
            log.partition, from_offset=previous.end if previous is not None else 0, limit=1
        )
        end = after[0].base if after else log.epoch_start
        if previous is None:
            return OffsetResult(end, leader_epoch=epoch) if end > log.log_start else None
        return OffsetResult(max(end, previous.end), leader_epoch=previous.epoch)

    async def _in_run(self, run: Run, from_offset: int, timestamp_ms: int) -> OffsetResult | None:
        index = await self._reader.index(run)
        for number, entry in enumerate(index.blocks):
            if entry.max_timestamp_ms < timestamp_ms or run.base + entry.end <= from_offset:
                continue
            block = await self._reader.block(run, index, number)
            late = (
                block.data[span.position : span.position + span.size_bytes]
                for span in block.spans
                if span.max_timestamp_ms >= timestamp_ms
            )
            shift = run.base - run.stored_base
            if (result := await self._in_batches(late, from_offset - shift, timestamp_ms)) is not None:
                return result._replace(offset=result.offset + shift, leader_epoch=run.epoch)
        return None

    async def _in_batches(self, batches: Iterable[Buffer], from_offset: int, timestamp_ms: int) -> OffsetResult | None:
        """Decode batches, one after the other, until a record matches."""
        for batch in batches:
            header = read_header(batch)
            if header.end <= from_offset:
                continue
            seek = partial(_first_record, batch, from_offset, timestamp_ms)
            if (result := await self._decoder.run(StoredSize(header.codec, header.size_bytes), seek)) is not None:
                return OffsetResult(*result)
        return None


def _first_record(batch: Buffer, from_offset: int, timestamp_ms: int, limit_bytes: int) -> tuple[int, int] | None:
    return first_record_at(batch, timestamp_ms, from_offset=from_offset, limit_bytes=limit_bytes)
