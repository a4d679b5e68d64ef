"""Tail reader: records from the leader of their partition, above all those that are in no segment yet.

Data path   split -> **read_tail** -> agent's raw batches over HTTP -> Arrow -> Spark
Owns        requests until the range is read; what error responses mean
Leaves      finding the leader to the agent that gets the request; decoding to `split_reader`

Records that are flushed meanwhile are still served by agents, and so are segments, for executors without a key to the
bucket.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from streamhouse.errors import DataLost, Rejected, Unavailable
from streamhouse.format.batch import iter_batches
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import SyncAgentClient, connect, error_detail
from streamhouse.spark.datasource.split_planner import SegmentRange

log = logging.getLogger(__name__)

OUT_OF_RANGE: Final = 416
EMPTY_ANSWERS: Final = 10
"""Responses without records, each after a second of waiting, before a task gives up on an offset below the end."""
Decode = Callable[[Sequence[bytes], SegmentRange], Iterator[pa.RecordBatch]]


def read_tail(
    piece: SegmentRange, address: AgentAddress, decode: Decode, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a range, a batch per response."""
    agents = connect(address)
    offset, empty = piece.start, 0
    while offset < piece.end:
        response = agents.batches(piece.partition, offset)
        if response.status == OUT_OF_RANGE:
            offset = _after_lost(agents, piece, offset, error_detail(response), fails=fail_on_data_loss)
            continue
        if response.status >= 400:
            raise Rejected(error_detail(response))
        data = response.content
        following = max((span.end for span in iter_batches(data)), default=offset)
        empty = 0 if following > offset else empty + 1
        if empty >= EMPTY_ANSWERS:
            raise Unavailable(
                f"the leader no longer has these records; partition={piece.partition} offset={offset} end={piece.end}"
            )
        if data:
            yield from decode([data], replace(piece, start=offset))
        offset = max(offset, following)


def _after_lost(agents: SyncAgentClient, piece: SegmentRange, offset: int, why: str, *, fails: bool) -> int:
    """The offset at which to continue after expired or deleted records."""
    lost = f"records are gone; partition={piece.partition} offset={offset} error={why}"
    if fails:
        raise DataLost(
            f"{lost} do=keep them longer (retention.ms), or set failOnDataLoss=false to continue without them"
        )
    log.warning(lost)
    bounds = agents.log_bounds([piece.partition])[piece.partition]
    return bounds.log_start if offset < bounds.log_start else piece.end
