"""SchemaStore: the schema registry; a part of the metadata store's interface.

Data path   broker.schemas -> **schema_store** -> one transaction each
Owns        the contract of each call
Leaves      SQL to the engines and `sql/`, compatibility and modes to `broker.schemas`

Changes of the registry are serialized, so that their decisions are still valid at the commit.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

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


class SchemaStore(Protocol):
    async def subject_state(self, subject: Subject) -> SubjectState:
        """Versions, including deleted ones, and rules; an unknown subject has revision 0 and no versions."""
        ...

    async def add_version(self, new: NewVersion, *, max_subjects: int) -> RegisteredSchema | None:
        """Add a version to a subject: under the id that the same schema already has in its context, else the next id.

        Returns None and changes nothing if the subject has another revision, or a referenced version doesn't exist or
        was deleted: check again and retry. A deleted earlier version of the same schema is replaced by the new one.
        Raises `SchemaIdTaken` if an imported id or version belongs to another schema, and `SchemaLimit` beyond
        `max_subjects`.
        """
        ...

    async def schema_of_id(self, context: str, schema_id: int) -> StoredSchema | None: ...

    async def ids_of_guid(self, guid: str) -> Sequence[tuple[str, int]]:
        """Contexts and ids of the same schema."""
        ...

    async def schema_contexts(self) -> Mapping[str, int]:
        """All contexts that ever had a schema, with their last ids."""
        ...

    async def schema_versions(self, keys: Sequence[VersionKey]) -> Sequence[RegisteredSchema]:
        """These versions, including deleted ones, ordered; unknown ones are left out."""
        ...

    async def latest_version(self, subject: Subject) -> RegisteredSchema | None:
        """The newest version that is not deleted."""
        ...

    async def versions_of_schema(self, context: str, schema_id: int) -> Sequence[SubjectVersion]:
        """The versions with an id, including deleted ones."""
        ...

    async def list_subjects(
        self, context: str | None, prefix: str, *, deleted: Deleted, skipped: int, limit: int
    ) -> Sequence[Subject]:
        """Subjects with a prefix, of one context or of all, ordered."""
        ...

    async def list_versions(
        self, context: str | None, prefix: str, *, with_deleted: bool, latest_only: bool, skipped: int, limit: int
    ) -> Sequence[RegisteredSchema]:
        """The versions of such subjects, ordered."""
        ...

    async def referrers(self, key: VersionKey) -> Sequence[SubjectVersion]:
        """The versions that refer to this one, including deleted ones."""
        ...

    async def delete_version(self, subject: Subject, version: int | None, *, permanent: bool) -> int:
        """Delete a version, None: the newest that is not deleted; returns its number.

        A soft-deleted version can still be read by id and version; `permanent` removes it. Raises `UnknownSubject`,
        `UnknownVersion`, `VersionSoftDeleted`, `VersionNotSoftDeleted` or `ReferenceExists`.
        """
        ...

    async def delete_subject(self, subject: Subject, *, permanent: bool) -> Sequence[int]:
        """Delete all versions of a subject, and with `permanent` its rules; returns their numbers.

        Raise `UnknownSubject`, `SubjectSoftDeleted`, `SubjectNotSoftDeleted`, or `ReferenceExists` when versions of
        other subjects refer to one of them.
        """
        ...

    async def schema_rules(self, scopes: Sequence[Subject]) -> Sequence[Rules]:
        """The rules of these scopes, in order."""
        ...

    async def change_config(self, scope: Subject, changes: Mapping[str, object]) -> Mapping[str, object]:
        """Change fields of a scope's configuration; None removes a field. Returns the configuration."""
        ...

    async def drop_config(self, scope: Subject) -> None: ...

    async def set_mode(self, scope: Subject, mode: Mode | None, *, must_be_empty: bool = False) -> None:
        """Set or remove a mode. With `must_be_empty`, raises `ModeRefused` and changes nothing if a subject of the
        scope has a version; soft-deleted versions are removed then."""
        ...

    async def drop_modes(self, context: str) -> None:
        """Delete the modes of a context's subjects."""
        ...
