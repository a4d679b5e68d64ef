"""AccessControl: what callers may do, by the rules as this agent knows them, and changing the rules.

A decision is a dictionary's lookup after the first of its kind. Rules are read again when another agent announces a
change, every `security.refresh_s` while notifications are down, and before a change by this agent is answered.
While the metadata store is unavailable, the rules that were read last hold.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.security.acl_index import AclIndex, AclPolicy, callers_principals
from streamhouse.broker.security.audit import AuditLog, describe_acts
from streamhouse.config import SecuritySettings
from streamhouse.errors import (
    AccessDenied,
    DelegationTokenAccessDenied,
    GroupAccessDenied,
    InvalidAcl,
    Misconfigured,
    SecurityDisabled,
    TopicAccessDenied,
    TransactionalIdAccessDenied,
    Unavailable,
)
from streamhouse.model.access import (
    CLUSTER,
    OPERATIONS,
    ROLE,
    USER,
    Acl,
    AclFilter,
    Caller,
    Operation,
    Principal,
    Resource,
    ResourceType,
    check_acl,
    cluster_of,
    is_within,
    principals_of,
)

log = logging.getLogger(__name__)

_DENIED: Final[Mapping[ResourceType, type[AccessDenied]]] = {
    ResourceType.TOPIC: TopicAccessDenied,
    ResourceType.GROUP: GroupAccessDenied,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAccessDenied,
    ResourceType.DELEGATION_TOKEN: DelegationTokenAccessDenied,
}

CHANGING: Final = frozenset(
    {Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS}
)

ADMINISTRATIVE: Final = frozenset(
    {
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.ALTER_CONFIGS,
        Operation.RUN_CODE,
        Operation.CREATE_TOKENS,
    }
)

NOT_DELEGATED: Final = frozenset(
    {
        (Operation.ALTER, ResourceType.CLUSTER),
        (Operation.ALTER_CONFIGS, ResourceType.CLUSTER),
        (Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
        (Operation.CREATE_TOKENS, ResourceType.USER),
    }
)
"""Operations that queries and pipelines can't do for a user: a stolen token must not create lasting credentials."""

Decisions = dict[tuple[Operation, Resource], bool]
CallerKey = tuple[Principal, tuple[Principal, ...], str]


