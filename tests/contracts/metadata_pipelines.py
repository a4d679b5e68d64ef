"""What every metadata store must do for tables, pipelines, supervisors and SQL workers."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from streamhouse.errors import PipelineLimit
from streamhouse.model.access import Principal
from streamhouse.model.pipeline import (
    Definition,
    DesiredState,
    Event,
    Heartbeat,
    Kind,
    Phase,
    Pipeline,
    PipelineLimits,
    PipelineName,
    PipelineReport,
    Shape,
    SqlWorker,
    Status,
    StoredPipeline,
    SupervisorId,
    WorkerId,
)
from streamhouse.model.table import Column, Connector, Table
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.clocks import ManualClock
from tests.contracts.metadata_scene import MetadataScene

LEASE_MS = 15_000
ROOM = 1000
LIMITS = PipelineLimits(max_pipelines=ROOM, max_versions=ROOM)
ANNA = SupervisorId("anna")
BERT = SupervisorId("bert")
ORDERS_TABLE = Table(
    name="orders",
    connector=Connector.TOPIC,
    columns=(Column(name="id", type="BIGINT"),),
    key=("id",),
    options={"format": "json"},
    text="CREATE TABLE orders",
)


def pipeline(name: str = "revenue", *, kind: Kind = Kind.SQL, generation: int = 1, revision: int = 1) -> Pipeline:
    definition = Definition(
        name=PipelineName(name),
        kind=kind,
        text=f"CREATE PIPELINE {name} AS INSERT INTO out SELECT 'ä' FROM STREAM(orders)",
        options={"trigger": "1 second"},
        target="out",
        key=("id",),
        columns=(Column(name="id", type="BIGINT"),),
        shape=Shape(
            streams=("orders",),
            state=("aggregate id",),
            target="out",
            tables=("orders=topic o",),
            query=("Aggregate [id]",),
            signature="1:abc",
        ),
    )
    return Pipeline(
        definition=definition,
        revision=revision,
        generation=generation,
        query_id=f"{name} {generation}",
        starting="latest",
        wish=DesiredState.RUN,
        created_at_ms=0,
        changed_at_ms=0,
    )


async def put(store: MetadataStore, *names: str, kind: Kind = Kind.SQL) -> None:
    for name in names:
        assert await store.put_pipeline(pipeline(name, kind=kind), expected=None, limits=LIMITS)


async def find(store: MetadataStore, name: str = "revenue") -> StoredPipeline:
    result = await store.find_pipeline(PipelineName(name))
    assert result is not None
    return result


async def change(store: MetadataStore, changed: Pipeline) -> None:
    before = await find(store, changed.definition.name)
    assert await store.put_pipeline(changed, expected=before.pipeline, limits=LIMITS)


async def beat(
    store: MetadataStore,
    supervisor: SupervisorId = ANNA,
    running: dict[str, int] | None = None,
    *,
    slots: int = 16,
    status: Status | None = None,
    events: tuple[Event, ...] = (),
    max_events: int = ROOM,
    max_supervisors: int = ROOM,
) -> dict[str, int]:
    """Send a heartbeat with pipelines by name and epoch; returns the assigned pipelines."""
    listed = tuple(
        PipelineReport(name=PipelineName(name), epoch=epoch, status=status, events=events)
        for name, epoch in (running or {}).items()
    )
    assigned = await store.heartbeat_supervisor(
        Heartbeat(supervisor=supervisor, host=f"{supervisor}.example", slots=slots, running=listed),
        ttl_ms=LEASE_MS,
        max_events=max_events,
        max_supervisors=max_supervisors,
    )
    assert all(each.owner is not None and each.owner.supervisor == supervisor for each in assigned)
    return {each.name: each.owner.epoch for each in assigned if each.owner is not None}


class PipelineContract(MetadataScene):
    # --- tables

    async def test_a_table_is_kept_changed_and_dropped(self, store: MetadataStore) -> None:
        assert await store.put_table(ORDERS_TABLE, max_tables=ROOM)
        assert not await store.put_table(ORDERS_TABLE, max_tables=ROOM)
        assert await store.find_table("orders") == ORDERS_TABLE
        bare = Table(name="orders", connector=Connector.TOPIC)
        assert await store.put_table(bare, max_tables=ROOM)
        assert list(await store.tables()) == [bare]
        assert await store.drop_table("orders")
        assert not await store.drop_table("orders")
        assert await store.find_table("orders") is None

    async def test_there_is_a_limit_of_tables(self, store: MetadataStore) -> None:
        await store.put_table(ORDERS_TABLE, max_tables=1)
        await store.put_table(replace(ORDERS_TABLE, key=()), max_tables=1)
        with pytest.raises(PipelineLimit, match=r"tables\.max_tables"):
            await store.put_table(replace(ORDERS_TABLE, name="clicks"), max_tables=1)

    # --- pipelines

    async def test_a_pipeline_is_as_it_was_put(self, store: MetadataStore, clock: ManualClock) -> None:
        await put(store, "revenue")
        result = await find(store)
        assert result.owner is None
        assert result.status == Status()
        assert result.pipeline.created_at_ms == result.pipeline.changed_at_ms == await store.now_ms()
        assert replace(result.pipeline, created_at_ms=0, changed_at_ms=0) == pipeline()
        assert list(await store.pipelines()) == [result]
        assert await store.find_pipeline(PipelineName("other")) is None

    async def test_a_change_is_made_to_what_it_was_decided_by_or_not_at_all(self, store: MetadataStore) -> None:
        await put(store, "revenue")
        assert not await store.put_pipeline(pipeline(), expected=None, limits=LIMITS)
        first = (await find(store)).pipeline
        paused = replace(first, wish=DesiredState.PAUSE)
        assert await store.put_pipeline(paused, expected=first, limits=LIMITS)
        assert not await store.put_pipeline(replace(first, revision=2), expected=first, limits=LIMITS)
        assert (await find(store)).pipeline.wish is DesiredState.PAUSE

    async def test_there_is_a_limit_of_pipelines(self, store: MetadataStore) -> None:
        await put(store, "revenue")
        with pytest.raises(PipelineLimit, match=r"pipelines\.max_pipelines"):
            await store.put_pipeline(pipeline("other"), expected=None, limits=replace(LIMITS, max_pipelines=1))

    async def test_a_pipeline_goes_with_its_log(self, store: MetadataStore) -> None:
        await put(store, "revenue")
        assigned = await beat(store)
        await beat(store, running=assigned, events=(Event(at_ms=1, level="info", text="started"),))
        assert await store.drop_pipeline(PipelineName("revenue"))
        assert not await store.drop_pipeline(PipelineName("revenue"))
        assert await store.pipelines() == []
        await put(store, "revenue")
        assert await store.pipeline_events(PipelineName("revenue"), 10) == []

    async def test_the_newest_versions_of_a_definition_are_kept_with_who_applied_them(
        self, store: MetadataStore, clock: ManualClock
    ) -> None:
        name, limits = PipelineName("revenue"), replace(LIMITS, max_versions=3)

        async def put(revision: int, text: str, by: str, **other: Any) -> None:
            clock.advance(ms=1)
            before = await store.find_pipeline(name)
            first = pipeline() if before is None else before.pipeline
            definition = replace(first.definition, text=text, runs_as=Principal("User", by), **other)
            after = replace(first, definition=definition, revision=revision)
            expected = None if before is None else before.pipeline
            assert await store.put_pipeline(after, expected=expected, limits=limits)

        await put(1, "one", "anna")
        made_at_ms = await store.now_ms()
        await put(2, "one", "anna")  # a restart
        await put(2, "one", "anna", shape=None, columns=None)  # what is inferred
        await put(2, "one", "bert")
        await put(3, "two", "bert")
        versions = await store.pipeline_versions(name, ROOM)
        assert [(each.revision, each.definition.text, str(each.definition.runs_as)) for each in versions] == [
            (3, "two", "User:bert"),
            (2, "one", "User:bert"),
            (1, "one", "User:anna"),
        ]
        assert versions[-1].applied_at_ms == made_at_ms < versions[0].applied_at_ms == await store.now_ms()
        assert versions[-1].definition == replace(
            pipeline().definition, text="one", runs_as=Principal("User", "anna"), columns=None, shape=None
        )
        await put(4, "three", "bert")
        assert [each.revision for each in await store.pipeline_versions(name, ROOM)] == [4, 3, 2]
        assert [each.revision for each in await store.pipeline_versions(name, 1)] == [4]
        await store.drop_pipeline(name)
        assert await store.pipeline_versions(name, ROOM) == []

    # --- who runs them

    async def test_a_supervisor_gets_what_nobody_owns_and_keeps_it(
        self, store: MetadataStore, clock: ManualClock
    ) -> None:
        await put(store, "b", "a")
        assigned = await beat(store)
        assert list(assigned) == ["a", "b"]
        clock.advance(ms=LEASE_MS - 1)
        assert await beat(store, running=assigned) == assigned
        clock.advance(ms=LEASE_MS - 1)
        assert await beat(store, BERT) == {}
        owner = (await find(store, "a")).owner
        assert owner is not None
        assert (owner.supervisor, owner.host, owner.epoch) == (ANNA, "anna.example", assigned["a"])

    async def test_pipelines_of_a_dead_supervisor_are_taken_over_under_a_new_epoch(
        self, store: MetadataStore, clock: ManualClock
    ) -> None:
        await put(store, "a", "b")
        before = await beat(store)
        clock.advance(ms=LEASE_MS)
        assert (await find(store, "a")).owner is None
        after = await beat(store, BERT)
        assert after.keys() == {"a", "b"}
        assert min(after.values()) > max(before.values())
        assert await beat(store, running=before) == {}  # back from the dead, it is told to stop

    async def test_a_lease_that_is_over_goes_on_when_nobody_has_taken_it(
        self, store: MetadataStore, clock: ManualClock
    ) -> None:
        await put(store, "a")
        assigned = await beat(store)
        clock.advance(ms=10 * LEASE_MS)
        assert await beat(store, running=assigned) == assigned

    async def test_what_a_supervisor_no_longer_lists_is_free(self, store: MetadataStore) -> None:
        await put(store, "a", "b")
        assigned = await beat(store)
        await beat(store, BERT)
        again = await beat(store, running={"a": assigned["a"]})
        assert again == {"a": assigned["a"]}
        assert (await find(store, "b")).owner is None
        assert (await beat(store, BERT)).keys() == {"b"}

    async def test_alone_a_supervisor_that_has_lost_a_response_gets_its_pipelines_at_once(
        self, store: MetadataStore
    ) -> None:
        await put(store, "a")
        lost = await beat(store)
        result = await beat(store)
        assert result["a"] > lost["a"]

    async def test_paused_pipelines_are_let_go_and_not_given_again(self, store: MetadataStore) -> None:
        await put(store, "a")
        assigned = await beat(store)
        paused = replace((await find(store, "a")).pipeline, wish=DesiredState.PAUSE)
        await change(store, paused)
        assert await beat(store, running=assigned) == {}
        assert (await find(store, "a")).owner is not None  # until it has stopped
        assert await beat(store) == {}
        assert (await find(store, "a")).owner is None
        await change(store, replace(paused, wish=DesiredState.RUN))
        assert (await beat(store))["a"] > assigned["a"]

    async def test_supervisors_share_evenly_and_a_new_one_gets_its_share(self, store: MetadataStore) -> None:
        await put(store, "a", "b", "c", "d")
        annas = await beat(store)
        assert len(annas) == 4
        assert await beat(store, BERT) == {}
        staying = await beat(store, running=annas)
        assert staying == {"a": annas["a"], "b": annas["b"]}
        assert await beat(store, BERT) == {}  # they are stopping
        assert await beat(store, running=staying) == staying
        berts = await beat(store, BERT)
        assert berts.keys() == {"c", "d"}
        assert await beat(store, running=staying) == staying
        assert await beat(store, BERT, running=berts) == berts

    async def test_slots_are_a_limit_and_others_take_what_is_left(self, store: MetadataStore) -> None:
        await put(store, "a", "b", "c", "d", "e")
        assert await beat(store, slots=0) == {}
        annas = await beat(store, slots=1)
        assert len(annas) == 1
        assert len(await beat(store, BERT)) == 4

    async def test_one_pipeline_moves_to_who_has_fewer_by_two(self, store: MetadataStore) -> None:
        await beat(store)
        await beat(store, BERT)
        await put(store, "a", "b", "c", "d")
        carol = SupervisorId("carol")
        annas = await beat(store)
        assert len(annas) == 2
        berts = await beat(store, BERT)
        assert len(berts) == 2
        assert await beat(store, carol) == {}
        assert len(await beat(store, running=annas)) == 1

    async def test_what_is_done_is_not_given_again_until_it_changes(self, store: MetadataStore) -> None:
        await put(store, "a")
        assigned = await beat(store)
        await beat(store, running=assigned, status=Status(phase=Phase.DONE))
        assert await beat(store) == {}
        assert await beat(store) == {}
        again = (await find(store, "a")).pipeline
        await change(store, replace(again, revision=2))
        assert (await beat(store)).keys() == {"a"}

    async def test_what_is_done_takes_nobodys_place(self, store: MetadataStore) -> None:
        await put(store, "a")
        assigned = await beat(store, slots=1)
        assert await beat(store, running=assigned, slots=1, status=Status(phase=Phase.DONE)) == assigned
        await put(store, "b")
        assert (await beat(store, running=assigned, slots=1)).keys() == {"a", "b"}

    async def test_a_new_generation_ends_the_epoch_and_stays_with_its_owner(self, store: MetadataStore) -> None:
        await put(store, "revenue")
        before = await beat(store)
        await change(store, pipeline(revision=2, generation=2))
        after = await beat(store, running=before)
        assert after["revenue"] > before["revenue"]
        assert await beat(store, running=after) == after

    async def test_epochs_go_on_when_a_pipeline_is_deleted_and_made_again(self, store: MetadataStore) -> None:
        await put(store, "a")
        before = await beat(store)
        await store.drop_pipeline(PipelineName("a"))
        assert await beat(store, running=before) == {}
        await put(store, "a")
        assert (await beat(store))["a"] > before["a"]

    async def test_epochs_go_on_in_a_database_that_begins_anew(self, store: MetadataStore, clock: ManualClock) -> None:
        """A table that another database's owners wrote to has their epochs."""
        await put(store, "a", "b")
        assert min((await beat(store)).values()) > clock.now_ms()

    async def test_a_supervisor_that_leaves_frees_all_at_once(self, store: MetadataStore) -> None:
        await put(store, "a", "b")
        await beat(store)
        await store.remove_supervisor(ANNA)
        await store.remove_supervisor(ANNA)
        assert await store.supervisors() == []
        assert (await beat(store, BERT)).keys() == {"a", "b"}

    async def test_supervisors_that_are_alive_are_listed_with_what_they_own(
        self, store: MetadataStore, clock: ManualClock
    ) -> None:
        await put(store, "a")
        await beat(store)
        clock.advance(ms=1)
        await beat(store, BERT, slots=3)
        anna, bert = await store.supervisors()
        assert (anna.supervisor, anna.pipelines, bert.supervisor, bert.slots) == (ANNA, ("a",), BERT, 3)
        clock.advance(ms=LEASE_MS - 1)
        assert [each.supervisor for each in await store.supervisors()] == [BERT]

    async def test_there_is_a_limit_of_supervisors(self, store: MetadataStore) -> None:
        await beat(store, max_supervisors=1)
        await beat(store, max_supervisors=1)
        with pytest.raises(PipelineLimit, match=r"pipelines\.max_supervisors"):
            await beat(store, BERT, max_supervisors=1)

    async def test_heartbeats_at_once_give_each_pipeline_to_one(self, store: MetadataStore) -> None:
        names = [f"p{number:02}" for number in range(20)]
        await put(store, *names)
        responses = await asyncio.gather(*(beat(store, SupervisorId(f"s{number}")) for number in range(5)))
        given = [name for response in responses for name in response]
        assert len(given) == len(set(given))
        epochs = [epoch for response in responses for epoch in response.values()]
        assert len(epochs) == len(set(epochs))

    # --- what is told of them

    async def test_a_status_is_that_of_the_owner_and_its_revision(
        self, store: MetadataStore, clock: ManualClock
    ) -> None:
        await put(store, "revenue")
        assigned = await beat(store)
        result = Status(phase=Phase.RUNNING, revision=1, batch_id=7, rows_in=10, progress={"orders": {"0": 12}})
        await beat(store, running=assigned, status=result)
        assert (await find(store)).status == replace(result, told_at_ms=await store.now_ms())
        await beat(store, running={"revenue": assigned["revenue"] - 1}, status=Status(phase=Phase.FAILED))
        assert (await find(store)).status.phase is Phase.RUNNING
        await change(store, pipeline(revision=2))
        assert (await find(store)).status.phase is Phase.WAITING
        await beat(store, running=assigned, status=replace(result, phase=Phase.FAILED))
        assert (await find(store)).status.phase is Phase.WAITING  # it failed before it was changed
        await beat(store, BERT, running=assigned, status=Status(phase=Phase.RUNNING))
        assert (await find(store)).status.phase is Phase.WAITING

    async def test_the_status_from_one_supervisor_is_not_the_next_ones(
        self, store: MetadataStore, clock: ManualClock
    ) -> None:
        await put(store, "revenue")
        result = Status(phase=Phase.RUNNING, revision=1, batch_id=7, progress={"generation": 1})
        await beat(store, running=await beat(store), status=result)
        await store.remove_supervisor(ANNA)
        assert (await beat(store, BERT)).keys() == {"revenue"}
        status = (await find(store)).status
        assert (status.phase, status.batch_id, status.progress) == (Phase.STARTING, 7, {"generation": 1})

    async def test_how_far_it_has_come_is_known_until_it_begins_anew(self, store: MetadataStore) -> None:
        await put(store, "revenue")
        assigned = await beat(store)
        result = Status(phase=Phase.RUNNING, revision=1, batch_id=7, rows_in=10, progress={"generation": 1})
        await beat(store, running=assigned, status=result)
        await change(store, replace(pipeline(), wish=DesiredState.PAUSE))
        await change(store, pipeline(revision=2))
        status = (await find(store)).status
        assert (status.batch_id, status.progress, status.rows_in) == (7, {"generation": 1}, 0)
        await change(store, replace(pipeline(revision=3), generation=2))
        assert (await find(store)).status.progress is None

    async def test_the_newest_lines_of_a_log_are_kept_in_order_each_once(self, store: MetadataStore) -> None:
        await put(store, "a")
        assigned = await beat(store)
        lines = [Event(at_ms=10 + number, level="info", text=f"line {number}") for number in range(6)]
        await beat(store, running=assigned, events=tuple(lines[:3]), max_events=4)
        await beat(store, running=assigned, events=tuple(lines[:3]), max_events=4)  # its answer was lost
        assert list(await store.pipeline_events(PipelineName("a"), 10)) == lines[:3]
        await beat(store, running=assigned, events=tuple(lines[3:]), max_events=4)
        assert list(await store.pipeline_events(PipelineName("a"), 10)) == lines[2:]
        assert list(await store.pipeline_events(PipelineName("a"), 1)) == lines[5:]

    # --- SQL workers

    async def test_workers_are_listed_while_they_are_alive(self, store: MetadataStore, clock: ManualClock) -> None:
        worker = SqlWorker(worker=WorkerId("w"), address="127.0.0.1:4000", token="secret", busy=1)
        await store.heartbeat_worker(worker, ttl_ms=LEASE_MS, max_workers=1)
        await store.heartbeat_worker(replace(worker, busy=2), ttl_ms=LEASE_MS, max_workers=1)
        with pytest.raises(PipelineLimit, match=r"sql\.max_workers"):
            await store.heartbeat_worker(replace(worker, worker=WorkerId("v")), ttl_ms=LEASE_MS, max_workers=1)
        [result] = await store.workers()
        assert result == replace(worker, busy=2, expires_at_ms=await store.now_ms() + LEASE_MS)
        assert "secret" not in repr(result)
        clock.advance(ms=LEASE_MS)
        assert await store.workers() == []
        await store.heartbeat_worker(replace(worker, worker=WorkerId("v")), ttl_ms=LEASE_MS, max_workers=1)
        await store.drop_worker(WorkerId("v"))
        assert await store.workers() == []
