"""Rates: how often one client may ask, or connect.

Data path   HTTP and gRPC, before anything is done for a request; admission, before anything is read
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
        self.per_s = per_s
        self._limit = clients
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Rates per_s={self.per_s:g} clients={len(self._buckets)}>"

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, client: str, now: float) -> float:
        """Take a turn and return 0, or return how long it takes until there is one."""
        turns = self._turns(client, now)
        granted = turns >= 1
        self._keep(client, turns - 1 if granted else turns, now)
        return 0.0 if granted else (1 - turns) / self.per_s

    def reserve_s(self, client: str, now: float, *, within_s: float) -> float | None:
        """Take the next turn, one of the future if need be, and return how long it is until then; None, and no turn is
        taken, where that is longer than `within_s`."""
        turns = self._turns(client, now)
        wait_s = max(0.0, (1 - turns) / self.per_s)
        is_soon = wait_s <= within_s
        self._keep(client, turns - 1 if is_soon else turns, now)
        return wait_s if is_soon else None

    def _turns(self, client: str, now: float) -> float:
        most = max(1.0, self.per_s)
        bucket = self._buckets.pop(client, None) or _Bucket(most, now)
        return min(most, bucket.turns + (now - bucket.at) * self.per_s)

    def _keep(self, client: str, turns: float, now: float) -> None:
        self._buckets[client] = _Bucket(turns, now)
        if len(self._buckets) > self._limit:
            self._buckets.popitem(last=False)
