"""FanOutFetch: one fetch of many partitions, sent to all their leaders at once.

Data path   HTTP, gRPC -> **fan_out** -> the local broker, and the AgentClient for each remote leader
Owns        which leader is asked for which partitions; when a response has enough records; which errors are retried
Leaves      the leader of a partition to `leader_lookup`; removing aborted records to `format.transactions`

All leaders are first asked without waiting. If there are too few records, all are asked to wait, and the first one
with records ends the wait for all. Requests that still wait then are cancelled. A partition whose leader changes is
asked again until the deadline; while other partitions have records, it counts as one that has none.
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
"""Errors that asking again may cure: it wasn't the caller who chose whom to ask."""


class FanOutRequest(NamedTuple):
    """A read: the partitions, and the limits of its answer."""

    wanted: Sequence[PartitionFetch]
    max_bytes: int
    min_bytes: int


class _LeaderShare(NamedTuple):
    """What one agent is asked for; `address` is None for this one."""

    address: Address | None
    indexes: Sequence[int]
    items: Sequence[tuple[PartitionId, PartitionFetch]]


IsOver = Callable[[Sequence[FetchResult], bool, bool], bool]
"""Whether a round is over: what was found, whether somebody has not answered, whether its pace has passed."""


class FanOut:
    def __init__(self, dependencies: Dependencies, here: LocalBroker, *, leader_lookup: LeaderLookup) -> None:
        self._dependencies = dependencies
        self._here = here
        self._leader_lookup = leader_lookup

    async def look(self, ask: FanOutRequest) -> list[FetchResult]:
        """What everybody has now. Who takes long is not waited for when others have records."""
        before = [FetchResult(name=item.name) for item in ask.wanted]
        laggard_s = self._dependencies.settings.records.laggard_s
        return await self._round(ask, before, _fetch_is_over, wait_s=0.0, pace_s=laggard_s)

    async def wait(
        self, ask: FanOutRequest, before: Sequence[FetchResult], *, wait_s: float, pace_s: float
    ) -> list[FetchResult]:
        """Ask everybody to wait; who is not done when the round ends has what it had `before`.

        The first with records, or with an error that is the caller's, ends it. Trouble ends it too, but not before
        `pace_s` have passed, so that an agent that is away is not asked all the time.
        """
        return await self._round(ask, before, _poll_is_over, wait_s=wait_s, pace_s=pace_s)

    async def _round(
        self, ask: FanOutRequest, before: Sequence[FetchResult], is_over: IsOver, *, wait_s: float, pace_s: float
    ) -> list[FetchResult]:
        found, shares = await self._shares(ask)
        pace = asyncio.ensure_future(self._dependencies.clock.sleep(pace_s))
        tasks = {asyncio.ensure_future(self._ask(each, ask, of=len(shares), wait_s=wait_s)): each for each in shares}
        pending: set[asyncio.Future[Any]] = set(tasks)
        try:
            while not is_over(list(found.values()), bool(pending), pace.done()):
                paced = set() if pace.done() else {pace}
                done, _ = await asyncio.wait(pending | paced, return_when=asyncio.FIRST_COMPLETED)
                pending -= done
                for task, share in tasks.items():
                    if task in done:
                        found.update(zip(share.indexes, task.result(), strict=True))
        finally:
            for work in (*tasks, pace):
                work.cancel()
            await asyncio.gather(*tasks, pace, return_exceptions=True)
        return [found.get(index, before[index]) for index in range(len(ask.wanted))]

    async def _shares(self, ask: FanOutRequest) -> tuple[dict[int, FetchResult], list[_LeaderShare]]:
        """Who has to be asked, and what is known without asking: the troubles of those nobody leads."""
        found: dict[int, FetchResult] = {}
        shares: dict[Address | None, tuple[list[int], list[tuple[PartitionId, PartitionFetch]]]] = {}
        for index, item in enumerate(ask.wanted):
            try:
                location = await self._leader_lookup.find(item.name)
            except StreamhouseError as error:
                found[index] = FetchResult(name=item.name, error=error)
            else:
                indexes, items = shares.setdefault(location.address, ([], []))
                indexes.append(index)
                items.append((location.partition, item))
        return found, [_LeaderShare(address, *share) for address, share in shares.items()]

    async def _ask(self, share: _LeaderShare, ask: FanOutRequest, *, of: int, wait_s: float) -> Sequence[FetchResult]:
        """One agent; where it can't be reached, that is the trouble of each of its partitions."""
        max_bytes = max(ask.max_bytes // of, 1)
        try:
            if share.address is None:
                wanted = [item for _, item in share.items]
                return await self._here.fetch(wanted, max_bytes=max_bytes, min_bytes=ask.min_bytes, max_wait_s=wait_s)
            found = await self._dependencies.peers.fetch(
                share.address,
                share.items,
                max_bytes=max_bytes,
                min_bytes=ask.min_bytes,
                max_wait_s=wait_s,
                timeout_s=wait_s + self._dependencies.settings.peers.timeout_s,
            )
            return [await self._with_range(*item, each) for item, each in zip(share.items, found, strict=True)]
        except StreamhouseError as error:
            return [FetchResult(name=item.name, error=error) for _, item in share.items]

    async def _with_range(self, partition: PartitionId, item: PartitionFetch, found: FetchResult) -> FetchResult:
        """An error of another agent about what is stored, with the offsets that it is about: its code doesn't say."""
        if not isinstance(found.error, CorruptObject):
            return found
        runs = await self._dependencies.metadata.runs(partition, from_offset=item.offset, limit=1)
        if not runs:
            return found
        run, why = runs[0], found.error.why
        error = DamagedRecords(
            item.name,
            base=run.base,
            end=run.end,
            key=run.object_key,
            why=why,
            what="records are missing or damaged at rest",
        )
        return replace(found, error=error)


def has_leader_error(found: Iterable[FetchResult]) -> bool:
    return any(isinstance(each.error, LEADER_ERRORS) for each in found)


def _has_records(found: Iterable[FetchResult]) -> bool:
    return any(each.records or (each.error is not None and not isinstance(each.error, LEADER_ERRORS)) for each in found)


def _fetch_is_over(found: Sequence[FetchResult], is_pending: bool, is_paced: bool) -> bool:
    return not is_pending or (is_paced and _has_records(found))


def _poll_is_over(found: Sequence[FetchResult], is_pending: bool, is_paced: bool) -> bool:
    if _has_records(found):
        return True
    return is_paced if has_leader_error(found) else not is_pending


class FanOutFetch:
    def __init__(self, dependencies: Dependencies, here: LocalBroker, *, leader_lookup: LeaderLookup) -> None:
        self._dependencies = dependencies
        self._here = here
        self._leader_lookup = leader_lookup
        self._rounds = FanOut(dependencies, here, leader_lookup=leader_lookup)

    async def read(
        self, wanted: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]:
        wanted = [each._replace(committed=True) for each in wanted]
        if self._dependencies.alone or not wanted:
            found = await self._here.fetch(wanted, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)
        else:
            found = await self._read_anywhere(wanted, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)
        return [committed(each) for each in found]

    async def _read_anywhere(
        self, wanted: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]:
        settings = self._dependencies.settings
        max_wait_s = min(max_wait_s, settings.fetch.max_wait_s)
        ask = FanOutRequest(wanted, max_bytes=min(max_bytes, settings.fetch.max_bytes), min_bytes=min_bytes)
        waiting = self._dependencies.deadline(max_wait_s)
        deadline = self._dependencies.deadline(max(max_wait_s, settings.records.patience_s))
        found = await self._rounds.look(ask)
        while not self._is_over(ask, found, waiting, deadline):
            moved = [each.name for each in found if isinstance(each.error, LEADER_ERRORS)]
            for name in moved:
                await self._leader_lookup.invalidate(name)
            pace_s = deadline.next_wait_s() if moved else settings.peers.retry_s
            found = await self._rounds.wait(ask, found, wait_s=pace_s if moved else waiting.left_s, pace_s=pace_s)
        if deadline.left_s > 0:
            found = [_without_errors(each) for each in found]
        return trimmed(found, max_bytes=ask.max_bytes)

    def _is_over(
        self, ask: FanOutRequest, found: Sequence[FetchResult], waiting: RetryDeadline, deadline: RetryDeadline
    ) -> bool:
        if is_enough(found, min_bytes=min(ask.min_bytes, ask.max_bytes)):
            return True
        return (deadline if has_leader_error(found) else waiting).left_s <= 0


def is_enough(found: Collection[FetchResult], *, min_bytes: int) -> bool:
    """Whether the caller should have it now: enough records, more than fits, or an error that is the caller's."""
    if any(each.error is not None and not isinstance(each.error, LEADER_ERRORS) for each in found):
        return True
    size_bytes = sum(each.size_bytes for each in found)
    if size_bytes > 0 and size_bytes >= min_bytes:
        return True
    return any(stops_short(each) for each in found)


def committed(found: FetchResult) -> FetchResult:
    """What everybody may see of an answer for who reads committed records; it is all that there is to them."""
    if found.error is not None:
        return found
    records = readable(found.records, found.aborted) if found.records else found.records
    return replace(found, high_watermark=found.last_stable, records=records, aborted=())


def _without_errors(found: FetchResult) -> FetchResult:
    return FetchResult(name=found.name) if isinstance(found.error, LEADER_ERRORS) else found


def trimmed(found: Iterable[FetchResult], *, max_bytes: int) -> list[FetchResult]:
    """Every leader gives a batch, however small its share of the answer; what is too much then is left for the next
    read."""
    kept: list[FetchResult] = []
    left_bytes = max_bytes
    for each in found:
        if each.records and left_bytes < max_bytes and each.size_bytes > left_bytes:
            each = replace(each, records=(), aborted=())
        left_bytes -= each.size_bytes
        kept.append(each)
    return kept
