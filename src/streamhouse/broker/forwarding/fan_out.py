"""Rounds: everybody who leads one of some partitions is asked at the same time.

Data path   reading -> **rounds** -> broker.fetch here, Doors.peers elsewhere
Owns        who is asked for what, ending the wait for all when one has something
Leaves      what is done with the answers to `reading`

Nothing of a round outlives it: whoever still waits when it ends, or when its reader goes, is cancelled.

Reading: many partitions, led here and elsewhere, in one answer; waits for all of them at once.

Data path   HTTP, gRPC -> **reading** -> round: broker.fetch, and Doors.peers per other leader
Owns        when an answer is good enough, which trouble is told and which is waited out; that it is committed records
Leaves      asking everybody at once to `rounds`, who leads to `seats`, what of batches stays to `format.isolation`

First everybody is looked at without waiting; then, if there was too little, everybody is asked to wait, and the first
to have something ends it for all. A partition whose leader is on the move is asked again until patience ends; as long
as others have something, it counts as one that has nothing.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from streamhouse.broker.dependencies import Doors
from streamhouse.broker.fetch.fetch import Fetched, Wanted, stops_short
from streamhouse.broker.forwarding.leader_lookup import Here, Seats
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
from streamhouse.model.names import PartitionId
from streamhouse.retry import Patience

MOVED: Final = (Retriable, FencedLeaderEpoch, UnknownLeaderEpoch)
"""Errors that asking again may cure: it wasn't the caller who chose whom to ask."""


class Ask(NamedTuple):
    """A read: the partitions, and the limits of its answer."""

    wanted: Sequence[Wanted]
    max_bytes: int
    min_bytes: int


class _Share(NamedTuple):
    """What one agent is asked for; `address` is None for this one."""

    address: Address | None
    indexes: Sequence[int]
    items: Sequence[tuple[PartitionId, Wanted]]


IsOver = Callable[[Sequence[Fetched], bool, bool], bool]
"""Whether a round is over: what was found, whether somebody has not answered, whether its pace has passed."""


