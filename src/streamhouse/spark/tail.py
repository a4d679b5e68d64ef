"""Tail: records that are in no segment yet, from the agent that leads their partition.

Data path   split -> **read_tail** -> agent's raw batches over HTTP -> Arrow -> Spark
Owns        going on until the piece is read; what an agent's refusal means here
Leaves      finding the leader to the agent that is asked; decoding to `reading`

What was flushed meanwhile is no matter: agents serve it just as well.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from streamhouse.client.http import Answer
from streamhouse.client.loop_thread import LoopThread
from streamhouse.errors import DataLost, Rejected, Unavailable
from streamhouse.format.batch import spans
from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents import Agents, told_why
from streamhouse.spark.plan import Piece

OUT_OF_RANGE: Final = 416
EMPTY_ANSWERS: Final = 10
"""Answers without records, each after a second of waiting, before a task gives up on an offset below the end."""

Decode = Callable[[Sequence[bytes], Piece], "pa.RecordBatch | None"]


def read_tail(loop: LoopThread, piece: Piece, address: str, decode: Decode) -> Iterator[pa.RecordBatch]:
    """The records of a piece, in batches as the agent answers."""
    agents = loop.run(_connect(address))
    try:
        offset, empty = piece.start, 0
        while offset < piece.end:
            data = _batches(loop.run(agents.batches(piece.place, offset)), piece.place, offset)
            following = max((span.end for span in spans(data)), default=offset)
            empty = 0 if following > offset else empty + 1
            if empty >= EMPTY_ANSWERS:
                raise Unavailable(
                    f"the leader doesn't have what it had; partition={piece.place} offset={offset} end={piece.end}"
                )
            batch = decode([data], replace(piece, start=offset)) if data else None
            if batch is not None:
                yield batch
            offset = max(offset, following)
    finally:
        loop.run(agents.__aexit__(None, None, None))


async def _connect(address: str) -> Agents:
    return Agents(address)


def _batches(answer: Answer, place: TopicPartition, offset: int) -> bytes:
    if answer.status == OUT_OF_RANGE:
        raise DataLost(
            f"records are gone; partition={place} offset={offset} why={told_why(answer)}"
            " do=keep them longer (retention.ms), or start later (startingOffsets)"
        )
    if answer.status >= 400:
        raise Rejected(told_why(answer))
    return answer.content
