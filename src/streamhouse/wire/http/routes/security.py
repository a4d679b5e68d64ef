"""Security: users, API keys, access rules, roles and quotas, and who the caller is.

GET    /v1/whoami                    the caller, as authentication knows it
GET    /v1/users                     all users, without passwords
POST   /v1/users                     {"name": "alice", "password": "…"}
PUT    /v1/users/{user}/password     {"password": "…"}; users may change their own
DELETE /v1/users/{user}              with its keys and roles
GET    /v1/keys                      API keys, without their secrets: all, or the caller's own
POST   /v1/keys                      {"principal": "User:alice", "ttl_s": 3600}; the key's text is shown once
DELETE /v1/keys/{key}                revoke a key
GET    /v1/acls?principal=…          access rules
POST   /v1/acls                      {"acls": [{"principal": "User:alice", "operation": "read", …}]}
DELETE /v1/acls?principal=…          delete the rules that are selected, and return them
GET    /v1/roles                     roles and their members
POST   /v1/roles/{role}/members      {"add": ["User:alice"], "remove": []}
GET    /v1/quotas                    limits of users, client ids and addresses
PUT    /v1/quotas                    {"entity": {"user": "alice"}, "limits": {"producer_byte_rate": 1e6}}; null removes
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.security.security import Security
from streamhouse.errors import InvalidAcl, InvalidConfig, UnknownKey
from streamhouse.model.access import (
    ANY,
    USER,
    Acl,
    AclFilter,
    Caller,
    CredentialKind,
    PatternType,
    Permission,
    Principal,
    ResourceType,
    acl_in_tenant,
    acl_of_tenant,
    check_acl,
    is_anonymous,
)
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.credentials import ApiKey, User
from streamhouse.model.needs import LOGGED_IN, Needs, Right, all_of, need, needs
from streamhouse.model.quota import (
    ADDRESS_ENTITY,
    CLIENT_ENTITY,
    USER_ENTITY,
    Quota,
    QuotaEntity,
    entity_in_tenant,
    entity_of_tenant,
)
from streamhouse.model.tenant import tenant_of
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.operations import MAX_BODY_BYTES, Call, NoQuery, Operation, json_response

TAG: Final = "security"
MAX_ACLS: Final = 100
"""Rules, or members, that one request changes."""
NAME = Annotated[str, Meta(min_length=1, max_length=1000)]
E = TypeVar("E", ResourceType, AclOperation, PatternType, Permission)


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The caller. `unrestricted`: access control is off, or the caller is a process of the cluster. `super_user`: the
    settings let it do everything."""

    principal: str
    groups: list[str]
    host: str
    listener: str
    unrestricted: bool
    super_user: bool


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user who logs in with a password, and the SASL mechanisms for which one is stored."""

    name: str
    created_at_ms: int
    mechanisms: list[str]


class UserViews(msgspec.Struct, frozen=True, kw_only=True):
    users: list[UserView]


class NewUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    password: Annotated[str, Meta(min_length=1, max_length=1000)]

    def __repr__(self) -> str:
        return f"<NewUser {self.name}>"  # never the password


class NewPassword(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    password: Annotated[str, Meta(min_length=1, max_length=1000)]

    def __repr__(self) -> str:
        return "<NewPassword>"


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, without its secret; `expires_at_ms` null: until it is revoked."""

    key_id: str
    principal: str
    description: str
    created_at_ms: int
    expires_at_ms: int | None


class KeyViews(msgspec.Struct, frozen=True, kw_only=True):
    keys: list[KeyView]


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    principal: NAME | None = None
    """The principal of the key; null: the caller."""
    description: Annotated[str, Meta(max_length=500)] = ""
    ttl_s: Annotated[float, Meta(description="seconds until it expires; null: until it is revoked", gt=0)] | None = None


class CreatedKey(msgspec.Struct, frozen=True, kw_only=True):
    """`api_key` is the key's text, which can't be read again."""

    key: KeyView
    api_key: str


