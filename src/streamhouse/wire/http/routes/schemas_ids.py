"""Schemas of the registry by id, by guid and all together, by Confluent's paths.

GET /schemas                      versions with their texts; subjectPrefix, deleted, latestOnly, offset, limit
GET /schemas/types                the languages
GET /schemas/ids/{id}             subject (for its context), format, fetchMaxId; also …/schema, only the text
GET /schemas/ids/{id}/subjects    subjects that contain it; subject, deleted, offset, limit
GET /schemas/ids/{id}/versions    their versions; same parameters
GET /schemas/guids/{guid}         format; also …/ids, the schema's ids by context
"""

from typing import Any, Final, get_args

from starlette.responses import Response

from streamhouse.broker.schemas import SchemaRegistry
from streamhouse.errors import UnknownSchema
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import LOGGED_IN, lists
from streamhouse.model.schema import StoredSchema
from streamhouse.schemas.base import SchemaType
from streamhouse.wire.http.routes.schemas_requests import Entry, RegistryCall, schema_json, version_json

BY_ID: Final = lists(Operation.READ, ResourceType.SUBJECT, about="on one subject that has the schema")


def entries(schemas: SchemaRegistry) -> list[Entry]:
    handlers = _Ids(schemas)
    return [
        Entry("GET", "schemas", handlers.listing, lists(Operation.READ, ResourceType.SUBJECT)),
        Entry("GET", "schemas/types", handlers.types, LOGGED_IN),
        Entry("GET", "schemas/ids/{id}", handlers.schema, BY_ID),
        Entry("GET", "schemas/ids/{id}/schema", handlers.text, BY_ID),
        Entry("GET", "schemas/ids/{id}/subjects", handlers.subjects, BY_ID),
        Entry("GET", "schemas/ids/{id}/versions", handlers.versions, BY_ID),
        Entry("GET", "schemas/guids/{guid}", handlers.by_guid, BY_ID),
        Entry("GET", "schemas/guids/{guid}/ids", handlers.ids_of_guid, BY_ID),
    ]


class _Ids:
    def __init__(self, schemas: SchemaRegistry) -> None:
        self._schemas = schemas

    async def listing(self, call: RegistryCall) -> Any:
        context, prefix = call.prefix("")
        skipped, limit = call.page()
        is_whole = call.access.is_unrestricted
        schemas = await self._schemas.schemas(
            context=context,
            prefix=prefix,
            with_deleted=call.flag("deleted"),
            latest_only=call.flag("latestOnly"),
            skipped=skipped if is_whole else 0,
            limit=limit if is_whole else None,
        )
        if is_whole:
            return [version_json(each) for each in schemas]
        shown = [each for each in schemas if call.allows_subject(Operation.READ, each.subject)]
        return [version_json(each) for each in _page(call, shown)]

    async def types(self, _: RegistryCall) -> Any:
        return sorted(get_args(SchemaType))

    async def schema(self, call: RegistryCall) -> Any:
        style = call.style()
        stored = await self._readable(call)
        body = schema_json(stored, await self._schemas.formatted(stored, style))
        return {**body, "maxId": await self._schemas.max_id(stored.context)} if call.flag("fetchMaxId") else body

    async def _readable(self, call: RegistryCall) -> StoredSchema:
        """The schema of the id in the path; one that no subject has that the caller may read isn't there."""
        schema_id, context = call.schema_id(), call.id_context()
        if not await self._is_readable(call, schema_id, context):
            raise UnknownSchema(schema_id=schema_id)
        return await self._schemas.stored(schema_id, context=context)

    async def _is_readable(self, call: RegistryCall, schema_id: int, context: str) -> bool:
        if call.access.is_unrestricted:
            return True
        versions = await self._schemas.versions_of(schema_id, context=context, with_deleted=True)
        return any(call.allows_subject(Operation.READ, each.subject) for each in versions)

    async def text(self, call: RegistryCall) -> Any:
        stored = await self._readable(call)
        return Response((await self._schemas.formatted(stored, call.style())).encode())

    async def subjects(self, call: RegistryCall) -> Any:
        names = list(dict.fromkeys(each["subject"] for each in await self._versions(call)))
        return _page(call, names)

    async def versions(self, call: RegistryCall) -> Any:
        return _page(call, await self._versions(call))

    async def _versions(self, call: RegistryCall) -> list[dict[str, Any]]:
        deleted = call.flag("deleted")
        versions = await self._schemas.versions_of(call.schema_id(), context=call.id_context(), with_deleted=deleted)
        shown = [each for each in versions if call.allows_subject(Operation.READ, each.subject)]
        if not shown and not await self._is_readable(call, call.schema_id(), call.id_context()):
            raise UnknownSchema(schema_id=call.schema_id())
        return [{"subject": str(each.subject), "version": each.version} for each in shown]

    async def by_guid(self, call: RegistryCall) -> Any:
        style = call.style()
        guid = call.path["guid"].lower()
        if not await self._readable_ids(call, guid):
            raise UnknownSchema(schema_id=guid)
        stored = await self._schemas.by_guid(guid)
        return schema_json(stored, await self._schemas.formatted(stored, style))

    async def ids_of_guid(self, call: RegistryCall) -> Any:
        ids = await self._readable_ids(call, call.path["guid"].lower())
        return [{"context": context, "id": schema_id} for context, schema_id in ids]

    async def _readable_ids(self, call: RegistryCall, guid: str) -> list[tuple[str, int]]:
        """The ids of a guid in contexts where the caller may read a subject that has it."""
        return [
            (context, schema_id)
            for context, schema_id in await self._schemas.ids_of_guid(guid)
            if await self._is_readable(call, schema_id, context)
        ]


def _page(call: RegistryCall, items: list[Any]) -> list[Any]:
    skipped, limit = call.page()
    return items[skipped : None if limit is None else skipped + limit]
