"""The schema registry over HTTP, by Confluent's paths, names and numbers."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse import __version__, errors
from streamhouse.broker.broker import Broker
from streamhouse.config import SchemaSettings
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.routes.schemas_errors import CODES, registry_error
from tests.broker.conftest import MakeWorld
from tests.broker.schemas.support import record
from tests.broker.support import World

V1 = "application/vnd.schemaregistry.v1+json"
PLAIN, WIDER, OTHER = record("x"), record("x", "y?"), record("x", "y")


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(schemas=SchemaSettings(max_listed=3))


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start()


@pytest.fixture
async def http(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry(), cluster_id="the-cluster"))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


class Registry:
    """Speaks to the registry, and insists on what it should answer."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, method: str, path: str, body: object = None, **query: Any) -> httpx.Response:
        content = None if body is None else json.dumps(body)
        headers = {} if body is None else {"content-type": V1}
        response = await self._http.request(method, path, content=content, headers=headers, params=query or None)
        assert response.headers["content-type"] == V1
        return response

    async def ok(self, method: str, path: str, body: object = None, **query: Any) -> Any:
        response = await self.ask(method, path, body, **query)
        assert response.status_code == 200, response.text
        return response.json()

    async def fails(self, code: int, method: str, path: str, body: object = None, **query: Any) -> str:
        answer = await self.ask(method, path, body, **query)
        response = answer.json()
        assert (response["error_code"], set(response)) == (code, {"error_code", "message"}), response
        assert answer.status_code == (code if code < 1000 else code // 100)
        return str(response["message"])

    async def get(self, path: str, **query: Any) -> Any:
        return await self.ok("GET", path, **query)

    async def register(self, subject: str, text: str = PLAIN, **more: Any) -> int:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return int((await self.ok("POST", path, {"schema": text, **more}))["id"])


@pytest.fixture
def registry(http: httpx.AsyncClient) -> Registry:
    return Registry(http)


# --- registering


async def test_a_registration_is_answered_with_numbers_alone(registry: Registry) -> None:
    response = await registry.ok("POST", "/subjects/s/versions", {"schema": PLAIN})
    assert response == {"id": 1, "version": 1, "guid": (await registry.get("/schemas/ids/1"))["guid"]}
    assert await registry.ok("POST", "/subjects/s/versions", {"schema": PLAIN, "schemaType": "AVRO"}) == response
    assert await registry.register("s", WIDER) == 2
    assert await registry.register("t", WIDER) == 2


async def test_all_three_languages_are_registered(registry: Registry) -> None:
    assert await registry.get("/schemas/types") == ["AVRO", "JSON", "PROTOBUF"]
    await registry.register("a", PLAIN)
    await registry.register("j", '{"type":"object"}', schemaType="JSON")
    await registry.register("p", 'syntax = "proto3"; message M { int32 x = 1; }', schemaType="PROTOBUF")
    assert [(await registry.get(f"/schemas/ids/{n}"))["schemaType"] for n in (1, 2, 3)] == ["AVRO", "JSON", "PROTOBUF"]
    serialized = await registry.get("/schemas/ids/3", format="serialized")
    assert not serialized["schema"].startswith("syntax")


async def test_an_incompatible_schema_is_a_conflict_with_reasons(registry: Registry) -> None:
    await registry.register("s")
    message = await registry.fails(409, "POST", "/subjects/s/versions", {"schema": OTHER})
    assert message.startswith("Schema being registered is incompatible with an earlier schema")
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message
    assert "{oldSchemaVersion: 1}" in message


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ({"schema": "{"}, 42201, "Invalid schema"),
        ({"schema": '"nothing"'}, 42201, "Invalid schema"),
        ({"schema": ""}, 42201, "empty"),
        ({}, 42201, "empty"),
        ({"schema": 7}, 42201, "$.schema"),
        ({"schema": PLAIN, "schemaType": "XML"}, 42201, "XML"),
        ({"schema": PLAIN, "colour": "red"}, 42201, "colour"),
        ({"schema": PLAIN, "references": [{"name": "x"}]}, 42201, "subject"),
        ({"schema": PLAIN, "references": [{"name": "x", "subject": "y", "version": "1"}]}, 42201, "version"),
        ({"schema": PLAIN, "references": [{"name": "x", "subject": "y", "version": 1}]}, 42201, "references/x"),
        ({"schema": PLAIN, "metadata": []}, 42201, "metadata"),
        ({"schema": PLAIN, "id": 2**31}, 42201, "$.id"),
        ({"schema": PLAIN, "version": 2**31}, 42201, "$.version"),
        ({"schema": PLAIN, "references": [{"name": "x", "subject": "y", "version": 2**31}]}, 42201, "version"),
        ({"schema": PLAIN, "id": 5}, 42205, "import"),
        ({"schema": PLAIN, "version": 5}, 42201, "next"),
        ([], 42201, "object"),
    ],
)
async def test_a_bad_registration_is_refused_with_the_reason(
    registry: Registry, body: object, code: int, says: str
) -> None:
    assert says in await registry.fails(code, "POST", "/subjects/s/versions", body)
    assert await registry.get("/subjects") == []


