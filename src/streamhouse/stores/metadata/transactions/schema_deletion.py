"""Deletion of schemas as transactions: first out of use, then for good.

Data path   administration of the registry
Owns        what may be deleted; that ids and references of what is gone are gone too, and that agents hear of it
Leaves      whether the subject may be changed at all to `broker.schemas`
"""

from collections.abc import Sequence

from streamhouse.errors import (
    ReferenceExists,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    UnknownSubject,
    UnknownVersion,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from streamhouse.model.change import Change, ChangeKind
from streamhouse.model.schema import Subject, SubjectVersion
from streamhouse.stores.metadata.schema_rows import key_params, subject_params
from streamhouse.stores.metadata.transaction import Lock, Transaction
from streamhouse.stores.metadata.transactions.schemas import drop_version, referrers, touch, versions_of_subject


async def delete_version(tx: Transaction, subject: Subject, version: int | None, permanent: bool) -> int:
    await tx.lock(Lock.SCHEMAS, {})
    found = choose(await versions_of_subject(tx, subject), subject, version)
    if found.deleted and not permanent:
        raise VersionSoftDeleted(subject, found.version)
    await _check_unused(tx, [found], permanent=permanent, but_by=None)
    if permanent and not found.deleted:
        raise VersionNotSoftDeleted(subject, found.version)
    await _delete(tx, [found], permanent=permanent)
    return found.version


async def delete_subject(tx: Transaction, subject: Subject, permanent: bool) -> Sequence[int]:
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


def choose(known: Sequence[SubjectVersion], subject: Subject, version: int | None) -> SubjectVersion:
    """The version that is meant; None: the newest that is not deleted."""
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


async def clear(tx: Transaction, subject: Subject) -> None:
    """Take what is left of a subject whose versions are all deleted."""
    known = await versions_of_subject(tx, subject)
    await _check_unused(tx, known, permanent=True, but_by=subject)
    await _delete(tx, known, permanent=True)
