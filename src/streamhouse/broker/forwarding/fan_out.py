"""FanOutFetch: one fetch of many partitions, sent to all their leaders at once.

Data path   HTTP, gRPC -> **fan_out** -> the local broker, and the AgentClient for each remote leader
Owns        which leader serves which partitions; when a response has enough records; which errors are retried
Leaves      the leader of a partition to `leader_lookup`; removing aborted records to `format.transactions`

The first fetch of each leader does not wait. If there are too few records, a long poll goes to every leader, and the
first one with records ends it for all; the others are cancelled. A partition whose leader changes is fetched again
until the deadline; while other partitions have records, it counts as one that has none.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.fetch.fetch import stops_short
from streamhouse.broker.forwarding.leader_lookup import LeaderLookup, LocalBroker
from streamhouse.config.fields import Address
from streamhouse.errors import (
    CorruptObject,
    DamagedRecords,
    FencedLeaderEpoch,
    Retriable,
    StreamhouseError,
    UnknownLeaderEpoch,
)
from streamhouse.format.transactions import readable
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import PartitionId
from streamhouse.retry import RetryDeadline

LEADER_ERRORS: Final = (Retriable, FencedLeaderEpoch, UnknownLeaderEpoch)
"""Errors that a retry may cure, because this agent chose the leader, not the client."""


class FanOutRequest(NamedTuple):
    """The partitions of a read, and the limits of its response."""

    fetches: Sequence[PartitionFetch]
    max_bytes: int
    min_bytes: int


class _LeaderShare(NamedTuple):
    """The partitions that one leader serves; `address` is None for this agent."""

    address: Address | None
    indexes: Sequence[int]
    items: Sequence[tuple[PartitionId, PartitionFetch]]


IsOver = Callable[[Sequence[FetchResult], bool, bool], bool]
"""Whether a round is over: the results so far, whether a leader has not responded yet, whether the pace has passed."""


class FanOut:
    def __init__(self, dependencies: Dependencies, here: LocalBroker, *, leader_lookup: LeaderLookup) -> None:
        self._dependencies = dependencies
        self._here = here
        self._leader_lookup = leader_lookup

    async def fetch_now(self, request: FanOutRequest) -> list[FetchResult]:
        """Fetch from all leaders without waiting. A slow leader is left out once others have records."""
        before = [FetchResult(name=item.name) for item in request.fetches]
        laggard_s = self._dependencies.settings.records.laggard_s
        return await self._round(request, before, _fetch_is_over, wait_s=0.0, pace_s=laggard_s)

    async def long_poll(
        self, request: FanOutRequest, before: Sequence[FetchResult], *, wait_s: float, pace_s: float
    ) -> list[FetchResult]:
        """Long-poll all leaders; a partition without a result when the round ends keeps its result of `before`.

        The first leader with records, or with an error that the client caused, ends the round. A leader error ends it
        too, but not before `pace_s` have passed, so that an unreachable agent is not retried in a tight loop.
        """
        return await self._round(request, before, _poll_is_over, wait_s=wait_s, pace_s=pace_s)

    async def _round(
        self, request: FanOutRequest, before: Sequence[FetchResult], is_over: IsOver, *, wait_s: float, pace_s: float
    ) -> list[FetchResult]:
        results, shares = await self._shares(request)
        pace = asyncio.ensure_future(self._dependencies.clock.sleep(pace_s))
        tasks = {
            asyncio.ensure_future(self._fetch_share(each, request, of=len(shares), wait_s=wait_s)): each
            for each in shares
        }
        pending: set[asyncio.Future[Any]] = set(tasks)
        try:
            while not is_over(list(results.values()), bool(pending), pace.done()):
                paced = set() if pace.done() else {pace}
                done, _ = await asyncio.wait(pending | paced, return_when=asyncio.FIRST_COMPLETED)
                pending -= done
                for task, share in tasks.items():
                    if task in done:
                        results.update(zip(share.indexes, task.result(), strict=True))
        finally:
            for work in (*tasks, pace):
                work.cancel()
            await asyncio.gather(*tasks, pace, return_exceptions=True)
        return [results.get(index, before[index]) for index in range(len(request.fetches))]

    async def _shares(self, request: FanOutRequest) -> tuple[dict[int, FetchResult], list[_LeaderShare]]:
        """Group the partitions by leader; also returns errors of partitions that have no known leader."""
        results: dict[int, FetchResult] = {}
        shares: dict[Address | None, tuple[list[int], list[tuple[PartitionId, PartitionFetch]]]] = {}
        for index, item in enumerate(request.fetches):
            try:
                location = await self._leader_lookup.locate(item.name)
            except StreamhouseError as error:
                results[index] = FetchResult(name=item.name, error=error)
            else:
                indexes, items = shares.setdefault(location.address, ([], []))
                indexes.append(index)
                items.append((location.partition, item))
        return results, [_LeaderShare(address, *share) for address, share in shares.items()]

    async def _fetch_share(
        self, share: _LeaderShare, request: FanOutRequest, *, of: int, wait_s: float
    ) -> Sequence[FetchResult]:
        """Fetch from one leader; an error of the request becomes the error of each of its partitions."""
        max_bytes = max(request.max_bytes // of, 1)
        try:
            if share.address is None:
                fetches = [item for _, item in share.items]
                return await self._here.fetch(
                    fetches, max_bytes=max_bytes, min_bytes=request.min_bytes, max_wait_s=wait_s
                )
            results = await self._dependencies.agents.fetch(
                share.address,
                share.items,
                max_bytes=max_bytes,
                min_bytes=request.min_bytes,
                max_wait_s=wait_s,
                timeout_s=wait_s + self._dependencies.settings.peers.timeout_s,
            )
            return [await self._with_range(*item, each) for item, each in zip(share.items, results, strict=True)]
        except StreamhouseError as error:
            return [FetchResult(name=item.name, error=error) for _, item in share.items]

    async def _with_range(self, partition: PartitionId, item: PartitionFetch, result: FetchResult) -> FetchResult:
        """Add the damaged offsets to a remote agent's CorruptObject, whose error code does not carry them."""
        if not isinstance(result.error, CorruptObject):
            return result
        runs = await self._dependencies.metadata.runs(partition, from_offset=item.offset, limit=1)
        if not runs:
            return result
        run, why = runs[0], result.error.why
        error = DamagedRecords(
            item.name,
            base=run.base,
            end=run.end,
            key=run.object_key,
            why=why,
            what="records are missing or damaged at rest",
        )
        return replace(result, error=error)


