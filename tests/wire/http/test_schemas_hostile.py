"""Whatever is sent to the schema registry is answered with a reason, and never with a failure of ours."""

import json
import random
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.config import HttpSettings
from streamhouse.wire.http.app import make_app
from tests.broker.conftest import MakeWorld
from tests.broker.schemas.support import record

JSON = {"content-type": "application/json"}
WORDS: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**31,
    1e300,
    "",
    "x",
    "\x00",
    "é",
    "😀",
    "a" * 2000,
    [],
    {},
    [[]],
    {"a": None},
]
TEXTS = [record("x"), '"int"', "{", "", "null", "[]", '{"type":"array"}', '{"type":"object"}', 'syntax = "proto3";']
NAMES = [
    "s",
    "s/t",
    "a b",
    "%",
    ":",
    ":.",
    ":.c",
    ":.c:s",
    ":*:",
    "latest",
    "é",
    "\x00",
    "x" * 1001,
    "-1",
    "0",
]
PATHS = [
    "/subjects/{}",
    "/subjects/{}/versions",
    "/subjects/{}/versions/{}",
    "/subjects/{}/versions/{}/referencedby",
    "/subjects/{}/metadata",
    "/schemas/ids/{}",
    "/schemas/ids/{}/versions",
    "/schemas/guids/{}",
    "/compatibility/subjects/{}/versions",
    "/compatibility/subjects/{}/versions/{}",
    "/config/{}",
    "/mode/{}",
    "/contexts/{}/subjects/{}/versions",
    "/contexts/{}/config",
]
FIELDS = [
    "schema",
    "schemaType",
    "references",
    "metadata",
    "ruleSet",
    "id",
    "version",
    "compatibility",
    "mode",
    "alias",
]
QUERY = [
    "deleted",
    "permanent",
    "normalize",
    "verbose",
    "offset",
    "limit",
    "format",
    "subjectPrefix",
    "subject",
    "force",
]


@pytest.fixture
async def http(make_world: MakeWorld) -> AsyncIterator[httpx.AsyncClient]:
    world = await make_world(http=HttpSettings(max_failure_delay_s=0))  # most of what is sent here is rejected
    transport = httpx.ASGITransport(make_app(await world.start(), CollectorRegistry()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def any_body(chance: random.Random) -> object:
    if chance.random() < 0.1:
        return chance.choice(WORDS)
    body = {name: chance.choice(WORDS) for name in chance.sample(FIELDS, chance.randrange(4))}
    if chance.random() < 0.7:
        body |= {"schema": chance.choice(TEXTS), "schemaType": chance.choice(["AVRO", "JSON", "PROTOBUF", None])}
    if chance.random() < 0.3:
        body["references"] = [{"name": chance.choice(NAMES), "subject": chance.choice(NAMES), "version": 1}]
    return body


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_asked_is_answered(http: httpx.AsyncClient, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        names = [quote(chance.choice(NAMES), safe=":") for _ in range(2)]
        path = chance.choice(PATHS).format(*names)
        method = chance.choice(["GET", "POST", "PUT", "DELETE"])
        query = {name: str(chance.choice(WORDS))[:50] for name in chance.sample(QUERY, chance.randrange(3))}
        content = json.dumps(any_body(chance)) if method in ("POST", "PUT") else None
        response = await http.request(method, path, params=query, content=content, headers=JSON)
        assert response.status_code < 500, f"{method} {path} {query} {content}: {response.text}"
        if response.status_code >= 400:
            assert set(response.json()) == {"error_code", "message"}
