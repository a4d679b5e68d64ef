"""WalSessionRecovery: flushes the acknowledged records of a dead session from its WAL to segments.

Data path   dead session's WAL -> **recovery** -> object store, then one metadata transaction that publishes and
            frees the leases
Owns        the order of steps: claim, read, retain a damaged log, publish and end, remove
Leaves      claims to the metadata store, reading and locking the WAL to `wal`, valid entries and losses to
            `recovered_segments`

Exactly one agent finishes a recovery, because the claim's number is checked in the transaction that ends it. An
interrupted recovery leaves unreferenced objects, and the next claim starts over.

A damaged log is retained with a report before anything of it is published, so that neither a crash in between nor the
removal of ended sessions' logs deletes it.
"""

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.session.recovered_segments import RecoveredSegments
from streamhouse.broker.session.session_lifecycle import BeforeRemoval
from streamhouse.broker.wal.base import DamageReport, WalReader
from streamhouse.errors import LeaseLost, Misconfigured, SessionLost
from streamhouse.format.loss_report import LossReport, PartitionLoss, encode_report
from streamhouse.model.cluster import Session
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.segment import SegmentCommit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryStats:
    """The result of recoveries."""

    sessions: int = 0
    records: int = 0
    skipped_entries: int = 0
    abandoned_sessions: int = 0
    damaged_logs: int = 0
    """Damaged logs; they are retained."""
    losses: int = 0
    """Damaged places that may have contained acknowledged records."""

    def __add__(self, other: "RecoveryStats") -> "RecoveryStats":
        return RecoveryStats(
            sessions=self.sessions + other.sessions,
            records=self.records + other.records,
            skipped_entries=self.skipped_entries + other.skipped_entries,
            abandoned_sessions=self.abandoned_sessions + other.abandoned_sessions,
            damaged_logs=self.damaged_logs + other.damaged_logs,
            losses=self.losses + other.losses,
        )


