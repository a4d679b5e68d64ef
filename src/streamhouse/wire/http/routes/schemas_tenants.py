"""The schema registry of a tenant: its subjects, under the names that its users know.

Owns        what a tenant's users may ask of the registry, and what answers tell them
Leaves      subjects in bodies to `schemas_requests`, rights to `broker.security`, texts of errors to `schemas`

Ids of schemas are numbers of the whole cluster; who may read no subject that has a schema doesn't find its id. The
registry's own level and mode are the operators', and so are contexts.
"""

from typing import Any, Final

from streamhouse.errors import AccessDenied
from streamhouse.model.access import Caller
from streamhouse.model.tenant import SEPARATOR, qualified, unqualified, without_tenant
from streamhouse.wire.http.routes.schemas_requests import Match

CHANGES: Final = frozenset({"PUT", "DELETE"})
REGISTRY_WIDE: Final = frozenset({"config", "mode"})
SUBJECTS: Final = frozenset({"subject", "alias"})
"""Fields of answers that name a subject."""
NESTED: Final = frozenset({"references"})
TEXTS: Final = frozenset({"message", "messages"})


def enter(caller: Caller, match: Match) -> Match:
    """The route with the subject as it is called inside the cluster; raise `AccessDenied` for what no tenant has."""
    entry = match.entry
    if match.context is not None or entry.path == "contexts":
        raise AccessDenied(caller.principal, operation="use", resource_type="registry", name="contexts")
    if entry.method in CHANGES and entry.path in REGISTRY_WIDE:
        raise AccessDenied(caller.principal, operation="alter-configs", resource_type="registry", name=entry.path)
    subject = match.path.get("subject")
    if subject is None:
        return match
    return match._replace(path={**match.path, "subject": qualified(caller.tenant, subject)})


def leave(tenant: str, response: Any) -> Any:
    """An answer as the tenant's users see it. Texts of schemas, metadata and rules are not looked into."""
    if isinstance(response, list):
        return [_shown(tenant, each) for each in response if not _is_foreign(tenant, each)]
    if isinstance(response, dict):
        return {name: _field(tenant, name, value) for name, value in response.items()}
    return response


def _is_foreign(tenant: str, item: Any) -> bool:
    name = item.get("subject") if isinstance(item, dict) else item
    return isinstance(name, str) and SEPARATOR in name and unqualified(tenant, name) is None


def _shown(tenant: str, item: Any) -> Any:
    if isinstance(item, str):
        return item if (name := unqualified(tenant, item)) is None else name
    return leave(tenant, item)


def _field(tenant: str, name: str, value: Any) -> Any:
    if name in SUBJECTS and isinstance(value, str):
        return unqualified(tenant, value) or ""
    if name in NESTED:
        return leave(tenant, value)
    if name in TEXTS:
        return [without_tenant(tenant, each) for each in value]
    return value
