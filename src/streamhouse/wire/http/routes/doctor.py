"""Doctor: health checks of this agent and of the state that all agents share.

GET /v1/doctor?local=1          with `local` only the checks of this agent itself
GET /v1/doctor?max_age_s=300    with `max_age_s` also what was found up to so long ago, if that was of everything

The status is 200 whatever the checks find. The response has the values on which agents should agree (members, versions,
lease times), so that a client can compare them.
"""

import asyncio
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse import __version__
from streamhouse.broker.admin.health_rules import Check
from streamhouse.broker.broker import Broker
from streamhouse.clock import Clock, SystemClock
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.http.operations import Call, Operation, json_response

MAX_AGE_S: Final = 3600.0


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
    max_age_s: Annotated[
        float, Meta(ge=0, le=MAX_AGE_S, description="how old the findings may be; those who allow it share them")
    ] = 0


class SharedFindings:
    """The last findings about everything: a look at the stores is up to a thousand requests to the object store, and
    each open console asks again and again. One look is in progress at a time; those who wait for it share the next."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._looking = asyncio.Lock()
        self._last: Doctor | None = None
        self._at = 0.0

    def __repr__(self) -> str:
        return f"<SharedFindings {self._broker.node_id}>"

    async def take(self, max_age_s: float) -> Doctor:
        oldest = self._clock.monotonic() - max_age_s
        async with self._looking:
            if self._last is None or self._at < oldest:
                began = self._clock.monotonic()
                self._last, self._at = await examine(self._broker), began
            return self._last


async def examine(broker: Broker, *, is_local: bool = False) -> Doctor:
    shared = [] if is_local else await broker.health_check.shared()
    own = await broker.health_check.own()
    return Doctor(
        node=broker.agent_session.session.node_id if broker.agent_session is not None else None,
        version=__version__,
        lease_ttl_s=broker.settings.lease.ttl_s,
        members=[each.node_id for each in broker.cluster.live()],
        own=[_view(check) for check in own],
        shared=[_view(check) for check in shared],
    )


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    findings = SharedFindings(broker, SystemClock())

    async def get_findings(call: Call[DoctorQuery, None]) -> Response:
        if call.query.local:
            return json_response(await examine(broker, is_local=True))
        return json_response(await findings.take(call.query.max_age_s))

    return [
        Operation(
            method="GET",
            path="/v1/doctor",
            handler=get_findings,
            needs=needs(AclOperation.DESCRIBE, ResourceType.CLUSTER),
            summary="Health checks of this agent and of the cluster",
            about="The status is 200 whatever the results.",
            tag="agents",
            query=DoctorQuery,
            response=Doctor,
        )
    ]


def _view(check: Check) -> CheckView:
    return CheckView(name=check.name, verdict=check.verdict, text=check.text, figures=dict(check.figures))
