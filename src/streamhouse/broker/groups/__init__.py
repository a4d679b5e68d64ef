"""Consumer groups: Kafka's classic protocol and committed offsets, without Kafka's frames.

Owns        group membership and committed offsets, behind one class: `Groups`
Leaves      frames, versions and codes to `wire`; rows and fencing to the metadata store

`group_state` is a state machine without I/O (event in, actions out), over `rebalance` and `members`; `coordinator`
performs its actions; `shards` holds the groups that this agent coordinates; `commit_queue` commits many changes in one
metadata transaction.
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
