"""Notifications: changes committed by other agents, received from the server.

Data path   a commit of any agent -> server -> **notifications** -> listeners
Owns        the format of a notification; the listening connection and reopening it
Leaves      sending to transactions, calling listeners to `metadata.engine`

Notifications are lost without a connection, so `EVERYTHING` is sent whenever the connection is opened or lost. A silent
connection may be broken, or its server may be a standby by now, so it is checked periodically.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

from streamhouse.clock import Ids, SystemClock
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.names import TopicId
from streamhouse.stores.metadata.engine import Listeners, OnChange
from streamhouse.stores.metadata.postgres.connection import (
    DRIVER_ERRORS,
    Connection,
    PostgresSettings,
    server_statements,
)

log = logging.getLogger(__name__)

CHANNEL: Final = "streamhouse_changes"


def payload_of(change: Change) -> str:
    return change.kind if change.topic_id is None else f"{change.kind} {change.topic_id}"


def change_of(payload: str) -> Change:
    """The change in a notification; `EVERYTHING` for an unknown one of a newer release."""
    kind, _, topic_id = payload.partition(" ")
    try:
        return Change(ChangeKind(kind), TopicId(uuid.UUID(topic_id)) if topic_id else None)
    except ValueError:
        return Change(ChangeKind.EVERYTHING)


class Notifications:
    def __init__(self, connect: Callable[[], Awaitable[Connection]], settings: PostgresSettings) -> None:
        self._connect = connect
        self._settings = settings
        self._listeners = Listeners()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._clock = SystemClock()
        self._ids = Ids()
        self.is_listening = False

    def __repr__(self) -> str:
        return f"<Notifications listening={self.is_listening} {self._listeners!r}>"

    def subscribe(self, on_change: OnChange) -> Callable[[], None]:
        """Add a listener. The first one starts listening, which sends `EVERYTHING`."""
        unsubscribe = self._listeners.add(on_change)
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="metadata announcements")
        return unsubscribe

    async def aclose(self) -> None:
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        """Listen until cancelled, reopening the connection."""
        pause_s = self._settings.listen_again_s
        while True:
            try:
                await self._listen_once()
                pause_s = self._settings.listen_again_s
            except DRIVER_ERRORS as error:
                log.warning("can't listen for changes of metadata", extra={"why": str(error) or type(error).__name__})
            except Exception:  # any error: without this task no change would ever be received again
                log.exception("listening for changes of metadata failed")
            await self._clock.sleep(self._ids.jitter(pause_s))
            pause_s = min(2 * pause_s, self._settings.listen_again_max_s)

    async def _listen_once(self) -> None:
        """Listen until the connection is lost; raises if it can't be opened."""
        lost = asyncio.Event()
        connection = await self._connect()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            async with asyncio.timeout(self._settings.timeout_s):
                await connection.add_listener(CHANNEL, self._received)
            self.is_listening = True
            self._tell([Change(ChangeKind.EVERYTHING)])
            why = await self._until_lost(connection, lost)
            self.is_listening = False
            log.warning("changes of metadata are not received", extra={"why": why})
            self._tell([Change(ChangeKind.EVERYTHING)])
        finally:
            self.is_listening = False
            connection.terminate()

    async def _until_lost(self, connection: Connection, lost: asyncio.Event) -> str:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.listen_check_s):
                    await lost.wait()
            if lost.is_set():
                return "the connection was lost"
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    is_standby = await connection.fetchval(server_statements().is_standby)
            except DRIVER_ERRORS as error:
                return str(error) or type(error).__name__
            if is_standby:
                return "the server takes no writes any more"

    def _received(self, _: object, __: int, ___: str, payload: str) -> None:
        self._tell([change_of(payload)])

    def _tell(self, changes: Iterable[Change]) -> None:
        self._listeners.notify(changes, asyncio.get_running_loop().call_soon)
