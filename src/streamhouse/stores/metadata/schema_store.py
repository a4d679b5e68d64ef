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
        """Give a subject a version: under the id that the same schema has in its context already, else the next one.

        None, and nothing changed, when the subject has another revision, or when what the schema needs isn't there or
        was deleted: the decision must be made again. An earlier version of the same schema that was deleted makes room
        for the new one. Raise `SchemaIdTaken` when an imported id or version is somebody else's, and `SchemaLimit`
        beyond `max_subjects`.
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

        A deleted version can still be read by those who know it; `permanent` takes it away. Raise what forbids it:
        `UnknownSubject`, `UnknownVersion`, `VersionSoftDeleted`, `VersionNotSoftDeleted`, `ReferenceExists`.
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
        """Set or take away a mode. With `must_be_empty` nothing changes, and `ModeRefused` is raised, unless none of
        the scope's subjects has a version; deleted ones go for good then."""
        ...

    async def drop_modes(self, context: str) -> None:
        """Delete the modes of a context's subjects."""
        ...
