"""Engine: what runs transactions, and how many of its calls failed in a row.

Data path   store -> **engine** -> a database
Owns        what a store asks of an engine's database; counting failures
Leaves      the calls to `store` and `schema_store`, connections and transactions to the engines

Listeners: who wants to hear of changes, in this process.

Data path   a committed transaction, or the server's word of one -> **listeners** -> whoever keeps a copy in memory
Owns        who listens; that each is called on the event loop, alone, and that its failure disturbs nobody
Leaves      what has changed to `transactions`, how other processes hear of it to the engines

A transaction, as the door's calls see it: statements, awaited one after the other.

Data path   `transactions` -> **transaction** -> an engine
Owns        what a call may ask of an engine while its transaction is open; which rows calls lock
Leaves      beginning, committing, deadlines and drivers to the engines

The calls are written once, for engines that wait for a server and for engines that don't.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from streamhouse.errors import Internal, StreamhouseError, Unavailable
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.names import TopicId
from streamhouse.stores.metadata.rows import Params, Row
from streamhouse.stores.metadata.statements import Statements

log = logging.getLogger(__name__)

OnChange = Callable[[Change], None]
MAX_TOPICS = 16
"""Of more topics than these, one change tells for all."""


class CallSoon(Protocol):
    """An event loop's `call_soon`, or `call_soon_threadsafe`."""

    def __call__(self, callback: Callable[..., object], /, *args: object, context: Context | None = None) -> object: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    heard: OnChange
    context: Context  # of whoever subscribed


class Listeners:
    def __init__(self) -> None:
        self._all: tuple[_Listener, ...] = ()  # replaced, never changed: another thread may be reading it

    def __repr__(self) -> str:
        return f"<Listeners {len(self._all)}>"

    def add(self, heard: OnChange) -> Callable[[], None]:
        """Returns what takes it away again; after that it is not called any more."""
        listener = _Listener(heard, copy_context())
        self._all = (*self._all, listener)

        def unsubscribe() -> None:
            self._all = tuple(each for each in self._all if each is not listener)

        return unsubscribe

    def tell(self, changes: Iterable[Change], call_soon: CallSoon) -> None:
        """Have every listener called for each change, in order, soon."""
        listeners = self._all
        for change in changes:
            for listener in listeners:
                call_soon(self._call, listener, change, context=listener.context)

    def _call(self, listener: _Listener, change: Change) -> None:
        if listener not in self._all:
            return
        try:
            listener.heard(change)
        except Exception:  # whatever it is, the others listen on
            log.exception("a listener failed", extra={"change": str(change)})


def lease_changes(topic_ids: Iterable[TopicId]) -> list[Change]:
    """That leases of these topics have changed."""
    unique = dict.fromkeys(topic_ids)
    return [Change(ChangeKind.LEASES, topic_id) for topic_id in (unique if len(unique) <= MAX_TOPICS else [None])]


T = TypeVar("T")


class Lock(StrEnum):
    """Rows to hold before they are read to decide something.

    Members stand in the order in which a call takes them. `find_session` and `find_partitions` hold what they find,
    against a claim and against any change.
    """

    PLACING = "lock_placing"
    GIVING_UP = "lock_giving_up"
    NODE_IDS = "lock_node_ids"
    TOPIC = "lock_topic"
    SESSIONS = "lock_sessions"
    PARTITIONS = "lock_partitions"
    PARTITIONS_OF_TOPIC = "lock_partitions_of_topic"
    PARTITIONS_HELD_BY = "lock_partitions_held_by"
    OBJECTS = "lock_objects"
    SCHEMAS = "lock_schemas"
    PIPELINES = "lock_pipelines"
    VIEW = "lock_view"


class Transaction(Protocol):
    @property
    def sql(self) -> Statements: ...

    async def now_ms(self) -> int:
        """The store's clock, the same at every reading; read first after the locks that a decision needs."""
        ...

    async def lock(self, what: Lock, params: Params) -> None:
        """Hold these rows until the end; nothing to do for an engine with one writer at a time."""
        ...

    async def rows(self, statement: str, params: Params | None = None) -> Sequence[Row]: ...

    async def row(self, statement: str, params: Params | None = None) -> Row | None:
        """The only row, or None."""
        ...

    async def rows_each(self, statement: str, params: Iterable[Params]) -> Sequence[Row]:
        """The rows for all sets of parameters together."""
        ...

    async def change(self, statement: str, params: Params) -> int:
        """Run a statement; returns how many rows it changed."""
        ...

    async def change_each(self, statement: str, params: Iterable[Params]) -> int:
        """Run a statement for each set of parameters; returns how many rows were changed in all."""
        ...

    def announce(self, *changes: Change) -> None:
        """Have these heard by whoever listens, exactly when the transaction is committed; each once."""
        ...


Work = Callable[[Transaction], Coroutine[Any, Any, T]]


def run_inline(work: Coroutine[Any, Any, T]) -> T:
    """Run a call whose engine never waits, without an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        work.close()
    raise Internal("a transaction waits for something that is no statement of its own")


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

    def subscribe(self, heard: OnChange) -> Callable[[], None]: ...

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

    def subscribe(self, heard: OnChange) -> Callable[[], None]:
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