class Rule(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An access rule (ACL)."""

    principal: NAME
    operation: NAME
    resource_type: NAME
    name: NAME
    pattern: NAME = PatternType.LITERAL.value
    permission: NAME = Permission.ALLOW.value
    host: NAME = ANY


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    acls: Annotated[list[Rule], Meta(max_length=MAX_ACLS)]


class RuleViews(msgspec.Struct, frozen=True, kw_only=True):
    acls: list[Rule]


class RuleQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules with these fields; without any, all rules."""

    principal: NAME | None = None
    operation: NAME | None = None
    resource_type: NAME | None = None
    name: NAME | None = None
    pattern: NAME | None = None
    permission: NAME | None = None
    host: NAME | None = None
    matching: Annotated[bool, Meta(description="rules that apply to the resource called `name`")] = False


class RoleView(msgspec.Struct, frozen=True, kw_only=True):
    """A role and its members; rules for `Role:NAME` say what they may do."""

    name: str
    members: list[str]


class RoleViews(msgspec.Struct, frozen=True, kw_only=True):
    roles: list[RoleView]


class RoleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    add: Annotated[list[NAME], Meta(max_length=MAX_ACLS)] = []
    remove: Annotated[list[NAME], Meta(max_length=MAX_ACLS)] = []


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a user, a client id, both, or an address, by Kafka's names; `<default>` is everybody else."""

    entity: dict[str, str]
    limits: dict[str, float]


class QuotaViews(msgspec.Struct, frozen=True, kw_only=True):
    quotas: list[QuotaView]


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    entity: Annotated[dict[str, str], Meta(description="`user`, `client-id`, both, or `ip`", max_length=3)]
    limits: Annotated[dict[str, float | None], Meta(description="null removes a limit", max_length=10)]


class SecurityCalls:
    """Operations on users, keys, rules, roles and quotas."""

    def __init__(self, security: Security) -> None:
        self._security = security

    async def who_am_i(self, call: Call[NoQuery, None]) -> Response:
        caller = call.access.caller
        return json_response(
            Me(
                principal=str(caller.principal),
                groups=[str(group) for group in caller.groups],
                host=caller.host,
                listener=caller.listener,
                unrestricted=caller.is_unrestricted,
                super_user=self._security.access.is_super_user(caller),
            )
        )

    # --- users

    async def list_users(self, call: Call[NoQuery, None]) -> Response:
        return json_response(UserViews(users=[_user(each) for each in await self._security.users.list()]))

    async def create_user(self, call: Call[NoQuery, NewUser]) -> Response:
        await self._security.users.create(call.body.name, call.body.password)
        return json_response(_user(await self._security.users.find(call.body.name)), status=201)

    async def change_password(self, call: Call[NoQuery, NewPassword]) -> Response:
        name, shown = call.path["user"], call.caller.credential
        knows_password = shown is not None and shown.kind is CredentialKind.PASSWORD
        if not (_is_self(call.caller, Principal(USER, name)) and knows_password):
            call.access.require_cluster(AclOperation.ALTER)
        await self._security.users.find(name)
        await self._security.users.create(name, call.body.password, is_new=False)
        return Response(status_code=204)

    async def delete_user(self, call: Call[NoQuery, None]) -> Response:
        await self._security.users.delete(call.path["user"])
        return Response(status_code=204)

    # --- API keys

    async def list_keys(self, call: Call[NoQuery, None]) -> Response:
        keys = await self._security.users.keys()
        if not call.access.allows_cluster(AclOperation.DESCRIBE):
            keys = [key for key in keys if _is_self(call.access.caller, key.principal)]
        return json_response(KeyViews(keys=[_key(each) for each in keys]))

    async def create_key(self, call: Call[NoQuery, NewKey]) -> Response:
        caller = call.access.caller
        principal = caller.principal if call.body.principal is None else Principal.parse(call.body.principal)
        if not (_is_self(caller, principal) and caller.may_make_credentials):
            call.access.require_cluster(AclOperation.ALTER)
        key, text = await self._security.users.create_key(
            principal, description=call.body.description, ttl_s=call.body.ttl_s
        )
        return json_response(CreatedKey(key=_key(key), api_key=text), status=201)

    async def revoke_key(self, call: Call[NoQuery, None]) -> Response:
        key_id, caller = call.path["key"], call.access.caller
        keys = await self._security.users.keys()
        if caller.tenant:
            keys = [key for key in keys if tenant_of(key.principal.name) == caller.tenant]
            if key_id not in [key.key_id for key in keys]:
                raise UnknownKey(key_id)
        own = [key.key_id for key in keys if _is_self(caller, key.principal)]
        if key_id not in own:
            call.access.require_cluster(AclOperation.ALTER)
        await self._security.users.revoke_key(key_id)
        return Response(status_code=204)

    # --- access rules

    async def list_acls(self, call: Call[RuleQuery, None]) -> Response:
        tenant = call.caller.tenant
        found = await self._security.access.acls(_filter(call.query, tenant))
        return json_response(RuleViews(acls=_rules(found, tenant)))

    async def create_acls(self, call: Call[NoQuery, Rules]) -> Response:
        tenant, acls = call.caller.tenant, [_acl(each) for each in call.body.acls]
        for each in acls:
            check_acl(each)
        await self._security.access.add_acls([acl_of_tenant(tenant, each) for each in acls] if tenant else acls)
        return json_response(RuleViews(acls=list(call.body.acls)), status=201)

    async def delete_acls(self, call: Call[RuleQuery, None]) -> Response:
        tenant = call.caller.tenant
        selected = _filter(call.query, tenant)
        if selected == AclFilter(tenant=tenant):
            raise InvalidAcl("name the rules to delete by at least one field, for example ?principal=User:alice")
        [deleted] = await self._security.access.delete_acls([selected])
        return json_response(RuleViews(acls=_rules(deleted, tenant)))

    # --- roles

    async def list_roles(self, call: Call[NoQuery, None]) -> Response:
        roles = await self._security.access.roles()
        return json_response(RoleViews(roles=[_role(name, members) for name, members in sorted(roles.items())]))

    async def change_role(self, call: Call[NoQuery, RoleChange]) -> Response:
        role = call.path["role"]
        await self._security.access.change_role(
            role,
            added=[Principal.parse(each) for each in call.body.add],
            removed=[Principal.parse(each) for each in call.body.remove],
        )
        return json_response(_role(role, (await self._security.access.roles()).get(role, ())))

    # --- quotas

    async def list_quotas(self, call: Call[NoQuery, None]) -> Response:
        tenant, quotas = call.caller.tenant, await self._security.quotas.list()
        if tenant:
            shown = ((entity_in_tenant(tenant, each.entity), each) for each in quotas)
            quotas = [replace(each, entity=entity) for entity, each in shown if entity is not None]
        return json_response(QuotaViews(quotas=[_quota(each) for each in quotas]))

    async def set_quota(self, call: Call[NoQuery, QuotaChange]) -> Response:
        tenant, entity = call.caller.tenant, _entity(call.body.entity)
        stored = entity_of_tenant(tenant, entity) if tenant else entity
        changed = await self._security.quotas.alter(stored, call.body.limits)
        return json_response(_quota(replace(changed, entity=entity)))


def _is_self(caller: Caller, principal: Principal) -> bool:
    """Whether this is the caller, who has proven it; a process that acts for a user hasn't."""
    return caller.principal == principal and not is_anonymous(principal) and not caller.is_delegated


def _user(user: User) -> UserView:
    return UserView(
        name=user.name, created_at_ms=user.created_at_ms, mechanisms=[mechanism.value for mechanism in user.credentials]
    )


def _key(key: ApiKey) -> KeyView:
    return KeyView(
        key_id=key.key_id,
        principal=str(key.principal),
        description=key.description,
        created_at_ms=key.created_at_ms,
        expires_at_ms=key.expires_at_ms,
    )


def _rule(acl: Acl) -> Rule:
    return Rule(
        principal=str(acl.principal),
        operation=acl.operation.value,
        resource_type=acl.resource_type.value,
        name=acl.name,
        pattern=acl.pattern.value,
        permission=acl.permission.value,
        host=acl.host,
    )


def _rules(acls: Iterable[Acl], tenant: str) -> list[Rule]:
    """Stored rules as the caller knows them."""
    shown = (acl_in_tenant(tenant, acl) for acl in acls) if tenant else acls
    return [_rule(acl) for acl in shown if acl is not None]


def _acl(rule: Rule) -> Acl:
    return Acl(
        principal=Principal.parse(rule.principal),
        operation=_member(AclOperation, rule.operation),
        resource_type=_member(ResourceType, rule.resource_type),
        name=rule.name,
        pattern=_member(PatternType, rule.pattern),
        permission=_member(Permission, rule.permission),
        host=rule.host,
    )


def _filter(query: RuleQuery, tenant: str) -> AclFilter:
    return AclFilter(
        resource_type=None if query.resource_type is None else _member(ResourceType, query.resource_type),
        name=query.name,
        pattern=None if query.pattern is None else _member(PatternType, query.pattern),
        matching=query.matching,
        principal=None if query.principal is None else Principal.parse(query.principal),
        host=query.host,
        operation=None if query.operation is None else _member(AclOperation, query.operation),
        permission=None if query.permission is None else _member(Permission, query.permission),
        tenant=tenant,
    )


def _member(kind: type[E], word: str) -> E:
    try:
        return kind(word.lower())
    except ValueError:
        allowed = ", ".join(each.value for each in kind)
        raise InvalidAcl(f"unknown {kind.__name__}; value={word[:100]!r} allowed={allowed}") from None


def _role(name: str, members: Sequence[Principal]) -> RoleView:
    return RoleView(name=name, members=[str(each) for each in members])


def _quota(quota: Quota) -> QuotaView:
    return QuotaView(entity=dict(quota.entity.parts()), limits=dict(quota.limits))


def _entity(parts: dict[str, str]) -> QuotaEntity:
    if unknown := parts.keys() - {USER_ENTITY, CLIENT_ENTITY, ADDRESS_ENTITY}:
        raise InvalidConfig(f"unknown part of an entity; part={min(unknown)[:100]!r} allowed=user, client-id, ip")
    return QuotaEntity(parts.get(USER_ENTITY), parts.get(CLIENT_ENTITY), parts.get(ADDRESS_ENTITY))


def _others(operation: AclOperation, when: str) -> Needs:
    """A right on the cluster that callers don't need for what is their own; the handlers tell one from the other."""
    return all_of(need((operation, ResourceType.CLUSTER), when=when))


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    calls = SecurityCalls(broker.security)
    describes = needs(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    alters = needs(AclOperation.ALTER, ResourceType.CLUSTER)
    describes_configs = needs(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    alters_configs = needs(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)

    def operation(
        method: str, path: str, handler: Any, needed: Needs, summary: str, **more: Any
    ) -> Operation[Any, Any]:
        given = {"tag": TAG, "query": NoQuery, "max_body_bytes": MAX_BODY_BYTES, **more}
        return Operation(method=method, path=path, handler=handler, needs=needed, summary=summary, **given)

    return [
        operation("GET", "/v1/whoami", calls.who_am_i, LOGGED_IN, "Who the caller is", response=Me),
        operation("GET", "/v1/users", calls.list_users, describes, "All users", response=UserViews),
        operation(
            "POST",
            "/v1/users",
            calls.create_user,
            alters,
            "Create a user who logs in with a password",
            body=NewUser,
            status=201,
            response=UserView,
            problems=(409, 422),
        ),
        operation(
            "PUT",
            "/v1/users/{user}/password",
            calls.change_password,
            _others(AclOperation.ALTER, "not for one's own password"),
            "Give a user another password",
            body=NewPassword,
            status=204,
            problems=(404, 422),
        ),
        operation(
            "DELETE",
            "/v1/users/{user}",
            calls.delete_user,
            alters,
            "Delete a user, with its keys and roles",
            status=204,
            problems=(404,),
        ),
        operation(
            "GET",
            "/v1/keys",
            calls.list_keys,
            Needs(lists=(Right(AclOperation.DESCRIBE, ResourceType.CLUSTER),), about="one's own keys are always shown"),
            "API keys, without their secrets",
            response=KeyViews,
        ),
        operation(
            "POST",
            "/v1/keys",
            calls.create_key,
            _others(AclOperation.ALTER, "not for a key of one's own"),
            "Create an API key; its text is shown once",
            body=NewKey,
            status=201,
            response=CreatedKey,
            problems=(422,),
        ),
        operation(
            "DELETE",
            "/v1/keys/{key}",
            calls.revoke_key,
            _others(AclOperation.ALTER, "not for a key of one's own"),
            "Revoke an API key",
            status=204,
            problems=(404,),
        ),
        operation(
            "GET",
            "/v1/acls",
            calls.list_acls,
            describes,
            "Access rules",
            query=RuleQuery,
            response=RuleViews,
            problems=(409, 422),
        ),
        operation(
            "POST",
            "/v1/acls",
            calls.create_acls,
            alters,
            "Add access rules, all or none",
            body=Rules,
            max_body_bytes=None,
            status=201,
            response=RuleViews,
            problems=(409, 422),
        ),
        operation(
            "DELETE",
            "/v1/acls",
            calls.delete_acls,
            alters,
            "Delete the access rules that are selected, and return them",
            query=RuleQuery,
            response=RuleViews,
            problems=(409, 422),
        ),
        operation("GET", "/v1/roles", calls.list_roles, describes, "Roles", response=RoleViews, problems=(409,)),
        operation(
            "POST",
            "/v1/roles/{role}/members",
            calls.change_role,
            alters,
            "Change who has a role",
            body=RoleChange,
            max_body_bytes=None,
            response=RoleView,
            problems=(409, 422),
        ),
        operation("GET", "/v1/quotas", calls.list_quotas, describes_configs, "Quotas", response=QuotaViews),
        operation(
            "PUT",
            "/v1/quotas",
            calls.set_quota,
            alters_configs,
            "Change the limits of an entity",
            body=QuotaChange,
            response=QuotaView,
            problems=(422,),
        ),
    ]
