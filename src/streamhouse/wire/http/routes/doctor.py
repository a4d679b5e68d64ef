"""Doctor: health checks of this agent and of the state that all agents share.

GET /v1/doctor?local=1    with `local` only the checks of this agent itself

The status is 200 whatever the checks find. The response has the values on which agents should agree (members, versions,
lease times), so that a client can compare them.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse import __version__
from streamhouse.broker.admin.health_rules import Check
from streamhouse.broker.broker import Broker
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.http.operations import Call, Operation, json_response


class CheckView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check; `verdict` is ok, warning or failure."""

    name: str
    verdict: str
    text: str
    figures: dict[str, float]


class Doctor(msgspec.Struct, frozen=True, kw_only=True):
    node: int | None
    version: str
    lease_ttl_s: float
    members: list[int]
    own: list[CheckView]
    shared: list[CheckView]


class DoctorQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    local: Annotated[bool, Meta(description="only what this agent alone can tell")] = False


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def examine(call: Call[DoctorQuery, None]) -> Response:
        shared = [] if call.query.local else await broker.health_check.shared()
        own = await broker.health_check.own()
        return json_response(
            Doctor(
                node=broker.agent_session.session.node_id if broker.agent_session is not None else None,
                version=__version__,
                lease_ttl_s=broker.settings.lease.ttl_s,
                members=[each.node_id for each in broker.cluster.live()],
                own=[_view(check) for check in own],
                shared=[_view(check) for check in shared],
            )
        )

    return [
        Operation(
            method="GET",
            path="/v1/doctor",
            handler=examine,
            needs=needs(AclOperation.DESCRIBE, ResourceType.CLUSTER),
            summary="Whether all is well with this agent and with what all agents share",
            about="The answer is 200 whatever was found.",
            tag="agents",
            query=DoctorQuery,
            answer=Doctor,
        )
    ]


def _view(check: Check) -> CheckView:
    return CheckView(name=check.name, verdict=check.verdict, text=check.text, figures=dict(check.figures))
