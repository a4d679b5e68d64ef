"""Registration: adds a schema as a version of a subject, or returns its existing version.

Data path   wire -> registry -> **registration** -> schema_cache, subject_config -> metadata store, one transaction
Owns        the steps of a registration: mode, inherited fields, parsing, existing version, compatibility, the
            transaction, and retries after a concurrent change
Leaves      compatibility rules to `subject_config`, assigning id and version to the metadata store

If two agents register concurrently, the transaction accepts the first one, and the other reads and decides again.
"""

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.schemas.references import ResolvedReferences
from streamhouse.broker.schemas.schema_cache import SchemaCache
from streamhouse.broker.schemas.subject_config import (
    MAX_SUBJECT_CHARS,
    EffectiveConfig,
    check_registration,
    check_subject,
    describe_incompatibilities,
    effective_config,
    group_of,
)
from streamhouse.errors import (
    IncompatibleSchema,
    InvalidSchema,
    SchemaLimit,
    Unavailable,
    UnknownSchema,
    UnknownSubject,
    UnknownVersion,
)
from streamhouse.model.schema import (
    Level,
    Mode,
    NewVersion,
    Reference,
    RegisteredSchema,
    StoredSchema,
    Subject,
    SubjectState,
    SubjectVersion,
)
from streamhouse.schemas.base import ParsedSchema

TRIES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A schema to register or look up. `metadata` and `rule_set` are JSON objects with sorted keys. Without a text it
    is the subject's latest version with other metadata or rules. `schema_id` and `version` are set by imports."""

    type: str = "AVRO"
    text: str = ""
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None
    schema_id: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSchema:
    """A parsed proposal."""

    proposal: Proposal
    parsed: ParsedSchema
    text: str
    resolved: ResolvedReferences

    @property
    def guid(self) -> str:
        proposal = self.proposal
        return schema_guid(proposal.type, self.text, self.resolved.references, proposal.metadata, proposal.rule_set)


def schema_guid(
    kind: str, text: str, references: Sequence[Reference], metadata: str | None, rule_set: str | None
) -> str:
    """The guid of a schema: equal for equal schemas in any subject, context and cluster."""
    content = json.dumps([kind, text, [list(each) for each in references], metadata, rule_set])
    return str(uuid.UUID(bytes=hashlib.sha256(content.encode()).digest()[:16]))


