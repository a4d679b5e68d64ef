"""Schemas of the registry by id, by guid and all together, by Confluent's paths.

GET /schemas                      versions with their texts; subjectPrefix, deleted, latestOnly, offset, limit
GET /schemas/types                the languages
GET /schemas/ids/{id}             subject (for its context), format, fetchMaxId; also …/schema, only the text
GET /schemas/ids/{id}/subjects    subjects that contain it; subject, deleted, offset, limit
GET /schemas/ids/{id}/versions    their versions; same parameters
GET /schemas/guids/{guid}         format; also …/ids, the schema's ids by context
"""

from typing import Any, get_args

from starlette.responses import Response

from streamhouse.broker.schemas import SchemaRegistry
from streamhouse.schemas.base import SchemaType
from streamhouse.wire.http.routes.schemas_requests import Entry, RegistryCall, schema_json, version_json


def entries(schemas: SchemaRegistry) -> list[Entry]:
    handlers = _Ids(schemas)
    return [
        Entry("GET", "schemas", handlers.listing),
        Entry("GET", "schemas/types", handlers.types),
        Entry("GET", "schemas/ids/{id}", handlers.schema),
        Entry("GET", "schemas/ids/{id}/schema", handlers.text),
        Entry("GET", "schemas/ids/{id}/subjects", handlers.subjects),
        Entry("GET", "schemas/ids/{id}/versions", handlers.versions),
        Entry("GET", "schemas/guids/{guid}", handlers.by_guid),
        Entry("GET", "schemas/guids/{guid}/ids", handlers.ids_of_guid),
    ]


class _Ids:
    def __init__(self, schemas: SchemaRegistry) -> None:
        self._schemas = schemas

    async def listing(self, call: RegistryCall) -> Any:
        context, prefix = call.prefix("")
        skipped, limit = call.page()
        schemas = await self._schemas.schemas(
            context=context,
            prefix=prefix,
            with_deleted=call.flag("deleted"),
            latest_only=call.flag("latestOnly"),
            skipped=skipped,
            limit=limit,
        )
        return [version_json(each) for each in schemas]

    async def types(self, _: RegistryCall) -> Any:
        return sorted(get_args(SchemaType))

    async def schema(self, call: RegistryCall) -> Any:
        style = call.style()
        stored = await self._schemas.stored(call.schema_id(), context=call.id_context())
        body = schema_json(stored, await self._schemas.formatted(stored, style))
        return {**body, "maxId": await self._schemas.max_id(stored.context)} if call.flag("fetchMaxId") else body

    async def text(self, call: RegistryCall) -> Any:
        stored = await self._schemas.stored(call.schema_id(), context=call.id_context())
        return Response((await self._schemas.formatted(stored, call.style())).encode())

    async def subjects(self, call: RegistryCall) -> Any:
        names = list(dict.fromkeys(each["subject"] for each in await self._versions(call)))
        return _page(call, names)

    async def versions(self, call: RegistryCall) -> Any:
        return _page(call, await self._versions(call))

    async def _versions(self, call: RegistryCall) -> list[dict[str, Any]]:
        deleted = call.flag("deleted")
        versions = await self._schemas.versions_of(call.schema_id(), context=call.id_context(), with_deleted=deleted)
        return [{"subject": str(each.subject), "version": each.version} for each in versions]

    async def by_guid(self, call: RegistryCall) -> Any:
        style = call.style()
        stored = await self._schemas.by_guid(call.path["guid"].lower())
        return schema_json(stored, await self._schemas.formatted(stored, style))

    async def ids_of_guid(self, call: RegistryCall) -> Any:
        ids = await self._schemas.ids_of_guid(call.path["guid"].lower())
        return [{"context": context, "id": schema_id} for context, schema_id in ids]


def _page(call: RegistryCall, items: list[Any]) -> list[Any]:
    skipped, limit = call.page()
    return items[skipped : None if limit is None else skipped + limit]
