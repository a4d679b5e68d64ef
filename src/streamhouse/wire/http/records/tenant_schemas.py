"""Schemas by which records are decoded for a caller: a tenant's are those of its subjects.

Any client can write any schema id before a record's value, so ids of other tenants must not reveal their schemas.
"""

from collections.abc import Sequence

from streamhouse.errors import UnknownSchema
from streamhouse.model.access import Caller
from streamhouse.model.schema import SubjectVersion
from streamhouse.model.tenant import unqualified
from streamhouse.schemas.base import ParsedSchema
from streamhouse.wire.http.records.formats import Registry


class SchemasOfTenant:
    """The schemas of a tenant's subjects; no record has others, whatever id is written before it."""

    def __init__(self, tenant: str, registry: Registry) -> None:
        self._tenant = tenant
        self._registry = registry
        self._own: set[int] = set()

    async def schema(self, schema_id: int) -> ParsedSchema:
        """Raise `UnknownSchema` unless a subject of the tenant has the schema."""
        if schema_id in self._own:
            return await self._registry.schema(schema_id)
        versions = await self._registry.versions_of(schema_id, with_deleted=True)
        if all(unqualified(self._tenant, str(each.subject)) is None for each in versions):
            raise UnknownSchema(schema_id=schema_id)
        self._own.add(schema_id)
        return await self._registry.schema(schema_id)

    async def newest_id(self, subject: str) -> int:
        return await self._registry.newest_id(subject)

    async def versions_of(self, schema_id: int, *, with_deleted: bool) -> Sequence[SubjectVersion]:
        return await self._registry.versions_of(schema_id, with_deleted=with_deleted)


def schemas_for(caller: Caller, registry: Registry) -> Registry:
    """The schemas by which records are decoded for a caller."""
    return SchemasOfTenant(caller.tenant, registry) if caller.tenant else registry
