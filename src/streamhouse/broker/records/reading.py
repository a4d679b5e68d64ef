"""Reading: many partitions, led here and elsewhere, in one answer; waits for all of them at once.

Data path   HTTP, gRPC -> **reading** -> round: broker.fetch, and Doors.peers per other leader
Owns        when an answer is good enough, which trouble is told and which is waited out; that it is committed records
Leaves      asking everybody at once to `rounds`, who leads to `seats`, what of batches stays to `format.isolation`

First everybody is looked at without waiting; then, if there was too little, everybody is asked to wait, and the first
to have something ends it for all. A partition whose leader is on the move is asked again until patience ends; as long
as others have something, it counts as one that has nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from streamhouse.broker.doors import Doors
from streamhouse.broker.reading.fetch import Fetched, Wanted, stops_short
from streamhouse.broker.records.here import Here
from streamhouse.broker.records.patience import Patience
from streamhouse.broker.records.rounds import MOVED, Ask, Rounds, has_moved
from streamhouse.broker.records.seats import Seats
from streamhouse.format.isolation import readable


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
        waiting = Patience(self._doors, max_wait_s)
        patience = Patience(self._doors, max(max_wait_s, settings.records.patience_s))
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
