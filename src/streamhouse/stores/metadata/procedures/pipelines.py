"""Procedures for pipelines and their supervisors.

Owns        that a change is applied to the revision that it was decided by; that an epoch ends with its generation; the
            fence; that one transaction renews, releases and assigns pipelines; stored statuses and events
Leaves      whether a change is allowed to `broker.pipelines`, which supervisor runs what to `pipeline_assignment`
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from streamhouse.errors import PipelineLimit, PipelineMoved
from streamhouse.model.pipeline import (
    Definition,
    Event,
    Fence,
    Heartbeat,
    Phase,
    Pipeline,
    PipelineLimits,
    PipelineName,
    PipelineReport,
    PipelineVersion,
    Status,
    StoredPipeline,
    Supervisor,
    SupervisorId,
)
from streamhouse.stores.metadata.engine import Lock, Transaction
from streamhouse.stores.metadata.pipeline_assignment import Assignment, assign_pipelines
from streamhouse.stores.metadata.pipeline_rows import (
    definition_text,
    pipeline_params,
    status_text,
    stored_pipeline_of,
    version_of,
)
from streamhouse.stores.metadata.rows import Params, Row, text_list


async def list_pipelines(tx: Transaction) -> Sequence[StoredPipeline]:
    now_ms = await tx.now_ms()
    return [stored_pipeline_of(row, now_ms=now_ms) for row in await tx.rows(tx.sql.list_pipelines)]


async def find_pipeline(tx: Transaction, name: PipelineName) -> StoredPipeline | None:
    now_ms = await tx.now_ms()
    row = await tx.row(tx.sql.find_pipeline, {"name": name})
    return None if row is None else stored_pipeline_of(row, now_ms=now_ms)


async def put_pipeline(
    tx: Transaction, pipeline: Pipeline, *, expected: Pipeline | None, limits: PipelineLimits
) -> bool:
    await tx.lock(Lock.PIPELINES, {})
    row = await tx.row(tx.sql.find_pipeline, {"name": pipeline.definition.name})
    if (None if row is None else stored_pipeline_of(row).pipeline) != expected:
        return False
    if row is None:
        await _insert(tx, pipeline, limits.max_pipelines)
    else:
        await _change(tx, pipeline, row)
    if expected is None or _as_applied(expected.definition) != _as_applied(pipeline.definition):
        await _add_version(tx, pipeline, limits.max_versions)
    return True


def _as_applied(definition: Definition) -> Definition:
    """The definition without what is inferred from it."""
    return replace(definition, columns=None, shape=None)


async def _add_version(tx: Transaction, pipeline: Pipeline, kept: int) -> None:
    name = pipeline.definition.name
    version: Params = {
        "name": name,
        "revision": pipeline.revision,
        "definition": definition_text(_as_applied(pipeline.definition)),
        "now_ms": await tx.now_ms(),
    }
    await tx.change(tx.sql.add_pipeline_version, version)
    await tx.change(tx.sql.trim_pipeline_versions, {"name": name, "kept": kept})


async def list_versions(tx: Transaction, name: PipelineName, limit: int) -> Sequence[PipelineVersion]:
    return [version_of(row) for row in await tx.rows(tx.sql.list_pipeline_versions, {"name": name, "limit": limit})]


async def _insert(tx: Transaction, pipeline: Pipeline, max_pipelines: int) -> None:
    [count] = await tx.rows(tx.sql.count_pipelines)
    if count["found"] >= max_pipelines:
        raise PipelineLimit("pipelines", limit=max_pipelines, setting="pipelines.max_pipelines")
    reported: Params = {"now_ms": await tx.now_ms(), "epoch": 0, "status": status_text(Status())}
    await tx.change(tx.sql.insert_pipeline, {**pipeline_params(pipeline), **reported})


async def _change(tx: Transaction, pipeline: Pipeline, row: Row) -> None:
    before = stored_pipeline_of(row)
    begins_anew = pipeline.generation != before.pipeline.generation
    epoch = await take_epochs(tx, 1) if begins_anew else row["epoch"]
    is_other = (pipeline.revision, pipeline.wish) != (before.pipeline.revision, before.pipeline.wish)
    status = status_text(_waiting(before.status, begins_anew)) if is_other else row["status"]
    reported: Params = {"now_ms": await tx.now_ms(), "epoch": epoch, "status": status}
    await tx.change(tx.sql.change_pipeline, {**pipeline_params(pipeline), **reported})


def _waiting(before: Status, begins_anew: bool) -> Status:
    """The status of a waiting pipeline: without figures of the last run; progress is kept unless it starts over."""
    waiting = Status(phase=Phase.WAITING, restarts=before.restarts)
    return waiting if begins_anew else replace(waiting, batch_id=before.batch_id, progress=before.progress)


async def take_epochs(tx: Transaction, count: int) -> int:
    """Allocate `count` epochs; returns the first."""
    [row] = await tx.rows(tx.sql.take_pipeline_epochs, {"count": count, "now_ms": await tx.now_ms()})
    return int(row["first"])


async def drop_pipeline(tx: Transaction, name: PipelineName) -> bool:
    await tx.lock(Lock.PIPELINES, {})
    return await tx.change(tx.sql.drop_pipeline, {"name": name}) > 0


async def list_events(tx: Transaction, name: PipelineName, limit: int) -> Sequence[Event]:
    rows = await tx.rows(tx.sql.list_events, {"name": name, "limit": limit})
    return [Event(at_ms=row["at_ms"], level=row["level"], text=row["text"]) for row in reversed(rows)]


async def check_fence(tx: Transaction, fence: Fence) -> str:
    """Lock the pipeline and return its query if it is owned under this epoch; raises `PipelineMoved` otherwise. An
    expired lease is valid until another supervisor has it."""
    row = await tx.row(tx.sql.fence_pipeline, {"name": fence.pipeline})
    if row is None:
        raise PipelineMoved(fence.pipeline, epoch=fence.epoch, why="it is gone")
    if row["owner"] is None:
        raise PipelineMoved(fence.pipeline, epoch=fence.epoch, why="it was released")
    if row["epoch"] != fence.epoch:
        raise PipelineMoved(fence.pipeline, epoch=fence.epoch, why=f"its epoch is {row['epoch']}")
    return str(row["query_id"])


SUPERVISOR_RETENTION_MS: Final = 3_600_000
"""Time without a heartbeat after which a supervisor's row is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorLimits:
    ttl_ms: int
    max_events: int
    max_supervisors: int


