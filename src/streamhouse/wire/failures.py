"""Failures: a client that is refused and asks again at once, without end, waits a little longer each time.

Data path   beside each wire, after a request was refused and before its client is told
Owns        what counts as asking again; how long a refusal is held back
Leaves      what a refusal is, and waiting, to each wire

A client that waits between its tries, as all that are written well do, is never held back: it may be refused `per_s`
times a second for ever, and a second's worth of times at once. Requests that were sent before the client knew of its
last refusal are not held back, and count little: all that a producer had under way to a leader that has moved is
refused at once. Time that the client had to wait here is none in which it calmed down, so who goes on is held back
longer and longer, up to `max_delay_s`; and that is forgotten within moments once it stops.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

UNKNOWING: Final = 1 / 16
"""What a try counts of a client that did not know yet of its last refusal."""


class _Tries(NamedTuple):
    left: float
    told_at: float


class Failures:
    """The clients that were refused lately, by connection; of more than `clients` the longest silent are forgotten."""

    def __init__(self, per_s: float, *, max_delay_s: float, clients: int) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s)
        self._max_delay_s = max_delay_s
        self._limit = clients
        self._tries: OrderedDict[str, _Tries] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Failures per_s={self._per_s:g} max_delay_s={self._max_delay_s:g} clients={len(self._tries)}>"

    def __len__(self) -> int:
        return len(self._tries)

    def delay_s(self, client: str, *, asked_at: float, now: float) -> float:
        """Count a refusal, and say how long to hold it back. Times by the monotonic clock."""
        known = self._tries.pop(client, None) or _Tries(self._most, -1.0)
        if asked_at < known.told_at:
            self._tries[client] = _Tries(self._bounded(known.left - UNKNOWING), known.told_at)
            return 0.0
        left = self._bounded(min(self._most, known.left + max(0.0, now - known.told_at) * self._per_s) - 1)
        delay_s = max(0.0, -left / self._per_s)
        self._tries[client] = _Tries(left, now + delay_s)
        if len(self._tries) > self._limit:
            self._tries.popitem(last=False)
        return delay_s

    def _bounded(self, left: float) -> float:
        return max(left, -self._max_delay_s * self._per_s)

    def forget(self, client: str) -> None:
        """Its connection is over."""
        self._tries.pop(client, None)
