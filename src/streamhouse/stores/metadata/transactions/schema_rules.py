"""Rules of the schema registry as transactions: what was set for subjects and contexts.

Data path   administration of the registry; read with every registration
Owns        reading them; changing configurations
Leaves      modes to `schema_modes`; what they mean, and which hold where, to `broker.schemas`
"""

import json
from collections.abc import Mapping, Sequence

from streamhouse.model.schema import Rules, Subject
from streamhouse.stores.metadata.schema_rows import rules_of, scope_list, subject_of, subject_params
from streamhouse.stores.metadata.transaction import Lock, Transaction


async def find_rules(tx: Transaction, scopes: Sequence[Subject]) -> Sequence[Rules]:
    rows = await tx.rows(tx.sql.find_schema_rules, {"scopes": scope_list(scopes)})
    found = {subject_of(row): rules_of(row) for row in rows}
    return [found.get(scope, Rules()) for scope in scopes]


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
