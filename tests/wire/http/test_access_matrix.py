"""Every operation of the HTTP API and of the schema registry, with no, wrong, expired, insufficient and sufficient
credentials. Generated from what the operations declare."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from streamhouse.broker.broker import Broker
from streamhouse.model.access import CLUSTER, CLUSTER_NAME, IMPLYING, Operation, ResourceType
from streamhouse.model.needs import Needs, Right, need
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.authentication import Authentication
from streamhouse.wire.http.endpoint import Endpoint
from streamhouse.wire.http.routes.schemas import Registry
from tests.broker.conftest import MakeWorld
from tests.wire.security import ADMIN, Headers, SecureWorld, basic, bearer, enough, secure_world, serving

SAMPLES: Final = {
    "topic": "orders",
    "partition": "0",
    "transactional_id": "payments-1",
    "group": "billing",
    "node": "1",
    "session": "s-" + "0" * 32,
    "query": "0" * 8 + "-0000-0000-0000-" + "0" * 12,
    "hold": "0" * 32,
    "table": "mine",
    "pipeline": "totals",
    "view": "totals",
    "supervisor": "s-1",
    "worker": "w-1",
    "sql_query": "q-1",
    "name": "api",
    "subject": "orders-value",
    "version": "1",
    "id": "1",
    "guid": "0" * 8 + "-0000-0000-0000-" + "0" * 12,
    "user": "carol",
    "key": "0" * 16,
    "role": "reader",
}
RUN: Final = {"topic": "orders", "partition": 0, "records": 1, "stored_end": 1, "position": 0, "length": 1} | {
    "index_position": 1,
    "index_length": 1,
    "max_timestamp_ms": 0,
}
SEGMENT: Final = {"key": f"placed/{SAMPLES['query']}/0/a", "size_bytes": 1, "created_at_ms": 0, "runs": [RUN]}
PART: Final = {"epoch": 1, "query": SAMPLES["query"], "batch": 0, "fresh_at_ms": 0}
BODIES: Final[dict[str, Any]] = {
    "create_topic": {"name": "orders"},
    "change_topic": {"partitions": 5, "settings": {"retention.ms": 1000}},
    "reset_group": {"to": "earliest", "topics": [{"topic": "orders"}]},
    "plan_reading": {"topics": [{"topic": "orders"}]},
    "sign_read": {"topic": "orders", "partition": 0, "offset": 0, "key": "segments/a", "start": 0, "end": 1},
    "place_segments": {"query": SAMPLES["query"], "epoch": 0, "segments": [SEGMENT]},
    "put_pipeline": {"kind": "sql", "text": "SELECT 1", "target": "orders", "shape": {"streams": ["orders"]}},
    "change_view_rows": PART,
    "change_password": {"password": "another"},
    "create_key": {"principal": "User:carol"},
}
"""Bodies of operations whose handlers check rights on what the body names."""
NAMES: Final = {
    ResourceType.TOPIC: "orders",
    ResourceType.GROUP: "billing",
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: "payments-1",
    ResourceType.SUBJECT: "orders-value",
    ResourceType.PIPELINE: "totals",
    ResourceType.VIEW: "totals",
    ResourceType.TABLE: "mine",
    ResourceType.USER: "carol",
}


NOT_BY_SAMPLE: Final = {
    "put_pipeline": {
        Right(Operation.ALTER, ResourceType.PIPELINE),
        Right(Operation.RUN_CODE, ResourceType.CLUSTER),
        Right(Operation.CREATE, ResourceType.TABLE),
    }
}
"""Rights that an operation needs at times, and not for its sample."""


class Route(NamedTuple):
    name: str
    method: str
    path: str
    needs: Needs
    query: str = ""

    @property
    def url(self) -> str:
        return re.sub(r"{(\w+)(?::\w+)?}", lambda match: SAMPLES[match[1]], self.path) + self.query

    @property
    def rights(self) -> list[Right]:
        return enough(self.needs)

    @property
    def processes(self) -> tuple[str, ...] | None:
        """The kinds of processes that alone may do it."""
        return next((need.processes for need in self.needs.all_of if not need.rights), None)


def routes_of(broker: Broker) -> list[Route]:
    authentication = make_app(broker, CollectorRegistry()).app
    assert isinstance(authentication, Authentication)
    assert isinstance(authentication.app, Starlette)
    routes: dict[Route, None] = {}
    for route in authentication.app.routes:
        endpoint = getattr(route, "endpoint", None)
        if isinstance(endpoint, Endpoint):
            for each in endpoint.operations:
                routes[Route(each.name, each.method, each.path, each.needs)] = None
        elif isinstance(endpoint, Registry):
            for entry in endpoint.entries:
                name = f"{entry.method} /{entry.path}"
                needs = _on_cluster(entry.needs) if "{subject}" not in entry.path else entry.needs
                routes[Route(name, entry.method, f"/{entry.path}", needs)] = None
    return list(routes)


def _on_cluster(needs: Needs) -> Needs:
    """Without a subject in the path, a right is one on the cluster."""
    return replace(needs, all_of=tuple(need((right.operation, CLUSTER.type)) for right in enough(needs)))


@pytest.fixture
async def secure(make_world: MakeWorld) -> SecureWorld:
    secure = await secure_world(make_world)
    await secure.broker.create_topic("orders", partitions=3, overrides={})
    return secure


@pytest.fixture
async def http(secure: SecureWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(secure.broker) as client:
        yield client


async def send(http: httpx.AsyncClient, route: Route, headers: Headers) -> httpx.Response:
    body = BODIES.get(route.name)
    if body is not None:
        return await http.request(route.method, route.url, json=body, headers=headers)
    if route.method in ("POST", "PUT", "PATCH"):
        return await http.request(
            route.method, route.url, content=b"{}", headers={**headers, "content-type": "application/json"}
        )
    return await http.request(route.method, route.url, headers=headers)


def rights_on(rights: Sequence[Right]) -> list[tuple[Operation, ResourceType, str]]:
    return [(right.operation, right.type, NAMES[right.type]) for right in rights]


async def test_everything_is_declared(secure: SecureWorld) -> None:
    routes = routes_of(secure.broker)
    assert len(routes) > 100
    login = {"/v1/login", "/v1/login/code"}
    assert {each.path for each in routes if each.needs.is_open} == {"/", "/health/live", "/health/ready", *login}
    for route in routes:
        if any(not each.is_early for each in route.needs.all_of):
            assert route.name in BODIES or route.name in WITHOUT_BODY, f"{route.name} has no sample"


WITHOUT_BODY: Final = frozenset({"get_last_commit", "get_pipeline", "get_table", "get_view", "revoke_key"})


async def test_nothing_but_probes_answers_without_credentials(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    for route in routes_of(secure.broker):
        response = await send(http, route, {})
        if route.needs.is_open:
            assert response.status_code in (200, 400), route  # 400: a login without a code
            continue
        assert response.status_code == 401, route
        assert response.headers.get_list("www-authenticate")[0].startswith("Basic realm="), route


async def test_wrong_and_expired_credentials_are_refused_everywhere(
    secure: SecureWorld, http: httpx.AsyncClient
) -> None:
    key = await secure.key(ADMIN, ttl_s=1)
    right = await secure.key(ADMIN)
    secure.world.clock.skip(2)
    assert secure.broker.security.tokens is not None
    refused = {
        "password": basic(ADMIN, "wrong"),
        "user": basic("nobody"),
        "expired key": bearer(key),
        "altered key": {"x-api-key": right[:-1] + ("0" if right[-1] != "0" else "1")},
        "altered token": bearer(secure.token("Agent")[:-4] + "AAAA"),
        "other kind": {"authorization": f"Digest {right}"},
        "twice": {"authorization": f"Bearer {right}", "x-api-key": right},
    }
    for route in routes_of(secure.broker):
        if not route.needs.is_open:
            for what, headers in refused.items():
                assert (await send(http, route, headers)).status_code == 401, (what, route)


async def test_without_a_right_every_operation_is_refused(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    nobody = await secure.user("nobody")
    for route in routes_of(secure.broker):
        response = await send(http, route, nobody)
        if route.needs.all_of:
            assert response.status_code == 403, (route, response.status_code, response.text)
        else:
            assert response.status_code not in (401, 403), (route, response.text)


async def test_a_request_that_names_nothing_needs_a_right_as_well(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    """Rights are checked for each resource in a body, so there must be one, or another check."""
    nobody = await secure.user("nobody")
    for route in routes_of(secure.broker):
        body = BODIES.get(route.name)
        if body is None:
            continue
        for field in [name for name, value in body.items() if isinstance(value, list)]:
            emptied = {**body, field: []}
            response = await http.request(route.method, route.url, json=emptied, headers=nobody)
            assert response.status_code == 403, (route, field, response.status_code, response.text)


async def test_each_right_of_an_operation_is_needed(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    for number, route in enumerate(routes_of(secure.broker)):
        for missing in {*route.rights} - NOT_BY_SAMPLE.get(route.name, set()):
            name = f"user-{number}-{missing.operation}-{missing.type}"
            others = [each for each in route.rights if each != missing]
            if any(each.operation in IMPLYING.get(missing.operation, ()) for each in others):
                continue
            headers = await secure.user(name, *rights_on(others))
            response = await send(http, route, headers)
            assert response.status_code == 403, (route, missing, response.status_code, response.text)


async def test_with_its_rights_every_operation_gets_through(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    for number, route in enumerate(routes_of(secure.broker)):
        if route.processes is not None:
            headers = bearer(secure.token(route.processes[0] if route.processes else "Agent"))
        else:
            headers = await secure.user(f"user-{number}", *rights_on([*route.rights, *route.needs.lists]))
        try:
            async with asyncio.timeout(0.5):  # what waits for time to pass has got through
                response = await send(http, route, headers)
        except TimeoutError:
            continue
        assert response.status_code not in (401, 403), (route, response.status_code, response.text)
        if await secure.broker.catalog.find_if_any("orders") is None:
            await secure.broker.create_topic("orders", partitions=3, overrides={})


async def test_processes_may_do_only_what_is_theirs(secure: SecureWorld, http: httpx.AsyncClient) -> None:
    for kind in ("Worker", "Supervisor"):
        headers = bearer(secure.token(kind))
        for route in routes_of(secure.broker):
            is_theirs = route.processes is not None and kind in route.processes
            needs_more = route.rights or route.processes is not None
            if needs_more and not is_theirs and route.name not in BY_SUPERVISORS:
                assert (await send(http, route, headers)).status_code == 403, (kind, route)


BY_SUPERVISORS: Final = frozenset({"change_view_rows"})
