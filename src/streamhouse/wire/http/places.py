"""Places: cursors of answers that stop within a partition; one text, both directions.

Data path   route <-> **places** <-> the `cursor` of a question
Owns        how a place is written, which texts are none
Leaves      what a place means to whoever stopped there
"""

from typing import Annotated, Final

from msgspec import Meta

from streamhouse.broker.reading.plans import Place
from streamhouse.model.names import TopicPartition
from streamhouse.wire.http.errors import Unprocessable
from streamhouse.wire.http.operations import MAX_LONG

MAX_CURSOR: Final = 300

Cursor = Annotated[str, Meta(max_length=MAX_CURSOR, description="where the answer before stopped, as it says itself")]


def write_place(place: Place | None) -> str | None:
    return None if place is None else f"{place.name.topic}:{place.name.partition}:{place.offset}"


def read_place(text: str | None) -> Place | None:
    if text is None:
        return None
    match text.split(":"):
        case [topic, partition, offset] if _is_number(partition) and _is_number(offset):
            return Place(TopicPartition(topic, int(partition)), int(offset))
    raise Unprocessable("this is no cursor of an earlier answer")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_LONG)) and int(text) <= MAX_LONG
