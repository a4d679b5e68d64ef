"""After any fault, every member that keeps joining gets an assignment: no member waits forever.

A joining member waits for the others at most as long as the rebalance timeout, for one that is gone at most as long as
its session, and where the group is new as long as the delay of its first rebalance. The oracle is what members were
told, not what the group thinks of itself.
"""

from functools import partial

import pytest

from streamhouse.model.group import GroupState
from tests.broker.groups.liveness import HEARTBEAT_S, JOIN_PAUSE_S, REBALANCE_S, SESSION_S, TROUBLE_S, Member, World
from tests.support.depth import random_seeds, scaled

# A static member that hangs is waited for, told by its next heartbeat that it is behind, and removed a session later;
# the others are told by their next heartbeat.
BOUND_S = REBALANCE_S + HEARTBEAT_S + SESSION_S + HEARTBEAT_S + JOIN_PAUSE_S + 1
SEEDS = scaled(quick=150, nightly=5000)


def trouble(world: World) -> list[Member]:
    """Members come, die, leave, hang and are slow, and the coordinator loses its lease; returns all members."""
    chance = world.chance
    members: list[Member] = []

    def begin() -> None:
        static = f"i{len(members)}" if chance.random() < 0.2 else None
        members.append(Member(world, f"c{len(members)}", is_java=chance.random() < 0.5, instance_id=static))
        members[-1].join()

    def end() -> None:
        member = chance.choice(members)
        if not member.keeps_joining:
            return
        match chance.choice(["dies", "leaves", "hangs"]):
            case "dies":
                member.is_dead = True
            case "leaves":
                member.leave()
            case "hangs":
                member.get_stuck()

    for _ in range(chance.choice([1, 2, 4])):
        world.after(chance.random() * chance.choice([0.1, TROUBLE_S]), begin)
    for _ in range(chance.choice([0, 0, 1, 3])):
        world.after(chance.random() * TROUBLE_S, lambda: end() if members else None)
    for _ in range(chance.choice([0, 1, 3])):
        for_s = chance.choice([0.1, 3.0, 10.0])
        world.after(chance.random() * (TROUBLE_S - for_s), partial(world.coordinator.lose, for_s))
    world.run(TROUBLE_S)
    if chance.random() < 0.5 or not any(member.keeps_joining for member in members):
        begin()
    return members


def is_settled(world: World, members: list[Member]) -> bool:
    """Whether all that keep joining have an assignment of the group's generation, and no former member is in it."""
    group = world.coordinator.group
    if group is None or group.state is not GroupState.STABLE:
        return False
    good = [member for member in members if member.keeps_joining]
    hanging = {member.member_id for member in members if member.is_stuck}
    result = {member.member_id for member in good if member.is_steady and member.generation == group.generation}
    return len(result) == len(good) and result == {each.member_id for each in group.roster} - hanging


def check(seed: int, *, initial_delay_s: float) -> bool:
    """Returns whether there was something to wait for after the trouble."""
    world = World(seed, initial_delay_s=initial_delay_s)
    members = trouble(world)
    was_settled = is_settled(world, members)
    world.run(BOUND_S + initial_delay_s)
    assert is_settled(world, members), f"seed={seed} {members} {world.coordinator.group!r}"
    kept_s = world.run(3 * SESSION_S, until=lambda: not is_settled(world, members))
    assert is_settled(world, members), f"seed={seed} kept_s={kept_s:.1f} {members} {world.coordinator.group!r}"
    return not was_settled


@pytest.mark.parametrize("initial_delay_s", [0.0, 3.0])
def test_every_member_that_keeps_joining_gets_an_assignment(initial_delay_s: float) -> None:
    waits = sum(check(seed, initial_delay_s=initial_delay_s) for seed in random_seeds(SEEDS))
    assert waits > SEEDS / 2
