"""Objects: the object store as one task uses it, and the event loop that it works on.

Data path   reading -> **objects** -> bucket or folder
Owns        the thread with the loop, kept for the tasks that follow in the same process; several requests under way
Leaves      requests and retries to `stores.objects`; credentials and encryption keys to the process's environment,
            where clients of clouds and key services look for them
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from prometheus_client import CollectorRegistry

from streamhouse.client.loop_thread import LoopThread
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import EncryptionSettings, load_settings
from streamhouse.errors import Misconfigured, Unavailable
from streamhouse.stores.encryption.open import open_data_keys
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.wrapping_keys import require_keys

log = logging.getLogger(__name__)

T = TypeVar("T")

ENCRYPTION_PREFIX: Final = "STREAMHOUSE_ENCRYPTION_"
MAX_OPEN: Final = 8
"""Stores that a process keeps open: one for each cluster that its tasks read."""


class StoreHandle(NamedTuple):
    loop: LoopThread
    store: ObjectStore


@lru_cache(maxsize=MAX_OPEN)
def open_store(url: str) -> StoreHandle:
    """The store that a plan names. Python workers of Spark live on, so the next task finds it open."""
    _check_folder(url)
    loop = LoopThread(name="streamhouse-spark")
    return StoreHandle(loop, loop.run(_open(url)))


async def _open(url: str) -> ObjectStore:
    clock, keys = SystemClock(), None
    encryption = encryption_settings(os.environ)
    if encryption.kms != "none":
        keys = open_data_keys(encryption, os.environ, clock)
    store = open_object_store(url, clock=clock, ids=Ids(), registry=CollectorRegistry(), keys=keys)
    if keys is None:
        try:
            await require_keys(store, None)
        except Unavailable as error:  # credentials may not allow listings
            log.warning("it is not known whether records are encrypted; why=%s", error)
    return store


def encryption_settings(environ: Mapping[str, str]) -> EncryptionSettings:
    """The settings of encryption at rest that an executor's environment has; raises `Misconfigured`."""
    own = {name: value for name, value in environ.items() if name.startswith(ENCRYPTION_PREFIX)}
    return load_settings({}, own, Path(os.devnull)).encryption


def _check_folder(url: str) -> None:
    parts = urlsplit(url)
    if url == "memory:" or (parts.scheme == "file" and not Path(unquote(parts.path)).is_dir()):
        raise Misconfigured(
            f"the agent keeps its objects where this executor can't see them; store={url}"
            " do=run Spark on the agent's machine, or give the agent a bucket: streamhouse up --store s3://..."
        )


async def prefetch(works: AsyncIterator[Callable[[], Awaitable[T]]], *, depth: int) -> AsyncIterator[T]:
    """The results of calls in their order, with up to `depth` of them in flight."""
    under_way: deque[asyncio.Future[T]] = deque()
    try:
        async for work in works:
            under_way.append(asyncio.ensure_future(work()))
            if len(under_way) >= depth:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for each in under_way:
            each.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
