"""Procedures for users, API keys, access rules, roles, quotas and delegation tokens."""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby

from streamhouse.errors import SecurityLimit, UnknownUser, UserExists
from streamhouse.model.access import (
    USER,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.credentials import ApiKey, DelegationToken, User
from streamhouse.model.quota import Quota, entity_of, entity_text
from streamhouse.model.scram import ScramCredential, ScramMechanism
from streamhouse.stores.metadata.engine import Lock, Transaction
from streamhouse.stores.metadata.rows import Params, Row

CHANGED = Change(ChangeKind.SECURITY)


# --- rules


async def list_acls(tx: Transaction) -> Sequence[Acl]:
    return [_acl_of(row) for row in await tx.rows(tx.sql.list_acls)]


async def add_acls(tx: Transaction, acls: Sequence[Acl], *, max_acls: int) -> None:
    await tx.lock(Lock.SECURITY, {})
    added = await tx.change_each(tx.sql.insert_acl, [_acl_params(acl) for acl in acls])
    await _check_limit(tx, tx.sql.count_acls, added, limit=max_acls, what="access rules", setting="max_acls")
    tx.announce(CHANGED)


async def delete_acls(tx: Transaction, filters: Sequence[AclFilter]) -> Sequence[Sequence[Acl]]:
    await tx.lock(Lock.SECURITY, {})
    existing = await list_acls(tx)
    selected = [[acl for acl in existing if each.selects(acl)] for each in filters]
    deleted = {acl for acls in selected for acl in acls}
    await tx.change_each(tx.sql.delete_acl, [_acl_params(acl) for acl in sorted(deleted)])
    tx.announce(CHANGED)
    return selected


def _acl_params(acl: Acl) -> Params:
    return {
        "resource_type": acl.resource_type.value,
        "name": acl.name,
        "pattern": acl.pattern.value,
        "principal": str(acl.principal),
        "host": acl.host,
        "operation": acl.operation.value,
        "permission": acl.permission.value,
    }


def _acl_of(row: Row) -> Acl:
    return Acl(
        resource_type=ResourceType(row["resource_type"]),
        name=row["name"],
        pattern=PatternType(row["pattern"]),
        principal=Principal.parse(row["principal"]),
        host=row["host"],
        operation=Operation(row["operation"]),
        permission=Permission(row["permission"]),
    )


# --- users


async def list_users(tx: Transaction) -> Sequence[User]:
    rows = await tx.rows(tx.sql.list_users)
    return [_user_of(list(of_user)) for _, of_user in groupby(rows, key=lambda row: row["name"])]


async def find_user(tx: Transaction, name: str) -> User | None:
    rows = await tx.rows(tx.sql.find_user, {"name": name})
    return _user_of(rows, with_keys=True) if rows else None


async def put_credentials(
    tx: Transaction,
    name: str,
    *,
    upserts: Sequence[ScramCredential] = (),
    deletions: Sequence[ScramMechanism] = (),
    is_new: bool = False,
    max_users: int,
) -> None:
    await tx.lock(Lock.SECURITY, {})
    added = await tx.change(tx.sql.insert_user, {"name": name, "now_ms": await tx.now_ms()}) if upserts else 0
    if is_new and not added:
        raise UserExists(name)
    await _check_limit(tx, tx.sql.count_users, added, limit=max_users, what="users", setting="max_users")
    for mechanism in deletions:
        if not await tx.change(tx.sql.delete_credential, {"name": name, "mechanism": mechanism.value}):
            raise UnknownUser(name)
    await tx.change_each(tx.sql.put_credential, [_credential_params(name, each) for each in upserts])
    user = await find_user(tx, name)
    if user is not None and not user.credentials:
        await _delete_user(tx, name)
    tx.announce(CHANGED)


async def delete_user(tx: Transaction, name: str) -> bool:
    await tx.lock(Lock.SECURITY, {})
    is_deleted = await _delete_user(tx, name)
    tx.announce(CHANGED)
    return is_deleted


async def _delete_user(tx: Transaction, name: str) -> bool:
    principal = str(Principal(USER, name))
    await tx.change(tx.sql.delete_keys_of, {"principal": principal})
    await tx.change(tx.sql.delete_delegation_tokens_of, {"owner": principal})
    await tx.change(tx.sql.delete_roles_of, {"member": principal})
    return await tx.change(tx.sql.delete_user, {"name": name}) > 0


def _credential_params(name: str, credential: ScramCredential) -> Params:
    return {
        "name": name,
        "mechanism": credential.mechanism.value,
        "salt": credential.salt,
        "iterations": credential.iterations,
        "stored_key": credential.stored_key,
        "server_key": credential.server_key,
    }


def _user_of(rows: Sequence[Row], *, with_keys: bool = False) -> User:
    credentials = {
        (mechanism := ScramMechanism(row["mechanism"])): ScramCredential(
            mechanism=mechanism,
            iterations=row["iterations"],
            salt=bytes(row["salt"]),
            stored_key=bytes(row["stored_key"]) if with_keys else b"",
            server_key=bytes(row["server_key"]) if with_keys else b"",
        )
        for row in rows
        if row["mechanism"] is not None
    }
    return User(name=rows[0]["name"], created_at_ms=rows[0]["created_at_ms"], credentials=credentials)


# --- API keys


async def list_keys(tx: Transaction) -> Sequence[ApiKey]:
    return [_key_of(row, secret_hash=b"") for row in await tx.rows(tx.sql.list_keys)]


async def find_key(tx: Transaction, key_id: str) -> ApiKey | None:
    row = await tx.row(tx.sql.find_key, {"key_id": key_id})
    return None if row is None else _key_of(row, secret_hash=bytes(row["secret_hash"]))


async def add_key(tx: Transaction, key: ApiKey, *, max_keys: int) -> None:
    await tx.lock(Lock.SECURITY, {})
    params: Params = {
        "key_id": key.key_id,
        "principal": str(key.principal),
        "secret_hash": key.secret_hash,
        "description": key.description,
        "created_at_ms": key.created_at_ms,
        "expires_at_ms": key.expires_at_ms,
    }
    await tx.change(tx.sql.insert_key, params)
    await _check_limit(tx, tx.sql.count_keys, 1, limit=max_keys, what="API keys", setting="max_keys")
    tx.announce(CHANGED)


async def delete_key(tx: Transaction, key_id: str) -> bool:
    is_deleted = await tx.change(tx.sql.delete_key, {"key_id": key_id}) > 0
    tx.announce(CHANGED)
    return is_deleted


def _key_of(row: Row, *, secret_hash: bytes) -> ApiKey:
    return ApiKey(
        key_id=row["key_id"],
        principal=Principal.parse(row["principal"]),
        secret_hash=secret_hash,
        description=row["description"],
        created_at_ms=row["created_at_ms"],
        expires_at_ms=row["expires_at_ms"],
    )


# --- roles


async def list_role_members(tx: Transaction) -> Mapping[str, Sequence[Principal]]:
    members: dict[str, list[Principal]] = {}
    for row in await tx.rows(tx.sql.list_role_members):
        members.setdefault(row["role"], []).append(Principal.parse(row["member"]))
    return members


async def change_role(
    tx: Transaction, role: str, *, added: Sequence[Principal] = (), removed: Sequence[Principal] = ()
) -> None:
    await tx.change_each(tx.sql.delete_role_member, [{"role": role, "member": str(each)} for each in removed])
    await tx.change_each(tx.sql.insert_role_member, [{"role": role, "member": str(each)} for each in added])
    tx.announce(CHANGED)


# --- quotas


async def list_quotas(tx: Transaction) -> Sequence[Quota]:
    rows = await tx.rows(tx.sql.list_quotas)
    return [Quota(entity=entity_of(row["entity"]), limits=json.loads(row["limits"])) for row in rows]


async def put_quota(tx: Transaction, quota: Quota, *, max_quotas: int) -> None:
    await tx.lock(Lock.SECURITY, {})
    entity = entity_text(quota.entity)
    if quota.limits:
        limits = json.dumps(dict(quota.limits), sort_keys=True)
        await tx.change(tx.sql.put_quota, {"entity": entity, "limits": limits})
        [row] = await tx.rows(tx.sql.count_quotas)
        if row["found"] > max_quotas:
            raise SecurityLimit("quotas", limit=max_quotas, setting="quotas.max_quotas")
    else:
        await tx.change(tx.sql.delete_quota, {"entity": entity})
    tx.announce(CHANGED)


async def exchange_quota_usage(
    tx: Transaction, agent: str, used: Mapping[str, float], *, ttl_ms: int
) -> Sequence[Mapping[str, float]]:
    now_ms = await tx.now_ms()
    await tx.change(tx.sql.forget_quota_usage, {"before_ms": now_ms - ttl_ms})
    await tx.change(tx.sql.put_quota_usage, {"agent": agent, "used": json.dumps(dict(used)), "now_ms": now_ms})
    return [json.loads(row["used"]) for row in await tx.rows(tx.sql.list_quota_usage) if row["agent"] != agent]


# --- delegation tokens


async def list_delegation_tokens(tx: Transaction) -> Sequence[DelegationToken]:
    rows = await tx.rows(tx.sql.list_delegation_tokens, {"now_ms": await tx.now_ms()})
    return [_token_of(row) for row in rows]


async def find_delegation_token(tx: Transaction, token_id: str) -> DelegationToken | None:
    row = await tx.row(tx.sql.find_delegation_token, {"token_id": token_id})
    return None if row is None else _token_of(row)


async def put_delegation_token(tx: Transaction, token: DelegationToken, *, max_tokens: int) -> None:
    await tx.lock(Lock.SECURITY, {})
    await tx.change(tx.sql.forget_delegation_tokens, {"before_ms": await tx.now_ms()})
    params: Params = {
        "token_id": token.token_id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": json.dumps([str(each) for each in token.renewers]),
        "issued_at_ms": token.issued_at_ms,
        "expires_at_ms": token.expires_at_ms,
        "max_at_ms": token.max_at_ms,
    }
    await tx.change(tx.sql.put_delegation_token, params)
    await _check_limit(
        tx,
        tx.sql.count_delegation_tokens,
        1,
        limit=max_tokens,
        what="delegation tokens",
        setting="max_delegation_tokens",
    )
    tx.announce(CHANGED)


async def prolong_delegation_token(tx: Transaction, token_id: str, expires_at_ms: int) -> bool:
    params: Params = {"token_id": token_id, "expires_at_ms": expires_at_ms}
    is_there = await tx.change(tx.sql.prolong_delegation_token, params) > 0
    tx.announce(CHANGED)
    return is_there


async def delete_delegation_token(tx: Transaction, token_id: str) -> bool:
    is_deleted = await tx.change(tx.sql.delete_delegation_token, {"token_id": token_id}) > 0
    tx.announce(CHANGED)
    return is_deleted


def _token_of(row: Row) -> DelegationToken:
    return DelegationToken(
        token_id=row["token_id"],
        owner=Principal.parse(row["owner"]),
        requester=Principal.parse(row["requester"]),
        renewers=tuple(map(Principal.parse, json.loads(row["renewers"]))),
        issued_at_ms=row["issued_at_ms"],
        expires_at_ms=row["expires_at_ms"],
        max_at_ms=row["max_at_ms"],
    )


async def _check_limit(tx: Transaction, count: str, added: int, *, limit: int, what: str, setting: str) -> None:
    """Raise `SecurityLimit`, by which the transaction changes nothing, if there are too many now."""
    if added:
        [row] = await tx.rows(count)
        if row["found"] > limit:
            raise SecurityLimit(what, limit=limit, setting=f"security.{setting}")
