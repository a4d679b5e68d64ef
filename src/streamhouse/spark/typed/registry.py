"""Registry: the schema that gives the columns, and those that records were written with.

Data path   `client.schemas` -> **registry** -> parsed schemas, kept by the process
Owns        which subject a topic's values have; that a schema is asked for once
Leaves      the registry's routes to `client.schemas`, parsing to `schemas`
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.schemas import Schemas
from streamhouse.client.types import NewSchema
from streamhouse.errors import Misconfigured, UnknownSchema, UnknownSubject
from streamhouse.schemas.avro import AvroSchema
from streamhouse.schemas.base import ParsedSchema
from streamhouse.schemas.json_schema import JsonSchema
from streamhouse.schemas.languages import parse_schema
from streamhouse.schemas.protobuf.schema import ProtobufSchema
from streamhouse.spark.agents import Agents
from streamhouse.spark.typed import avro, json_schema, protobuf
from streamhouse.spark.typed.kinds import Field, Kind

MAX_SCHEMAS: Final = 1_000
VALUE: Final = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSchema:
    """The schema whose fields are the columns; small enough to travel with a query."""

    type: str
    text: str
    references: tuple[tuple[str, str], ...]

    def parsed(self) -> ParsedSchema:
        return parse_schema(self.type, self.text, dict(self.references))


def subject_of(topic: str) -> str:
    """Where the schemas of a topic's values are registered."""
    return f"{topic}-value"


async def latest_schema(address: str, topic: str) -> ReaderSchema:
    """The latest version of what a topic's values are; raises `Misconfigured` where none is registered."""
    found = await find_schema(address, topic)
    if found is None:
        raise Misconfigured(
            f"no schema is registered for the topic; subject={subject_of(topic)}"
            " do=register one: streamhouse schemas register, or leave schema=registry out"
        )
    return found


async def find_schema(address: str, topic: str) -> ReaderSchema | None:
    """The latest version of what a topic's values are; None where none is registered."""
    async with Agents(address) as agents:
        schemas = Schemas(agents.http)
        try:
            found = await schemas.latest(subject_of(topic))
        except (UnknownSubject, UnknownSchema):
            return None
        new = NewSchema(text=found.text, type=found.type, references=found.references)
        references = await schemas.resolved(new)
    return ReaderSchema(type=found.type, text=found.text, references=tuple(sorted(references.items())))


def fields_of(schema: ParsedSchema) -> list[Field]:
    """The columns; what is no record has one, named `value`."""
    fields: list[Field] | None = None
    kind: Kind | None = None
    if isinstance(schema, AvroSchema):
        fields, kind = avro.fields_of(schema), avro.kind_of(schema)
    elif isinstance(schema, JsonSchema):
        fields, kind = json_schema.fields_of(schema), json_schema.kind_of(schema)
    elif isinstance(schema, ProtobufSchema):
        fields = protobuf.fields_of(schema)
    if fields is not None:
        return fields
    assert kind is not None, "a language without columns"
    return [Field(VALUE, "", kind)]


def is_bare(fields: list[Field]) -> bool:
    """Whether a decoded value is the column itself."""
    return len(fields) == 1 and not fields[0].key


@lru_cache(maxsize=8)
def _loop_of(address: str) -> LoopThread:
    return LoopThread(name="streamhouse-schemas")


@lru_cache(maxsize=MAX_SCHEMAS)
def writer_schema(address: str, schema_id: int) -> ParsedSchema:
    """The schema behind an id, which never means another one."""
    return _loop_of(address).run(_by_id(address, schema_id))


async def _by_id(address: str, schema_id: int) -> ParsedSchema:
    async with Agents(address) as agents:
        schemas = Schemas(agents.http)
        found = await schemas.by_id(schema_id)
        return parse_schema(found.type, found.text, await schemas.resolved(found))
