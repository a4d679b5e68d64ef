"""Access control: principals, resources, access rules (ACLs), and the caller of a request.

Kafka's model (KIP-11, KIP-290): a rule allows or denies a principal, from a host, an operation on the resources that a
pattern matches. Schema subjects, pipelines, views and tables are resources too.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from streamhouse.errors import InvalidAcl
from streamhouse.model.tenant import bare, prefix_of, qualified, tenant_of, unqualified

MAX_NAME_CHARS: Final = 1000
ANY: Final = "*"
"""Wildcard for resource names, hosts and principal names."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type cluster, as in Kafka."""


class Principal(NamedTuple):
    """A user, as in `User:alice`; in rules also a group or a role (`Group:admins`, `Role:reader`)."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """Parse a text such as `User:alice`; raises `InvalidAcl` if it is not a principal."""
        kind, colon, name = text.partition(":")
        if not colon or kind not in PRINCIPAL_KINDS or not name or len(name) > MAX_NAME_CHARS:
            raise InvalidAcl(f"not a principal; principal={text[:100]!r} allowed={'|'.join(PRINCIPAL_KINDS)}:NAME")
        return cls(kind, name)


USER: Final = "User"
GROUP: Final = "Group"
ROLE: Final = "Role"
PRINCIPAL_KINDS: Final = (USER, GROUP, ROLE)
AGENT: Final = "Agent"
"""Kinds of the cluster's own processes. They authenticate with the cluster secret, and no rules apply to them."""
WORKER: Final = "Worker"
SUPERVISOR: Final = "Supervisor"
PROCESS_KINDS: Final = (AGENT, WORKER, SUPERVISOR)

ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of clients on a listener without authentication, as in Kafka."""
EVERYBODY: Final = Principal(USER, ANY)


def is_anonymous(principal: Principal) -> bool:
    """Whether this is the user of clients who haven't logged in, also a tenant's."""
    return principal.kind == USER and bare(principal.name) == ANONYMOUS.name


class ResourceType(StrEnum):
    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"
    DELEGATION_TOKEN = "delegation-token"
    USER = "user"
    SUBJECT = "subject"
    PIPELINE = "pipeline"
    VIEW = "view"
    TABLE = "table"


class Operation(StrEnum):
    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"
    CREATE_TOKENS = "create-tokens"
    DESCRIBE_TOKENS = "describe-tokens"
    RUN_CODE = "run-code"
    """On the cluster: define pipelines in Python, which supervisors execute."""
    RUN_SQL = "run-sql"
    """On the cluster: run queries on SQL workers, over resources that the caller may read."""


class PatternType(StrEnum):
    LITERAL = "literal"
    PREFIXED = "prefixed"


class Permission(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


class Resource(NamedTuple):
    """The target of an operation."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME)

OPERATIONS: Final = {
    ResourceType.TOPIC: "read write create delete alter describe describe-configs alter-configs",
    ResourceType.GROUP: "read describe delete describe-configs alter-configs",
    ResourceType.CLUSTER: (
        "create alter describe cluster-action describe-configs alter-configs idempotent-write run-code run-sql"
    ),
    ResourceType.TRANSACTIONAL_ID: "describe write",
    ResourceType.DELEGATION_TOKEN: "describe",
    ResourceType.USER: "create-tokens describe-tokens",
    ResourceType.SUBJECT: "read write delete describe describe-configs alter-configs",
    ResourceType.PIPELINE: "create delete alter describe",
    ResourceType.VIEW: "read describe",
    ResourceType.TABLE: "create delete describe",
}
"""The valid operations for each type of resource, besides `all`."""