def has_leader_error(results: Iterable[FetchResult]) -> bool:
    return any(isinstance(each.error, LEADER_ERRORS) for each in results)


def _has_records(results: Iterable[FetchResult]) -> bool:
    return any(
        each.records or (each.error is not None and not isinstance(each.error, LEADER_ERRORS)) for each in results
    )


def _fetch_is_over(results: Sequence[FetchResult], is_pending: bool, is_paced: bool) -> bool:
    return not is_pending or (is_paced and _has_records(results))


def _poll_is_over(results: Sequence[FetchResult], is_pending: bool, is_paced: bool) -> bool:
    if _has_records(results):
        return True
    return is_paced if has_leader_error(results) else not is_pending


class FanOutFetch:
    def __init__(self, dependencies: Dependencies, here: LocalBroker, *, leader_lookup: LeaderLookup) -> None:
        self._dependencies = dependencies
        self._here = here
        self._leader_lookup = leader_lookup
        self._fan_out = FanOut(dependencies, here, leader_lookup=leader_lookup)

    async def read(
        self,
        fetches: Sequence[PartitionFetch],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_s: float,
        is_committed: bool = True,
    ) -> list[FetchResult]:
        fetches = [each._replace(committed=is_committed) for each in fetches]
        if self._dependencies.single_agent or not fetches:
            results = await self._here.fetch(fetches, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)
        else:
            results = await self._read_anywhere(
                fetches, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s
            )
        return [committed(each) for each in results] if is_committed else list(results)

    async def _read_anywhere(
        self, fetches: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]:
        settings = self._dependencies.settings
        max_wait_s = min(max_wait_s, settings.fetch.max_wait_s)
        request = FanOutRequest(fetches, max_bytes=min(max_bytes, settings.fetch.max_bytes), min_bytes=min_bytes)
        waiting = self._dependencies.deadline(max_wait_s)
        deadline = self._dependencies.deadline(max(max_wait_s, settings.records.patience_s))
        results = await self._fan_out.fetch_now(request)
        while not self._is_over(request, results, waiting, deadline):
            lost_leaders = [each.name for each in results if isinstance(each.error, LEADER_ERRORS)]
            for name in lost_leaders:
                await self._leader_lookup.invalidate(name)
            pace_s = deadline.next_wait_s() if lost_leaders else settings.peers.retry_s
            results = await self._fan_out.long_poll(
                request, results, wait_s=pace_s if lost_leaders else waiting.left_s, pace_s=pace_s
            )
        if deadline.left_s > 0:
            results = [_without_errors(each) for each in results]
        return trimmed(results, max_bytes=request.max_bytes)

    def _is_over(
        self, request: FanOutRequest, results: Sequence[FetchResult], waiting: RetryDeadline, deadline: RetryDeadline
    ) -> bool:
        if is_enough(results, min_bytes=min(request.min_bytes, request.max_bytes)):
            return True
        return (deadline if has_leader_error(results) else waiting).left_s <= 0


def is_enough(results: Collection[FetchResult], *, min_bytes: int) -> bool:
    """Whether to respond now: enough records, more than fits, or an error that the client caused."""
    if any(each.error is not None and not isinstance(each.error, LEADER_ERRORS) for each in results):
        return True
    size_bytes = sum(each.size_bytes for each in results)
    if size_bytes > 0 and size_bytes >= min_bytes:
        return True
    return any(stops_short(each) for each in results)


def committed(result: FetchResult) -> FetchResult:
    """The result with read_committed: the last stable offset as the high watermark, without aborted records."""
    if result.error is not None:
        return result
    records = readable(result.records, result.aborted) if result.records else result.records
    return replace(result, high_watermark=result.last_stable, records=records, aborted=())


def _without_errors(result: FetchResult) -> FetchResult:
    return FetchResult(name=result.name) if isinstance(result.error, LEADER_ERRORS) else result


def trimmed(results: Iterable[FetchResult], *, max_bytes: int) -> list[FetchResult]:
    """Drop records beyond `max_bytes`. Every leader returns at least one batch, however small its share of the bytes;
    the next read fetches what is dropped."""
    results_kept: list[FetchResult] = []
    left_bytes = max_bytes
    for each in results:
        if each.records and left_bytes < max_bytes and each.size_bytes > left_bytes:
            each = replace(each, records=(), aborted=())
        left_bytes -= each.size_bytes
        results_kept.append(each)
    return results_kept
