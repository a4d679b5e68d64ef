"""Procedures that register and find schemas, and that read and change configurations of subjects and contexts.

Owns        which id and which version a schema gets
Leaves      deletion and modes to `schema_admin`, whether a schema may be registered to `broker.schemas`
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from streamhouse.errors import SchemaIdTaken, SchemaLimit
from streamhouse.model.schema import (
    Deleted,
    NewVersion,
    RegisteredSchema,
    Rules,
    StoredSchema,
    Subject,
    SubjectState,
    SubjectVersion,
    VersionKey,
)
from streamhouse.stores.metadata.engine import Lock, Transaction
from streamhouse.stores.metadata.rows import Params
from streamhouse.stores.metadata.schema_rows import (
    key_list,
    key_params,
    registered_of,
    rules_of,
    schema_of,
    schema_params,
    scope_list,
    subject_of,
    subject_params,
    version_of,
)


async def find_rules(tx: Transaction, scopes: Sequence[Subject]) -> Sequence[Rules]:
    rows = await tx.rows(tx.sql.find_schema_rules, {"scopes": scope_list(scopes)})
    result = {subject_of(row): rules_of(row) for row in rows}
    return [result.get(scope, Rules()) for scope in scopes]


async def change_config(tx: Transaction, scope: Subject, changes: Mapping[str, object]) -> Mapping[str, object]:
    await tx.lock(Lock.SCHEMAS, {})
    [rules] = await find_rules(tx, [scope])
    before: Mapping[str, object] = {} if rules.config is None else json.loads(rules.config)
    config = {name: value for name, value in {**before, **changes}.items() if value is not None}
    await tx.change(tx.sql.add_schema_rules, subject_params(scope))
    await tx.change(tx.sql.set_schema_config, {**subject_params(scope), "config": json.dumps(config, sort_keys=True)})
    return config


async def drop_config(tx: Transaction, scope: Subject) -> None:
    await tx.lock(Lock.SCHEMAS, {})
    await tx.change(tx.sql.set_schema_config, {**subject_params(scope), "config": None})


_STATES: Final = {Deleted.WITHOUT: 0, Deleted.ONLY: 1, Deleted.WITH: 2}


class Page(NamedTuple):
    """A page of a listing by subject prefix; context None: all contexts."""

    context: str | None
    prefix: str
    skipped: int
    limit: int

    @property
    def params(self) -> Params:
        return {
            "every_context": int(self.context is None),
            "context": self.context or "",
            "prefix": self.prefix,
            "skipped": self.skipped,
            "limit": self.limit,
        }


async def subject_state(tx: Transaction, subject: Subject) -> SubjectState:
    row = await tx.row(tx.sql.find_schema_subject, subject_params(subject))
    versions = await versions_of_subject(tx, subject)
    own, context, everywhere = await find_rules(tx, subject.scopes)
    return SubjectState(
        subject=subject,
        revision=0 if row is None else row["revision"],
        last_version=0 if row is None else row["last_version"],
        versions=tuple(versions),
        rules=(own, context, everywhere),
    )


async def add_version(tx: Transaction, new: NewVersion, *, max_subjects: int) -> RegisteredSchema | None:
    await tx.lock(Lock.SCHEMAS, {})
    row = await tx.row(tx.sql.find_schema_subject, subject_params(new.subject))
    if (0 if row is None else row["revision"]) != new.revision or not await _references_exist(tx, new.needs):
        return None
    if row is None:
        await _check_room(tx, max_subjects)
    schema_id = await _schema_id(tx, new)
    version = new.version or (1 if row is None else row["last_version"] + 1)
    await _forget_deleted(tx, new.subject, schema_id, version)
    await _insert_version(tx, new, VersionKey(new.subject, version), schema_id)
    await touch(tx, new.subject, version)
    [registered] = await versions(tx, [VersionKey(new.subject, version)])
    return registered


async def _references_exist(tx: Transaction, needs: Sequence[VersionKey]) -> bool:
    result = await versions(tx, needs) if needs else []
    return sum(not each.deleted for each in result) == len(set(needs))


async def _check_room(tx: Transaction, max_subjects: int) -> None:
    row = await tx.row(tx.sql.count_schema_subjects)
    if row is not None and row["subjects"] >= max_subjects:
        raise SchemaLimit("too many subjects", limit=max_subjects, setting="schemas.max_subjects")


async def _schema_id(tx: Transaction, new: NewVersion) -> int:
    """The schema's id in its context; allocates one if it is new."""
    context = new.subject.context
    await tx.change(tx.sql.add_schema_context, {"context": context})
    if new.schema_id is not None:
        return await _imported_id(tx, new, new.schema_id)
    known = await tx.row(tx.sql.schema_id_of_guid, {"context": context, "guid": new.guid})
    if known is not None:
        return int(known["schema_id"])
    taken = await tx.row(tx.sql.take_schema_id, {"context": context})
    assert taken is not None
    await tx.change(tx.sql.insert_schema, schema_params(new, taken["last_id"]))
    return int(taken["last_id"])


