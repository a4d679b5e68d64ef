"""Tenants: whose name spaces never meet, on one cluster.

Owns        the form of a tenant's name, and of the names of what belongs to it
Leaves      who belongs to a tenant to `broker.security`, translating requests and responses to the wires

Inside the cluster, what belongs to tenant `acme` is called `acme~NAME`: topics, groups, transactional ids, subjects,
pipelines, users. A tenant's own clients see NAME and can't leave out the prefix. Whatever NAME is, the part before the
first `~` names the tenant, so names of two tenants are never equal. Callers without a tenant see names as they are.
"""

import base64
import hashlib
import re
from functools import lru_cache
from typing import Final

SEPARATOR: Final = "~"
"""No topic's name may have it, URLs and shells take it as it is."""

NOWHERE: Final = "~"
"""No tenant: nothing is in its name space, and no client can be there."""

ALLOWED: Final = "1 to 63 of [a-z0-9-], not - at its ends"
_TENANT: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def is_tenant(name: str) -> bool:
    """Whether this can be a tenant's name."""
    return _TENANT.fullmatch(name) is not None


def tenant_of(name: str) -> str:
    """The tenant to which what has this name belongs; empty: to none. Nothing of the name is kept: any client may send
    names of 32 KiB."""
    if SEPARATOR not in name:
        return ""
    tenant = name.partition(SEPARATOR)[0]
    return tenant if _TENANT.fullmatch(tenant) else ""


def prefix_of(tenant: str) -> str:
    """The prefix of all names of a tenant."""
    return f"{tenant}{SEPARATOR}"


def qualified(tenant: str, name: str) -> str:
    """The name, inside the cluster, of what a tenant's clients call `name`."""
    return f"{tenant}{SEPARATOR}{name}"


def unqualified(tenant: str, name: str) -> str | None:
    """The name as the tenant's clients see it; None: it belongs to another tenant."""
    prefix = prefix_of(tenant)
    return name[len(prefix) :] if name.startswith(prefix) else None


def bare(name: str) -> str:
    """A name without its tenant."""
    tenant = tenant_of(name)
    return name[len(tenant) + 1 :] if tenant else name


def topic_of_member(group_id: str, topic: str) -> str:
    """The topic that a member of a group means. Metadata and assignments of members have the names that the members
    know."""
    tenant = tenant_of(group_id)
    return topic if not tenant or tenant_of(topic) == tenant else qualified(tenant, topic)


def without_tenant(tenant: str, text: str) -> str:
    """A text for a tenant's clients, in which names are as they know them."""
    return _prefix_in_text(tenant).sub("", text)


@lru_cache(maxsize=1000)
def _prefix_in_text(tenant: str) -> re.Pattern[str]:
    return re.compile(f"(?<![a-z0-9-]){re.escape(prefix_of(tenant))}")


@lru_cache(maxsize=1000)
def cluster_id_of(tenant: str, cluster_id: str) -> str:
    """The id of the cluster that a tenant's clients see, in Kafka's form: the same on every agent."""
    digest = hashlib.sha256(f"tenant {tenant} of {cluster_id}".encode()).digest()
    return base64.urlsafe_b64encode(digest[:16]).decode().rstrip("=")
