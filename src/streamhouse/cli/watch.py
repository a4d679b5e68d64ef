"""Watch: looks after an agent that has been silent.

Owns        when to look, and what is said of an agent that went away and came back
Leaves      reading to `consume` and `consume_group`
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from streamhouse.cli.output import note
from streamhouse.client.types import Record
from streamhouse.errors import Unavailable

if TYPE_CHECKING:
    from streamhouse.client.kafka_admin import Admin

POLL_S: Final = 0.5
LOOK_AFTER_S: Final = 5.0


class Watch:
    """The consumer alone would wait for ever without a word."""

    def __init__(self, admin: "Admin", *, patient: bool) -> None:
        self._admin, self._patient = admin, patient
        self._silent_s = 0.0
        self._away = False

    async def after(self, records: Sequence[Record]) -> None:
        self._silent_s = 0.0 if records else self._silent_s + POLL_S
        if self._silent_s < LOOK_AFTER_S:
            return
        self._silent_s = 0.0
        try:
            await self._admin.cluster()
        except Unavailable as error:
            if not self._patient:
                raise
            if not self._away:
                note(f"{error} (waiting for it)")
            self._away = True
        else:
            if self._away:
                note("the agent is back")
            self._away = False
