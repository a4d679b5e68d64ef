"""Rounds: everybody who leads one of some partitions is asked at the same time.

Data path   reading -> **rounds** -> broker.fetch here, Doors.peers elsewhere
Owns        who is asked for what, ending the wait for all when one has something
Leaves      what is done with the answers to `reading`

Nothing of a round outlives it: whoever still waits when it ends, or when its reader goes, is cancelled.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from streamhouse.broker.doors import Doors
from streamhouse.broker.reading.fetch import Fetched, Wanted
from streamhouse.broker.records.here import Here
from streamhouse.broker.records.seats import Seats
from streamhouse.errors import (
    CorruptObject,
    DamagedRecords,
    FencedLeaderEpoch,
    Retriable,
    StreamhouseError,
    UnknownLeaderEpoch,
)
from streamhouse.model.lease import Address
from streamhouse.model.names import PartitionId

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
