"""Effects: what the group's machine wants done, and what waits for it.

Data path   state -> **effects** -> coordinator
Owns        the nouns
Leaves      deciding to `state`, doing to `coordinator`
"""

from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.broker.groups.calls import Joined, Synced
from streamhouse.broker.groups.member import Member
from streamhouse.errors import StreamhouseError
from streamhouse.model.group import StoredGroup


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the call that came with this token."""

    token: object
    answer: Joined | Synced | StreamhouseError


@dataclass(frozen=True, slots=True)
class Persist:
    """Make this durable, then call `stored` with the number. Its `changed_at_ms` is for the coordinator to fill in."""

    number: int
    group: StoredGroup


Effect = Reply | Persist


@dataclass(frozen=True, slots=True)
class Assigning:
    """Waits for its write: a generation that becomes stable once its assignments are durable."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Replacing:
    """Waits for its write: a static member that came back to a stable group, and goes on once its new id is durable."""

    old: Member
    new: Member
    token: object
    answer: Joined


@dataclass(frozen=True, slots=True)
class Emptying:
    """Waits for nothing: the last member has gone."""


Write = Assigning | Replacing | Emptying
