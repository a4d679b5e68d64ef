"""Rates: how often one client may ask.

Data path   HTTP and gRPC, before anything is done for a request
Owns        a bucket of turns for each client address, and how long to wait for the next turn
Leaves      refusing or waiting to each wire; Kafka clients are paced by the budget of bytes in flight
"""

from collections import OrderedDict
from typing import NamedTuple


class _Bucket(NamedTuple):
    turns: float
    at: float


class Rates:
    """Every client has `per_s` turns a second, and may save up one second's worth. Of more than `clients` addresses
    those that were silent longest are forgotten, and begin with a full bucket again."""

    def __init__(self, per_s: float, *, clients: int) -> None:
        self._per_s = per_s
        self._limit = clients
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Rates per_s={self._per_s:g} clients={len(self._buckets)}>"

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, client: str, now: float) -> float:
        """Take a turn and return 0, or return how long it takes until there is one."""
        bucket = self._buckets.pop(client, None) or _Bucket(max(1.0, self._per_s), now)
        turns = min(max(1.0, self._per_s), bucket.turns + (now - bucket.at) * self._per_s)
        granted = turns >= 1
        self._buckets[client] = _Bucket(turns - 1 if granted else turns, now)
        if len(self._buckets) > self._limit:
            self._buckets.popitem(last=False)
        return 0.0 if granted else (1 - turns) / self._per_s
