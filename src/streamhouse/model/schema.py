"""Schema registry types: subjects and their versions, references, levels and modes.

Owns        the types; the notation of subjects and contexts
Leaves      the languages to `schemas`, rules to `broker.schemas`, rows to the metadata store

A subject lives in a context. Ids are numbers of a context, versions are numbers of a subject. Confluent's notation is
ours: `orders-value` is a subject of the default context, `:.staging:orders-value` one of the context `.staging`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Self

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
"""The global context without subjects: its rules apply to every context without rules of its own."""
EVERY_CONTEXT: Final = ":*:"
RESERVED_NAMES: Final = frozenset({"__GLOBAL", "__EMPTY"})


class Subject(NamedTuple):
    """A named sequence of schema versions; without a name it means its whole context."""

    context: str
    name: str

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse Confluent's notation; every text is valid."""
        if not text.startswith(":."):
            return cls(DEFAULT_CONTEXT, text)
        context, _, name = text[1:].partition(":")
        return cls(context, name)

    def beside(self, text: str) -> "Subject":
        """Another subject, in the same context unless its text names one."""
        other = Subject.parse(text)
        return other if text.startswith(":.") else Subject(self.context, other.name)

    @property
    def scopes(self) -> tuple["Subject", "Subject", "Subject"]:
        """The scopes whose rules apply to this subject, in order of precedence."""
        return self, Subject(self.context, ""), Subject(GLOBAL_CONTEXT, "")


def context_name(text: str) -> str:
    """The canonical name of a context in a path: `staging`, `.staging` or `:.staging:`."""
    name = text.removeprefix(":").removesuffix(":")
    return name if name.startswith(".") else f".{name}"


class Level(StrEnum):
    """Compatibility level: the versions with which a new one must be compatible, and in which direction."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def reads_older(self) -> bool:
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_older(self) -> bool:
        return self.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")


class Mode(StrEnum):
    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"

    @property
    def is_read_only(self) -> bool:
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)


class Deleted(StrEnum):
    """Whether a listing includes soft-deleted versions."""

    WITHOUT = "without"
    WITH = "with"
    ONLY = "only"


class Check(StrEnum):
    """The check of schema ids in the records of a topic."""

    OFF = "false"
    ID = "id"
    """The registry must know them."""
    SUBJECT = "subject"
    """They must belong to the topic's subject, `<topic>-value` or `<topic>-key`."""


class Reference(NamedTuple):
    """A reference to another schema, by its `name` in the referring schema. The subject is as written by the author."""

    name: str
    subject: str
    version: int


class VersionKey(NamedTuple):
    subject: Subject
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """A schema under its id; it never changes. `metadata` and `rule_set` are JSON objects that belong to clients."""

    context: str
    schema_id: int
    guid: str
    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectVersion:
    """A version without its schema."""

    subject: Subject
    version: int
    schema_id: int
    guid: str
    deleted: bool

    @property
    def key(self) -> VersionKey:
        return VersionKey(self.subject, self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A version with its schema."""

    subject: Subject
    version: int
    deleted: bool
    created_at_ms: int
    schema: StoredSchema

    @property
    def schema_id(self) -> int:
        return self.schema.schema_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of one subject or context. `config` is a JSON object with Confluent's names."""

    config: str | None = None
    mode: Mode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectState:
    """The state of a subject for a decision. `revision` changes with every change of its versions."""

    subject: Subject
    revision: int
    last_version: int
    versions: tuple[SubjectVersion, ...]
    rules: tuple[Rules, Rules, Rules]
    """The values of the subject's `scopes`, in their order."""

    @property
    def live(self) -> tuple[SubjectVersion, ...]:
        return tuple(each for each in self.versions if not each.deleted)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """A schema that a subject should get. Ids and versions are given by the store unless they are imported.

    `revision` is the subject's when the decision was made, `needs` are the versions that the schema refers to.
    """

    subject: Subject
    revision: int
    guid: str
    type: str
    text: str
    references: tuple[Reference, ...] = ()
    needs: tuple[VersionKey, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None
    schema_id: int | None = None
    version: int | None = None