async def test_bodies_that_are_no_json_are_refused(http: httpx.AsyncClient) -> None:
    deep = b'{"metadata": {"a": ' + b"[" * 100_000
    for content in (b"{", b"", b"\xff", deep, b'{"schema": "\xff"}'):
        response = await http.post("/subjects/s/versions", content=content, headers={"content-type": V1})
        assert (response.status_code, response.json()["error_code"]) == (400, 400), content[:10]


@pytest.mark.parametrize("depth", [100, 500, 900, 990])
async def test_deep_metadata_are_kept_or_refused(http: httpx.AsyncClient, depth: int) -> None:
    metadata = b'{"a": ' + b"[" * depth + b"]" * depth + b"}"
    body = b'{"schema": "\\"int\\"", "metadata": ' + metadata + b"}"
    response = await http.post("/subjects/s/versions", content=body, headers={"content-type": V1})
    assert response.status_code in (200, 400, 422)
    assert (await http.get("/subjects/s/versions")).status_code == (200 if response.status_code == 200 else 404)


@pytest.mark.parametrize("name", ["\x00", "a\nb", "x" * 1001, ""])
async def test_references_have_names_that_can_be(registry: Registry, name: str) -> None:
    for reference in ({"name": name, "subject": "s", "version": 1}, {"name": "s", "subject": name, "version": 1}):
        body = {"schema": PLAIN, "references": [reference]}
        assert "references" in await registry.fails(42201, "POST", "/subjects/s/versions", body)


async def test_metadata_and_rules_have_a_limit(registry: Registry, broker: Broker) -> None:
    large = {"properties": {"a": "x" * broker.settings.schemas.max_schema_bytes}}
    for name in ("metadata", "ruleSet"):
        body = {"schema": PLAIN, name: large}
        assert "max_schema_bytes" in await registry.fails(42201, "POST", "/subjects/s/versions", body)
    await registry.fails(413, "PUT", "/config", {"defaultMetadata": large})


async def test_half_a_character_is_refused(http: httpx.AsyncClient) -> None:
    body = b'{"schema": "{\\"type\\":\\"string\\",\\"doc\\":\\"\\\\ud800\\"}"}'
    response = await http.post("/subjects/s/versions", content=body, headers={"content-type": V1})
    assert (response.status_code, response.json()["error_code"]) == (422, 42201)


async def test_a_body_has_a_limit(http: httpx.AsyncClient, broker: Broker) -> None:
    body = b" " * (6 * broker.settings.schemas.max_schema_bytes + 100_000)
    response = await http.post("/subjects/s/versions", content=body, headers={"content-type": V1})
    assert (response.status_code, response.json()["error_code"]) == (413, 413)


