"""Deadlines: which group must be looked at next.

Owns        one time per group, the earliest that was asked for
Leaves      what is due then to `state`, sleeping to `coordinator`

Times that move further away are not moved here: the group is looked at too early once, says when to come back, and that
is all that a heartbeat costs.
"""

import heapq
from math import inf
from typing import Final

SLACK: Final = 64
"""Times that may be in the heap though they were overtaken, besides one for each group."""


class Deadlines:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._times: dict[str, float] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"<Deadlines groups={len(self._times)} next={self.next():.3f}>"

    def next(self) -> float:
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else inf

    def set(self, group_id: str, at: float) -> None:
        """Look at the group then, unless that is to happen earlier anyway."""
        if at < self._times.get(group_id, inf):
            self._times[group_id] = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, group_id))
            if len(self._heap) > 2 * len(self._times) + SLACK:
                self._compact()

    def _compact(self) -> None:
        """Drop the times that were overtaken by earlier ones."""
        self._heap = [entry for entry in self._heap if self._times.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)

    def forget(self, group_id: str) -> None:
        self._times.pop(group_id, None)

    def take_due(self, now: float) -> list[str]:
        """The groups whose time has come, earliest first; each must be set anew."""
        due: list[str] = []
        while self.next() <= now:
            _, _, group_id = heapq.heappop(self._heap)
            del self._times[group_id]
            due.append(group_id)
        return due
