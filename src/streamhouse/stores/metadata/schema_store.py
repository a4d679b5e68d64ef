"""SqlSchemaStore: the schema registry's calls over an SQL engine.

Data path   broker.schemas -> **schema store** -> one transaction each
Owns        the connection between the calls and their transactions
Leaves      what happens in them to `transactions`, running them to the engines
"""

from collections.abc import Mapping, Sequence
from functools import partial

from streamhouse.model.schema import (
    Deleted,
    Mode,
    NewVersion,
    RegisteredSchema,
    Rules,
    StoredSchema,
    Subject,
    SubjectState,
    SubjectVersion,
    VersionKey,
)
from streamhouse.stores.metadata.engine import CountedEngine
from streamhouse.stores.metadata.transactions import schema_deletion, schema_modes, schema_rules, schemas


class SqlSchemaStore:
    """A `SchemaStore` over an SQL engine."""

    _engine: CountedEngine

    async def subject_state(self, subject: Subject) -> SubjectState:
        return await self._engine.read(partial(schemas.subject_state, subject=subject))

    async def add_version(self, new: NewVersion, *, max_subjects: int) -> RegisteredSchema | None:
        return await self._engine.write(partial(schemas.add_version, new=new, max_subjects=max_subjects))

    async def schema_of_id(self, context: str, schema_id: int) -> StoredSchema | None:
        return await self._engine.look(partial(schemas.schema_of_id, context=context, schema_id=schema_id))

    async def ids_of_guid(self, guid: str) -> Sequence[tuple[str, int]]:
        return await self._engine.look(partial(schemas.ids_of_guid, guid=guid))

    async def schema_contexts(self) -> Mapping[str, int]:
        return await self._engine.look(schemas.contexts)

    async def schema_versions(self, keys: Sequence[VersionKey]) -> Sequence[RegisteredSchema]:
        return await self._engine.look(partial(schemas.versions, keys=keys)) if keys else []

    async def latest_version(self, subject: Subject) -> RegisteredSchema | None:
        return await self._engine.look(partial(schemas.latest_version, subject=subject))

    async def versions_of_schema(self, context: str, schema_id: int) -> Sequence[SubjectVersion]:
        return await self._engine.look(partial(schemas.versions_of_schema, context=context, schema_id=schema_id))

    async def list_subjects(
        self, context: str | None, prefix: str, *, deleted: Deleted, skipped: int, limit: int
    ) -> Sequence[Subject]:
        page = schemas.Page(context, prefix, skipped, limit)
        return await self._engine.look(partial(schemas.list_subjects, page=page, deleted=deleted))

    async def list_versions(
        self, context: str | None, prefix: str, *, with_deleted: bool, latest_only: bool, skipped: int, limit: int
    ) -> Sequence[RegisteredSchema]:
        page = schemas.Page(context, prefix, skipped, limit)
        work = partial(schemas.list_versions, page=page, with_deleted=with_deleted, latest_only=latest_only)
        return await self._engine.look(work)

    async def referrers(self, key: VersionKey) -> Sequence[SubjectVersion]:
        return await self._engine.look(partial(schemas.referrers, key=key))

    async def delete_version(self, subject: Subject, version: int | None, *, permanent: bool) -> int:
        work = partial(schema_deletion.delete_version, subject=subject, version=version, permanent=permanent)
        return await self._engine.write(work)

    async def delete_subject(self, subject: Subject, *, permanent: bool) -> Sequence[int]:
        work = partial(schema_deletion.delete_subject, subject=subject, permanent=permanent)
        return await self._engine.write(work)

    async def schema_rules(self, scopes: Sequence[Subject]) -> Sequence[Rules]:
        return await self._engine.look(partial(schema_rules.find_rules, scopes=scopes))

    async def change_config(self, scope: Subject, changes: Mapping[str, object]) -> Mapping[str, object]:
        return await self._engine.write(partial(schema_rules.change_config, scope=scope, changes=changes))

    async def drop_config(self, scope: Subject) -> None:
        await self._engine.write(partial(schema_rules.drop_config, scope=scope))

    async def set_mode(self, scope: Subject, mode: Mode | None, *, must_be_empty: bool = False) -> None:
        work = partial(schema_modes.set_mode, scope=scope, mode=mode, must_be_empty=must_be_empty)
        await self._engine.write(work)

    async def drop_modes(self, context: str) -> None:
        await self._engine.write(partial(schema_modes.drop_modes, context=context))