@pytest.mark.parametrize("name", ["__GLOBAL", "__EMPTY", "a\tb", "x" * 1001])
async def test_a_name_that_can_be_no_subjects_is_refused(registry: Registry, name: str) -> None:
    await registry.fails(42208, "POST", f"/subjects/{quote(name)}/versions", {"schema": PLAIN})


async def test_metadata_and_rules_come_back_as_they_were(registry: Registry) -> None:
    metadata = {"properties": {"owner": "a"}, "tags": {"x": ["PII"]}}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}]}
    await registry.register("s", metadata=metadata, ruleSet=rules)
    for path in ("/subjects/s/versions/1", "/schemas/ids/1", "/subjects/s/versions/latest"):
        response = await registry.get(path)
        assert (response["metadata"], response["ruleSet"]) == (metadata, rules)
    result = await registry.get("/subjects/s/metadata", key="owner", value="a")
    assert result["version"] == 1
    await registry.fails(40403, "GET", "/subjects/s/metadata", key="owner", value="b")


async def test_a_subject_may_be_a_path(registry: Registry) -> None:
    await registry.register("io/example/orders.proto")
    assert await registry.get("/subjects") == ["io/example/orders.proto"]
    assert await registry.get("/subjects/io%2Fexample%2Forders.proto/versions") == [1]
    await registry.fails(404, "GET", "/subjects/io/example/orders.proto/versions")


# --- reading


async def test_subjects_are_listed_by_what_is_requested(registry: Registry) -> None:
    for name in ("a-key", "a-value", "b-value"):
        await registry.register(name)
    await registry.ok("DELETE", "/subjects/b-value")
    assert await registry.get("/subjects") == ["a-key", "a-value"]
    assert await registry.get("/subjects", deleted="True") == ["a-key", "a-value", "b-value"]
    assert await registry.get("/subjects", deletedOnly="true") == ["b-value"]
    assert await registry.get("/subjects", deleted_only="True") == ["b-value"]
    assert await registry.get("/subjects", subjectPrefix="a-v") == ["a-value"]
    assert await registry.get("/subjects", offset=1, limit=1) == ["a-value"]
    assert await registry.get("/subjects", limit=-1) == ["a-key", "a-value"]
    assert await registry.get("/subjects", limit=0) == []
    await registry.fails(400, "GET", "/subjects", limit="many")
    await registry.fails(400, "GET", "/subjects", deleted="perhaps")


async def test_versions_are_listed_and_read(registry: Registry) -> None:
    await registry.register("s", PLAIN)
    await registry.register("s", WIDER)
    assert await registry.get("/subjects/s/versions") == [1, 2]
    assert await registry.get("/subjects/s/versions", offset=1) == [2]
    first = await registry.get("/subjects/s/versions/1")
    assert (first["subject"], first["version"], first["id"], first["schema"]) == ("s", 1, 1, PLAIN)
    latest = await registry.get("/subjects/s/versions/latest")
    assert latest == await registry.get("/subjects/s/versions/-1") == await registry.get("/subjects/s/versions/2")
    text = await registry.ask("GET", "/subjects/s/versions/2/schema")
    assert text.text == WIDER


@pytest.mark.parametrize(
    ("code", "path"),
    [
        (40401, "/subjects/nobody/versions"),
        (40401, "/subjects/nobody/versions/1"),
        (40401, "/subjects/nobody/versions/latest"),
        (40402, "/subjects/s/versions/9"),
        (42202, "/subjects/s/versions/a"),
        (42202, "/subjects/s/versions/0"),
        (42202, "/subjects/s/versions/-2"),
        (42202, "/subjects/s/versions/99999999999"),
        (40402, "/subjects/s/versions/9/schema"),
        (40402, "/subjects/s/versions/9/referencedby"),
        (40403, "/schemas/ids/9"),
        (40403, "/schemas/ids/9/schema"),
        (40403, "/schemas/ids/9/subjects"),
        (40403, "/schemas/ids/9/versions"),
        (404, "/schemas/ids/x"),
        (404, "/schemas/ids/99999999999"),
        (40403, "/schemas/guids/00000000-0000-0000-0000-000000000000"),
        (42201, "/schemas/ids/1?format=yaml"),
        (404, "/subjects/s/versions/1/colour"),
        (404, "/schemas/colours"),
        (400, "/subjects/%ff/versions"),
    ],
)
async def test_what_is_not_there_has_a_number(registry: Registry, code: int, path: str) -> None:
    await registry.register("s")
    await registry.fails(code, "GET", path)


