"""What tests of the registry share: schemas, and a registry on a world's stores."""

import json
from typing import Any

from streamhouse.broker.schemas import Proposal, SchemaRegistry
from streamhouse.model.schema import DEFAULT_CONTEXT, Reference, RegisteredSchema, Subject
from tests.broker.support import World

ORDERS = Subject(DEFAULT_CONTEXT, "orders-value")
CLICKS = Subject(DEFAULT_CONTEXT, "clicks-value")


def record(*fields: str, name: str = "Order", **kinds: Any) -> str:
    """An Avro record of whole numbers; a field whose name ends in `?` has a default."""
    described: list[dict[str, Any]] = [{"name": each, "type": "int"} for each in fields if not each.endswith("?")]
    described += [{"name": each[:-1], "type": "int", "default": 0} for each in fields if each.endswith("?")]
    described += [{"name": each, "type": kind} for each, kind in kinds.items()]
    return json.dumps({"type": "record", "name": name, "fields": described}, separators=(",", ":"))


def avro(*fields: str, **more: Any) -> Proposal:
    return Proposal(text=record(*fields), **more)


def needing(*references: Reference, text: str = "") -> Proposal:
    return Proposal(text=text or record(name="User", other="Order"), references=references)


def registry(world: World) -> SchemaRegistry:
    return SchemaRegistry(world.dependencies())


async def numbers(schemas: SchemaRegistry, subject: Subject, *proposals: Proposal) -> list[tuple[int, int]]:
    """Register one after the other; returns versions and ids."""
    results: list[RegisteredSchema] = [await schemas.register(subject, each) for each in proposals]
    return [(each.version, each.schema_id) for each in results]
