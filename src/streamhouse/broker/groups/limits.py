"""Limits: how much a member may bring.

Owns        the sizes that are checked before a group keeps anything
Leaves      how many members there may be to `state`, how long names may be to `groups`
"""

from collections.abc import Mapping

from streamhouse.broker.groups.calls import Join
from streamhouse.broker.groups.member import offered_bytes
from streamhouse.config import GroupSettings
from streamhouse.errors import GroupDataTooLarge


def check_metadata(ask: Join, settings: GroupSettings, *, others_bytes: int) -> None:
    """Raise unless what the member offers fits, alone and together with the other members' metadata."""
    size = offered_bytes(ask.protocols)
    _check("member metadata is too large", size, settings.max_member_bytes, "groups.max_member_bytes")
    _check("the group's metadata is too large", size + others_bytes, settings.max_group_bytes, "groups.max_group_bytes")


def check_assignments(assignments: Mapping[str, bytes], settings: GroupSettings) -> None:
    """Raise unless each assignment, and all of them together, fit."""
    sizes = [len(assignment) for assignment in assignments.values()]
    largest = max(sizes, default=0)
    _check("an assignment is too large", largest, settings.max_member_bytes, "groups.max_member_bytes")
    _check("the assignments are too large", sum(sizes), settings.max_group_bytes, "groups.max_group_bytes")


def _check(what: str, size_bytes: int, limit_bytes: int, setting: str) -> None:
    if size_bytes > limit_bytes:
        raise GroupDataTooLarge(what, size_bytes=size_bytes, limit_bytes=limit_bytes, setting=setting)
