"""ObjectCheck: whether registered objects are in the store, with their full size.

Data path   none: rows -> **object_check** -> HEAD of some objects; the doctor checks more at once
Owns        which objects are checked next; those that were missing or short at their last check
Leaves      errors of readers to `segments`; the message for operators to `admin.health_rules`

One agent of a cluster checks `integrity.objects` every `integrity.check_s`, in a cycle. An object counts as missing
only if a row that was read after the HEAD still names it: rows are deleted first, objects after a grace time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from streamhouse.broker.context import BrokerContext
from streamhouse.errors import StreamhouseError
from streamhouse.model.names import PartitionId
from streamhouse.stores.metadata.base import MetadataStore, ObjectRange, StoredObject
from streamhouse.stores.objects.base import ObjectMissing, ObjectStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedObject:
    """An object that rows name and that is not in the store, or is shorter than it was written."""

    stored: StoredObject
    ranges: Sequence[ObjectRange]
    size_bytes: int | None
    """Its size in the store; None if it is missing."""

    @property
    def is_missing(self) -> bool:
        return self.size_bytes is None


async def find_damaged_objects(
    stored: Iterable[StoredObject], *, objects: ObjectStore, metadata: MetadataStore, at_once: int
) -> list[DamagedObject]:
    """The missing or short ones of these objects, in order; raises `Unavailable`."""
    limiter = asyncio.Semaphore(at_once)

    async def check(each: StoredObject) -> DamagedObject | None:
        async with limiter:
            return await _check_one(each, objects, metadata)

    tasks = [asyncio.ensure_future(check(each)) for each in stored]
    try:
        return [unsound for unsound in await asyncio.gather(*tasks) if unsound is not None]
    finally:
        for task in tasks:
            task.cancel()


async def _check_one(each: StoredObject, objects: ObjectStore, metadata: MetadataStore) -> DamagedObject | None:
    size_bytes: int | None
    try:
        size_bytes = (await objects.head(each.key)).size_bytes
    except ObjectMissing:
        size_bytes = None
    if size_bytes is not None and size_bytes >= each.size_bytes:
        return None
    ranges = await metadata.ranges_of_object(each.key)
    return None if ranges is None else DamagedObject(stored=each, ranges=ranges, size_bytes=size_bytes)


class ObjectCheck:
    def __init__(self, context: BrokerContext) -> None:
        self._dependencies = context.dependencies
        self._settings = context.dependencies.settings.integrity
        self._cluster = context.cluster
        self._name_of = context.catalog.name_of
        self._after = 0
        self._unsound: dict[str, DamagedObject] = {}
        self.checked = 0

    def __repr__(self) -> str:
        return f"<ObjectCheck checked={self.checked} unsound={len(self._unsound)}>"

    @property
    def missing(self) -> int:
        """Objects that were missing at their last check."""
        return sum(each.is_missing for each in self._unsound.values())

    @property
    def short(self) -> int:
        return len(self._unsound) - self.missing

    def unsound(self) -> Sequence[DamagedObject]:
        return list(self._unsound.values())

    async def run(self) -> None:
        while True:
            await self._dependencies.clock.sleep(self._dependencies.ids.jitter(self._settings.check_s))
            if not self._settings.objects or not self._cluster.owns_task("object check"):
                self._unsound.clear()  # another agent reports them now
                continue
            try:
                await self.run_once()
            except StreamhouseError as error:
                log.warning("object check failed, will retry", extra={"why": str(error)})

    async def run_once(self) -> None:
        """Check the next objects, and again those that were missing or short."""
        limit = self._settings.objects
        page = list(await self._dependencies.metadata.stored_objects(after=self._after, limit=limit))
        known = [each.stored for each in self._unsound.values()][:limit]
        to_check = {each.key: each for each in (*known, *page)}
        damaged = await find_damaged_objects(
            to_check.values(),
            objects=self._dependencies.objects,
            metadata=self._dependencies.metadata,
            at_once=self._settings.requests_at_once,
        )
        self._after = page[-1].number if len(page) == limit else 0
        self.checked += len(to_check)
        new = [each for each in damaged if each.stored.key not in self._unsound]
        for key in to_check:
            self._unsound.pop(key, None)
        self._unsound.update((each.stored.key, each) for each in damaged)
        while len(self._unsound) > self._settings.remembered:
            self._unsound.pop(next(iter(self._unsound)))
        if new:
            self._report(new)

    def _report(self, new: Sequence[DamagedObject]) -> None:
        first = new[0]
        log.error(
            "objects that rows name are missing from the store, or too short",
            extra={
                "missing": sum(each.is_missing for each in new),
                "short": sum(not each.is_missing for each in new),
                "first_key": first.stored.key,
                "first_ranges": describe_ranges(first.ranges, self._name_of),
                "do": "restore them from a copy or a version; streamhouse doctor lists them",
            },
        )


def describe_ranges(ranges: Sequence[ObjectRange], name_of: Callable[[PartitionId], object], *, most: int = 3) -> str:
    """Partitions and offsets, for people: `orders-0[10,20)`."""
    parts = [f"{name_of(each.partition)}[{each.base},{each.end})" for each in ranges[:most]]
    if len(ranges) > most:
        parts.append(f"{len(ranges) - most} more")
    return ", ".join(parts) or "producers' state only"
