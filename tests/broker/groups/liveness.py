"""A group with its coordinator, its store and its members in virtual time, and whatever can go wrong between them.

Owns        the coordinator around the state machine: writes one after the other, some slow, failed or of unknown
            outcome; its end, and the next one that loads what is durable; requests and responses that get lost
Leaves      the machine itself to the product; what must hold to the test

Members do what librdkafka and Java's consumer do after each response. They differ in two ways: only Java sends
heartbeats while it waits for its assignment, and only librdkafka pauses before it joins again. Neither gives a request
up by itself: clients have a time limit for that, which would hide a call that is never answered.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from streamhouse.broker.groups.coordinator import GroupDeadlines
from streamhouse.broker.groups.group_state import Group
from streamhouse.broker.groups.rebalance import Action, Reply, WriteGroup
from streamhouse.config import GroupSettings
from streamhouse.errors import (
    CoordinatorUnavailable,
    FencedInstance,
    IllegalGeneration,
    MemberIdRequired,
    NotCoordinator,
    StreamhouseError,
    UnknownMember,
)
from streamhouse.model.group import StoredGroup
from streamhouse.model.group_requests import JoinRequest, JoinResult, LeaveRequest, MemberRef, SyncRequest, SyncResult
from tests.broker.groups.machine import offers

SESSION_S: Final = 6.0
REBALANCE_S: Final = 12.0
HEARTBEAT_S: Final = 2.0
JOIN_PAUSE_S: Final = 1.0
LOOKUP_S: Final = 0.5
LOSS: Final = 0.05
BEGIN_S: Final = 1000.0
TROUBLE_S: Final = 40.0

Response = JoinResult | SyncResult | StreamhouseError | Literal["done"] | None
"""None: the connection was lost."""


class World:
    def __init__(self, seed: int, *, initial_delay_s: float) -> None:
        self.chance = random.Random(seed)
        self.settings = GroupSettings(initial_rebalance_delay_s=initial_delay_s, new_member_timeout_s=30.0)
        self.now = BEGIN_S
        self.coordinator = Coordinator(self)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, act))

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """Let time pass, at most until something holds; returns how long it took."""
        begin, end = self.now, self.now + seconds
        while not until():
            at = min(self._events[0][0] if self._events else end, self.coordinator.deadlines.next(), end)
            self.now = max(self.now, at)
            if self.coordinator.deadlines.next() <= self.now:
                self.coordinator.tick()
            elif self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            if at >= end:
                break
        return self.now - begin

    @property
    def is_troubled(self) -> bool:
        return self.now < BEGIN_S + TROUBLE_S

    def happens(self, share: float) -> bool:
        return self.is_troubled and self.chance.random() < share

    def slowly(self, *seconds: float) -> float:
        """One of these times, but no longer than the trouble lasts."""
        return min(self.chance.choice(seconds), max(BEGIN_S + TROUBLE_S - self.now, 0.0))


class Coordinator:
    def __init__(self, world: World) -> None:
        self._world = world
        self.group: Group | None = None
        self.deadlines = GroupDeadlines()
        self._durable: StoredGroup | None = None
        self._is_up = True
        self._life = 0
        self._queue: list[WriteGroup] = []
        self._is_writing = False
        self._ids = 0

    def new_id(self) -> str:
        self._ids += 1
        return f"m{self._ids}"

    def call(self, act: "Callable[[Group, Call], list[Action]]", call: "Call", *, creates: bool = False) -> None:
        if not self._is_up:
            return call.reply(NotCoordinator("g", why="it is down"))
        if self.group is None:
            if not creates:
                return call.reply(UnknownMember("g", member_id=""))
            self.group = Group("g", self._world.settings)
        try:
            self._perform(act(self.group, call))
        except StreamhouseError as error:
            call.reply(error)
        return None

    def tick(self) -> None:
        for _ in self.deadlines.take_due(self._world.now):
            if self.group is not None:
                self._perform(self.group.tick(self._world.now))

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Reply):
                assert isinstance(action.token, Call)
                action.token.reply(action.response)
            else:
                self._queue.append(action)
        self._write()
        if self.group is not None:
            self.deadlines.set("g", self.group.next_deadline())

    # --- the store

    def _write(self) -> None:
        if self._is_writing or not self._queue:
            return
        batch, self._queue = self._queue, []
        self._is_writing = True
        chance, life = self._world.chance, self._life
        fails = self._world.happens(0.3)
        is_applied = not fails or chance.random() < 0.5
        slow_s = 0.01 + self._world.slowly(0.0, 0.5, 5.0)
        self._world.after(slow_s, lambda: self._written(life, batch, fails=fails, is_applied=is_applied))

    def _written(self, life: int, batch: list[WriteGroup], *, fails: bool, is_applied: bool) -> None:
        if life != self._life:  # fenced by the next coordinator's epoch
            return
        self._is_writing = False
        if is_applied:
            self._durable = batch[-1].group
        error = CoordinatorUnavailable("g", why="the store is away") if fails else None
        for write in batch:
            if self.group is not None:
                self._perform(self.group.stored(self._world.now, write.number, error))
        self._write()

    # --- its end

    def lose(self, for_s: float) -> None:
        """The lease is gone: every waiting call is answered, and what is durable is loaded again after a while."""
        if not self._is_up:
            return
        if self.group is not None:
            self._perform(self.group.drop(NotCoordinator("g", why="the lease is gone")))
        self.group, self._is_up, self._is_writing = None, False, False
        self._queue.clear()
        self._life += 1
        self.deadlines.forget("g")
        self._world.after(for_s, self._take)

    def _take(self) -> None:
        self._is_up = True
        if self._durable is not None:
            self.group = Group.load(self._durable, self._world.settings, now=self._world.now)
            self.deadlines.set("g", self.group.next_deadline())


class Call:
    """One request of a member; its response is for the caller only as long as it waits."""

    def __init__(self, world: World, received: Callable[[Response], None]) -> None:
        self._world = world
        self._received: Callable[[Response], None] | None = received
        self.is_answered = False

    def reply(self, response: Response) -> None:
        assert not self.is_answered, "answered twice"
        self.is_answered = True
        self._world.after(0.001, lambda: self.hear(None if self._world.happens(LOSS) else response))

    def hear(self, response: Response) -> None:
        received, self._received = self._received, None
        if received is not None:
            received(response)


@dataclass(eq=False)
class Member:
    world: World
    name: str
    is_java: bool
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    is_steady: bool = False
    is_dead: bool = False
    is_stuck: bool = False
    attempt: int = 0
    """Of joining: what belongs to an earlier one is ignored."""

    @property
    def keeps_joining(self) -> bool:
        return not (self.is_dead or self.is_stuck)

    # --- requests

    def _send(
        self,
        act: Callable[[Group, Call], list[Action]],
        received: Callable[[Response], None],
        *,
        creates: bool = False,
    ) -> None:
        world, attempt = self.world, self.attempt
        call = Call(world, lambda response: self._current(attempt, lambda: received(response)))
        if world.happens(LOSS):
            world.after(world.slowly(0.001, SESSION_S), lambda: call.reply(None))
        else:
            world.after(0.001, lambda: world.coordinator.call(act, call, creates=creates))

    def _current(self, attempt: int, act: Callable[[], None]) -> None:
        if attempt == self.attempt and not self.is_dead:
            pause_s = self.world.slowly(1.0, 2 * SESSION_S) if self.world.happens(0.02) else 0.0
            self.world.after(pause_s, lambda: act() if attempt == self.attempt and not self.is_dead else None)

    def join(self) -> None:
        self.attempt += 1
        self.is_steady = False
        request = JoinRequest(
            member_id=self.member_id,
            instance_id=self.instance_id,
            session_timeout_ms=round(SESSION_S * 1000),
            rebalance_timeout_ms=round(REBALANCE_S * 1000),
            protocol_type="consumer",
            protocols=offers("range"),
        )

        def act(group: Group, call: Call) -> list[Action]:
            new_id = self.world.coordinator.new_id()
            return group.join(self.world.now, request, call, new_member_id=new_id)

        self._send(act, self._joined, creates=not self.member_id)

    def _joined(self, response: Response) -> None:
        if not isinstance(response, JoinResult):
            return self._failed(response)
        self.member_id, self.generation = response.member_id, response.generation
        assignments = {each.member_id: each.member_id.encode() for each in response.members}
        if self.is_java:
            self._heartbeat_later()
        slow_s = self.world.slowly(0.1, SESSION_S / 2, 2 * SESSION_S, 2 * REBALANCE_S)
        assigns_s = slow_s if self.world.happens(0.2) else 0.01
        attempt = self.attempt
        self.world.after(assigns_s, lambda: self._current(attempt, lambda: self._sync(assignments)))
        return None

    def _sync(self, assignments: dict[str, bytes]) -> None:
        request = SyncRequest(
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            assignments=assignments,
        )
        self._send(lambda group, call: group.sync(self.world.now, request, call), self._synced)

    def _synced(self, response: Response) -> None:
        if not isinstance(response, SyncResult):
            return self._failed(response)
        self.is_steady = True
        if not self.is_java:
            self._heartbeat_later()
        return None

    def _heartbeat_later(self) -> None:
        attempt = self.attempt
        self.world.after(HEARTBEAT_S, lambda: self._current(attempt, self._heartbeat))

    def _heartbeat(self) -> None:
        caller = MemberRef(member_id=self.member_id, instance_id=self.instance_id, generation=self.generation)

        def act(group: Group, call: Call) -> list[Action]:
            group.heartbeat(self.world.now, caller)
            call.reply("done")
            return []

        self._send(act, self._beaten)

    def _beaten(self, response: Response) -> None:
        """A member that can't reach its coordinator keeps its assignment and goes on trying; one that waits for its
        assignment learns from that response what became of the group."""
        if self.is_stuck:
            if not isinstance(response, (UnknownMember, FencedInstance, IllegalGeneration)):
                self._heartbeat_later()
        elif response in ("done", None) or isinstance(response, NotCoordinator) or not self.is_steady:
            self._heartbeat_later()
        else:
            self._failed(response)

    def _failed(self, response: Response) -> None:
        pause_s = 0.0 if self.is_java else JOIN_PAUSE_S
        match response:
            case MemberIdRequired():
                self.member_id, pause_s = response.member_id, 0.0
            case UnknownMember() | FencedInstance():
                self.member_id = ""
            case NotCoordinator() | CoordinatorUnavailable() | None:
                pause_s += LOOKUP_S
        self.attempt += 1
        attempt = self.attempt
        self.world.after(pause_s, lambda: self._current(attempt, self.join))

    def get_stuck(self) -> None:
        """Its application hangs: heartbeats are all that it does from now on."""
        self.attempt += 1
        self.is_stuck = True
        self._heartbeat_later()

    def leave(self) -> None:
        self.is_dead = True
        leaver = LeaveRequest(member_id=self.member_id, instance_id=self.instance_id)

        def act(group: Group, call: Call) -> list[Action]:
            return group.leave(self.world.now, [leaver])[1]

        self.world.coordinator.call(act, Call(self.world, lambda _: None))
