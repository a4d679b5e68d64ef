"""Paced load: requests that are due at fixed moments, over several connections, from one thread.

Data path   `pace` -> **paced_load** -> `histogram` -> `fixed_rate`, `cold_reads`, `active_connections`
Owns        sending what is due, taking answers meanwhile, waits from the due moment
Leaves      the schedule to `pace`, percentiles to `histogram`

A request is sent when it is due, whether or not those before it were answered; only a connection with `MAX_IN_FLIGHT`
unanswered ones takes no more, and what it delays is paid for, because waits count from the due moment.
"""

import selectors
import time
from collections import deque
from collections.abc import Sequence
from itertools import cycle
from typing import Final

from benchmarks.histogram import Histogram
from benchmarks.pace import Schedule
from benchmarks.raw_client import BrokerRefused, Connection, first_offsets

MAX_IN_FLIGHT: Final = 32
LAST_ANSWERS_S: Final = 20.0


class PacedLoad:
    def __init__(self, connections: Sequence[Connection], requests: Sequence[bytes]) -> None:
        """Each request goes to the next connection, and is the next of `requests`."""
        self._connections = connections
        self._requests = requests
        self._waiting: dict[Connection, deque[float]] = {each: deque() for each in connections}
        self._selector = selectors.DefaultSelector()
        for each in connections:
            self._selector.register(each.sock, selectors.EVENT_READ, each)
        self.waits = Histogram()

    def __repr__(self) -> str:
        return f"<PacedLoad connections={len(self._connections)} {self.waits!r}>"

    def run(self, schedule: Schedule) -> Histogram:
        """Send everything that is due, and wait for all answers."""
        for due, connection, request in zip(schedule, cycle(self._connections), cycle(self._requests), strict=False):
            while (left := due - time.perf_counter()) > 0:
                self._take_answers(left)
            while len(self._waiting[connection]) >= MAX_IN_FLIGHT:
                self._take_answers(LAST_ANSWERS_S)
            connection.send(request)
            self._waiting[connection].append(due)
            self._take_answers(0.0)
        deadline = time.perf_counter() + LAST_ANSWERS_S
        while any(self._waiting.values()):
            if time.perf_counter() > deadline:
                raise BrokerRefused("requests were not answered in time")
            self._take_answers(0.1)
        self._selector.close()
        return self.waits

    def _take_answers(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            connection: Connection = key.data
            first_offsets(connection.receive())
            self.waits.add(time.perf_counter() - self._waiting[connection].popleft())
