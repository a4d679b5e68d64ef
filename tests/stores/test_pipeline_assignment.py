"""Who should run what: even shares, few moves, and every pipeline with one owner in the end."""

import random
from dataclasses import replace

import pytest

from streamhouse.model.pipeline import (
    Definition,
    DesiredState,
    Heartbeat,
    Kind,
    Ownership,
    Pipeline,
    PipelineName,
    PipelineReport,
    Status,
    StoredPipeline,
    Supervisor,
    SupervisorId,
)
from streamhouse.stores.metadata.pipeline_assignment import Assignment, assign_pipelines
from tests.support.depth import scaled


class House:
    """Pipelines and supervisors that all heartbeat, without a database."""

    def __init__(self, pipelines: int, slots: dict[str, int]) -> None:
        self.slots = slots
        self.owners: dict[str, str | None] = {f"p{number:03}": None for number in range(pipelines)}
        self.running: dict[str, set[str]] = {name: set() for name in slots}
        self.moves = 0

    def beat(self, who: str) -> Assignment:
        listed = tuple(PipelineReport(name=PipelineName(name), epoch=1) for name in sorted(self.running[who]))
        heartbeat = Heartbeat(supervisor=SupervisorId(who), host="", slots=self.slots[who], running=listed)
        others = [self._supervisor(name) for name in self.slots if name != who]
        shares = assign_pipelines(heartbeat, [self._kept(name) for name in self.owners], others, now_ms=0)
        for name in shares.released:
            self.owners[name] = None
        for name in shares.taken:
            assert self.owners[name] is None
            self.owners[name] = who
            self.moves += 1
        self.running[who] = set(shares.assigned)
        return shares

    def _supervisor(self, name: str) -> Supervisor:
        owned = tuple(PipelineName(each) for each, owner in self.owners.items() if owner == name)
        return Supervisor(
            supervisor=SupervisorId(name), host="", slots=self.slots[name], expires_at_ms=1, pipelines=owned
        )

    def _kept(self, name: str) -> StoredPipeline:
        owner = self.owners[name]
        lease = None if owner is None else Ownership(supervisor=SupervisorId(owner), epoch=1, expires_at_ms=1)
        pipeline = Pipeline(
            definition=Definition(name=PipelineName(name), kind=Kind.SQL, text=""),
            revision=1,
            generation=1,
            query_id="",
            starting=None,
            wish=DesiredState.RUN,
            created_at_ms=0,
            changed_at_ms=0,
        )
        return StoredPipeline(pipeline=pipeline, owner=lease, status=Status())

    def settle(self, chance: random.Random) -> None:
        names = list(self.slots)
        for _ in range(scaled(quick=7, nightly=100)):
            chance.shuffle(names)
            for name in names:
                self.beat(name)

    def counts(self) -> list[int]:
        return sorted(len(each) for each in self.running.values())


@pytest.mark.parametrize("seed", range(scaled(quick=7, nightly=100)))
def test_shares_become_even_and_stay_so(seed: int) -> None:
    chance = random.Random(seed)
    house = House(chance.randrange(40), {f"s{number}": 100 for number in range(chance.randrange(1, 6))})
    house.settle(chance)
    assert sum(house.counts()) == len(house.owners)
    assert max(house.counts()) - min(house.counts()) <= 1
    house.slots["new"], house.running["new"] = 100, set()
    house.settle(chance)
    assert sum(house.counts()) == len(house.owners)
    assert max(house.counts()) - min(house.counts()) <= 1
    before = house.moves
    house.settle(chance)
    assert house.moves == before


@pytest.mark.parametrize("seed", range(scaled(quick=7, nightly=100)))
def test_few_slots_here_are_no_reason_for_waiting_elsewhere(seed: int) -> None:
    chance = random.Random(seed)
    slots = {f"s{number}": chance.randrange(8) for number in range(4)}
    house = House(20, slots)
    house.settle(chance)
    assert sum(house.counts()) == min(20, sum(slots.values()))
    assert all(len(house.running[name]) <= slots[name] for name in slots)


def test_a_dead_one_is_free_for_others_and_its_owner_may_go_on() -> None:
    house = House(1, {"a": 1, "b": 1})
    house.beat("a")
    kept = house._kept("p000")
    late = 1
    mine = Heartbeat(
        supervisor=SupervisorId("a"), host="", slots=1, running=(PipelineReport(name=PipelineName("p000"), epoch=1),)
    )
    assert assign_pipelines(mine, [kept], [], now_ms=late).renewed == ("p000",)
    theirs = replace(mine, supervisor=SupervisorId("b"), running=())
    assert assign_pipelines(theirs, [kept], [], now_ms=late).taken == ("p000",)
    assert assign_pipelines(theirs, [kept], [], now_ms=late - 1).taken == ()
