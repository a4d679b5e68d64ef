"""Subjects of the schema registry and their versions, by Confluent's paths.

GET    /subjects                                       names; subjectPrefix, deleted, deletedOnly, offset, limit
POST   /subjects/{subject}                             look a schema up; normalize, deleted, format
DELETE /subjects/{subject}                             permanent
GET    /subjects/{subject}/versions                    numbers; deleted, deletedOnly, offset, limit
POST   /subjects/{subject}/versions                    register; normalize
GET    /subjects/{subject}/metadata                    latest version with this metadata; key, value, deleted, format
GET    /subjects/{subject}/versions/{version}          deleted, format; also …/schema, only the text
DELETE /subjects/{subject}/versions/{version}          permanent
GET    /subjects/{subject}/versions/{version}/referencedby     ids of schemas that refer to it; deleted, offset, limit
POST   /compatibility/subjects/{subject}/versions[/{version}]  normalize, verbose
"""

import json
from typing import Any, Final

from starlette.responses import Response

from streamhouse.broker.schemas import SchemaRegistry
from streamhouse.errors import InvalidSchema, UnknownSchema
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import lists, needs
from streamhouse.model.schema import EVERY_CONTEXT, Deleted, RegisteredSchema
from streamhouse.wire.http.routes.schemas_requests import Entry, RegistryCall, version_json

READ: Final = needs(Operation.READ, ResourceType.SUBJECT, "subject", about="read on the subjects that it refers to")
WRITE: Final = needs(Operation.WRITE, ResourceType.SUBJECT, "subject", about="read on the subjects that it refers to")
DELETE: Final = needs(Operation.DELETE, ResourceType.SUBJECT, "subject")


def entries(schemas: SchemaRegistry) -> list[Entry]:
    handlers = _Subjects(schemas)
    return [
        Entry("GET", "subjects", handlers.listing, lists(Operation.DESCRIBE, ResourceType.SUBJECT)),
        Entry("POST", "subjects/{subject}", handlers.lookup, READ),
        Entry("DELETE", "subjects/{subject}", handlers.delete_subject, DELETE),
        Entry("GET", "subjects/{subject}/versions", handlers.versions, READ),
        Entry("POST", "subjects/{subject}/versions", handlers.register, WRITE),
        Entry("GET", "subjects/{subject}/metadata", handlers.with_metadata, READ),
        Entry("GET", "subjects/{subject}/versions/{version}", handlers.version, READ),
        Entry("DELETE", "subjects/{subject}/versions/{version}", handlers.delete_version, DELETE),
        Entry("GET", "subjects/{subject}/versions/{version}/schema", handlers.text, READ),
        Entry("GET", "subjects/{subject}/versions/{version}/referencedby", handlers.referenced_by, READ),
        Entry("POST", "compatibility/subjects/{subject}/versions", handlers.compatibility, READ),
        Entry("POST", "compatibility/subjects/{subject}/versions/{version}", handlers.compatibility, READ),
    ]


class _Subjects:
    def __init__(self, schemas: SchemaRegistry) -> None:
        self._schemas = schemas

    async def listing(self, call: RegistryCall) -> Any:
        context, prefix = call.prefix(EVERY_CONTEXT)
        skipped, limit = call.page()
        is_whole = call.access.is_unrestricted
        subjects = await self._schemas.subjects(
            context=context,
            prefix=prefix,
            deleted=call.deleted(),
            skipped=skipped if is_whole else 0,
            limit=limit if is_whole else None,
        )
        if is_whole:
            return [str(each) for each in subjects]
        shown = [str(each) for each in subjects if call.allows_subject(Operation.DESCRIBE, each)]
        return shown[skipped : None if limit is None else skipped + limit]

    async def lookup(self, call: RegistryCall) -> Any:
        style, normalize, deleted = call.style(), call.flag("normalize"), call.flag("deleted")
        registered = await self._schemas.lookup(
            call.subject(), await call.proposal(), normalize=normalize, with_deleted=deleted
        )
        return await self._version_body(call, registered, style)

    async def delete_subject(self, call: RegistryCall) -> Any:
        return await self._schemas.delete_subject(call.subject(), permanent=call.flag("permanent"))

    async def versions(self, call: RegistryCall) -> Any:
        skipped, limit = call.page()
        versions = await self._schemas.versions(call.subject(), deleted=call.deleted())
        return [each.version for each in versions][skipped : None if limit is None else skipped + limit]

    async def register(self, call: RegistryCall) -> Any:
        """Returns id and version without the text: clients would cache a text in the response as the one they sent."""
        normalize = call.flag("normalize")
        registered = await self._schemas.register(call.subject(), await call.proposal(), normalize=normalize)
        return {"id": registered.schema_id, "version": registered.version, "guid": registered.schema.guid}

    async def version(self, call: RegistryCall) -> Any:
        style = call.style()
        registered = await self._schemas.version(call.subject(), call.version(), with_deleted=call.flag("deleted"))
        return await self._version_body(call, registered, style)

    async def text(self, call: RegistryCall) -> Any:
        return Response((await self.version(call))["schema"].encode())

    async def with_metadata(self, call: RegistryCall) -> Any:
        """The latest version whose metadata has all of these properties."""
        style, query = call.style(), call.request.query_params
        expected = dict(zip(query.getlist("key"), query.getlist("value"), strict=False))
        with_deleted = call.flag("deleted")
        shown = Deleted.WITH if with_deleted else Deleted.WITHOUT
        for each in reversed(await self._schemas.versions(call.subject(), deleted=shown)):
            registered = await self._schemas.version(each.subject, each.version, with_deleted=with_deleted)
            if expected.items() <= _properties(registered).items():
                return await self._version_body(call, registered, style)
        raise UnknownSchema(call.subject())

    async def delete_version(self, call: RegistryCall) -> Any:
        return await self._schemas.delete_version(call.subject(), call.version(), permanent=call.flag("permanent"))

    async def referenced_by(self, call: RegistryCall) -> Any:
        skipped, limit = call.page()
        versions = await self._schemas.referenced_by(call.subject(), call.version(), with_deleted=call.flag("deleted"))
        ids = list(dict.fromkeys(each.schema_id for each in versions))
        return ids[skipped : None if limit is None else skipped + limit]

    async def compatibility(self, call: RegistryCall) -> Any:
        everything, normalize, verbose = "version" not in call.path, call.flag("normalize"), call.flag("verbose")
        version = None if everything else call.version()
        proposal = await call.proposal()
        try:
            reasons = await self._schemas.compatibility(
                call.subject(), proposal, version=version, everything=everything, normalize=normalize
            )
        except InvalidSchema as error:
            if not verbose:
                raise
            reasons = [f"Invalid schema at {error.path}: {error.reason}"]
        return {"is_compatible": not reasons, **({"messages": reasons} if verbose else {})}

    async def _version_body(self, call: RegistryCall, registered: RegisteredSchema, style: str) -> dict[str, Any]:
        call.require_subject(Operation.READ, registered.subject)  # it may be another one, by an alias
        return version_json(registered, await self._schemas.formatted(registered.schema, style))


def _properties(registered: RegisteredSchema) -> dict[str, Any]:
    properties = json.loads(registered.schema.metadata or "{}").get("properties")
    return properties if isinstance(properties, dict) else {}