async def heartbeat_supervisor(
    tx: Transaction, heartbeat: Heartbeat, limits: SupervisorLimits
) -> Sequence[StoredPipeline]:
    await tx.lock(Lock.PIPELINES, {})
    now_ms = await tx.now_ms()
    rows = await tx.rows(tx.sql.list_pipelines)
    others = [each for each in await _alive(tx, rows, now_ms) if each.supervisor != heartbeat.supervisor]
    if len(others) >= limits.max_supervisors:
        raise PipelineLimit("supervisors", limit=limits.max_supervisors, setting="pipelines.max_supervisors")
    stored = {each.name: each for each in map(stored_pipeline_of, rows)}
    shares = assign_pipelines(heartbeat, list(stored.values()), others, now_ms=now_ms)
    await _write_supervisor(tx, heartbeat, now_ms=now_ms, expires_at_ms=now_ms + limits.ttl_ms)
    await _write_assignment(tx, heartbeat.supervisor, shares, expires_at_ms=now_ms + limits.ttl_ms)
    await _take_over(tx, [stored[name] for name in shares.taken])
    await _store_statuses(
        tx, [each for each in heartbeat.running if each.name in shares.renewed], stored, now_ms=now_ms
    )
    await _write_events(tx, [each for each in heartbeat.running if each.name in shares.renewed], limits)
    assigned = set(shares.assigned)
    return [each for each in map(stored_pipeline_of, await tx.rows(tx.sql.list_pipelines)) if each.name in assigned]