async def _imported_id(tx: Transaction, new: NewVersion, schema_id: int) -> int:
    params: Params = {"context": new.subject.context, "schema_id": schema_id}
    result = await tx.row(tx.sql.find_schema, params)
    if result is None:
        await tx.change(tx.sql.pass_schema_id, params)
        await tx.change(tx.sql.insert_schema, schema_params(new, schema_id))
    elif result["guid"] != new.guid:
        raise SchemaIdTaken(new.subject, schema_id=schema_id, version=new.version)
    return schema_id


async def _forget_deleted(tx: Transaction, subject: Subject, schema_id: int, version: int) -> None:
    for old in await versions_of_subject(tx, subject):
        if old.version == version:
            raise SchemaIdTaken(subject, schema_id=schema_id, version=version)
        if old.deleted and old.schema_id == schema_id and old.version < version and not await referrers(tx, old.key):
            await drop_version(tx, old.key)


async def _insert_version(tx: Transaction, new: NewVersion, key: VersionKey, schema_id: int) -> None:
    now_ms = await tx.now_ms()
    await tx.change(tx.sql.insert_schema_version, {**key_params(key), "schema_id": schema_id, "created_at_ms": now_ms})
    if new.needs:
        await tx.change(tx.sql.insert_schema_references, {**key_params(key), "targets": key_list(new.needs)})


async def touch(tx: Transaction, subject: Subject, version: int) -> None:
    """Increment the subject's revision after a change of its versions."""
    row = await tx.row(tx.sql.next_schema_revision)
    assert row is not None
    await tx.change(
        tx.sql.put_schema_subject, {**subject_params(subject), "version": version, "revision": row["value"]}
    )


async def drop_version(tx: Transaction, key: VersionKey) -> None:
    await tx.change(tx.sql.drop_schema_references, key_params(key))
    await tx.change(tx.sql.drop_schema_version, key_params(key))


# --- reading


async def versions_of_subject(tx: Transaction, subject: Subject) -> list[SubjectVersion]:
    return [version_of(row) for row in await tx.rows(tx.sql.versions_of_subject, subject_params(subject))]


async def referrers(tx: Transaction, key: VersionKey) -> Sequence[SubjectVersion]:
    return [version_of(row) for row in await tx.rows(tx.sql.schema_referrers, key_params(key))]


async def schema_of_id(tx: Transaction, context: str, schema_id: int) -> StoredSchema | None:
    row = await tx.row(tx.sql.find_schema, {"context": context, "schema_id": schema_id})
    return None if row is None else schema_of(row)


async def ids_of_guid(tx: Transaction, guid: str) -> Sequence[tuple[str, int]]:
    rows = await tx.rows(tx.sql.schema_ids_of_guid, {"guid": guid})
    return [(row["context"], row["schema_id"]) for row in rows]


async def contexts(tx: Transaction) -> Mapping[str, int]:
    return {row["context"]: row["last_id"] for row in await tx.rows(tx.sql.list_schema_contexts)}


async def versions(tx: Transaction, keys: Sequence[VersionKey]) -> Sequence[RegisteredSchema]:
    rows = await tx.rows(tx.sql.find_schema_versions, {"versions": key_list(keys)})
    return [registered_of(row) for row in rows]


async def latest_version(tx: Transaction, subject: Subject) -> RegisteredSchema | None:
    row = await tx.row(tx.sql.latest_schema_version, subject_params(subject))
    return None if row is None else registered_of(row)


async def versions_of_schema(tx: Transaction, context: str, schema_id: int) -> Sequence[SubjectVersion]:
    rows = await tx.rows(tx.sql.versions_of_schema, {"context": context, "schema_id": schema_id})
    return [version_of(row) for row in rows]


async def list_subjects(tx: Transaction, page: Page, deleted: Deleted) -> Sequence[Subject]:
    rows = await tx.rows(tx.sql.list_schema_subjects, {**page.params, "state": _STATES[deleted]})
    return [subject_of(row) for row in rows]


async def list_versions(
    tx: Transaction, page: Page, with_deleted: bool, latest_only: bool
) -> Sequence[RegisteredSchema]:
    params: Params = {**page.params, "with_deleted": int(with_deleted), "latest_only": int(latest_only)}
    return [registered_of(row) for row in await tx.rows(tx.sql.list_schema_versions, params)]