async def test_sentences_are_those_that_clients_know(registry: Registry) -> None:
    assert await registry.fails(40401, "GET", "/subjects/x/versions") == "Subject 'x' not found."
    await registry.register("s")
    assert await registry.fails(40402, "GET", "/subjects/s/versions/3") == "Version 3 not found."
    assert await registry.fails(40403, "GET", "/schemas/ids/3") == "Schema 3 not found"
    assert "is not a valid version id" in await registry.fails(42202, "GET", "/subjects/s/versions/x")


async def test_a_schema_is_found_by_its_id_and_its_guid(registry: Registry) -> None:
    await registry.register("s")
    await registry.register("t")
    response = await registry.get("/schemas/ids/1")
    assert response == await registry.get(f"/schemas/guids/{response['guid'].upper()}")
    assert await registry.get(f"/schemas/guids/{response['guid']}/ids") == [{"context": ".", "id": 1}]
    assert (await registry.ask("GET", "/schemas/ids/1/schema")).text == PLAIN
    assert await registry.get("/schemas/ids/1/subjects") == ["s", "t"]
    assert await registry.get("/schemas/ids/1/subjects", offset=1) == ["t"]
    versions = [{"subject": "s", "version": 1}, {"subject": "t", "version": 1}]
    assert await registry.get("/schemas/ids/1/versions") == versions
    await registry.ok("DELETE", "/subjects/s")
    assert await registry.get("/schemas/ids/1/versions") == versions[1:]
    assert await registry.get("/schemas/ids/1/versions", deleted="true") == versions
    await registry.register("s", WIDER)
    assert (await registry.get("/schemas/ids/1", fetchMaxId="true"))["maxId"] == 2


async def test_all_schemas_are_listed_within_a_limit(registry: Registry) -> None:
    for text in (PLAIN, WIDER, record("x", "y?", "z?")):
        await registry.register("s", text)
    await registry.register("t")
    listed = await registry.get("/schemas")
    assert [(each["subject"], each["version"]) for each in listed] == [("s", 1), ("s", 2), ("s", 3)]
    assert [each["id"] for each in await registry.get("/schemas", offset=3)] == [1]
    latest = await registry.get("/schemas", latestOnly="true")
    assert [(each["subject"], each["version"]) for each in latest] == [("s", 3), ("t", 1)]
    assert [each["subject"] for each in await registry.get("/schemas", subjectPrefix="t")] == ["t"]


async def test_a_schema_is_looked_up(registry: Registry) -> None:
    await registry.fails(40401, "POST", "/subjects/s", {"schema": PLAIN})
    await registry.register("s")
    result = await registry.ok("POST", "/subjects/s", {"schema": PLAIN})
    assert (result["subject"], result["version"], result["id"], result["schema"]) == ("s", 1, 1, PLAIN)
    assert await registry.fails(40403, "POST", "/subjects/s", {"schema": WIDER}) == "Schema not found"
    assert "Invalid schema" in await registry.fails(42201, "POST", "/subjects/s", {"schema": "{"})
    await registry.ok("DELETE", "/subjects/s")
    await registry.fails(40401, "POST", "/subjects/s", {"schema": PLAIN})
    assert (await registry.ok("POST", "/subjects/s", {"schema": PLAIN}, deleted="true"))["version"] == 1


