"""Runs: how answers tell where records of a partition stand in the object store.

Data path   plans, maintenance -> **runs** -> JSON
Owns        the shape of a run, and of transactions that make some of its records void
Leaves      which runs are told to the routes, and in which partitions they are
"""

from collections.abc import Iterable

import msgspec

from streamhouse.model.segment import Run
from streamhouse.model.transaction import AbortedTransaction


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets [base, end) of a partition under one epoch, in `length` bytes of an object from `position` on.

    Offsets in the object count from `stored_base`: add `base - stored_base` to each.
    """

    key: str
    base: int
    end: int
    epoch: int
    stored_base: int
    position: int
    length: int
    index_position: int
    index_length: int
    records: int
    max_timestamp_ms: int


def run_view(run: Run) -> RunView:
    return RunView(
        key=run.object_key,
        base=run.base,
        end=run.end,
        epoch=run.epoch,
        stored_base=run.stored_base,
        position=run.position,
        length=run.length,
        index_position=run.index_position,
        index_length=run.index_length,
        records=run.records,
        max_timestamp_ms=run.max_timestamp_ms,
    )


class AbortedView(msgspec.Struct, frozen=True, kw_only=True):
    """An aborted transaction: what its producer wrote in one, from `first_offset` to the marker at `last_offset`, is
    void."""

    producer_id: int
    first_offset: int
    last_offset: int


def aborted_views(aborted: Iterable[AbortedTransaction]) -> list[AbortedView]:
    return [AbortedView(producer_id=each[0], first_offset=each[1], last_offset=each[2]) for each in aborted]
