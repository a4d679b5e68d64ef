"""Change: the news that something in the metadata store is no longer what it was.

Owns        the nouns
Leaves      sending and hearing them to the metadata store, what to read again to whoever hears them
"""

from enum import StrEnum
from typing import NamedTuple

from streamhouse.model.names import TopicId


class ChangeKind(StrEnum):
    TOPICS = "topics"
    """A topic was created, altered, grown or deleted."""
    SESSIONS = "sessions"
    """An agent came, went, drains, or is being recovered."""
    LEASES = "leases"
    """Leases were taken, given up, freed or pinned."""
    SETTINGS = "settings"
    """Settings of agents were changed."""
    SCHEMAS = "schemas"
    """Versions of schemas were deleted. That there are new ones is no news: nobody keeps in mind what isn't there."""
    EVERYTHING = "everything"
    """News may have been missed."""


class Change(NamedTuple):
    kind: ChangeKind
    topic_id: TopicId | None = None
    """Of which topic; None: of any."""
