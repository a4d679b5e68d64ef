"""Pipelines: streaming queries.

GET    /v1/pipelines                        all, with their owners and statuses
PUT    /v1/pipelines/{pipeline}             {"kind": "sql", "text": "CREATE PIPELINE …", …}
GET    /v1/pipelines/{pipeline}
DELETE /v1/pipelines/{pipeline}             with its events, and its rows if it is a view
POST   /v1/pipelines/{pipeline}/pause
POST   /v1/pipelines/{pipeline}/resume
POST   /v1/pipelines/{pipeline}/restart     {"from": "earliest"}; null: continue at the current position
GET    /v1/pipelines/{pipeline}/events      the last events of its log, newest last
GET    /v1/pipelines/{pipeline}/versions    the last definitions that were applied, newest first, and by whom
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.needs import all_of, lists, need, needs
from streamhouse.model.pipeline import PipelineName
from streamhouse.wire.http.operations import (
    DEFAULT_LIMIT,
    MAX_BODY_BYTES,
    MAX_LIMIT,
    Call,
    NoQuery,
    Operation,
    json_response,
)
from streamhouse.wire.http.routes.pipeline_access import (
    require_definition,
    require_delegation,
    require_own_name,
    require_shown,
)
from streamhouse.wire.http.routes.pipeline_types import (
    EventsAnswer,
    PipelineDefinition,
    PipelinesAnswer,
    PipelineView,
    PutAnswer,
    VersionsAnswer,
    event_view,
    pipeline_view,
    requested_pipeline,
    version_view,
)
from streamhouse.wire.http.routes.tables import SqlText

TAG: Final = "pipelines"
PUT_NEEDS: Final = all_of(
    need((AclOperation.CREATE, ResourceType.PIPELINE)),
    need((AclOperation.ALTER, ResourceType.PIPELINE), when="of an existing one"),
    need((AclOperation.READ, ResourceType.TOPIC)),
    need((AclOperation.WRITE, ResourceType.TOPIC)),
    need((AclOperation.CREATE, ResourceType.TABLE), when="for a target other than a topic"),
    need((AclOperation.RUN_CODE, ResourceType.CLUSTER), when="for Python"),
    about="the pipeline then runs as the caller",
)

SHOWN_NEEDS: Final = all_of(need((AclOperation.DESCRIBE, ResourceType.PIPELINE)), about="or being its owner")


class Restart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`from`: `earliest`, `latest`, a time in ISO 8601, or offsets as JSON; null: the current position."""

    from_: SqlText | None = msgspec.field(name="from", default=None)


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="how many lines at most")] = DEFAULT_LIMIT


