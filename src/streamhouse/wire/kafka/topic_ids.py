"""Topic ids: the names of topics that a group's requests name by id.

Data path   the handlers of OffsetCommit and OffsetFetch, from v10 on
Owns        what is answered for an id that nobody has, or that can't be looked up now
Leaves      topics to the broker's catalogue
"""

from uuid import UUID

from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.model.names import TopicId
from streamhouse.wire.kafka.answer import Context
from streamhouse.wire.kafka.errors import ErrorCode


async def name_of(context: Context, topic_id: UUID) -> str | ErrorCode:
    """The topic's name, or why there is none. Members retry what coordinators say of themselves, not of storage."""
    try:
        return (await context.broker.catalogue.find_by_id(TopicId(topic_id))).name
    except Unavailable:
        return context.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except StreamhouseError as error:
        return context.refused(error)
