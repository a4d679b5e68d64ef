"""Engine: what runs transactions, and how many of its calls failed in a row.

Data path   store -> **engine** -> a database
Owns        what a store asks of an engine's database; counting failures
Leaves      the calls to `store` and `schema_store`, connections and transactions to the engines
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.stores.metadata.listeners import Heard
from streamhouse.stores.metadata.transaction import Work

T = TypeVar("T")


class Engine(Protocol):
    """What runs transactions: an engine's database."""

    async def look(self, work: Work[T]) -> T:
        """Run `work`, which reads with one statement."""
        ...

    async def read(self, work: Work[T]) -> T:
        """Run `work`, whose statements read one snapshot."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Run `work` as one transaction: all of it is durable on return, or nothing of it happened."""
        ...

    async def urgent(self, work: Work[T]) -> T:
        """`write`, ahead of everything that waits: for the heartbeat of a session."""
        ...

    async def now_ms(self) -> int: ...

    @property
    def is_listening(self) -> bool: ...

    def subscribe(self, heard: Heard) -> Callable[[], None]: ...

    async def aclose(self) -> None: ...


class CountedEngine:
    """An engine, and how many of its calls failed in a row. A refusal is an answer too."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner
        self.failures_in_a_row = 0

    def __repr__(self) -> str:
        return repr(self._inner)

    async def look(self, work: Work[T]) -> T:
        return await self._counted(self._inner.look(work))

    async def read(self, work: Work[T]) -> T:
        return await self._counted(self._inner.read(work))

    async def write(self, work: Work[T]) -> T:
        return await self._counted(self._inner.write(work))

    async def urgent(self, work: Work[T]) -> T:
        return await self._counted(self._inner.urgent(work))

    async def now_ms(self) -> int:
        return await self._counted(self._inner.now_ms())

    @property
    def is_listening(self) -> bool:
        return self._inner.is_listening

    def subscribe(self, heard: Heard) -> Callable[[], None]:
        return self._inner.subscribe(heard)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _counted(self, call: Awaitable[T]) -> T:
        try:
            result = await call
        except Unavailable:
            self.failures_in_a_row += 1
            raise
        except StreamhouseError:
            self.failures_in_a_row = 0
            raise
        self.failures_in_a_row = 0
        return result