async def test_compatibility_is_requested_without_registering(registry: Registry) -> None:
    path = "/compatibility/subjects/s/versions"
    assert await registry.ok("POST", f"{path}/latest", {"schema": PLAIN}) == {"is_compatible": True}
    await registry.register("s", PLAIN)
    await registry.register("s", WIDER)
    assert await registry.ok("POST", f"{path}/latest", {"schema": OTHER}) == {"is_compatible": True}
    assert await registry.ok("POST", f"{path}/1", {"schema": OTHER}) == {"is_compatible": False}
    assert await registry.ok("POST", path, {"schema": OTHER}) == {"is_compatible": True}
    await registry.ok("PUT", "/config/s", {"compatibility": "BACKWARD_TRANSITIVE"})
    verbose = await registry.ok("POST", path, {"schema": OTHER}, verbose="True")
    assert verbose["is_compatible"] is False
    assert any("READER_FIELD_MISSING_DEFAULT_VALUE" in each for each in verbose["messages"])
    assert await registry.ok("POST", path, {"schema": WIDER}, verbose="true") == {"is_compatible": True, "messages": []}
    await registry.fails(40402, "POST", f"{path}/7", {"schema": PLAIN})
    await registry.fails(42202, "POST", f"{path}/x", {"schema": PLAIN})
    await registry.fails(42201, "POST", path, {"schema": "{"})
    response = await registry.ok("POST", path, {"schema": "{"}, verbose="true")
    assert (response["is_compatible"], "Invalid schema" in response["messages"][0]) == (False, True)
    assert await registry.get("/subjects/s/versions") == [1, 2]


# --- deleting


async def test_versions_are_deleted_first_out_of_use_then_for_good(registry: Registry) -> None:
    await registry.register("s", PLAIN)
    await registry.register("s", WIDER)
    version = "/subjects/s/versions/2"
    await registry.fails(40407, "DELETE", version, permanent="true")
    assert await registry.ok("DELETE", "/subjects/s/versions/latest") == 2
    await registry.fails(40406, "DELETE", version)
    await registry.fails(40402, "GET", version)
    assert (await registry.get(version, deleted="true"))["deleted"] is True
    assert await registry.get("/subjects/s/versions") == [1]
    assert await registry.get("/subjects/s/versions", deleted="true") == [1, 2]
    assert await registry.get("/subjects/s/versions", deletedOnly="true") == [2]
    assert (await registry.get("/schemas/ids/2"))["schema"] == WIDER
    assert await registry.ok("DELETE", version, permanent="true") == 2
    await registry.fails(40403, "GET", "/schemas/ids/2")
    await registry.fails(40402, "DELETE", version, permanent="true")
    assert (await registry.ok("POST", "/subjects/s/versions", {"schema": WIDER}))["version"] == 3
    await registry.fails(40401, "DELETE", "/subjects/nobody/versions/1")
    await registry.fails(42202, "DELETE", "/subjects/s/versions/x")


async def test_subjects_are_deleted_first_out_of_use_then_for_good(registry: Registry) -> None:
    await registry.fails(40401, "DELETE", "/subjects/s")
    await registry.register("s", PLAIN)
    await registry.register("s", WIDER)
    await registry.fails(40405, "DELETE", "/subjects/s", permanent="true")
    assert await registry.ok("DELETE", "/subjects/s") == [1, 2]
    await registry.fails(40404, "DELETE", "/subjects/s")
    await registry.fails(40401, "GET", "/subjects/s/versions")
    assert await registry.ok("DELETE", "/subjects/s", permanent="true") == [1, 2]
    await registry.fails(40401, "DELETE", "/subjects/s", permanent="true")


