"""Damaged logs: the write-ahead logs that recoveries have retained because records in them are lost.

Data path   none: wire -> **damaged logs** -> `wal`
Owns        listing those that this agent can see; whether one may be discarded
Leaves      retaining and deleting to `wal`, the content of reports to `format.loss_report`
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.wal.base import QuarantinedWal
from streamhouse.errors import Rejected, UnknownDamagedLog
from streamhouse.format.loss_report import LossReport, decode_report
from streamhouse.model.names import SessionId

log = logging.getLogger(__name__)

KINDS: Final = ("disk", "object")


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedWal:
    """`report` is None if it can't be read."""

    kept: QuarantinedWal
    report: LossReport | None

    @property
    def is_loss(self) -> bool:
        """Whether acknowledged records may be lost, not only a torn write of a power cut."""
        return self.report is None or self.report.is_loss


class DamagedWals:
    """Damaged logs in the object store, which all agents see, and those on this agent's disk."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def __repr__(self) -> str:
        return "<DamagedWals>"

    async def list(self, *kinds: str) -> Sequence[DamagedWal]:
        """The retained damaged logs, of these kinds or of all."""
        damaged: list[DamagedWal] = []
        for kind in kinds or KINDS:
            if (wals := self._dependencies.wals_of(kind)) is not None:
                damaged += [DamagedWal(kept=each, report=decode_report(each.report)) for each in await wals.kept()]
        return damaged

    async def discard(self, session_id: SessionId) -> int:
        """Delete a retained log; returns the number of deleted files or objects.

        Raises `UnknownDamagedLog`, and `Rejected` while the session is not recovered: then the log may hold the only
        copy of acknowledged records.
        """
        logs = [each for each in await self.list() if each.kept.session_id == session_id]
        if not logs:
            raise UnknownDamagedLog(session_id)
        if any(each.session_id == session_id for each in (await self._dependencies.metadata.membership()).sessions):
            raise Rejected(f"the session is not recovered yet; session={session_id}")
        gone = 0
        for each in logs:
            wals = self._dependencies.wals_of(each.kept.kind)
            gone += await wals.discard(session_id) if wals is not None else 0
            log.warning("damaged write-ahead log discarded", extra={"session": session_id, "where": each.kept.where})
        return gone
