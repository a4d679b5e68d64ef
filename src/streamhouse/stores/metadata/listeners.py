"""Listeners: who wants to hear of changes, in this process.

Data path   a committed transaction, or the server's word of one -> **listeners** -> whoever keeps a copy in memory
Owns        who listens; that each is called on the event loop, alone, and that its failure disturbs nobody
Leaves      what has changed to `transactions`, how other processes hear of it to the engines
"""

import logging
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Protocol

from streamhouse.model.change import Change, ChangeKind
from streamhouse.model.names import TopicId

log = logging.getLogger(__name__)

Heard = Callable[[Change], None]
MAX_TOPICS = 16
"""Of more topics than these, one change tells for all."""


class CallSoon(Protocol):
    """An event loop's `call_soon`, or `call_soon_threadsafe`."""

    def __call__(self, callback: Callable[..., object], /, *args: object, context: Context | None = None) -> object: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    heard: Heard
    context: Context  # of whoever subscribed


class Listeners:
    def __init__(self) -> None:
        self._all: tuple[_Listener, ...] = ()  # replaced, never changed: another thread may be reading it

    def __repr__(self) -> str:
        return f"<Listeners {len(self._all)}>"

    def add(self, heard: Heard) -> Callable[[], None]:
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
