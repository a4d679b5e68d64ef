"""Subject configuration: the effective configuration and mode of a subject, and their rules for a new version.

Data path   registration -> **subject_config**
Owns        merging scopes, what modes forbid, the versions and directions that a level compares, the format of reasons
Leaves      comparing two schemas to their language, rows to the metadata store
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from streamhouse.errors import InvalidSubject, ModeRefused
from streamhouse.model.schema import GLOBAL_CONTEXT, RESERVED_NAMES, Level, Mode, Rules, Subject
from streamhouse.schemas.base import Incompatibility, ParsedSchema

MAX_SUBJECT_CHARS: Final = 1000
DEFAULT_LEVEL: Final = Level.BACKWARD
LEVEL: Final = "compatibilityLevel"
OLD_TEXT_CHARS: Final = 1000
"""Maximum length of an older schema in a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfig:
    """The effective configuration of a subject: merged from its own, its context's and the global one."""

    config: Mapping[str, Any]
    mode: Mode

    @property
    def level(self) -> Level:
        return Level(self.config.get(LEVEL, DEFAULT_LEVEL))

    @property
    def normalize(self) -> bool:
        return self.config.get("normalize") is True

    @property
    def group(self) -> str | None:
        """The metadata property that divides versions into compatibility groups."""
        return self.config.get("compatibilityGroup")


def effective_config(rules: Sequence[Rules]) -> EffectiveConfig:
    """`rules` come from a subject's scopes, strongest first."""
    config: dict[str, Any] = {LEVEL: str(DEFAULT_LEVEL)}
    for each in reversed(rules):
        config |= json.loads(each.config) if each.config is not None else {}
    modes = [each.mode for each in rules if each.mode is not None]
    if Mode.READONLY_OVERRIDE in modes:  # overrides take precedence over narrower scopes
        return EffectiveConfig(config=config, mode=Mode.READONLY_OVERRIDE)
    return EffectiveConfig(config=config, mode=modes[0] if modes else Mode.READWRITE)


def check_subject(subject: Subject) -> None:
    """Raise for an invalid subject name."""
    text = str(subject)
    if not subject.name or subject.name in RESERVED_NAMES or subject.context == GLOBAL_CONTEXT:
        raise InvalidSubject(text, why="it is empty or reserved")
    if len(text) > MAX_SUBJECT_CHARS or not text.isprintable():
        raise InvalidSubject(text[:100], why=f"it is too long or has control characters; limit={MAX_SUBJECT_CHARS}")


def check_writable(subject: Subject, mode: Mode) -> None:
    if mode.is_read_only:
        raise ModeRefused(subject, why=f"Subject {subject} in context {subject.context} is in read-only mode")


def check_registration(subject: Subject, mode: Mode, *, is_import: bool) -> None:
    """Raise unless the mode allows a registration, with an explicit id or without."""
    check_writable(subject, mode)
    if is_import != (mode is Mode.IMPORT):
        required = "import" if is_import else "read-write"
        raise ModeRefused(subject, why=f"Subject {subject} in context {subject.context} is not in {required} mode")


def incompatibilities(newer: ParsedSchema, older: ParsedSchema, level: Level) -> list[Incompatibility]:
    """The differences between two versions that the level forbids."""
    if newer.type != older.type and level is not Level.NONE:
        text = f"a schema of type {newer.type} can't follow one of type {older.type}"
        return [Incompatibility(kind="SCHEMA_TYPE_CHANGED", path="/", message=text)]
    backward = newer.incompatibilities(older) if level.reads_older else []
    return backward + (older.incompatibilities(newer) if level.is_read_by_older else [])


def describe_incompatibilities(
    incompatibilities: Sequence[Incompatibility], *, version: int, older: ParsedSchema, level: Level
) -> list[str]:
    """The reasons in the format of Confluent's registry: each a text, the context last."""
    if not incompatibilities:
        return []
    reasons = [
        f"{{errorType:'{each.kind}', description:'{each.message}', path:'{each.path}'}}" for each in incompatibilities
    ]
    text = older.text if len(older.text) <= OLD_TEXT_CHARS else older.text[:OLD_TEXT_CHARS] + "…"
    return [*reasons, f"{{oldSchemaVersion: {version}}}", f"{{oldSchema: '{text}'}}", f"{{compatibility: '{level}'}}"]


def group_of(metadata: str | None, group: str) -> str | None:
    """The compatibility group of a version, from its metadata."""
    properties = json.loads(metadata).get("properties") if metadata is not None else None
    value = properties.get(group) if isinstance(properties, dict) else None
    return value if isinstance(value, str) else None
