"""Watching: transactions that took too long are aborted, and those that nobody ends are ended.

Data path   metadata store -> **watching** -> ending
Owns        looking for them, and that one agent is enough for each
Leaves      what is overdue to the store's clock, the decision to its transaction, markers to `ending`

Whatever an agent left half done is found here: a decision is a row, so it outlives whoever made it.
"""

import logging
from collections.abc import Callable
from typing import Final

from streamhouse.broker.doors import Doors
from streamhouse.broker.transactions.ending import Endings
from streamhouse.broker.transactions.strays import Strays
from streamhouse.errors import StreamhouseError
from streamhouse.model.transaction import StoredTransaction

log = logging.getLogger(__name__)

FORGET_S: Final = 3600.0
FORGOTTEN_AT_ONCE: Final = 1000


class Watch:
    def __init__(
        self,
        doors: Doors,
        *,
        endings: Endings,
        strays: Strays,
        is_ours: Callable[[str], bool],
        forgets: Callable[[], bool],
    ) -> None:
        """`is_ours` says of a transactional id whether this agent coordinates it; `forgets`, whether this agent is the
        one that forgets those that are silent."""
        self._clock = doors.clock
        self._ids = doors.ids
        self._metadata = doors.metadata
        self._settings = doors.settings.transactions
        self._endings = endings
        self._strays = strays
        self._is_ours = is_ours
        self._forgets = forgets
        self._forget_at = doors.clock.monotonic()
        self._seen: StoredTransaction | None = None
        self.expired = 0
        self.forgotten = 0

    def __repr__(self) -> str:
        return f"<Watch expired={self.expired} forgotten={self.forgotten}>"

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self._clock.sleep(self._ids.jitter(self._settings.check_s))
            try:
                await self.look()
                await self._strays.look()
                await self._forget()
            except StreamhouseError as error:
                log.warning("transactions were not looked for", extra={"why": str(error)})

    async def look(self) -> None:
        """One look: what is overdue is on its way to its end after it. Where there is more of it than one look takes,
        the next one goes on behind: the oldest may be those that can't be ended now."""
        limit = self._settings.max_waiting
        due = await self._metadata.due_transactions(
            prepared_before_ms=round(self._settings.grace_s * 1000), limit=limit, after=self._seen
        )
        self._seen = due[-1] if len(due) >= limit else None
        for each in due:
            if self._is_ours(each.transactional_id):
                await self._take(each)

    async def _take(self, due: StoredTransaction) -> None:
        decided: StoredTransaction | None = due
        if not due.state.is_prepared:
            decided = await self._metadata.expire_transaction(due.transactional_id, due.number)
            self.expired += decided is not None
        # Half of the places are for those who wait for the end of their own transactions.
        has_room = 2 * len(self._endings) <= self._settings.max_waiting
        if decided is not None and has_room and not self._endings.is_resting(decided):
            self._endings.begin(decided)

    async def _forget(self) -> None:
        now = self._clock.monotonic()
        if now < self._forget_at or not self._forgets():
            return
        older_than_ms = round(self._settings.expire_s * 1000)
        gone = await self._metadata.forget_transactions(older_than_ms, FORGOTTEN_AT_ONCE)
        self.forgotten += gone
        if gone < FORGOTTEN_AT_ONCE:
            self._forget_at = now + self._ids.jitter(min(FORGET_S, self._settings.expire_s))
