"""The schema registry's part of the metadata store's door.

Data path   broker.schemas -> **schemas** -> one transaction each
Owns        what each call about schemas promises
Leaves      SQL to the engines and `sql/`, compatibility and modes to `broker.schemas`

Every change of the registry waits for the one before it, so that what it decides by holds when it is committed.
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
        """Versions, deleted ones too, and rules; a subject that isn't there has revision 0 and no versions."""
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
        """Every context that ever had a schema, and the last id that it gave."""
        ...

    async def schema_versions(self, keys: Sequence[VersionKey]) -> Sequence[RegisteredSchema]:
        """These versions, deleted ones too, ordered; what is not there is left out."""
        ...

    async def latest_version(self, subject: Subject) -> RegisteredSchema | None:
        """The newest version that is not deleted."""
        ...

    async def versions_of_schema(self, context: str, schema_id: int) -> Sequence[SubjectVersion]:
        """The versions that have an id, deleted ones too."""
        ...

    async def list_subjects(
        self, context: str | None, prefix: str, *, deleted: Deleted, skipped: int, limit: int
    ) -> Sequence[Subject]:
        """Subjects whose names begin so, of one context or of all, ordered."""
        ...

    async def list_versions(
        self, context: str | None, prefix: str, *, with_deleted: bool, latest_only: bool, skipped: int, limit: int
    ) -> Sequence[RegisteredSchema]:
        """The versions of such subjects, ordered."""
        ...

    async def referrers(self, key: VersionKey) -> Sequence[SubjectVersion]:
        """The versions that refer to this one, deleted ones too."""
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
        """What was set for these, in their order."""
        ...

    async def change_config(self, scope: Subject, changes: Mapping[str, object]) -> Mapping[str, object]:
        """Replace some of a scope's configuration; what is None is taken out. Returns all of it."""
        ...

    async def drop_config(self, scope: Subject) -> None: ...

    async def set_mode(self, scope: Subject, mode: Mode | None, *, must_be_empty: bool = False) -> None:
        """Set or take away a mode. With `must_be_empty` nothing changes, and `ModeRefused` is raised, unless none of
        the scope's subjects has a version; deleted ones go for good then."""
        ...

    async def drop_modes(self, context: str) -> None:
        """Take away the modes of a context's subjects."""
        ...
