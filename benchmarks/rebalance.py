"""Rebalance: how long until a group of a hundred members has one assignment, and again after one more joins?

Data path   members, a thread each -> **rebalance** -> `runner`
Owns        the five requests of classic groups, and when a group counts as settled
Leaves      connections to `raw_client`

A member joins, syncs, sends heartbeats, and joins again when it hears of a rebalance, as clients do; only the interval
of heartbeats is shorter (`HEARTBEAT_S`), so that the broker is seen and not the interval. FindCoordinator 2, JoinGroup
3, SyncGroup 2, Heartbeat 2 and LeaveGroup 2 are versions that Kafka 4 and StreamHouse both have and that need no tags.
"""

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from benchmarks.measure import Answer, Plan, Reading
from benchmarks.peer import Peer
from benchmarks.raw_client import CLIENT_ID, BrokerRefused, Connection

FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 10, 11, 12, 13, 14
VERSION: Final = {FIND_COORDINATOR: 2, JOIN_GROUP: 3, HEARTBEAT: 2, LEAVE_GROUP: 2, SYNC_GROUP: 2}
# Of Kafka's error codes: a coordinator that loads or isn't there yet, an old generation, a rebalance, no such member.
TRY_AGAIN: Final = frozenset({14, 15, 16, 22, 27})
UNKNOWN_MEMBER: Final = 25
HEARTBEAT_S: Final = 0.05
RETRY_S: Final = 0.02
SESSION_MS: Final = 30_000
LIMIT_S: Final = 60.0


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def request(api: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api, VERSION[api], 0, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


class Cursor:
    """A cursor over an answer without tags, behind its correlation id and throttle time."""

    def __init__(self, response: memoryview) -> None:
        self._answer, self._at = response, 8

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def text(self) -> str:
        return bytes(self._take(self.int16())).decode()

    def blob(self) -> bytes:
        return bytes(self._take(self.int32()))

    def _take(self, count: int) -> memoryview:
        self._at += count
        return self._answer[self._at - count : self._at]


class Group:
    """What all members of a group know together: how many there shall be, and which generation has as many."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.changed = threading.Condition()
        self.is_over = False
        self.failure: Exception | None = None
        self._sizes: dict[int, int] = {}
        self._assigned: dict[int, int] = {}

    def has_size(self, generation: int, members: int) -> None:
        with self.changed:
            self._sizes[generation] = members

    def is_assigned(self, generation: int) -> None:
        """A member of this generation has its assignment."""
        with self.changed:
            self._assigned[generation] = self._assigned.get(generation, 0) + 1
            self.changed.notify_all()

    def fail(self, error: Exception) -> None:
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()

    def wait_settled(self, members: int) -> None:
        """Until every member of a generation with as many has its assignment."""
        with self.changed:
            settled = self.changed.wait_for(lambda: self.failure or self._is_settled(members), LIMIT_S)
        if self.failure is not None:
            raise self.failure
        if not settled:
            raise BrokerRefused(f"the group did not settle in {LIMIT_S:.0f} s; members={members}")

    def _is_settled(self, members: int) -> bool:
        return any(size == members == self._assigned.get(each) for each, size in self._sizes.items())


class Member(threading.Thread):
    """One member: joins and follows every rebalance until the group is over, then leaves."""

    def __init__(self, connection: Connection, group: Group) -> None:
        super().__init__(daemon=True)
        self._connection, self._group = connection, group
        self._id = ""

    def run(self) -> None:
        try:
            while not self._group.is_over:
                generation = self._join_and_sync()
                if generation is not None:
                    self._group.is_assigned(generation)
                    self._beat(generation)
            self._ask(LEAVE_GROUP, text(self._group.name) + text(self._id))
        except (OSError, BrokerRefused) as error:
            self._group.fail(error)

    def _ask(self, api: int, body: bytes) -> Cursor:
        return Cursor(self._connection.call(request(api, body)))

    def _join_and_sync(self) -> int | None:
        """The generation whose assignment it has got; None when that has to be tried again."""
        group = text(self._group.name)
        times = struct.pack(">ii", SESSION_MS, SESSION_MS)
        protocols = struct.pack(">i", 1) + text("range") + blob(b"")
        joined = self._ask(JOIN_GROUP, group + times + text(self._id) + text("consumer") + protocols)
        if self._is_rejected(joined.int16()):
            return None
        generation = joined.int32()
        joined.text()
        leader, self._id = joined.text(), joined.text()
        shares: list[bytes] = []
        if leader == self._id:
            for _ in range(joined.int32()):
                shares.append(text(joined.text()) + blob(b"a share"))
                joined.blob()
            self._group.has_size(generation, len(shares))
        assignments = struct.pack(">i", len(shares)) + b"".join(shares)
        synced = self._ask(SYNC_GROUP, group + struct.pack(">i", generation) + text(self._id) + assignments)
        return None if self._is_rejected(synced.int16()) else generation

    def _beat(self, generation: int) -> None:
        """Until there is a rebalance, or the group is over."""
        body = text(self._group.name) + struct.pack(">i", generation) + text(self._id)
        while not self._group.is_over and not self._is_rejected(self._ask(HEARTBEAT, body).int16()):
            time.sleep(HEARTBEAT_S)

    def _is_rejected(self, code: int) -> bool:
        if code == 0:
            return False
        if code == UNKNOWN_MEMBER:
            self._id = ""
        elif code not in TRY_AGAIN:
            raise BrokerRefused(f"a member was refused; group={self._group.name} error_code={code}")
        time.sleep(RETRY_S)
        return True


def wait_for_coordinator(connection: Connection, group: str) -> None:
    """Kafka makes the topic of its coordinators when somebody looks for one first."""
    deadline = time.perf_counter() + LIMIT_S
    while code := Cursor(connection.call(request(FIND_COORDINATOR, text(group) + b"\0"))).int16():
        if code not in TRY_AGAIN or time.perf_counter() > deadline:
            raise BrokerRefused(f"no coordinator; group={group} error_code={code}")
        time.sleep(RETRY_S)


class Rebalance:
    name = "groups"
    question = "How long does a rebalance of a large group take?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        self._settle(peer, 3, "warm-up")
        first_s, more_s, cpu_s = self._settle(peer, plan.group_members, "large")
        label = f"a group of {plan.group_members}"
        yield Reading(scenario=f"{label}, all join", metric="settled", value=first_s)
        yield Reading(scenario=f"{label}, one more joins", metric="settled", value=more_s)
        yield Reading(scenario=f"{label}, both rebalances", metric="cpu of the broker", value=cpu_s)

    def _settle(self, peer: Peer, members: int, name: str) -> tuple[float, float, float]:
        group = Group(f"bench-{name}-{members}")
        with peer.connect() as connection:
            wait_for_coordinator(connection, group.name)
        with ExitStack() as stack:
            connections = [stack.enter_context(peer.connect()) for _ in range(members + 1)]
            threads = [Member(connection, group) for connection in connections]
            cpu_s, began = peer.cpu_s(), time.perf_counter()
            try:
                for thread in threads[:-1]:
                    thread.start()
                group.wait_settled(members)
                first, began = time.perf_counter() - began, time.perf_counter()
                threads[-1].start()
                group.wait_settled(members + 1)
                return first, time.perf_counter() - began, peer.cpu_s() - cpu_s
            finally:
                group.is_over = True
                for thread in threads:
                    if thread.ident is not None:
                        thread.join(LIMIT_S)
