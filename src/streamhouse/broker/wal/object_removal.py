"""Removal: objects of a log that nobody needs any more are deleted, some at a time.

Data path   none: behind the data path's back
Owns        how many deletions run at once, and when to stop trying
Leaves      which objects may go to its callers; what is left over to their next call, or to `object_sweep`
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.stores.objects.base import ObjectStore

log: Final = logging.getLogger(__name__)


async def delete_all(objects: ObjectStore, keys: Iterable[str], *, at_once: int) -> AsyncIterator[str]:
    """Delete in order, `at_once` at a time; tells the keys that are gone. Ends early when the store is in trouble:
    the rest would only wait for the same answer."""
    coming = iter(keys)
    while some := list(islice(coming, at_once)):
        gone = await asyncio.gather(*(_delete(objects, key) for key in some))
        for key, is_gone in zip(some, gone, strict=True):
            if is_gone:
                yield key
        if not all(gone):
            return


async def _delete(objects: ObjectStore, key: str) -> bool:
    try:
        await objects.delete(key)
    except StreamhouseError as error:
        log.warning("wal object can't be deleted now", extra={"key": key, "why": str(error)})
        return False
    return True