class Rounds:
    def __init__(self, doors: Doors, here: Here, *, seats: Seats) -> None:
        self._doors = doors
        self._here = here
        self._seats = seats

    async def look(self, ask: Ask) -> list[Fetched]:
        """What everybody has now. Who takes long is not waited for when others have records."""
        before = [Fetched(name=item.name) for item in ask.wanted]
        laggard_s = self._doors.settings.records.laggard_s
        return await self._round(ask, before, _look_is_over, wait_s=0.0, pace_s=laggard_s)

    async def wait(self, ask: Ask, before: Sequence[Fetched], *, wait_s: float, pace_s: float) -> list[Fetched]:
        """Ask everybody to wait; who is not done when the round ends has what it had `before`.

        The first with records, or with an error that is the caller's, ends it. Trouble ends it too, but not before
        `pace_s` have passed, so that an agent that is away is not asked all the time.
        """
        return await self._round(ask, before, _wait_is_over, wait_s=wait_s, pace_s=pace_s)

    async def _round(
        self, ask: Ask, before: Sequence[Fetched], is_over: IsOver, *, wait_s: float, pace_s: float
    ) -> list[Fetched]:
        found, shares = await self._shares(ask)
        pace = asyncio.ensure_future(self._doors.clock.sleep(pace_s))
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

    async def _shares(self, ask: Ask) -> tuple[dict[int, Fetched], list[_Share]]:
        """Who has to be asked, and what is known without asking: the troubles of those nobody leads."""
        found: dict[int, Fetched] = {}
        shares: dict[Address | None, tuple[list[int], list[tuple[PartitionId, Wanted]]]] = {}
        for index, item in enumerate(ask.wanted):
            try:
                seat = await self._seats.find(item.name)
            except StreamhouseError as error:
                found[index] = Fetched(name=item.name, error=error)
            else:
                indexes, items = shares.setdefault(seat.address, ([], []))
                indexes.append(index)
                items.append((seat.partition, item))
        return found, [_Share(address, *share) for address, share in shares.items()]

    async def _ask(self, share: _Share, ask: Ask, *, of: int, wait_s: float) -> Sequence[Fetched]:
        """One agent; where it can't be reached, that is the trouble of each of its partitions."""
        max_bytes = max(ask.max_bytes // of, 1)
        try:
            if share.address is None:
                wanted = [item for _, item in share.items]
                return await self._here.fetch(wanted, max_bytes=max_bytes, min_bytes=ask.min_bytes, max_wait_s=wait_s)
            found = await self._doors.peers.fetch(
                share.address,
                share.items,
                max_bytes=max_bytes,
                min_bytes=ask.min_bytes,
                max_wait_s=wait_s,
                timeout_s=wait_s + self._doors.settings.peers.timeout_s,
            )
            return [await self._with_range(*item, each) for item, each in zip(share.items, found, strict=True)]
        except StreamhouseError as error:
            return [Fetched(name=item.name, error=error) for _, item in share.items]

    async def _with_range(self, partition: PartitionId, item: Wanted, found: Fetched) -> Fetched:
        """An error of another agent about what is stored, with the offsets that it is about: its code doesn't say."""
        if not isinstance(found.error, CorruptObject):
            return found
        runs = await self._doors.metadata.runs(partition, from_offset=item.offset, limit=1)
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


def has_moved(found: Iterable[Fetched]) -> bool:
    return any(isinstance(each.error, MOVED) for each in found)


def _has_something(found: Iterable[Fetched]) -> bool:
    return any(each.records or (each.error is not None and not isinstance(each.error, MOVED)) for each in found)


def _look_is_over(found: Sequence[Fetched], is_pending: bool, is_paced: bool) -> bool:
    return not is_pending or (is_paced and _has_something(found))


def _wait_is_over(found: Sequence[Fetched], is_pending: bool, is_paced: bool) -> bool:
    if _has_something(found):
        return True
    return is_paced if has_moved(found) else not is_pending


class Reading:
    def __init__(self, doors: Doors, here: Here, *, seats: Seats) -> None:
        self._doors = doors
        self._here = here
        self._seats = seats
        self._rounds = Rounds(doors, here, seats=seats)

    async def read(
        self, wanted: Sequence[Wanted], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[Fetched]:
        wanted = [each._replace(committed=True) for each in wanted]
        if self._doors.alone or not wanted:
            found = await self._here.fetch(wanted, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)
        else:
            found = await self._read_anywhere(wanted, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)
        return [committed(each) for each in found]

    async def _read_anywhere(
        self, wanted: Sequence[Wanted], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[Fetched]:
        settings = self._doors.settings
        max_wait_s = min(max_wait_s, settings.fetch.max_wait_s)
        ask = Ask(wanted, max_bytes=min(max_bytes, settings.fetch.max_bytes), min_bytes=min_bytes)
        waiting = self._doors.patience(max_wait_s)
        patience = self._doors.patience(max(max_wait_s, settings.records.patience_s))
        found = await self._rounds.look(ask)
        while not self._is_over(ask, found, waiting, patience):
            moved = [each.name for each in found if isinstance(each.error, MOVED)]
            for name in moved:
                await self._seats.look_again(name)
            pace_s = patience.next_wait_s() if moved else settings.peers.retry_s
            found = await self._rounds.wait(ask, found, wait_s=pace_s if moved else waiting.left_s, pace_s=pace_s)
        if patience.left_s > 0:
            found = [_without_trouble(each) for each in found]
        return trimmed(found, max_bytes=ask.max_bytes)

    def _is_over(self, ask: Ask, found: Sequence[Fetched], waiting: Patience, patience: Patience) -> bool:
        if is_enough(found, min_bytes=min(ask.min_bytes, ask.max_bytes)):
            return True
        return (patience if has_moved(found) else waiting).left_s <= 0


def is_enough(found: Collection[Fetched], *, min_bytes: int) -> bool:
    """Whether the caller should have it now: enough records, more than fits, or an error that is the caller's."""
    if any(each.error is not None and not isinstance(each.error, MOVED) for each in found):
        return True
    size_bytes = sum(each.size_bytes for each in found)
    if size_bytes > 0 and size_bytes >= min_bytes:
        return True
    return any(stops_short(each) for each in found)


def committed(found: Fetched) -> Fetched:
    """What everybody may see of an answer for who reads committed records; it is all that there is to them."""
    if found.error is not None:
        return found
    records = readable(found.records, found.aborted) if found.records else found.records
    return replace(found, high_watermark=found.last_stable, records=records, aborted=())


def _without_trouble(found: Fetched) -> Fetched:
    return Fetched(name=found.name) if isinstance(found.error, MOVED) else found


def trimmed(found: Iterable[Fetched], *, max_bytes: int) -> list[Fetched]:
    """Every leader gives a batch, however small its share of the answer; what is too much then is left for the next
    read."""
    kept: list[Fetched] = []
    left_bytes = max_bytes
    for each in found:
        if each.records and left_bytes < max_bytes and each.size_bytes > left_bytes:
            each = replace(each, records=(), aborted=())
        left_bytes -= each.size_bytes
        kept.append(each)
    return kept