async def test_what_is_referred_to_is_not_deleted(registry: Registry) -> None:
    await registry.register("base", record("x"))
    user = {
        "schema": record(name="User", order="Order"),
        "references": [{"name": "Order", "subject": "base", "version": 1}],
    }
    response = await registry.ok("POST", "/subjects/user/versions", user)
    assert (await registry.get("/subjects/user/versions/1"))["references"] == user["references"]
    assert await registry.get("/subjects/base/versions/1/referencedby") == [response["id"]]
    assert "references exist" in await registry.fails(42206, "DELETE", "/subjects/base/versions/1")
    await registry.fails(42206, "DELETE", "/subjects/base")
    await registry.ok("DELETE", "/subjects/user")
    assert await registry.get("/subjects/base/versions/1/referencedby") == []
    assert await registry.get("/subjects/base/versions/1/referencedby", deleted="true") == [response["id"]]
    await registry.ok("DELETE", "/subjects/base")
    await registry.fails(42206, "DELETE", "/subjects/base", permanent="true")


# --- rules


async def test_levels_are_set_everywhere_or_for_a_subject(registry: Registry) -> None:
    assert await registry.get("/config") == {"compatibilityLevel": "BACKWARD"}
    await registry.fails(40408, "GET", "/config/s")
    assert await registry.get("/config/s", defaultToGlobal="true") == {"compatibilityLevel": "BACKWARD"}
    assert await registry.ok("PUT", "/config", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert await registry.get("/config/s", defaultToGlobal="true") == {"compatibilityLevel": "FULL"}
    assert await registry.ok("PUT", "/config/s", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert await registry.get("/config/s") == {"compatibilityLevel": "NONE"}
    assert await registry.ok("DELETE", "/config/s") == {"compatibilityLevel": "NONE"}
    await registry.fails(40401, "DELETE", "/config/s")
    assert await registry.ok("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert await registry.get("/config") == {"compatibilityLevel": "BACKWARD"}


async def test_other_settings_are_kept_beside_the_level(registry: Registry) -> None:
    rules = {"normalize": True, "alias": "t", "compatibilityGroup": "g", "defaultMetadata": {"properties": {"a": "b"}}}
    await registry.ok("PUT", "/config/s", {"compatibility": "FULL", **rules})
    assert await registry.get("/config/s") == {"compatibilityLevel": "FULL", **rules}
    await registry.ok("PUT", "/config/s", {"alias": None})
    del rules["alias"]
    assert await registry.get("/config/s") == {"compatibilityLevel": "FULL", **rules}


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/config", {"compatibility": "SOMETIMES"}, 42203),
        ("/config/s", {"compatibility": "SOMETIMES"}, 42203),
        ("/config", {"compatibility": 7}, 42201),
        ("/config", {"level": "FULL"}, 42201),
        ("/config/__GLOBAL", {"compatibility": "FULL"}, 42208),
        ("/mode", {"mode": "SLOW"}, 42204),
        ("/mode/s", {"mode": "SLOW"}, 42204),
        ("/mode", {"mode": 7}, 42201),
        ("/mode", {}, 42201),
    ],
)
async def test_bad_rules_are_refused(registry: Registry, path: str, body: object, code: int) -> None:
    await registry.fails(code, "PUT", path, body)
    assert await registry.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert await registry.get("/mode") == {"mode": "READWRITE"}


async def test_modes_are_set_everywhere_or_for_a_subject(registry: Registry) -> None:
    assert await registry.get("/mode") == {"mode": "READWRITE"}
    await registry.fails(40409, "GET", "/mode/s")
    assert await registry.ok("PUT", "/mode", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert await registry.get("/mode/s", defaultToGlobal="true") == {"mode": "READONLY"}
    message = await registry.fails(42205, "POST", "/subjects/s/versions", {"schema": PLAIN})
    assert message == "Subject s in context . is in read-only mode"
    assert await registry.ok("PUT", "/mode/s", {"mode": "READWRITE"}) == {"mode": "READWRITE"}
    await registry.register("s")
    assert await registry.ok("DELETE", "/mode/s") == {"mode": "READWRITE"}
    await registry.fails(40401, "DELETE", "/mode/s")
    await registry.fails(42205, "DELETE", "/subjects/s")
    assert await registry.ok("DELETE", "/mode") == {"mode": "READONLY"}
    await registry.ok("DELETE", "/subjects/s")


async def test_schemas_are_imported_with_their_numbers(registry: Registry) -> None:
    await registry.register("there")
    await registry.fails(42205, "PUT", "/mode", {"mode": "IMPORT"})
    await registry.ok("PUT", "/mode", {"mode": "IMPORT"}, force="true")
    response = await registry.ok("POST", "/subjects/s/versions", {"schema": WIDER, "id": 77, "version": 3})
    assert (response["id"], response["version"]) == (77, 3)
    await registry.fails(42205, "POST", "/subjects/s/versions", {"schema": WIDER})
    await registry.fails(42205, "POST", "/subjects/t/versions", {"schema": record("z"), "id": 77})
    exported = await registry.get("/subjects/s/versions/3")
    again = await registry.ok("POST", "/subjects/s/versions", exported)
    assert (again["id"], again["version"]) == (77, 3)


# --- contexts


async def test_contexts_have_ids_and_subjects_of_their_own(registry: Registry) -> None:
    await registry.register("s", WIDER)
    await registry.register(":.staging:s", PLAIN)
    assert await registry.get("/contexts") == [".", ".staging"]
    assert await registry.get("/contexts", contextPrefix=".s") == [".staging"]
    assert await registry.get("/subjects") == ["s", ":.staging:s"]
    assert await registry.get("/subjects", subjectPrefix="") == ["s"]
    assert await registry.get("/subjects", subjectPrefix=":.staging:") == [":.staging:s"]
    assert (await registry.get("/subjects/:.staging:s/versions/1"))["id"] == 1
    assert (await registry.get("/schemas/ids/1"))["schema"] == WIDER
    assert (await registry.get("/schemas/ids/1", subject=":.staging:s"))["schema"] == PLAIN
    assert (await registry.get("/schemas/ids/1", subject=":.staging:"))["schema"] == PLAIN


@pytest.mark.parametrize("context", ["staging", ".staging", ":.staging:"])
async def test_every_path_exists_below_a_context(registry: Registry, context: str) -> None:
    base = f"/contexts/{context}"
    response = await registry.ok("POST", f"{base}/subjects/s/versions", {"schema": PLAIN})
    assert response["id"] == 1
    assert await registry.get(f"{base}/subjects") == [":.staging:s"]
    assert (await registry.get(f"{base}/schemas/ids/1"))["schema"] == PLAIN
    assert await registry.get(f"{base}/schemas/ids/1/subjects") == [":.staging:s"]
    assert [each["subject"] for each in await registry.get(f"{base}/schemas")] == [":.staging:s"]
    await registry.ok("PUT", f"{base}/config", {"compatibility": "FULL"})
    assert await registry.get("/config") == {"compatibilityLevel": "BACKWARD"}
    assert (await registry.get(f"{base}/config/s", defaultToGlobal="true"))["compatibilityLevel"] == "FULL"
    await registry.ok("PUT", f"{base}/mode/s", {"mode": "READONLY"})
    await registry.fails(42205, "DELETE", "/subjects/:.staging:s")
    assert await registry.ok("DELETE", f"{base}/mode", recursive="true") == {"mode": None}
    assert await registry.ok("DELETE", f"{base}/subjects/s") == [1]
    await registry.fails(40401, "GET", "/subjects/s/versions")


async def test_rules_of_the_global_context_hold_in_all(registry: Registry) -> None:
    await registry.ok("PUT", "/config/:.__GLOBAL:", {"compatibility": "NONE"})
    for subject in ("s", ":.staging:s"):
        await registry.register(subject, PLAIN)
        await registry.register(subject, record("other"))
    await registry.fails(42208, "POST", "/subjects/:.__GLOBAL:s/versions", {"schema": PLAIN})


# --- the port


async def test_the_registry_describes_itself(registry: Registry) -> None:
    assert await registry.get("/") == {}
    clusters = (await registry.get("/v1/metadata/id"))["scope"]["clusters"]
    assert clusters["kafka-cluster"] == "the-cluster"
    assert (await registry.get("/v1/metadata/version"))["version"] == __version__


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("*/*", V1),
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        (f"{V1}, application/json; q=0.9", V1),
    ],
)
async def test_clients_choose_the_media_type(http: httpx.AsyncClient, accept: str, answered: str) -> None:
    for path, status in (("/subjects", 200), ("/subjects/x/versions", 404)):
        response = await http.get(path, headers={"accept": accept})
        assert (response.status_code, response.headers["content-type"]) == (status, answered)


