"""Engine: runs the transactions of a metadata store, and counts the calls that failed in a row.

Owns        what a transaction offers to `procedures` (statements, locks, announcements), what a database offers to run
            one, how a procedure becomes a call of a store, and the listeners of this process
Leaves      connections, deadlines and drivers to `postgres` and `sqlite`

Procedures are written once, for databases that wait for a server and for those that do not.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from streamhouse.errors import Internal, StreamhouseError, Unavailable
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.names import TopicId
from streamhouse.stores.metadata.rows import Params, Row
from streamhouse.stores.metadata.statements import Statements

log = logging.getLogger(__name__)

OnChange = Callable[[Change], None]
MAX_TOPICS = 16
"""If the leases of more topics change, one notification is sent for all topics."""


class CallSoon(Protocol):
    """An event loop's `call_soon`, or `call_soon_threadsafe`."""

    def __call__(self, callback: Callable[..., object], /, *args: object, context: Context | None = None) -> object: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    on_change: OnChange
    context: Context  # of the subscriber


class Listeners:
    def __init__(self) -> None:
        self._all: tuple[_Listener, ...] = ()  # replaced, never changed: another thread may be reading it

    def __repr__(self) -> str:
        return f"<Listeners {len(self._all)}>"

    def add(self, on_change: OnChange) -> Callable[[], None]:
        """Call `on_change` for each change from now on; returns a function that ends this."""
        listener = _Listener(on_change, copy_context())
        self._all = (*self._all, listener)

        def unsubscribe() -> None:
            self._all = tuple(each for each in self._all if each is not listener)

        return unsubscribe

    def notify(self, changes: Iterable[Change], call_soon: CallSoon) -> None:
        """Schedule a call of every listener for each change, in order."""
        listeners = self._all
        for change in changes:
            for listener in listeners:
                call_soon(self._call, listener, change, context=listener.context)

    def _call(self, listener: _Listener, change: Change) -> None:
        if listener not in self._all:
            return
        try:
            listener.on_change(change)
        except Exception:  # a failure of one listener must not stop the others
            log.exception("a listener failed", extra={"change": str(change)})


def lease_changes(topic_ids: Iterable[TopicId]) -> list[Change]:
    """The notification that leases of these topics have changed."""
    unique = dict.fromkeys(topic_ids)
    return [Change(ChangeKind.LEASES, topic_id) for topic_id in (unique if len(unique) <= MAX_TOPICS else [None])]


T = TypeVar("T")
P = ParamSpec("P")


class Lock(StrEnum):
    """Rows that a procedure locks before it reads them to decide something.

    A procedure takes its locks in the order of the members. `find_session` and `find_partitions` lock the rows that
    they return: the first against a claim, the second against any change.
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
    SECURITY = "lock_security"


class Transaction(Protocol):
    @property
    def sql(self) -> Statements: ...

    async def now_ms(self) -> int:
        """The store's clock, the same for the whole transaction; call it after taking the locks that you need."""
        ...

    async def lock(self, what: Lock, params: Params) -> None:
        """Lock these rows until the end of the transaction; does nothing on a database with one writer at a time."""
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
        """Notify all listeners of these changes when the transaction is committed, of each once."""
        ...


Work = Callable[[Transaction], Coroutine[Any, Any, T]]


def run_inline(work: Coroutine[Any, Any, T]) -> T:
    """Run a procedure on a database that never waits, without an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        work.close()
    raise Internal("a transaction waits for something that is no statement of its own")


class Engine(Protocol):
    """Runs transactions: PostgreSQL or SQLite."""

    async def read_one(self, work: Work[T]) -> T:
        """Run `work`, which reads with one statement."""
        ...

    async def read_snapshot(self, work: Work[T]) -> T:
        """Run `work`, whose statements read one snapshot."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Run `work` as one transaction: all of it is durable on return, or nothing of it happened."""
        ...

    async def write_urgent(self, work: Work[T]) -> T:
        """`write`, ahead of all calls that wait: for the heartbeat of a session."""
        ...

    async def now_ms(self) -> int: ...

    @property
    def is_listening(self) -> bool: ...

    def subscribe(self, on_change: OnChange) -> Callable[[], None]: ...

    async def aclose(self) -> None: ...


class CountedEngine:
    """An engine that counts how many calls in a row found the database unavailable; a rejection is no failure."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner
        self.failures_in_a_row = 0

    def __repr__(self) -> str:
        return repr(self._inner)

    async def read_one(self, work: Work[T]) -> T:
        return await self._counted(self._inner.read_one(work))

    async def read_snapshot(self, work: Work[T]) -> T:
        return await self._counted(self._inner.read_snapshot(work))

    async def write(self, work: Work[T]) -> T:
        return await self._counted(self._inner.write(work))

    async def write_urgent(self, work: Work[T]) -> T:
        return await self._counted(self._inner.write_urgent(work))

    async def now_ms(self) -> int:
        return await self._counted(self._inner.now_ms())

    @property
    def is_listening(self) -> bool:
        return self._inner.is_listening

    def subscribe(self, on_change: OnChange) -> Callable[[], None]:
        return self._inner.subscribe(on_change)

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


class _Store(Protocol):
    """A store whose calls are bound by the functions below."""

    _engine: CountedEngine


Procedure = Callable[Concatenate[Transaction, P], Coroutine[Any, Any, T]]
StoreCall = Callable[Concatenate[_Store, P], Coroutine[Any, Any, T]]


def read_one(procedure: Procedure[P, T]) -> StoreCall[P, T]:
    """The call of a store that runs a procedure which reads with one statement."""

    async def call(store: _Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._engine.read_one(lambda tx: procedure(tx, *args, **kwargs))

    return call


def read_snapshot(procedure: Procedure[P, T]) -> StoreCall[P, T]:
    """The call of a store that runs a procedure whose statements read one snapshot."""

    async def call(store: _Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._engine.read_snapshot(lambda tx: procedure(tx, *args, **kwargs))

    return call


def write(procedure: Procedure[P, T]) -> StoreCall[P, T]:
    """The call of a store that runs a procedure as one transaction."""

    async def call(store: _Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._engine.write(lambda tx: procedure(tx, *args, **kwargs))

    return call


def write_urgent(procedure: Procedure[P, T]) -> StoreCall[P, T]:
    """`write`, ahead of all calls that wait."""

    async def call(store: _Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._engine.write_urgent(lambda tx: procedure(tx, *args, **kwargs))

    return call