async def list_supervisors(tx: Transaction) -> Sequence[Supervisor]:
    now_ms = await tx.now_ms()
    return await _alive(tx, await tx.rows(tx.sql.list_pipelines), now_ms)


async def remove_supervisor(tx: Transaction, supervisor: SupervisorId) -> None:
    await tx.lock(Lock.PIPELINES, {})
    await tx.change(tx.sql.release_pipelines_of, {"supervisor": supervisor})
    await tx.change(tx.sql.drop_supervisor, {"supervisor": supervisor})


async def _alive(tx: Transaction, pipelines: Sequence[Row], now_ms: int) -> list[Supervisor]:
    owned: dict[str, list[PipelineName]] = {}
    for row in pipelines:
        if row["owner"] is not None and now_ms < row["expires_at_ms"]:
            owned.setdefault(row["owner"], []).append(PipelineName(row["name"]))
    return [
        Supervisor(
            supervisor=SupervisorId(row["supervisor"]),
            host=row["host"],
            slots=row["slots"],
            expires_at_ms=row["expires_at_ms"],
            pipelines=tuple(owned.get(row["supervisor"], ())),
        )
        for row in await tx.rows(tx.sql.list_supervisors, {"now_ms": now_ms})
    ]


async def _write_supervisor(tx: Transaction, heartbeat: Heartbeat, *, now_ms: int, expires_at_ms: int) -> None:
    await tx.change(tx.sql.forget_supervisors, {"before_ms": now_ms - SUPERVISOR_RETENTION_MS})
    params: Params = {
        "supervisor": heartbeat.supervisor,
        "host": heartbeat.host,
        "slots": heartbeat.slots,
        "expires_at_ms": expires_at_ms,
    }
    await tx.change(tx.sql.put_supervisor, params)


async def _write_assignment(
    tx: Transaction, supervisor: SupervisorId, shares: Assignment, *, expires_at_ms: int
) -> None:
    if shares.renewed:
        params: Params = {"names": text_list(shares.renewed), "expires_at_ms": expires_at_ms}
        await tx.change(tx.sql.renew_pipelines, params)
    if shares.released:
        await tx.change(tx.sql.release_pipelines, {"names": text_list(shares.released)})
    if shares.taken:
        first = await take_epochs(tx, len(shares.taken))
        taken = json.dumps([[name, first + number] for number, name in enumerate(shares.taken)])
        owning: Params = {"supervisor": supervisor, "taken": taken, "expires_at_ms": expires_at_ms}
        await tx.change(tx.sql.take_pipelines, owning)


async def _take_over(tx: Transaction, taken: Sequence[StoredPipeline]) -> None:
    """Reset the status of reassigned pipelines: the new owner reports its own."""
    if taken:
        reported = [[each.name, status_text(replace(each.status, phase=Phase.STARTING))] for each in taken]
        await tx.change(tx.sql.tell_statuses, {"statuses": json.dumps(reported)})


async def _store_statuses(
    tx: Transaction, running: Iterable[PipelineReport], stored: dict[PipelineName, StoredPipeline], *, now_ms: int
) -> None:
    """Store reported statuses for the revision that is running; 0 is any."""
    reported = [
        [each.name, status_text(replace(each.status, told_at_ms=now_ms))]
        for each in running
        if each.status is not None and _is_current(each, stored[each.name])
    ]
    if reported:
        await tx.change(tx.sql.tell_statuses, {"statuses": json.dumps(reported)})


def _is_current(running: PipelineReport, stored: StoredPipeline) -> bool:
    status, owner = running.status, stored.owner
    if status is None or owner is None or owner.epoch != running.epoch:
        return False
    return status.revision in (0, stored.pipeline.revision)


async def _write_events(tx: Transaction, running: Iterable[PipelineReport], limits: SupervisorLimits) -> None:
    for each in running:
        if newest := each.events[-limits.max_events :]:
            lines = dict.fromkeys((each.name, event.at_ms, event.level, event.text) for event in newest)
            await tx.change(tx.sql.add_events, {"events": json.dumps([*lines])})
            await tx.change(tx.sql.trim_events, {"name": each.name, "kept": limits.max_events})