class Registration:
    def __init__(self, dependencies: Dependencies, library: SchemaCache) -> None:
        self._store = dependencies.metadata
        self._settings = dependencies.settings.schemas
        self._library = library

    def __repr__(self) -> str:
        return f"<Registration {self._library!r}>"

    async def register(self, subject: Subject, proposal: Proposal, *, normalize: bool) -> RegisteredSchema:
        """Register the schema; returns the existing version if the subject has it."""
        check_subject(subject)
        for _ in range(TRIES):
            state = await self._store.subject_state(subject)
            decision = await self._decide(state, proposal, normalize=normalize)
            if isinstance(decision, SubjectVersion):
                known = await self._store.schema_versions([decision.key])
            else:
                added = await self._store.add_version(decision, max_subjects=self._settings.max_subjects)
                known = [] if added is None else [added]
            if known:
                return known[0]
        raise Unavailable(f"too many concurrent changes of the subject; subject={subject}")

    async def _decide(self, state: SubjectState, proposal: Proposal, *, normalize: bool) -> NewVersion | SubjectVersion:
        rules = effective_config(state.rules)
        check_registration(state.subject, rules.mode, is_import=proposal.schema_id is not None)
        latest = await self._latest(state)
        inherited = proposal if rules.mode is Mode.IMPORT else inherit(proposal, latest)
        prepared = await self._prepare(state.subject, inherited, normalize=normalize or rules.normalize)
        if (same := find_same(state.live, prepared)) is not None:
            return same
        self._check_numbers(state, proposal, rules)
        if rules.mode is not Mode.IMPORT:
            reasons = await self._reasons(state.live, prepared, rules, rules.level)
            if reasons:
                raise IncompatibleSchema(state.subject, reasons)
        return new_version(state, prepared)

    async def _latest(self, state: SubjectState) -> StoredSchema | None:
        live = state.live
        return await self._library.stored(state.subject.context, live[-1].schema_id) if live else None

    def _check_numbers(self, state: SubjectState, proposal: Proposal, rules: EffectiveConfig) -> None:
        limit = self._settings.max_versions
        if len(state.versions) >= limit:
            raise SchemaLimit("the subject has too many versions", limit=limit, setting="schemas.max_versions")
        expected = state.last_version + 1
        if proposal.version not in (None, expected) and rules.mode is not Mode.IMPORT:
            raise InvalidSchema(f"the version is not the next one; version={proposal.version} next={expected}")

    async def _prepare(self, subject: Subject, proposal: Proposal, *, normalize: bool) -> PreparedSchema:
        if not proposal.text.strip():
            raise InvalidSchema("the schema is empty")
        self._check_extras(proposal)
        resolved = await self._library.resolve(subject, proposal.references, live=True)
        parsed = await self._library.parse(proposal.type, proposal.text, resolved.texts)
        text = parsed.normalized() if normalize else parsed.canonical()
        check_text(text)
        return PreparedSchema(proposal=proposal, parsed=parsed, text=text, resolved=resolved)

    def _check_extras(self, proposal: Proposal) -> None:
        limit = self._settings.max_schema_bytes
        for what, text in (("metadata", proposal.metadata), ("the rule set", proposal.rule_set)):
            if text is not None and len(text) > limit:
                raise InvalidSchema(f"{what} are too large; limit={limit} setting=schemas.max_schema_bytes")
        for number, each in enumerate(proposal.references):
            for text in (each.name, each.subject):
                if not text or len(text) > MAX_SUBJECT_CHARS or not text.isprintable():
                    raise InvalidSchema("a reference has no name, or one that can't be", path=f"references/{number}")

    # --- compatibility

    async def _reasons(
        self, older: Sequence[SubjectVersion], prepared: PreparedSchema, rules: EffectiveConfig, level: Level
    ) -> list[str]:
        """Why the schema is incompatible with these versions, newest first; empty if it is compatible."""
        if level is Level.NONE:
            return []
        compared = 0
        for each in reversed(older):
            stored = await self._library.stored(each.subject.context, each.schema_id)
            group = rules.group
            if group is not None and group_of(stored.metadata, group) != group_of(prepared.proposal.metadata, group):
                continue
            if compared and not level.is_transitive:
                break
            compared += 1
            parsed = await self._library.parsed(each.subject.context, each.schema_id)
            clashes = await self._library.clashes(prepared.parsed, parsed, level)
            if clashes:
                return describe_incompatibilities(clashes, version=each.version, older=parsed, level=level)
        return []

    async def compatibility(
        self, subject: Subject, proposal: Proposal, *, version: int | None, everything: bool, normalize: bool
    ) -> list[str]:
        """Why the schema is incompatible: with one version (None: latest), or with `everything` with all versions that
        the level compares."""
        state = await self._store.subject_state(subject)
        rules = effective_config(state.rules)
        live = state.live
        if everything or version is None:
            against = live if everything else live[-1:]
        else:
            against = tuple(each for each in live if each.version == version)
            if not against:
                raise UnknownVersion(subject, version)
        inherited = inherit(proposal, await self._latest(state))
        prepared = await self._prepare(subject, inherited, normalize=normalize or rules.normalize)
        return await self._reasons(against, prepared, rules, rules.level)

    # --- lookup

    async def lookup(
        self, subject: Subject, proposal: Proposal, *, normalize: bool, with_deleted: bool
    ) -> RegisteredSchema:
        """The subject's version with this schema; raises `UnknownSubject` or `UnknownSchema`."""
        state = await self._store.subject_state(subject)
        rules = effective_config(state.rules)
        versions = state.versions if with_deleted else state.live
        prepared = await self._prepare(subject, proposal, normalize=normalize or rules.normalize)
        if not versions:
            raise UnknownSubject(subject)
        same = find_same(versions, prepared)
        if same is None and (latest := await self._latest(state)) is not None:
            same = find_same(versions, replace(prepared, proposal=inherit(proposal, latest)))
        matches = await self._store.schema_versions([same.key]) if same is not None else []
        if not matches:
            raise UnknownSchema(subject)
        return matches[0]


def inherit(proposal: Proposal, latest: StoredSchema | None) -> Proposal:
    """Inherit missing text, metadata and rules from the latest version."""
    if latest is None:
        return proposal
    if not proposal.text.strip():
        proposal = replace(proposal, text=latest.text, type=latest.type, references=latest.references)
    return replace(
        proposal,
        metadata=proposal.metadata if proposal.metadata is not None else latest.metadata,
        rule_set=proposal.rule_set if proposal.rule_set is not None else latest.rule_set,
    )


def find_same(versions: Sequence[SubjectVersion], prepared: PreparedSchema) -> SubjectVersion | None:
    """The newest version with this schema, and the id and version if the proposal names them."""
    proposal, guid = prepared.proposal, prepared.guid
    return next(
        (
            each
            for each in reversed(versions)
            if each.guid == guid
            and proposal.schema_id in (None, each.schema_id)
            and proposal.version in (None, each.version)
        ),
        None,
    )


def new_version(state: SubjectState, prepared: PreparedSchema) -> NewVersion:
    proposal = prepared.proposal
    return NewVersion(
        subject=state.subject,
        revision=state.revision,
        guid=prepared.guid,
        type=prepared.parsed.type,
        text=prepared.text,
        references=prepared.resolved.references,
        needs=prepared.resolved.needs,
        metadata=proposal.metadata,
        rule_set=proposal.rule_set,
        schema_id=proposal.schema_id,
        version=proposal.version,
    )


def check_text(text: str) -> None:
    """Reject texts that a database can't store."""
    if "\x00" in text:
        raise InvalidSchema("the text has a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchema("the text has a lone surrogate") from None
