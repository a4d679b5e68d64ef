"""Objects: the object store as one task uses it, and the event loop that it works on.

Data path   reading -> **objects** -> bucket or folder
Owns        the thread with the loop, kept for the tasks that follow in the same process; several requests under way
Leaves      requests and retries to `stores.objects`; credentials to the process's environment, where each cloud's
            client looks for them
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from prometheus_client import CollectorRegistry

from streamhouse.client.loop_thread import LoopThread
from streamhouse.clock import Ids, SystemClock
from streamhouse.errors import Misconfigured
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store

T = TypeVar("T")

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
    return open_object_store(url, clock=SystemClock(), ids=Ids(), registry=CollectorRegistry())


def _check_folder(url: str) -> None:
    parts = urlsplit(url)
    if url == "memory:" or (parts.scheme == "file" and not Path(unquote(parts.path)).is_dir()):
        raise Misconfigured(
            f"the agent keeps its objects where this executor can't see them; store={url}"
            " do=run Spark on the agent's machine, or give the agent a bucket: streamhouse up --store s3://..."
        )


async def prefetch(works: AsyncIterator[Callable[[], Awaitable[T]]], *, depth: int) -> AsyncIterator[T]:
    """What works bring, in their order, with up to `depth` of them under way."""
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
