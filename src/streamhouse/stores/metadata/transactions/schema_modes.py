"""Modes of the schema registry as transactions.

Data path   administration of the registry
Owns        setting them; that what is to be filled from elsewhere is empty
Leaves      what they mean to `broker.schemas`, deleting to `schema_deletion`
"""

from typing import Final

from streamhouse.errors import ModeRefused
from streamhouse.model.schema import GLOBAL_CONTEXT, Deleted, Mode, Subject
from streamhouse.stores.metadata.schema_rows import subject_params
from streamhouse.stores.metadata.transaction import Lock, Transaction
from streamhouse.stores.metadata.transactions.schema_deletion import clear
from streamhouse.stores.metadata.transactions.schemas import Page, list_subjects, versions_of_subject

_ALL: Final = 2**31 - 1


async def set_mode(tx: Transaction, scope: Subject, mode: Mode | None, must_be_empty: bool) -> None:
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
        await clear(tx, subject)


async def _subjects_of(tx: Transaction, scope: Subject) -> list[Subject]:
    if scope.name:
        return [scope] if await versions_of_subject(tx, scope) else []
    context = None if scope.context == GLOBAL_CONTEXT else scope.context
    return list(await list_subjects(tx, Page(context, "", 0, _ALL), Deleted.WITH))


async def drop_modes(tx: Transaction, context: str) -> None:
    await tx.lock(Lock.SCHEMAS, {})
    await tx.change(tx.sql.drop_schema_modes_of_context, {"context": context})