class PipelineCalls:
    """Operations on pipelines."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pipelines = broker.pipelines

    async def list_pipelines(self, call: Call[NoQuery, None]) -> Response:
        shown = [
            each
            for each in await self._pipelines.all()
            if call.access.allows(AclOperation.DESCRIBE, ResourceType.PIPELINE, each.name)
        ]
        return json_response(PipelinesAnswer(pipelines=[pipeline_view(each) for each in shown]))

    async def get_pipeline(self, call: Call[NoQuery, None]) -> Response:
        name = _name(call)
        await require_shown(self._broker, call.access, ResourceType.PIPELINE, name)
        return json_response(pipeline_view(await self._pipelines.find(name)))

    async def put_pipeline(self, call: Call[NoQuery, PipelineDefinition]) -> Response:
        require_own_name(call, _name(call))
        require_delegation(self._broker, call.access)
        request = requested_pipeline(_name(call), call.body, runs_as=call.caller.principal)
        await require_definition(self._broker, call.access, request.definition)
        outcome, stored = await self._pipelines.put(request)
        return json_response(PutAnswer(outcome=outcome, pipeline=pipeline_view(stored)))

    async def delete_pipeline(self, call: Call[NoQuery, None]) -> Response:
        await self._pipelines.drop(_name(call))
        return Response(status_code=204)

    async def pause_pipeline(self, call: Call[NoQuery, None]) -> Response:
        return json_response(pipeline_view(await self._pipelines.pause(_name(call))))

    async def resume_pipeline(self, call: Call[NoQuery, None]) -> Response:
        return json_response(pipeline_view(await self._pipelines.resume(_name(call))))

    async def restart_pipeline(self, call: Call[NoQuery, Restart]) -> Response:
        return json_response(pipeline_view(await self._pipelines.restart(_name(call), call.body.from_)))

    async def pipeline_events(self, call: Call[EventsQuery, None]) -> Response:
        events = await self._pipelines.events(_name(call), call.query.limit)
        return json_response(EventsAnswer(events=[event_view(each) for each in events]))

    async def pipeline_versions(self, call: Call[NoQuery, None]) -> Response:
        versions = await self._pipelines.versions(_name(call))
        return json_response(VersionsAnswer(versions=[version_view(each) for each in versions]))


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    calls = PipelineCalls(broker)

    def on_one(
        right: AclOperation, handler: Any, method: str, tail: str, summary: str, **overrides: Any
    ) -> Operation[Any, Any]:
        on_pipeline = needs(right, ResourceType.PIPELINE, "pipeline")
        defaults = {"needs": on_pipeline, "query": NoQuery, "response": PipelineView, "problems": (404,), **overrides}
        return Operation(
            method=method,
            path=f"/v1/pipelines/{{pipeline}}{tail}",
            handler=handler,
            summary=summary,
            tag=TAG,
            **defaults,
        )

    return [
        Operation(
            method="GET",
            path="/v1/pipelines",
            handler=calls.list_pipelines,
            needs=lists(AclOperation.DESCRIBE, ResourceType.PIPELINE),
            summary="List pipelines with owner and status",
            tag=TAG,
            query=NoQuery,
            response=PipelinesAnswer,
        ),
        on_one(
            AclOperation.CREATE,
            calls.put_pipeline,
            "PUT",
            "",
            "Create or change a pipeline",
            about="Rejects a change that can't continue from the checkpoint, unless `fresh` allows a new start.",
            body=PipelineDefinition,
            needs=PUT_NEEDS,
            response=PutAnswer,
            problems=(409,),
        ),
        on_one(AclOperation.DESCRIBE, calls.get_pipeline, "GET", "", "Look at a pipeline", needs=SHOWN_NEEDS),
        on_one(
            AclOperation.DELETE,
            calls.delete_pipeline,
            "DELETE",
            "",
            "Delete a pipeline",
            about="Also deletes its events, and its rows if it is a view. Output in other systems is kept.",
            response=None,
            status=204,
        ),
        on_one(AclOperation.ALTER, calls.pause_pipeline, "POST", "/pause", "Pause a pipeline"),
        on_one(AclOperation.ALTER, calls.resume_pipeline, "POST", "/resume", "Resume a pipeline"),
        on_one(
            AclOperation.ALTER,
            calls.restart_pipeline,
            "POST",
            "/restart",
            "Restart a pipeline from its checkpoint or from other offsets",
            body=Restart,
            max_body_bytes=MAX_BODY_BYTES,
        ),
        on_one(
            AclOperation.DESCRIBE,
            calls.pipeline_events,
            "GET",
            "/events",
            "The last lines of a pipeline's log, newest last",
            query=EventsQuery,
            response=EventsAnswer,
        ),
        on_one(
            AclOperation.DESCRIBE,
            calls.pipeline_versions,
            "GET",
            "/versions",
            "The last definitions of a pipeline, newest first",
            about="As they were applied, and by whom; the setting `pipelines.max_versions` says how many are kept.",
            response=VersionsAnswer,
        ),
    ]


def _name(call: Call[Any, Any]) -> PipelineName:
    return PipelineName(str(call.path["pipeline"]))