async def test_other_media_types_are_refused(http: httpx.AsyncClient) -> None:
    assert (await http.get("/subjects", headers={"accept": "text/html"})).status_code == 406
    response = await http.post("/subjects/s/versions", content=b"{}", headers={"content-type": "text/plain"})
    assert (response.status_code, response.json()["error_code"]) == (415, 415)
    response = await http.post("/subjects/s", content=b"{}")
    assert response.status_code == 415


@pytest.mark.parametrize(("method", "path"), [("PUT", "/subjects"), ("GET", "/compatibility/subjects/s/versions")])
async def test_other_methods_are_refused(registry: Registry, method: str, path: str) -> None:
    await registry.fails(405, method, path, {} if method == "PUT" else None)


async def test_a_slash_at_the_end_changes_nothing(registry: Registry) -> None:
    await registry.register("s")
    assert await registry.get("/subjects/") == ["s"]
    assert await registry.get("/subjects/s/versions/") == [1]


async def test_trouble_of_the_store_is_reported_as_such(registry: Registry, world: World) -> None:
    await registry.register("s")
    await registry.get("/schemas/ids/1")
    world.metadata.refuse("list_subjects")
    world.metadata.refuse("schema_of_id", 5)
    message = await registry.fails(50001, "GET", "/subjects")
    assert "data store" in message
    assert (await registry.get("/schemas/ids/1"))["schema"] == PLAIN


