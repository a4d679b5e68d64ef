"""Errors of tables, pipelines, views and SQL.

Errors of questions in SQL.

Owns        mistakes with their places, and the ways a query can end before its answer
Leaves      finding places to `query.error_messages`, statuses to whoever serves

Errors of schemas, of values written with them, and of the schema registry.

Errors of SQL: what is wrong in a text, and where.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from streamhouse.errors.base import Rejected, Retriable


class UnknownTable(Rejected):
    """SQL knows no table of this name."""

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
    """Something else has this name already."""

    def __init__(self, name: str, *, by: str) -> None:
        super().__init__(f"name is taken; name={name} by={by}")


class AnotherTable(Rejected):
    """There is a lake table of this name, and its files are as they are."""

    def __init__(self, name: str, differences: Iterable[object]) -> None:
        super().__init__(
            f"there is such a table, and it is another: {', '.join(map(str, differences))}; table={name}"
            f" do=choose another name, or drop it (streamhouse tables drop {name}; its files stay)"
            " and choose another location"
        )


class InvalidDefinition(Rejected):
    """A definition of a table or a pipeline contradicts itself, or is too large."""


class PipelineLimit(Rejected):
    """There are, or would be, more of them than a setting allows."""

    def __init__(self, what: str, *, limit: int, setting: str) -> None:
        super().__init__(f"too many; what={what} limit={limit} setting={setting}")


class PlaceLost(Rejected):
    """A changed definition can't go on where the old one stands."""

    def __init__(self, name: str, *, why: str) -> None:
        super().__init__(
            f"a changed pipeline would lose its place; name={name} why={why} do=apply with a new beginning: --from"
            " earliest, or from another place; or drop it first; or give it another name"
        )


class PipelineMoved(Rejected):
    """Another supervisor runs the pipeline now, or nobody does: what this one has done is not published."""

    def __init__(self, name: str, *, epoch: int, why: str) -> None:
        super().__init__(f"pipeline moved; pipeline={name} epoch={epoch} why={why}")


class ViewRefused(Rejected):
    """A part of a view's batch doesn't follow what is there."""


class UnknownQuery(Rejected):
    """No such question in SQL is being answered."""

    def __init__(self, query_id: str) -> None:
        super().__init__(f"no such query runs; query={query_id}")


class NoWorker(Retriable):
    """Nobody with a Spark answers SQL now."""


class Mistake(NamedTuple):
    """What is wrong at a place of a text; lines and columns are counted from 1, 0 where there is no place."""

    line: int
    column: int
    text: str
    hint: str = ""


class BadSql(Rejected):
    """The text can't be run as it is."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        first = mistakes[0]
        place = f"; line={first.line} column={first.column}" if first.line else ""
        more = f" more={len(mistakes) - 1}" if len(mistakes) > 1 else ""
        super().__init__(f"{first.text}{place}{more}")
        self.mistakes = tuple(mistakes)


class QueryFailed(Rejected):
    """The query ran, and what it reads or computes made it fail."""


class QueryCancelled(Rejected):
    """Somebody ended the query."""


class QueryTimedOut(Rejected):
    """The query took longer than it may."""


class TooManyQueries(Retriable):
    """The worker has as many queries as it takes; come back after `retry_after_s`."""

    def __init__(self, *, limit: int, retry_after_s: float) -> None:
        super().__init__(f"too many queries at once; limit={limit} retry_after_s={retry_after_s:g}")
        self.retry_after_s = retry_after_s


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


MAX_OFFSETS: Final = 80
"""Characters of offsets in a message."""


class StatementError(Rejected):
    """A statement can't be understood; `line` and `column` count from 1, `hint` says what to write instead."""

    def __init__(self, line: int, column: int, text: str, hint: str = "") -> None:
        advice = f" do={hint}" if hint else ""
        super().__init__(f"{text}; line={line} column={column}{advice}")
        self.line, self.column, self.text, self.hint = line, column, text, hint


class CheckpointLost(Rejected):
    """A pipeline's checkpoint is gone, and nothing else tells where to go on; `restart --from` begins anew."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the checkpoint is gone and its place can't be found elsewhere; {why} do=restart it with --from"
        )


class CheckpointMismatch(Rejected):
    """A micro-batch that was committed comes again with other source offsets: its checkpoint was rolled back."""

    def __init__(self, target: str, *, batch: int, last: int, committed: str | None, now: str | None) -> None:
        super().__init__(
            f"the checkpoint is older than what was committed; target={target} batch={batch} committed_batch={last}"
            f" committed={_short(committed)} now={_short(now)} do=restore the newest checkpoint, or begin anew"
            " (pipelines restart NAME --from …; in other jobs a new checkpointLocation)"
        )


def _short(text: str | None) -> str:
    """What a batch covers, as much as a message may have of it."""
    words = "unknown" if text is None else " ".join(text.split())
    return words if len(words) <= MAX_OFFSETS else words[: MAX_OFFSETS - 1] + "…"
