"""Damage at rest: an object of the bucket is gone, cut short or rotten while agents serve it, until it is restored.

Owns        what is damaged; that every record is served as it was or named as damaged, and nothing else is
Leaves      requests to `clients`; that no reader passes over a record, and what its bytes must be, to `history`
"""

from typing import Final

from streamhouse.broker.broker import Broker
from streamhouse.errors import CorruptObject, DamagedRecords, StreamhouseError
from streamhouse.model.fetch import PartitionFetch
from streamhouse.stores.objects.memory import _Object

from .clients import Client, simply
from .history import PartitionHistory
from .network import Lost
from .world import World

TRIES: Final = 60
CHECKS: Final = 30


class Damage(Client):
    def __init__(self, world: World) -> None:
        super().__init__(world, "damage")
        self.served = self.named = 0

    async def run(self) -> None:
        """Damage one object, read everything, and restore it."""
        keys = [key for key in self.world.database.keys("segment_objects") if key in self.world.bucket._objects]
        if not keys:
            return
        key = self.chance.choice(keys)
        whole = self.world.bucket._objects[key]
        self.world.damaged.add(key)
        is_seen = self._spoil(key, whole)
        for log in self.world.history.partitions():
            if self.world.partition(log.name) == log.partition and not self.world.recreates(log.name):
                await self._read_all(log, key)
        if is_seen:
            await self._find(key)
        if key in self.world.database.keys("segment_objects"):
            self.world.bucket._objects[key] = whole
        self.world.damaged.discard(key)

    def _spoil(self, key: str, whole: _Object) -> bool:
        """Returns whether a look at the list of objects shows it."""
        kind = self.chance.choice(("gone", "cut", "rotten"))
        self.loop.note(f"damage {key} {kind}")
        body = bytearray(whole.body)
        match kind:
            case "gone":
                del self.world.bucket._objects[key]
                return True
            case "cut":
                del body[self.chance.randrange(len(body)) :]
            case _:
                for _ in range(self.chance.choice((1, 20))):
                    body[self.chance.randrange(len(body))] ^= 1 << self.chance.randrange(8)
        self.world.bucket._objects[key] = _Object(body=bytes(body), modified_at_ms=whole.modified_at_ms)
        return kind == "cut"

    async def _read_all(self, log: PartitionHistory, key: str) -> None:
        for base in list(log.bases):
            error: Exception | None = None
            for _ in range(TRIES):
                bounds = self.history.bounds(log)
                if bounds is None or base < bounds[0]:
                    break
                error = await self._read(log, base)
                if error is None or (isinstance(error, CorruptObject) and self._is_named(error, base, key)):
                    break
                await self.pause(0.05)
            else:
                self.history.violated(f"a record was neither served nor named; {log.name} {log.facts[base]} {error!r}")

    async def _read(self, log: PartitionHistory, base: int) -> Exception | None:
        """None if the record was served; else what was said instead."""
        try:
            requests = [PartitionFetch(log.name, base, 1)]
            (read,) = await self.fetch(requests, max_bytes=100_000, min_bytes=0, max_wait_s=0)
        except (StreamhouseError, Lost) as error:
            return error
        if read.got.error is None and read.end > base:
            self.served += 1
            return None
        return read.got.error or Lost("nothing was read")

    def _is_named(self, error: CorruptObject, base: int, key: str) -> bool:
        self.named += 1
        if error.key != key or (isinstance(error, DamagedRecords) and not error.base <= base < error.end):
            self.history.violated(f"a record outside of the damage was refused; {base} {key} {error!r}")
        return True

    async def _find(self, key: str) -> None:
        """An agent that looks at all objects names it."""
        for _ in range(CHECKS):
            try:
                if await self.call(simply(lambda broker: self._finds(broker, key))):
                    return
            except (StreamhouseError, Lost):
                await self.pause(0.05)
            if key not in self.world.database.keys("segment_objects"):
                return
        self.history.violated(f"a missing object was not named; {key}")

    @staticmethod
    async def _finds(broker: Broker, key: str) -> bool:
        await broker.object_check.run_once()
        return any(each.stored.key == key for each in broker.object_check.unsound())
