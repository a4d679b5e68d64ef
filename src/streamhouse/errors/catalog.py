"""Errors of tables, pipelines, views and SQL.

Also errors of the schema registry and of values that are encoded with its schemas. Errors of SQL texts carry line and
column.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from streamhouse.errors.base import Rejected, Retriable


class UnknownTable(Rejected):
    """There is no table of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown table; name={name}")


class UnknownPipeline(Rejected):
    """No such pipeline."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown pipeline; name={name}")


class UnknownView(Rejected):
    """No such view, or no such row in it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown view; name={name}")


class UnknownViewRow(Rejected):
    """The view has no row of this key."""

    def __init__(self, name: str, *, key: str) -> None:
        super().__init__(f"no such row; view={name} key={key}")


class NameTaken(Rejected):
    """The name is already in use."""

    def __init__(self, name: str, *, by: str) -> None:
        super().__init__(f"name is taken; name={name} by={by}")


class AnotherTable(Rejected):
    """A lake table of this name exists, with other columns, key or partitions."""

    def __init__(self, name: str, differences: Iterable[object]) -> None:
        super().__init__(
            f"a different table of this name exists: {', '.join(map(str, differences))}; table={name}"
            f" do=choose another name, or drop it (streamhouse tables drop {name}; its files stay)"
            " and choose another location"
        )


class InvalidDefinition(Rejected):
    """A definition of a table or a pipeline contradicts itself, or is too large."""


class PipelineLimit(Rejected):
    """A limit of a setting is exceeded."""

    def __init__(self, what: str, *, limit: int, setting: str) -> None:
        super().__init__(f"too many; what={what} limit={limit} setting={setting}")


class PlaceLost(Rejected):
    """A changed definition can't continue from the old position."""

    def __init__(self, name: str, *, why: str) -> None:
        super().__init__(
            f"the changed pipeline can't continue from its checkpoint; name={name} why={why} do=apply it with a new"
            " start, such as --from earliest; or drop it first; or give it another name"
        )


class PipelineMoved(Rejected):
    """The commit is rejected, because another supervisor owns the pipeline now, or none does."""

    def __init__(self, name: str, *, epoch: int, why: str) -> None:
        super().__init__(f"pipeline moved; pipeline={name} epoch={epoch} why={why}")


class ViewRefused(Rejected):
    """A part of a view's batch is out of order."""


class UnknownQuery(Rejected):
    """There is no running query with this id."""

    def __init__(self, query_id: str) -> None:
        super().__init__(f"no such running query; query={query_id}")


class NoWorker(Retriable):
    """No SQL worker is available."""


class Mistake(NamedTuple):
    """An error in a text; line and column count from 1 and are 0 if the position is unknown."""

    line: int
    column: int
    text: str
    hint: str = ""


class BadSql(Rejected):
    """The text is not valid SQL."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        first = mistakes[0]
        position = f"; line={first.line} column={first.column}" if first.line else ""
        more = f" more={len(mistakes) - 1}" if len(mistakes) > 1 else ""
        super().__init__(f"{first.text}{position}{more}")
        self.mistakes = tuple(mistakes)


class QueryFailed(Rejected):
    """The query failed while it ran."""


class QueryCancelled(Rejected):
    """The query was cancelled."""


class QueryTimedOut(Rejected):
    """The query exceeded its timeout."""


class TooManyQueries(Retriable):
    """The worker has its maximum of queries; retry after `retry_after_s`."""

    def __init__(self, *, limit: int, retry_after_s: float) -> None:
        super().__init__(f"too many queries at once; limit={limit} retry_after_s={retry_after_s:g}")
        self.retry_after_s = retry_after_s


class InvalidSchema(Rejected):
    """The text is not a valid schema; `path` (or line and column) locates the error, `reason` describes it."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(f"invalid schema; path={path or '/'} reason={reason}")
        self.path, self.reason = path or "/", reason


class InvalidRecordValue(Rejected):
    """A value doesn't match its schema, or bytes can't be decoded with it; `path` locates the error, `reason` describes
    it."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(f"the value doesn't fit its schema; path={path or '/'} reason={reason}")
        self.path, self.reason = path or "/", reason


class RegistryRefusal(Rejected):
    """The schema registry rejects a change of a subject or version."""

    what = "refused"

    def __init__(self, subject: object, version: int | None = None, *, why: str = "") -> None:
        parts = (f"subject={subject}", f"version={version}" if version is not None else "", f"why={why}" if why else "")
        super().__init__(f"{self.what}; {' '.join(filter(None, parts))}")
        self.subject, self.version, self.why = str(subject), version, why


class UnknownSubject(RegistryRefusal):
    """The subject has no versions, or all were deleted."""

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
    """Other schemas refer to this version."""

    what = "version is referred to by others"


class NotConfigured(RegistryRefusal):
    what = "subject has no configuration of its own"


class NoMode(RegistryRefusal):
    what = "subject has no mode of its own"


class ModeRefused(RegistryRefusal):
    """The mode of the subject or its context forbids this."""

    what = "the registry's mode does not allow it"


class SchemaIdTaken(ModeRefused):
    """An imported id or version belongs to another schema."""

    what = "imported id or version is taken"

    def __init__(self, subject: object, *, schema_id: int, version: int | None) -> None:
        super().__init__(subject, version, why=f"another schema has it, id={schema_id}")
        self.schema_id = schema_id


class InvalidSubject(RegistryRefusal):
    """The name is not a valid subject."""

    what = "invalid subject"


class IncompatibleSchema(RegistryRefusal):
    """The schema is incompatible with earlier versions of its subject, for `reasons`."""

    what = "incompatible schema"

    def __init__(self, subject: object, reasons: Sequence[str]) -> None:
        super().__init__(subject, why="; ".join(reasons))
        self.reasons = tuple(reasons)


class SchemaLimit(Rejected):
    """A limit of the schema registry is reached."""

    def __init__(self, what: str, *, limit: int, setting: str) -> None:
        super().__init__(f"{what}; limit={limit} setting={setting}")


MAX_OFFSETS: Final = 80
"""Maximum length of offsets in a message."""


class StatementError(Rejected):
    """A statement can't be parsed; `line` and `column` count from 1, `hint` is what to write instead."""

    def __init__(self, line: int, column: int, text: str, hint: str = "") -> None:
        advice = f" do={hint}" if hint else ""
        super().__init__(f"{text}; line={line} column={column}{advice}")
        self.line, self.column, self.text, self.hint = line, column, text, hint


class CheckpointLost(Rejected):
    """A pipeline's checkpoint is missing, and its position is unknown; `restart --from` starts over."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the checkpoint is gone and its offsets are stored nowhere else; {why} do=restart it with --from"
        )


class CheckpointMismatch(Rejected):
    """A committed micro-batch is repeated with other source offsets: its checkpoint was rolled back."""

    def __init__(self, target: str, *, batch: int, last: int, committed: str | None, now: str | None) -> None:
        super().__init__(
            f"the checkpoint is older than what was committed; target={target} batch={batch} committed_batch={last}"
            f" committed={_short(committed)} now={_short(now)} do=restore the newest checkpoint, or start over"
            " (pipelines restart NAME --from …; in other jobs a new checkpointLocation)"
        )


def _short(text: str | None) -> str:
    """The offsets of a batch, shortened for a message."""
    words = "unknown" if text is None else " ".join(text.split())
    return words if len(words) <= MAX_OFFSETS else words[: MAX_OFFSETS - 1] + "…"