IMPLYING: Final = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operations that imply another one when they are allowed. A denied operation denies no other."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Acl:
    """One rule."""

    resource_type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL
    principal: Principal
    host: str = ANY
    operation: Operation
    permission: Permission = Permission.ALLOW

    def __str__(self) -> str:
        pattern = " prefixed" if self.pattern is PatternType.PREFIXED else ""
        host = "" if self.host == ANY else f" from {self.host}"
        return f"{self.permission} {self.principal} {self.operation} {self.resource_type} {self.name}{pattern}{host}"

    def names(self, resource: Resource) -> bool:
        """Whether the pattern matches the resource."""
        if resource.type is not self.resource_type:
            return False
        if self.pattern is PatternType.PREFIXED:
            return resource.name.startswith(self.name)
        return self.name in (ANY, resource.name)

    def decides(self, operation: Operation) -> bool:
        """Whether the rule applies to an operation."""
        if self.operation in (operation, Operation.ALL):
            return True
        return self.permission is Permission.ALLOW and self.operation in IMPLYING.get(operation, ())


def check_acl(acl: Acl) -> None:
    """Raise `InvalidAcl` for a rule that could never apply, or that Kafka would reject."""
    allowed = ("all", *OPERATIONS[acl.resource_type].split())
    if acl.operation not in allowed:
        raise InvalidAcl(f"no such operation of a {acl.resource_type}; operation={acl.operation} allowed={allowed}")
    if not acl.name or len(acl.name) > MAX_NAME_CHARS or any(ord(char) < 32 for char in acl.name):
        raise InvalidAcl(f"a resource's name has 1 to {MAX_NAME_CHARS} printable characters; name={acl.name[:100]!r}")
    if acl.resource_type is ResourceType.CLUSTER and (
        bare(acl.name) != CLUSTER_NAME or acl.pattern is not PatternType.LITERAL
    ):
        raise InvalidAcl(f"the cluster's name is {CLUSTER_NAME}; name={acl.name[:100]!r} pattern={acl.pattern}")
    if acl.principal.kind not in PRINCIPAL_KINDS:
        raise InvalidAcl(f"not a principal; principal={acl.principal} allowed={'|'.join(PRINCIPAL_KINDS)}:NAME")
    check_host(acl.host)


def check_host(host: str) -> None:
    """Raise `InvalidAcl` unless this is an address, a network in CIDR notation, or `*`."""
    if host == ANY:
        return
    try:
        ipaddress.ip_network(host, strict=False)
    except ValueError:
        raise InvalidAcl(f"not a host; host={host[:100]!r} allowed=ADDRESS, NETWORK/BITS or *") from None


@lru_cache(maxsize=10_000)
def is_host_within(address: str, host: str) -> bool:
    """Whether a rule's host (an address, a network or `*`) includes this address."""
    if host in (ANY, address):
        return True
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(host, strict=False)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A filter of access rules; None matches any value. `matching` selects the rules that apply to the resource called
    `name`. With a `tenant`, the filter is about that tenant's rules as its clients see them, and about no others."""

    resource_type: ResourceType | None = None
    name: str | None = None
    pattern: PatternType | None = None
    matching: bool = False
    principal: Principal | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None
    tenant: str = ""

    def selects(self, acl: Acl) -> bool:
        if self.tenant:
            shown = acl_in_tenant(self.tenant, acl)
            return shown is not None and self._selects(shown)
        return self._selects(acl)

    def _selects(self, acl: Acl) -> bool:
        return (
            self.resource_type in (None, acl.resource_type)
            and self._selects_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (None, acl.operation)
            and self.permission in (None, acl.permission)
        )

    def _selects_name(self, acl: Acl) -> bool:
        if self.pattern not in (None, acl.pattern):
            return False
        if self.name is None:
            return True
        return acl.names(Resource(acl.resource_type, self.name)) if self.matching else acl.name == self.name


def acl_of_tenant(tenant: str, acl: Acl) -> Acl:
    """The rule that is stored for a rule as a tenant's clients write it: it holds within the tenant only."""
    principal = Principal(acl.principal.kind, qualified(tenant, acl.principal.name))
    prefix = _prefix_of_resources(tenant, acl.resource_type)
    if acl.name == ANY and acl.pattern is PatternType.LITERAL:
        return replace(acl, name=prefix, pattern=PatternType.PREFIXED, principal=principal)
    name = acl.name.removeprefix(_USERS) if acl.resource_type is ResourceType.USER else acl.name
    return replace(acl, name=prefix + name, principal=principal)


