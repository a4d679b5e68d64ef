"""Errors of schemas, of values written with them, and of the schema registry."""

from collections.abc import Sequence

from streamhouse.errors.base import Rejected


class InvalidSchema(Rejected):
    """The text is no schema of its language; `path` (or line and column) says where, `reason` why."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(f"invalid schema; path={path or '/'} reason={reason}")
        self.path, self.reason = path or "/", reason


class InvalidRecordValue(Rejected):
    """A value doesn't fit its schema, or bytes weren't written with it; `path` says where, `reason` why."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(f"the value doesn't fit its schema; path={path or '/'} reason={reason}")
        self.path, self.reason = path or "/", reason


class RegistryRefusal(Rejected):
    """The schema registry can't do this to a subject, or to one of its versions."""

    what = "refused"

    def __init__(self, subject: object, version: int | None = None, *, why: str = "") -> None:
        parts = (f"subject={subject}", f"version={version}" if version is not None else "", f"why={why}" if why else "")
        super().__init__(f"{self.what}; {' '.join(filter(None, parts))}")
        self.subject, self.version, self.why = str(subject), version, why


class UnknownSubject(RegistryRefusal):
    """No version is registered under this name, or all were deleted."""

    what = "unknown subject"


class UnknownVersion(RegistryRefusal):
    """The subject has no such version."""

    what = "unknown version"


class UnknownSchema(RegistryRefusal):
    """No schema has this id, or the subject doesn't have this schema."""

    what = "unknown schema"

    def __init__(self, subject: object = "", *, schema_id: object = None) -> None:
        super().__init__(subject, why="" if schema_id is None else f"nothing has the id {schema_id}")
        self.schema_id = schema_id


class SubjectSoftDeleted(RegistryRefusal):
    what = "subject is deleted already"


class SubjectNotSoftDeleted(RegistryRefusal):
    what = "subject must be deleted before it is deleted for good"


class VersionSoftDeleted(RegistryRefusal):
    what = "version is deleted already"


class VersionNotSoftDeleted(RegistryRefusal):
    what = "version must be deleted before it is deleted for good"


class ReferenceExists(RegistryRefusal):
    """Other schemas need this version."""

    what = "version is referred to by others"


class NotConfigured(RegistryRefusal):
    what = "subject has no configuration of its own"


class NoMode(RegistryRefusal):
    what = "subject has no mode of its own"


class ModeRefused(RegistryRefusal):
    """The mode of the subject, or of its context, doesn't allow this."""

    what = "the registry's mode does not allow it"


class SchemaIdTaken(ModeRefused):
    """An id or a version that was to be imported is another schema's."""

    what = "imported id or version is taken"

    def __init__(self, subject: object, *, schema_id: int, version: int | None) -> None:
        super().__init__(subject, version, why=f"another schema has it, id={schema_id}")
        self.schema_id = schema_id


class InvalidSubject(RegistryRefusal):
    """The name can't be a subject's."""

    what = "invalid subject"


class IncompatibleSchema(RegistryRefusal):
    """The schema doesn't get along with earlier versions of its subject; `reasons` are for people."""

    what = "incompatible schema"

    def __init__(self, subject: object, reasons: Sequence[str]) -> None:
        super().__init__(subject, why="; ".join(reasons))
        self.reasons = tuple(reasons)


class SchemaLimit(Rejected):
    """A limit of the schema registry is reached."""

    def __init__(self, what: str, *, limit: int, setting: str) -> None:
        super().__init__(f"{what}; limit={limit} setting={setting}")