class AccessControl:
    def __init__(self, dependencies: Dependencies, audit: AuditLog) -> None:
        self._audit = audit
        self._settings = dependencies.settings.security
        self._metadata = dependencies.metadata
        self._clock = dependencies.clock
        self.is_enabled = self._settings.authorization == "acls"
        policy = AclPolicy(
            super_users=super_users(self._settings.super_users, self._settings.bootstrap_user),
            allow_everyone_if_no_acl_found=self._settings.allow_everyone_if_no_acl_found,
        )
        self._index = AclIndex((), policy)
        self._roles: Mapping[Principal, tuple[Principal, ...]] = {}
        self._decisions: dict[CallerKey, Decisions] = {}
        self._decided = 0
        self.generation = 0
        """How often the rules were read: who has waited can see that they may have changed."""
        self._changed = asyncio.Event()
        self._loading = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<AccessControl {'on' if self.is_enabled else 'off'} {self._index!r} decided={self._decided}>"

    # --- decisions

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Whether the caller may do this, which it is about to do: administrative acts are recorded."""
        if caller.is_unrestricted:
            return True
        if not self.is_enabled:
            return not caller.tenant or is_within(caller.tenant, operation, resource)
        decided = self.may(caller, operation, resource)
        if decided and operation in ADMINISTRATIVE:
            self._audit.administered(caller, operation, str(resource), name=resource.name)
        return decided

    def may(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        """Whether the caller may do this; the check itself is not audited."""
        if caller.is_unrestricted:
            return True
        if caller.tenant and not is_within(caller.tenant, operation, resource):
            return False
        if not self.is_enabled:
            return True
        if caller.is_delegated and (operation, resource.type) in NOT_DELEGATED:
            return False
        decisions = self._decisions.get((caller.principal, caller.groups, caller.host))
        if decisions is not None and (decided := decisions.get((operation, resource))) is not None:
            return decided
        return self._decide(caller, operation, resource)

    def check(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """Raise `AccessDenied` unless the caller may do this."""
        if not self.allows(caller, operation, resource):
            self._audit.refused(caller, operation, str(resource))
            kind = _DENIED.get(resource.type, AccessDenied)
            raise kind(caller.principal, operation=operation, resource_type=resource.type, name=resource.name)

    def check_topic(self, caller: Caller, operation: Operation, topic: str) -> None:
        self.check(caller, operation, Resource(ResourceType.TOPIC, topic))

    def check_group(self, caller: Caller, operation: Operation, group: str) -> None:
        self.check(caller, operation, Resource(ResourceType.GROUP, group))

    def allows_topic(self, caller: Caller, operation: Operation, topic: str) -> bool:
        return self.allows(caller, operation, Resource(ResourceType.TOPIC, topic))

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        """Whether there can be a resource of the type that the caller may do this to."""
        if caller.is_unrestricted or not self.is_enabled:
            return True
        return self._index.allows_any(self._principals(caller), caller.host, operation, kind)

    def check_process(self, caller: Caller, *kinds: str) -> None:
        """Raise `AccessDenied` unless the caller is a process of this cluster of one of these kinds, or an agent."""
        is_process = caller.is_agent or caller.principal.kind in kinds
        if caller.tenant or (self.is_enabled and not is_process):
            self._audit.refused(caller, Operation.CLUSTER_ACTION, str(CLUSTER))
            raise AccessDenied(caller.principal, operation="cluster-action", resource_type="process", name="cluster")

    def is_super_user(self, caller: Caller) -> bool:
        """Whether the caller may do everything, whatever the rules say."""
        return self.is_enabled and self._index.is_super_user(self._principals(caller))

    def operations(self, caller: Caller, resource: Resource) -> frozenset[Operation]:
        """The operations that the caller may do to a resource (Kafka's authorised operations, KIP-430)."""
        named = (Operation(word) for word in OPERATIONS[resource.type].split())
        return frozenset(operation for operation in named if self.may(caller, operation, resource))

    def _decide(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        if self._decided >= self._settings.decision_cache_entries:
            self._forget_decisions()
        is_cluster_of_tenant = caller.tenant and resource.type is ResourceType.CLUSTER
        requested = cluster_of(caller.tenant) if is_cluster_of_tenant else resource
        decided = not self._is_reserved(operation, resource) and self._index.allows(
            self._principals(caller), caller.host, operation, requested
        )
        of_caller = self._decisions.setdefault((caller.principal, caller.groups, caller.host), {})
        of_caller[operation, resource] = decided
        self._decided += 1
        return decided

    def _is_reserved(self, operation: Operation, resource: Resource) -> bool:
        """Whether only agents may do this: not even super users write to the audit topic."""
        is_audit = resource.type is ResourceType.TOPIC and resource.name == self._settings.audit_topic
        return is_audit and operation in CHANGING

    def _principals(self, caller: Caller) -> frozenset[Principal]:
        roles = [role for each in (caller.principal, *caller.groups) for role in self._roles.get(each, ())]
        return callers_principals(caller, roles)

    def _forget_decisions(self) -> None:
        self._decisions.clear()
        self._decided = 0

    # --- rules

    async def acls(self, selected: AclFilter) -> Sequence[Acl]:
        """The rules that a filter selects, as the metadata store has them; raise `SecurityDisabled` without control."""
        self._require_enabled()
        return [acl for acl in await self._metadata.acls() if selected.selects(acl)]

    async def add_acls(self, acls: Sequence[Acl]) -> None:
        """Add rules, all or none; they hold here when this returns, and on other agents a moment later."""
        self._require_enabled()
        describe_acts(*acls)
        for acl in acls:
            check_acl(acl)
        await self._metadata.add_acls(acls, max_acls=self._settings.max_acls)
        await self.load()

    async def delete_acls(self, filters: Sequence[AclFilter]) -> Sequence[Sequence[Acl]]:
        """Delete the rules that each filter selects, and return them."""
        self._require_enabled()
        deleted = await self._metadata.delete_acls(filters)
        describe_acts(*(acl for each in deleted for acl in each))
        await self.load()
        return deleted

    async def roles(self) -> Mapping[str, Sequence[Principal]]:
        """The members of each role. What a role may do is said by rules of the principal `Role:NAME`."""
        self._require_enabled()
        return await self._metadata.role_members()

    async def change_role(
        self, role: str, *, added: Sequence[Principal] = (), removed: Sequence[Principal] = ()
    ) -> None:
        self._require_enabled()
        Principal.parse(f"{ROLE}:{role}")
        for member in (*added, *removed):
            if member.kind == ROLE:
                raise InvalidAcl(f"members of a role are users and groups; member={member}")
        describe_acts(f"role {role}", *(f"with {each}" for each in added), *(f"without {each}" for each in removed))
        await self._metadata.change_role(role, added=added, removed=removed)
        await self.load()

    def _require_enabled(self) -> None:
        if not self.is_enabled:
            raise SecurityDisabled("there is no access control here; turn it on with security.authorization=acls")

    # --- keeping them up to date

    async def load(self) -> None:
        """Read rules and roles; from now on they hold."""
        if not self.is_enabled:
            return
        async with self._loading:  # or rules that were read earlier could replace those that were read later
            await self._load()

    async def _load(self) -> None:
        members = await self._metadata.role_members()
        roles: dict[Principal, list[Principal]] = {}
        for role, principals in members.items():
            for principal in principals:
                roles.setdefault(principal, []).append(Principal(ROLE, role))
        self._index = AclIndex(await self._metadata.acls(), self._index.policy)
        self._roles = {principal: tuple(granted) for principal, granted in roles.items()}
        self.generation += 1
        self._forget_decisions()

    def on_change(self) -> None:
        """Rules may have changed: `run` reads them again."""
        self._changed.set()

    async def run(self) -> None:
        """Read the rules again whenever they may have changed, until cancelled."""
        while self.is_enabled:
            await self._wait_for_change()
            try:
                await self.load()
            except Unavailable as error:
                log.warning("access rules can't be read; those that are known hold", extra={"why": str(error)})
                self._changed.set()
                await self._clock.sleep(self._settings.refresh_s)

    async def _wait_for_change(self) -> None:
        if self._metadata.is_listening:  # the end of the subscription arrives as a change
            await self._changed.wait()
        else:
            await self._clock.sleep(self._settings.refresh_s)
        self._changed.clear()


def super_users(text: str, bootstrap_user: str) -> frozenset[Principal]:
    """The principals in `security.super_users`, and the bootstrap user."""
    try:
        named = frozenset(principals_of(text.replace(";", ",").split(",")))
    except InvalidAcl as error:
        raise Misconfigured(f"bad value for security.super_users; {error}") from None
    return named | {Principal(USER, bootstrap_user)} if bootstrap_user else named


def super_user_warning(settings: SecuritySettings) -> str:
    """The warning for operators of super users whose name a token of the issuer can have; empty if there are none."""
    named = super_users(settings.super_users, settings.bootstrap_user)
    users = sorted(str(each) for each in named if each.kind == USER)
    if not users or not settings.oauth_issuer or settings.authorization != "acls":
        return ""
    return (
        f"who has a token of {settings.oauth_issuer} whose claim {settings.oauth_principal_claim} is the name of a "
        f"super user ({', '.join(users)}) may do everything; make sure that the provider gives nobody else these "
        "names, or name groups in security.super_users (Group:NAME) and unset security.bootstrap_user"
    )
