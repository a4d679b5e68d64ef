"""AclIndex: all rules, arranged so that a decision looks at those of one resource only. Decides; touches nothing.

The order of decisions is Kafka's: super users may do everything; a denial wins over every permission; a resource
without any rule is open only where `allow_everyone_if_no_acl_found` says so.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from streamhouse.model.access import (
    ANY,
    EVERYBODY,
    USER,
    Acl,
    Caller,
    Operation,
    PatternType,
    Permission,
    Principal,
    Resource,
    ResourceType,
    is_host_within,
)
from streamhouse.model.tenant import qualified


@dataclass(frozen=True, slots=True, kw_only=True)
class AclPolicy:
    """Settings that apply besides the rules."""

    super_users: frozenset[Principal] = frozenset()
    allow_everyone_if_no_acl_found: bool = False


@dataclass(slots=True)
class _RulesOfType:
    by_name: dict[str, list[Acl]] = field(default_factory=lambda: defaultdict(list))
    by_prefix: dict[str, list[Acl]] = field(default_factory=lambda: defaultdict(list))
    prefix_lengths: list[int] = field(default_factory=list)

    def of(self, name: str) -> Iterator[Acl]:
        yield from self.by_name.get(name, ())
        if name != ANY:
            yield from self.by_name.get(ANY, ())
        for length in self.prefix_lengths:
            if length > len(name):
                break
            yield from self.by_prefix.get(name[:length], ())


class AclIndex:
    def __init__(self, acls: Iterable[Acl], policy: AclPolicy) -> None:
        self.policy = policy
        self.acls = frozenset(acls)
        self._types: dict[ResourceType, _RulesOfType] = {kind: _RulesOfType() for kind in ResourceType}
        for acl in self.acls:
            rules = self._types[acl.resource_type]
            (rules.by_prefix if acl.pattern is PatternType.PREFIXED else rules.by_name)[acl.name].append(acl)
        for rules in self._types.values():
            rules.prefix_lengths = sorted({len(prefix) for prefix in rules.by_prefix})

    def __repr__(self) -> str:
        return f"<AclIndex acls={len(self.acls)}>"

    def is_super_user(self, principals: Collection[Principal]) -> bool:
        return not self.policy.super_users.isdisjoint(principals)

    def allows(self, principals: Collection[Principal], host: str, operation: Operation, resource: Resource) -> bool:
        """Whether the rules let any of these principals (a user, with its groups and roles) do this."""
        if self.is_super_user(principals):
            return True
        is_allowed = has_rules = False
        for acl in self._types[resource.type].of(resource.name):
            has_rules = True
            if not _applies(acl, principals, host) or not acl.decides(operation):
                continue
            if acl.permission is Permission.DENY:
                return False
            is_allowed = True
        return is_allowed or (not has_rules and self.policy.allow_everyone_if_no_acl_found)

    def allows_any(
        self, principals: Collection[Principal], host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether there can be a resource of the type that these principals may do this to (Kafka's
        authorizeByResourceType): some permission that no denial covers wholly."""
        if self.is_super_user(principals):
            return True
        mine = [acl for acl in self._of_type(kind) if _applies(acl, principals, host) and acl.decides(operation)]
        denials = [acl for acl in mine if acl.permission is Permission.DENY]
        if any(acl.name == ANY and acl.pattern is PatternType.LITERAL for acl in denials):
            return False
        permissions = (acl for acl in mine if acl.permission is Permission.ALLOW)
        if any(not any(_covers(denial, permission) for denial in denials) for permission in permissions):
            return True
        return self.policy.allow_everyone_if_no_acl_found and not mine

    def _of_type(self, kind: ResourceType) -> Iterator[Acl]:
        rules = self._types[kind]
        for acls in (*rules.by_name.values(), *rules.by_prefix.values()):
            yield from acls


def _applies(acl: Acl, principals: Collection[Principal], host: str) -> bool:
    return (acl.principal == EVERYBODY or acl.principal in principals) and (
        acl.host == ANY or is_host_within(host, acl.host)
    )


def _covers(denial: Acl, permission: Acl) -> bool:
    """Whether everything that the permission names is denied."""
    if denial.pattern is PatternType.PREFIXED:
        return permission.name != ANY and permission.name.startswith(denial.name)
    return permission.pattern is PatternType.LITERAL and denial.name == permission.name


def callers_principals(caller: Caller, roles: Iterable[Principal]) -> frozenset[Principal]:
    """All that rules may say about a caller."""
    everybody = (Principal(USER, qualified(caller.tenant, ANY)),) if caller.tenant else ()
    return frozenset((caller.principal, *caller.groups, *roles, *everybody))
