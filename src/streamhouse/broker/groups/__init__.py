"""Consumer groups: Kafka's classic protocol and committed offsets, without Kafka's frames.

Owns        the promises of groups, behind one door: `Groups`
Leaves      frames, versions and codes to the wires; rows and the fence to the metadata store

`group_state` is a machine without I/O (event in, effects out), over `rebalance` and `members`; `coordinator`
performs its effects; `shards` says which groups are ours; `commits` makes many changes one transaction.
"""

from streamhouse.broker.groups.groups import Groups
from streamhouse.broker.groups.shards import SessionView
from streamhouse.model.group_requests import (
    DescribedGroup,
    DescribedMember,
    JoinedMember,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    ListedGroup,
    MemberRef,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)

__all__ = [
    "DescribedGroup",
    "DescribedMember",
    "Groups",
    "JoinRequest",
    "JoinResult",
    "JoinedMember",
    "LeaveRequest",
    "ListedGroup",
    "MemberRef",
    "OffsetToCommit",
    "SessionView",
    "SyncRequest",
    "SyncResult",
]
