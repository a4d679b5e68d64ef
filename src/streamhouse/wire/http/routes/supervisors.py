"""Supervisors: processes that run pipelines.

GET    /v1/supervisors                            live supervisors
POST   /v1/supervisors/{supervisor}/heartbeat     {"host": …, "slots": 16, "running": […]}; returns its assignment
DELETE /v1/supervisors/{supervisor}               deregister it; its pipelines are reassigned at once
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.model.access import ANONYMOUS, SUPERVISOR, ResourceType
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.needs import needs, processes_only
from streamhouse.model.pipeline import Heartbeat, StoredPipeline, Supervisor, SupervisorId
from streamhouse.model.tenant import tenant_of
from streamhouse.wire.http import tenants
from streamhouse.wire.http.errors import Unprocessable
from streamhouse.wire.http.operations import MAX_INT, Call, NoQuery, Operation, json_response
from streamhouse.wire.http.routes.pipeline_access import refusal_of
from streamhouse.wire.http.routes.pipeline_types import PipelineView, RunningPipeline, pipeline_view, running_of
from streamhouse.wire.http.routes.traces import ReadRelay

TAG: Final = "supervisors"
MAX_RUNNING: Final = 10_000


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pipelines that the supervisor runs. Assigned pipelines that are missing here are reassigned."""

    host: Annotated[str, Meta(max_length=300, pattern=r"^[^\x00]*\Z")]
    slots: Annotated[int, Meta(ge=0, le=MAX_INT)]
    running: Annotated[list[RunningPipeline], Meta(max_length=MAX_RUNNING)] = []


class AssignedPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is the pipeline's in this cluster; `pipeline` has all names as its owner knows them.

    `lineage` is the same for all pipelines of this name in this cluster: among them, a larger epoch is later.
    `token`: with it the pipeline reads and writes as its owner, for a few minutes; empty without logins.
    `refusal`: why it may not run now.
    """

    name: str
    epoch: int
    lineage: str
    pipeline: PipelineView
    token: str = ""
    refusal: str = ""


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The pipelines to run, each under its epoch, for `ttl_s` from the time of the request; the supervisor stops all
    others."""

    ttl_s: float
    assigned: list[AssignedPipeline]


class SupervisorView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    host: str
    slots: int
    expires_at_ms: int
    pipelines: list[str]


class SupervisorsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`allow_python`: whether agents accept pipelines in Python."""

    supervisors: list[SupervisorView]
    allow_python: bool


def operations(broker: Broker, relay: ReadRelay) -> list[Operation[Any, Any]]:
    supervisors = broker.supervisors

    async def list_supervisors(call: Call[NoQuery, None]) -> Response:
        views = [_view(each) for each in await supervisors.all()]
        return json_response(SupervisorsAnswer(supervisors=views, allow_python=broker.settings.pipelines.allow_python))

    async def beat_supervisor(call: Call[NoQuery, HeartbeatRequest]) -> Response:
        assigned = await supervisors.heartbeat(_heartbeat(_id(call), call.body))
        relay.tell({each.name: each.status for each in call.body.running})
        return json_response(
            HeartbeatAnswer(ttl_s=supervisors.ttl_s, assigned=[_assigned(each, broker) for each in assigned])
        )

    async def leave_supervisor(call: Call[NoQuery, None]) -> Response:
        await supervisors.leave(_id(call))
        return Response(status_code=204)

    return [
        Operation(
            method="GET",
            path="/v1/supervisors",
            handler=list_supervisors,
            needs=needs(AclOperation.DESCRIBE, ResourceType.CLUSTER),
            summary="List live supervisors",
            tag=TAG,
            query=NoQuery,
            response=SupervisorsAnswer,
        ),
        Operation(
            method="POST",
            path="/v1/supervisors/{supervisor}/heartbeat",
            handler=beat_supervisor,
            needs=processes_only(SUPERVISOR),
            summary="Heartbeat of a supervisor: what it runs; returns what it should run",
            tag=TAG,
            query=NoQuery,
            body=HeartbeatRequest,
            response=HeartbeatAnswer,
        ),
        Operation(
            method="DELETE",
            path="/v1/supervisors/{supervisor}",
            handler=leave_supervisor,
            needs=processes_only(SUPERVISOR),
            summary="Remove a supervisor and release its pipelines",
            tag=TAG,
            query=NoQuery,
            status=204,
        ),
    ]


def _id(call: Call[Any, Any]) -> SupervisorId:
    return SupervisorId(str(call.path["supervisor"]))


def _heartbeat(supervisor: SupervisorId, request: HeartbeatRequest) -> Heartbeat:
    names = [each.name for each in request.running]
    if len(set(names)) < len(names):
        raise Unprocessable("a pipeline is named twice")
    running = tuple(running_of(each) for each in request.running)
    return Heartbeat(supervisor=supervisor, host=request.host, slots=request.slots, running=running)


def _assigned(stored: StoredPipeline, broker: Broker) -> AssignedPipeline:
    assert stored.owner is not None  # it is assigned to this supervisor
    definition, tokens = stored.pipeline.definition, broker.security.tokens
    refusal = refusal_of(broker.security, definition) if broker.security.access.is_enabled else ""
    token = "" if tokens is None or refusal else tokens.make(definition.runs_as or ANONYMOUS)
    view = pipeline_view(stored)
    if tenant := tenant_of(stored.name):
        view = msgspec.convert(tenants.shown(tenant, view), PipelineView)
    return AssignedPipeline(
        name=stored.name,
        epoch=stored.owner.epoch,
        lineage=f"{stored.name}@{broker.cluster_id}",
        pipeline=view,
        token=token,
        refusal=refusal,
    )


def _view(supervisor: Supervisor) -> SupervisorView:
    return SupervisorView(
        id=supervisor.supervisor,
        host=supervisor.host,
        slots=supervisor.slots,
        expires_at_ms=supervisor.expires_at_ms,
        pipelines=list(supervisor.pipelines),
    )