def test_every_refusal_of_the_registry_has_a_code() -> None:
    seen, left = [], [errors.RegistryRefusal]
    while left:
        cls = left.pop()
        seen.append(cls)
        left += cls.__subclasses__()
    assert [cls.__name__ for cls in seen[1:] if not any(each in CODES for each in cls.__mro__)] == []


def test_other_errors_have_the_status_of_the_port() -> None:
    assert registry_error(errors.Internal("x")).status == 500
    assert registry_error(errors.Rejected("x")).error_code == 422


# --- with topics


async def test_records_over_http_need_the_schemas_that_their_topic_requests(
    registry: Registry, http: httpx.AsyncClient, broker: Broker
) -> None:
    await broker.create_topic("s", partitions=1, overrides={"streamhouse.schema.validation": "subject"})
    await registry.register("s-value", PLAIN)
    await registry.register("other", WIDER)
    for body in ({"records": [{"value": {"x": 1}}]}, {"records": [{"value": {"x": 1, "y": 1}}], "value_schema_id": 2}):
        refused = await http.post("/v1/topics/s/records", json=body)
        assert (refused.status_code, "InvalidRecord" in refused.text) == (422, True), refused.text
    stored = await http.post("/v1/topics/s/records", json={"records": [{"value": {"x": 7}}], "value_schema_id": 1})
    assert stored.status_code == 200, stored.text
    read = await http.get("/v1/topics/s/partitions/0/records", params={"offset": 0, "format": "schema"})
    assert [(each["value"], each["value_schema_id"]) for each in read.json()["records"]] == [({"x": 7}, 1)]
