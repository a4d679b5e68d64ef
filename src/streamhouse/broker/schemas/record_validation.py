"""SchemaCheck: whether the records of a batch have schema ids that their topic accepts.

Data path   append -> **record_validation** (cached ids), before the batch reaches the log
Owns        the required ids (known, or of the topic's subject), and which records are rejected
Leaves      finding ids in a batch to `append`, the cache and the store to `schema_cache`

Ids that are cached cost no wait. Unknown ones are looked up each time, because another agent may have registered them
a moment ago. If a batch has many, one query finds those that were never assigned, so that an invalid batch costs no
more than a valid one.
"""

from collections.abc import Callable, Collection
from typing import Final

from streamhouse.broker.partition.topic_rules import RuleViolation
from streamhouse.broker.schemas.schema_cache import SchemaCache
from streamhouse.errors import InvalidRecord
from streamhouse.format.record_codec import MAX_SCHEMA_IDS, SchemaIds
from streamhouse.format.records import Record
from streamhouse.format.schema_id import schema_id_of
from streamhouse.model.schema import DEFAULT_CONTEXT, Check, Subject
from streamhouse.model.topic import RecordPart

FEW: Final = 8
"""Number of ids up to which they are looked up one by one."""

NAMED_IDS: Final = 5
"""Unknown ids that an error names."""


class SchemaCheck:
    def __init__(self, library: SchemaCache) -> None:
        self._library = library

    def __repr__(self) -> str:
        return f"<SchemaCheck {self._library!r}>"

    async def find_violation(
        self, topic: str, schema_ids: SchemaIds, *, part: RecordPart, check: Check
    ) -> RuleViolation | None:
        """The violation by the schema ids of a batch's keys or values; None if there is none."""
        if schema_ids.is_cut:
            text = f"more schema ids of {part}s than a batch may have; limit={MAX_SCHEMA_IDS}"
            return RuleViolation(InvalidRecord, text, no_record)
        if schema_ids.unframed is not None:
            text = f"a {part} does not begin with a schema id; record={schema_ids.unframed} check={check}"
            return RuleViolation(InvalidRecord, text, without_id(part))
        subject = Subject(DEFAULT_CONTEXT, f"{topic}-{part}")
        unknown = await self._unknown_ids(schema_ids.ids, subject, check)
        if not unknown:
            return None
        named = ",".join(map(str, unknown[:NAMED_IDS]))
        where = f"the subject {subject}" if check is Check.SUBJECT else "the registry"
        text = f"schema ids of {part}s are not known to {where}; ids={named} record={schema_ids.ids[unknown[0]]}"
        return RuleViolation(InvalidRecord, text, with_ids(part, frozenset(unknown)))

    async def _unknown_ids(self, ids: Collection[int], subject: Subject, check: Check) -> list[int]:
        library = self._library
        if check is Check.SUBJECT:
            unsure = [each for each in ids if not library.is_membership_cached(subject, each)]
            never = await self._never_given(unsure)
            return [each for each in unsure if each in never or not await library.belongs(subject, each)]
        unsure = [each for each in ids if not library.is_cached(DEFAULT_CONTEXT, each)]
        never = await self._never_given(unsure)
        return [each for each in unsure if each in never or not await library.is_known(DEFAULT_CONTEXT, each)]

    async def _never_given(self, ids: Collection[int]) -> Collection[int]:
        """The ids beyond the last assigned one; empty for a few ids, which are looked up anyway."""
        if len(ids) <= FEW or (last := await self._library.last_id(DEFAULT_CONTEXT)) is None:
            return ()
        return frozenset(each for each in ids if not 1 <= each <= last)


def no_record(record: Record) -> bool:
    """Matches no record: the batch is rejected as a whole."""
    return False


def without_id(part: RecordPart) -> Callable[[Record], bool]:
    """Matches records whose key or value exists and has no schema id prefix."""

    def matches(record: Record) -> bool:
        data = record.key if part == "key" else record.value
        return data is not None and schema_id_of(data) is None

    return matches


def with_ids(part: RecordPart, ids: frozenset[int]) -> Callable[[Record], bool]:
    """Matches records whose key or value has one of these ids."""

    def matches(record: Record) -> bool:
        data = record.key if part == "key" else record.value
        return schema_id_of(data) in ids

    return matches
