"""Procedures that delete schemas, first softly and then for good, and that set modes of the schema registry.

Owns        what may be deleted; that ids and references of deleted schemas are deleted too, and that agents are
            notified; that a context or subject in import mode is empty
Leaves      whether a subject may be changed, and what modes mean, to `broker.schemas`
"""

from collections.abc import Sequence
from typing import Final

from streamhouse.errors import (
    ModeRefused,
    ReferenceExists,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    UnknownSubject,
    UnknownVersion,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.schema import GLOBAL_CONTEXT, Deleted, Mode, Subject, SubjectVersion
from streamhouse.stores.metadata.engine import Lock, Transaction
from streamhouse.stores.metadata.procedures.schemas import (
    Page,
    drop_version,
    list_subjects,
    referrers,
    touch,
    versions_of_subject,
)
from streamhouse.stores.metadata.schema_rows import key_params, subject_params


async def delete_version(tx: Transaction, subject: Subject, version: int | None, *, permanent: bool) -> int:
    await tx.lock(Lock.SCHEMAS, {})
    result = select_versions(await versions_of_subject(tx, subject), subject, version)
    if result.deleted and not permanent:
        raise VersionSoftDeleted(subject, result.version)
    await _check_unused(tx, [result], permanent=permanent, but_by=None)
    if permanent and not result.deleted:
        raise VersionNotSoftDeleted(subject, result.version)
    await _delete(tx, [result], permanent=permanent)
    return result.version


async def delete_subject(tx: Transaction, subject: Subject, *, permanent: bool) -> Sequence[int]:
    await tx.lock(Lock.SCHEMAS, {})
    known = await versions_of_subject(tx, subject)
    chosen = known if permanent else [each for each in known if not each.deleted]
    if not known:
        raise UnknownSubject(subject)
    if not chosen:
        raise SubjectSoftDeleted(subject)
    await _check_unused(tx, chosen, permanent=permanent, but_by=subject)
    if permanent and any(not each.deleted for each in chosen):
        raise SubjectNotSoftDeleted(subject)
    await _delete(tx, chosen, permanent=permanent)
    return [each.version for each in chosen]


def select_versions(known: Sequence[SubjectVersion], subject: Subject, version: int | None) -> SubjectVersion:
    """The version to delete; None: the newest that is not deleted."""
    fits = [each for each in known if (each.version == version if version is not None else not each.deleted)]
    if not fits:
        raise UnknownVersion(subject, version or -1) if known else UnknownSubject(subject)
    return fits[-1]


async def _check_unused(
    tx: Transaction, chosen: Sequence[SubjectVersion], *, permanent: bool, but_by: Subject | None
) -> None:
    for each in chosen:
        users = [user for user in await referrers(tx, each.key) if permanent or not user.deleted]
        if any(user.subject != but_by for user in users):
            raise ReferenceExists(each.subject, each.version)


async def _delete(tx: Transaction, chosen: Sequence[SubjectVersion], *, permanent: bool) -> None:
    subject = chosen[0].subject
    for each in reversed(chosen):
        if permanent:
            await drop_version(tx, each.key)
        else:
            await tx.change(tx.sql.mark_schema_version_deleted, key_params(each.key))
    if permanent:
        for schema_id in {each.schema_id for each in chosen}:
            await tx.change(tx.sql.drop_unused_schema, {"context": subject.context, "schema_id": schema_id})
    await touch(tx, subject, chosen[-1].version)
    if permanent and await tx.change(tx.sql.drop_schema_subject, subject_params(subject)):
        await tx.change(tx.sql.drop_schema_rules, subject_params(subject))
    tx.announce(Change(ChangeKind.SCHEMAS))


async def delete_subject_rows(tx: Transaction, subject: Subject) -> None:
    """Delete the remaining rows of a subject whose versions are all deleted."""
    known = await versions_of_subject(tx, subject)
    await _check_unused(tx, known, permanent=True, but_by=subject)
    await _delete(tx, known, permanent=True)


_ALL: Final = 2**31 - 1


async def set_mode(tx: Transaction, scope: Subject, mode: Mode | None, *, must_be_empty: bool = False) -> None:
    await tx.lock(Lock.SCHEMAS, {})
    if must_be_empty:
        await _empty(tx, scope)
    await tx.change(tx.sql.add_schema_rules, subject_params(scope))
    await tx.change(tx.sql.set_schema_mode, {**subject_params(scope), "mode": None if mode is None else str(mode)})


async def _empty(tx: Transaction, scope: Subject) -> None:
    subjects = await _subjects_of(tx, scope)
    for subject in subjects:
        if any(not each.deleted for each in await versions_of_subject(tx, subject)):
            raise ModeRefused(scope, why="there are subjects with versions; do=delete them, or force it")
    for subject in subjects:
        await delete_subject_rows(tx, subject)


async def _subjects_of(tx: Transaction, scope: Subject) -> list[Subject]:
    if scope.name:
        return [scope] if await versions_of_subject(tx, scope) else []
    context = None if scope.context == GLOBAL_CONTEXT else scope.context
    return list(await list_subjects(tx, Page(context, "", 0, _ALL), Deleted.WITH))


async def drop_modes(tx: Transaction, context: str) -> None:
    await tx.lock(Lock.SCHEMAS, {})
    await tx.change(tx.sql.drop_schema_modes_of_context, {"context": context})
