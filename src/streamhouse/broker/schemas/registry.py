"""SchemaRegistry: the schema registry's calls, for all protocols.

Data path   wire -> **registry** -> registration, schema_cache -> metadata store
Owns        the public calls; invalidating caches after changes by other agents
Leaves      rules to `subject_config` and `registration`, caching to `schema_cache`, rows to the metadata store,
            checking produced batches to `record_validation`
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.schemas.record_validation import SchemaCheck
from streamhouse.broker.schemas.registration import Proposal, Registration
from streamhouse.broker.schemas.schema_cache import SchemaCache
from streamhouse.broker.schemas.subject_config import (
    LEVEL,
    EffectiveConfig,
    check_subject,
    check_writable,
    effective_config,
)
from streamhouse.errors import NoMode, NotConfigured, UnknownSchema, UnknownSubject, UnknownVersion
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.schema import (
    DEFAULT_CONTEXT,
    Deleted,
    Mode,
    RegisteredSchema,
    StoredSchema,
    Subject,
    SubjectVersion,
    VersionKey,
)
from streamhouse.schemas.base import ParsedSchema

SERIALIZED: Final = "serialized"


@runtime_checkable
class Serializable(Protocol):
    """A schema with a serialized form."""

    def serialized(self) -> str: ...


class SchemaRegistry:
    def __init__(self, dependencies: Dependencies) -> None:
        self._store = dependencies.metadata
        self._settings = dependencies.settings.schemas
        self.library = SchemaCache(dependencies)
        self._registration = Registration(dependencies, self.library)
        self.check = SchemaCheck(self.library)

    def __repr__(self) -> str:
        return f"<SchemaRegistry {self.library!r}>"

    def on_change(self, change: Change) -> None:
        """Invalidate caches after a change that the metadata store announced."""
        if change.kind in (ChangeKind.SCHEMAS, ChangeKind.EVERYTHING):
            self.library.expire_all()

    # --- schemas by id

    async def schema(self, schema_id: int, *, context: str = "") -> ParsedSchema:
        """The parsed schema of an id, cached; raises `UnknownSchema`."""
        return await self.library.parsed(context or DEFAULT_CONTEXT, schema_id)

    async def stored(self, schema_id: int, *, context: str = "") -> StoredSchema:
        """The schema of an id as it was registered."""
        return await self.library.stored(context or DEFAULT_CONTEXT, schema_id)

    async def formatted(self, stored: StoredSchema, style: str) -> str:
        """The text of a schema; with the style `serialized` a descriptor in base64, if its language has one."""
        if style != SERIALIZED:
            return stored.text
        parsed = await self.library.parsed(stored.context, stored.schema_id)
        return parsed.serialized() if isinstance(parsed, Serializable) else stored.text

    async def by_guid(self, guid: str) -> StoredSchema:
        ids = await self.ids_of_guid(guid)
        if not ids:
            raise UnknownSchema(schema_id=guid)
        context, schema_id = ids[0]
        return await self.library.stored(context, schema_id)

    async def ids_of_guid(self, guid: str) -> Sequence[tuple[str, int]]:
        return await self._store.ids_of_guid(guid)

    async def max_id(self, context: str = "") -> int:
        return (await self._store.schema_contexts()).get(context or DEFAULT_CONTEXT, 0)

    async def versions_of(self, schema_id: int, *, context: str = "", with_deleted: bool) -> Sequence[SubjectVersion]:
        """The versions with an id; raises `UnknownSchema` if there never were any."""
        versions = await self._store.versions_of_schema(context or DEFAULT_CONTEXT, schema_id)
        if not versions:
            raise UnknownSchema(schema_id=schema_id)
        return [each for each in versions if with_deleted or not each.deleted]

    # --- subjects and versions

    async def register(self, subject: Subject, proposal: Proposal, *, normalize: bool = False) -> RegisteredSchema:
        """Register a version of a subject. The same schema again is the same version; raises `InvalidSchema`,
        `IncompatibleSchema`, `ModeRefused`, `InvalidSubject`, `SchemaLimit`."""
        return await self._registration.register(subject, proposal, normalize=normalize)

    async def lookup(
        self, subject: Subject, proposal: Proposal, *, normalize: bool = False, with_deleted: bool = False
    ) -> RegisteredSchema:
        """The version with this schema; raises `UnknownSubject` or `UnknownSchema`."""
        try:
            return await self._registration.lookup(subject, proposal, normalize=normalize, with_deleted=with_deleted)
        except UnknownSubject:
            if (alias := await self._alias(subject)) is None:
                raise
        return await self._registration.lookup(alias, proposal, normalize=normalize, with_deleted=with_deleted)

    async def compatibility(
        self,
        subject: Subject,
        proposal: Proposal,
        *,
        version: int | None = None,
        everything: bool = False,
        normalize: bool = False,
    ) -> list[str]:
        """Why a schema is incompatible with a version (None: latest), or with `everything` with all versions that the
        level compares."""
        return await self._registration.compatibility(
            subject, proposal, version=version, everything=everything, normalize=normalize
        )

    async def subjects(
        self,
        *,
        context: str | None = None,
        prefix: str = "",
        deleted: Deleted = Deleted.WITHOUT,
        skipped: int = 0,
        limit: int | None = None,
    ) -> Sequence[Subject]:
        """Subjects with this prefix, of one context or of all (None)."""
        most = self._settings.max_subjects
        return await self._store.list_subjects(
            context, prefix, deleted=deleted, skipped=skipped, limit=most if limit is None else min(limit, most)
        )

    async def schemas(
        self,
        *,
        context: str | None,
        prefix: str = "",
        with_deleted: bool = False,
        latest_only: bool = False,
        skipped: int = 0,
        limit: int | None = None,
    ) -> Sequence[RegisteredSchema]:
        """Versions with their texts, by subject."""
        most = self._settings.max_listed
        return await self._store.list_versions(
            context,
            prefix,
            with_deleted=with_deleted,
            latest_only=latest_only,
            skipped=skipped,
            limit=most if limit is None else min(limit, most),
        )

    async def versions(self, subject: Subject, *, deleted: Deleted = Deleted.WITHOUT) -> Sequence[SubjectVersion]:
        """The subject's versions; raises `UnknownSubject` if none match."""
        known = (await self._store.subject_state(subject)).versions
        visible = [each for each in known if deleted is not Deleted.WITHOUT or not each.deleted]
        if not visible:
            raise UnknownSubject(subject)
        return [each for each in visible if deleted is not Deleted.ONLY or each.deleted]

    async def version(self, subject: Subject, version: int | None, *, with_deleted: bool = False) -> RegisteredSchema:
        """A version with its schema (None: latest); raises `UnknownSubject` or `UnknownVersion`."""
        schema = await self._find(subject, version, with_deleted=with_deleted)
        if schema is None and (alias := await self._alias(subject)) is not None:
            schema = await self._find(alias, version, with_deleted=with_deleted)
        if schema is None:
            await self.versions(subject, deleted=Deleted.WITH if with_deleted else Deleted.WITHOUT)
            raise UnknownVersion(subject, version or -1)
        return schema

    async def newest_id(self, subject: str) -> int:
        """The id of a subject's newest version; raises `UnknownSubject`."""
        return (await self.version(Subject.parse(subject), None)).schema_id

    async def _find(self, subject: Subject, version: int | None, *, with_deleted: bool) -> RegisteredSchema | None:
        if version is None:
            return await self._store.latest_version(subject)
        rows = await self._store.schema_versions([VersionKey(subject, version)])
        return rows[0] if rows and (with_deleted or not rows[0].deleted) else None

    async def _alias(self, subject: Subject) -> Subject | None:
        """The alias of a subject without versions."""
        [rules] = await self._store.schema_rules([subject])
        alias = None if rules.config is None else json.loads(rules.config).get("alias")
        return subject.beside(alias) if isinstance(alias, str) and alias else None

    async def referenced_by(
        self, subject: Subject, version: int | None, *, with_deleted: bool = False
    ) -> Sequence[SubjectVersion]:
        """The versions that refer to this one."""
        schema = await self.version(subject, version, with_deleted=True)
        users = await self._store.referrers(VersionKey(schema.subject, schema.version))
        return [each for each in users if with_deleted or not each.deleted]

    async def delete_version(self, subject: Subject, version: int | None, *, permanent: bool = False) -> int:
        """Delete a version softly, or with `permanent` a soft-deleted one for good; None: latest."""
        check_writable(subject, (await self.in_force(subject)).mode)
        deleted = await self._store.delete_version(subject, version, permanent=permanent)
        self.library.expire_all()
        return deleted

    async def delete_subject(self, subject: Subject, *, permanent: bool = False) -> Sequence[int]:
        check_writable(subject, (await self.in_force(subject)).mode)
        deleted = await self._store.delete_subject(subject, permanent=permanent)
        self.library.expire_all()
        return deleted

    async def contexts(self) -> Sequence[str]:
        """The default context, and all contexts that ever had a schema."""
        return sorted({DEFAULT_CONTEXT, *await self._store.schema_contexts()})

    # --- rules

    async def in_force(self, scope: Subject) -> EffectiveConfig:
        """The effective configuration of a subject, from all its scopes."""
        return effective_config(await self._store.schema_rules(scope.scopes))

    async def config(self, scope: Subject) -> Mapping[str, Any]:
        """The configuration set at this subject or context; raises `NotConfigured`. The default context always has a
        level."""
        [rules] = await self._store.schema_rules([scope])
        if rules.config is None and scope.name:
            raise NotConfigured(scope)
        if scope.name:
            level = (await self.in_force(scope)).config[LEVEL]
            return {LEVEL: level, **json.loads(rules.config or "{}")}
        return effective_config([rules]).config

    async def set_config(self, scope: Subject, changes: Mapping[str, object]) -> Mapping[str, Any]:
        """Change fields of a configuration, None removes them; returns the configuration of the scope."""
        if scope.name:
            check_subject(scope)
        return await self._store.change_config(scope, changes)

    async def delete_config(self, scope: Subject) -> Mapping[str, Any]:
        """Delete a configuration and return it. Raises `UnknownSubject` if a subject had none."""
        try:
            before = await self.config(scope)
        except NotConfigured:
            raise UnknownSubject(scope) from None
        await self._store.drop_config(scope)
        return before

    async def mode(self, scope: Subject) -> Mode:
        """The mode set at this subject or context; raises `NoMode`. The default context always has one."""
        [rules] = await self._store.schema_rules([scope])
        if rules.mode is None and scope.name:
            raise NoMode(scope)
        return rules.mode or Mode.READWRITE

    async def set_mode(self, scope: Subject, mode: Mode | None, *, force: bool = False) -> None:
        """Set a mode. IMPORT needs an empty scope, unless it is forced."""
        if scope.name:
            check_subject(scope)
        is_import = (await self.in_force(scope)).mode is Mode.IMPORT
        must_be_empty = mode is Mode.IMPORT and not is_import and not force
        await self._store.set_mode(scope, mode, must_be_empty=must_be_empty)
        self.library.expire_all()

    async def delete_mode(self, scope: Subject, *, recursive: bool = False) -> Mode | None:
        """Delete a mode and return it; with `recursive` also those of a context's subjects."""
        [rules] = await self._store.schema_rules([scope])
        if rules.mode is None and scope.name and not recursive:
            raise UnknownSubject(scope)
        await self._store.set_mode(scope, None)
        if recursive and not scope.name:
            await self._store.drop_modes(scope.context)
        return rules.mode