def acl_in_tenant(tenant: str, acl: Acl) -> Acl | None:
    """A stored rule as a tenant's clients see it; None if it is not about the tenant alone."""
    principal, prefix = unqualified(tenant, acl.principal.name), _prefix_of_resources(tenant, acl.resource_type)
    if not principal or not acl.name.startswith(prefix):
        return None
    shown = replace(acl, principal=Principal(acl.principal.kind, principal))
    if acl.name == prefix:
        return replace(shown, name=ANY, pattern=PatternType.LITERAL)
    name = acl.name[len(prefix) :]
    return replace(shown, name=_USERS + name if acl.resource_type is ResourceType.USER else name)


def is_within(tenant: str, operation: Operation, resource: Resource) -> bool:
    """Whether this is in a tenant's name space. The tenant's cluster is, but not what only agents do to a cluster, nor
    programs, which supervisors run beside those of other tenants; delegation tokens, which have no names, are for their
    owners."""
    if resource.type is ResourceType.CLUSTER:
        return tenant_of(prefix_of(tenant)) == tenant and operation not in _NO_TENANTS
    prefix = _prefix_of_resources(tenant, resource.type)
    return resource.type is not ResourceType.DELEGATION_TOKEN and resource.name.startswith(prefix)


_USERS: Final = f"{USER}:"
_NO_TENANTS: Final = frozenset({Operation.CLUSTER_ACTION, Operation.RUN_CODE})


def _prefix_of_resources(tenant: str, kind: ResourceType) -> str:
    """The prefix of the names of a tenant's resources; users, as resources, are named as principals are."""
    return _USERS + prefix_of(tenant) if kind is ResourceType.USER else prefix_of(tenant)


def cluster_of(tenant: str) -> Resource:
    """The cluster, as far as it is a tenant's: what rules of the tenant about the cluster name."""
    return Resource(ResourceType.CLUSTER, qualified(tenant, CLUSTER_NAME))


class CredentialKind(StrEnum):
    PASSWORD = "password"
    KEY = "API key"
    DELEGATION_TOKEN = "delegation token"


class CredentialRef(NamedTuple):
    """A reference to the stored credential of a caller: a password, an API key or a delegation token. `version` changes
    with the password."""

    kind: CredentialKind
    name: str
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a request: principal, address and listener.

    `groups` are claims of a token. `is_unrestricted`: access control is off, or the process belongs to the cluster.
    `expires_at_ms`: the expiry of the credentials. `tenant`: the name space in which the caller is, by its principal;
    empty for those who see the whole cluster.
    """

    principal: Principal = ANONYMOUS
    host: str = ""
    listener: str = ""
    groups: tuple[Principal, ...] = ()
    expires_at_ms: int | None = None
    is_unrestricted: bool = False
    tenant: str = ""
    credential: CredentialRef | None = field(default=None, compare=False, repr=False)
    """The stored credential, if there is one. Once it is deleted, the caller is no longer authenticated."""
    is_delegated: bool = False
    """Whether a process of the cluster acts for this user, with a token that it was given for a query or a pipeline."""

    def __str__(self) -> str:
        return f"{self.principal}@{self.host}" if self.host else str(self.principal)

    @property
    def is_process(self) -> bool:
        """Whether this is an agent, a SQL worker or a supervisor of the cluster."""
        return self.principal.kind in PROCESS_KINDS

    @property
    def may_make_credentials(self) -> bool:
        """Whether it may make keys and tokens of its own, which last longer than a token that was lent to a process, or
        an API key that expires."""
        shown = self.credential
        is_expiring_key = shown is not None and shown.kind is CredentialKind.KEY and self.expires_at_ms is not None
        return not (self.is_delegated or is_expiring_key)

    @property
    def is_agent(self) -> bool:
        return self.principal.kind == AGENT


INTERNAL: Final = Caller(principal=Principal(AGENT, "internal"), is_unrestricted=True)
"""The agent itself, for requests that no client caused."""


def principals_of(texts: Iterable[str]) -> tuple[Principal, ...]:
    """Parse a list such as `User:admin, User:ops`."""
    return tuple(Principal.parse(text.strip()) for text in texts if text.strip())
