"""Audit events: principal, address, operation, resource and outcome. They never contain secrets, records or bodies."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streamhouse.model.access import Caller

MAX_RESOURCE_CHARS: Final = 300
"""Longer names, which clients choose, are cut."""


class Outcome(StrEnum):
    ALLOWED = "allowed"
    SUCCEEDED = "succeeded"
    DENIED = "denied"
    FAILED = "failed"


class AuditKind(StrEnum):
    LOGIN = "login"
    REFUSAL = "refusal"
    ADMINISTRATION = "administration"
    SUPPRESSED = "suppressed"
    """The number of events that were dropped, because of the limit of events per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """Of an administrative act, `request` is the operation of the interface that was used, and `details` what it
    changes: users, keys, rules, members, limits."""

    kind: AuditKind
    outcome: Outcome
    principal: str
    host: str = ""
    listener: str = ""
    operation: str = ""
    resource: str = ""
    request: str = ""
    details: str = ""

    @property
    def needs_no_rights(self) -> bool:
        """Whether anybody can cause it who reaches the agent."""
        return self.kind is AuditKind.REFUSAL or (self.kind is AuditKind.LOGIN and self.outcome is Outcome.FAILED)

    def fields(self) -> dict[str, str]:
        """The non-empty fields."""
        named = {
            "kind": self.kind.value,
            "outcome": self.outcome.value,
            "principal": self.principal,
            "host": self.host,
            "listener": self.listener,
            "operation": self.operation,
            "resource": self.resource,
            "request": self.request,
            "details": self.details,
        }
        return {name: value for name, value in named.items() if value}

    def as_json(self, *, at_ms: int, count: int, agent: str) -> bytes:
        """The event as a record of the audit topic: `count` events like this happened within a second, the first of
        them at `at_ms`."""
        return json.dumps({"at_ms": at_ms, **self.fields(), "count": count, "agent": agent}).encode()


def event_of(caller: Caller, kind: AuditKind, outcome: Outcome, operation: str, resource: str = "") -> AuditEvent:
    """Make an event from the caller's request."""
    return AuditEvent(
        kind=kind,
        outcome=outcome,
        principal=str(caller.principal),
        host=caller.host,
        listener=caller.listener,
        operation=operation,
        resource=resource if len(resource) <= MAX_RESOURCE_CHARS else f"{resource[:MAX_RESOURCE_CHARS]}…",
    )
