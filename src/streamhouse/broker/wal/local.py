"""Local WALs: where an agent with a disk begins its logs, and finds those of dead sessions.

Owns        nothing but the pairing of the two
Leaves      writing to `disk`, reading what is left to `recovery`
"""

from pathlib import Path
from typing import Final

from streamhouse.broker.wal.disk import DiskWal, open_disk_wal
from streamhouse.broker.wal.files import Files
from streamhouse.broker.wal.recovery import DiskWals
from streamhouse.clock import Clock, Ids
from streamhouse.config import WalSettings
from streamhouse.model.names import SessionId


class LocalWals(DiskWals):
    kind: Final = "disk"

    def __init__(self, root: Path, settings: WalSettings, *, files: Files, clock: Clock, ids: Ids) -> None:
        super().__init__(root, files)
        self._settings = settings
        self._clock = clock
        self._ids = ids

    async def open(self, session: SessionId) -> DiskWal:
        return await open_disk_wal(
            self._root, session, self._settings, files=self._files, clock=self._clock, ids=self._ids
        )