class WalSessionRecovery:
    def __init__(
        self, dependencies: Dependencies, *, by: SessionId, reader: SegmentReader, before_removal: BeforeRemoval
    ) -> None:
        self._dependencies = dependencies
        self._before_removal = before_removal
        self._by = by
        self._reader = reader

    async def recover_all(self) -> RecoveryStats:
        """Recover all sessions known to be dead: their WAL's lock is free, or no other agent can use these stores."""
        dead = set(await self._dependencies.wal_factory.dead_sessions(self._by))
        if self._dependencies.single_agent:
            dead |= {session.session_id for session in (await self._dependencies.metadata.membership()).sessions} - {
                self._by
            }
        total = RecoveryStats()
        for session_id in sorted(dead):
            claim = await self._dependencies.metadata.claim_recovery(session_id, by=self._by, proven_dead=True)
            if claim is None:
                await self._remove_ended(session_id)
            else:
                total += await self._recover(session_id, claim)
        return total

    async def recover(self, dead: Session, *, may_abandon: bool = False) -> RecoveryStats:
        """Recover an expired session unless another agent does. If its log can't be read here, it is left to its own
        agent, or with `may_abandon` abandoned."""
        if not await self._is_readable(dead):
            # Only leaders with a disk WAL have reservations.
            return await self._abandon(dead) if may_abandon and dead.wal == "disk" else RecoveryStats()
        claim = await self._dependencies.metadata.claim_recovery(dead.session_id, by=self._by, proven_dead=False)
        return RecoveryStats() if claim is None else await self._recover(dead.session_id, claim)

    async def _is_readable(self, dead: Session) -> bool:
        """Whether this agent can read the session's log: any agent can read an object WAL, a disk WAL only on its
        machine."""
        wals = self._dependencies.wals_of(dead.wal)
        if wals is None:
            return False
        return dead.wal == "object" or dead.session_id in await wals.dead_sessions(self._by)

    async def _abandon(self, dead: Session) -> RecoveryStats:
        """Abandon a session: its partitions continue above its reservations; `wal_reappend` appends the records of its
        disk again."""
        claim = await self._dependencies.metadata.claim_recovery(dead.session_id, by=self._by, proven_dead=False)
        if claim is None:
            return RecoveryStats()
        await self._dependencies.metadata.abandon_recovery(dead.session_id, claim)
        log.warning(
            "session abandoned: no agent reaches its disk, and its partitions continue above its reservations",
            extra={"session": dead.session_id, "node": dead.node_id, "kafka": str(dead.kafka)},
        )
        return RecoveryStats(abandoned_sessions=1)

    async def _recover(self, dead: SessionId, claim: int) -> RecoveryStats:
        # Read after the claim: no heartbeat moves the mark any more, and nothing above it was deleted.
        session = await self._claimed(dead)
        held = await self._dependencies.metadata.held_by(dead)
        wals = self._dependencies.wals_of(session.wal)
        if wals is None:
            raise Misconfigured(
                f"a dead session's write-ahead log can't be read here; session={dead} wal={session.wal}"
            )
        async with wals.read(dead, start=session.wal_start, durable_below=session.wal_durable) as reading:
            publication = RecoveredSegments(self._dependencies, dead, claim, self._reader)
            commits = await publication.publish(reading, held)
            damage = reading.damage
            continue_at = publication.continue_at(damage.losses)
            is_damaged = await self._keep_damaged(session, claim, reading, publication, continue_at)
            await self._finish(dead, claim, commits, continue_at)
            await self._before_removal(self._by)  # where it raises, the log of a session that has ended is left
            await reading.remove()
        fields = {"session": dead, "records": publication.records}
        log.info("session recovered", extra={**fields, "skipped": damage.skipped, "cut_bytes": damage.cut_bytes})
        return RecoveryStats(
            sessions=1,
            records=publication.records,
            skipped_entries=damage.skipped,
            damaged_logs=int(is_damaged),
            losses=damage.losses,
        )

    async def _keep_damaged(
        self,
        dead: Session,
        claim: int,
        reading: WalReader,
        publication: RecoveredSegments,
        continue_at: Mapping[PartitionId, int],
    ) -> bool:
        """Retain a log that is not completely published, with a report; returns whether acknowledged records may be
        lost."""
        damage, unpublished = reading.damage, await publication.unpublished()
        if damage.is_clean and not unpublished and not publication.has_gaps:
            return False
        # An agent with a newer claim may have finished and removed objects during the read: then nothing is damaged.
        if (await self._claimed(dead.session_id)).claim != claim:
            raise SessionLost(dead.session_id, why="another agent recovers it")
        report = LossReport(
            session=dead.session_id,
            kind=dead.wal,
            found_by=self._by,
            found_at_ms=self._dependencies.clock.now_ms(),
            losses=damage.losses,
            missing=damage.missing,
            skipped=damage.skipped,
            cut=damage.cut,
            unreadable_bytes=damage.unreadable_bytes,
            places=damage.places,
            partitions=list(publication.lost(continue_at, unpublished)),
        )
        await reading.keep(encode_report(report), number=claim)
        _log_report(report, damage)
        return report.is_loss

    async def _claimed(self, dead: SessionId) -> Session:
        for session in (await self._dependencies.metadata.membership()).sessions:
            if session.session_id == dead:
                return session
        raise SessionLost(dead, why="another agent has recovered it")

    async def _remove_ended(self, dead: SessionId) -> None:
        """Remove the log of an ended session, which has flushed everything. Logs of abandoned sessions are left for
        `wal_reappend`; logs of unknown sessions belong to other metadata and may be the only copy of acknowledged
        records."""
        if await self._dependencies.metadata.abandoned_ranges(dead):
            return
        try:
            await self._dependencies.metadata.end_session(dead)
        except SessionLost as error:
            log.warning("write-ahead log not removed", extra={"session": dead, "why": str(error)})
        else:
            await self._dependencies.wal_factory.remove(dead)

    async def _finish(
        self, dead: SessionId, claim: int, commits: Sequence[SegmentCommit], continue_at: Mapping[PartitionId, int]
    ) -> None:
        """Publish and end the session, without partitions whose topic was deleted meanwhile. Raises if a guard failed
        for a partition that the dead session still holds: then its log is the only copy and stays for a retry."""
        while True:
            try:
                return await self._dependencies.metadata.finish_recovery(dead, claim, commits, continue_at=continue_at)
            except LeaseLost as error:
                held = {state.partition for state in await self._dependencies.metadata.held_by(dead)}
                remaining = _without(commits, set(error.partitions))
                if remaining == commits or held.intersection(error.partitions):
                    raise
                commits = remaining


def _without(commits: Sequence[SegmentCommit], lost: Container[object]) -> list[SegmentCommit]:
    remaining = [commit.only([run for run in commit.runs if run.partition not in lost]) for commit in commits]
    return [commit for commit in remaining if commit.runs]


def _log_report(report: LossReport, damage: DamageReport) -> None:
    fields = {"session": report.session, "places": ",".join(report.places), "do": "streamhouse wal damaged"}
    if not report.is_loss:
        log.warning("write-ahead log has a torn end and is retained", extra={**fields, "cut_bytes": damage.cut_bytes})
        return
    log.error(
        "write-ahead log is damaged: intact records were recovered, and the log is retained",
        extra={**fields, "missing": report.missing, "skipped": report.skipped, "partitions": len(report.partitions)},
    )
    for each in report.partitions:
        log.error("offsets of a partition are lost", extra={"session": report.session, **_fields(each)})


def _fields(loss: PartitionLoss) -> Mapping[str, object]:
    return {
        "topic_id": loss.topic_id,
        "partition": loss.partition,
        "gaps": ",".join(f"[{first},{end})" for first, end in loss.gaps),
        "skipped": ",".join(f"[{first},{end})" for first, end in loss.skipped),
        "unpublished": ",".join(f"[{first},{end})" for first, end in loss.unpublished),
    }
