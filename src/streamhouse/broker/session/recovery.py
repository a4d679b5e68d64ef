"""Recovery: what a dead session had acknowledged and not flushed becomes segments.

Data path   dead session's WAL -> **recovery** -> object store, then one metadata transaction that publishes and
            frees the leases
Owns        the order of steps: claim, read, keep what is damaged, publish and end, remove
Leaves      claims to the metadata store, reading and locking of the dead WAL to `wal`, which entries count and what is
            lost to `publication`

Exactly one agent finishes a recovery, because the claim's number is checked in the transaction that ends it. Whoever
dies half-way leaves objects that nobody refers to, and the next claim begins again.

A log in which something was lost is kept, with a report, before anything of it is published: whoever dies in between,
or removes logs of ended sessions, leaves it alone.
"""

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.session.recovered_segments import RecoveredSegments
from streamhouse.broker.wal.base import DamageReport, WalReader
from streamhouse.errors import LeaseLost, Misconfigured, SessionLost
from streamhouse.format.loss_report import LossReport, PartitionLoss, encode_report
from streamhouse.model.cluster import Session
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.segment import SegmentCommit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryStats:
    """What a recovery brought back."""

    sessions: int = 0
    records: int = 0
    skipped_entries: int = 0
    abandoned_sessions: int = 0
    damaged_logs: int = 0
    """Logs in which something was lost; they are kept."""
    losses: int = 0
    """Places in them that may have held acknowledged records."""

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
    def __init__(self, dependencies: Dependencies, *, by: SessionId, reader: SegmentReader) -> None:
        self._dependencies = dependencies
        self._by = by
        self._reader = reader

    async def recover_all(self) -> RecoveryStats:
        """Recover every session known to be dead: its WAL's lock is free, or nobody else can use these stores."""
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
        """Recover a session whose time is up by the store's clock, unless somebody else does.

        One whose log can't be read here is left to its own agent, or abandoned where that may be.
        """
        if not await self._is_readable(dead):
            # Only leaders with a disk have reserved what they hand out.
            return await self._abandon(dead) if may_abandon and dead.wal == "disk" else RecoveryStats()
        claim = await self._dependencies.metadata.claim_recovery(dead.session_id, by=self._by, proven_dead=False)
        return RecoveryStats() if claim is None else await self._recover(dead.session_id, claim)

    async def _is_readable(self, dead: Session) -> bool:
        """A log in the object store can be read by everybody, one on a disk only where that disk is."""
        wals = self._dependencies.wals_of(dead.wal)
        if wals is None:
            return False
        return dead.wal == "object" or dead.session_id in await wals.dead_sessions(self._by)

    async def _abandon(self, dead: Session) -> RecoveryStats:
        """Its partitions go on above all that it had reserved; what its disk holds is appended again by `returns`."""
        claim = await self._dependencies.metadata.claim_recovery(dead.session_id, by=self._by, proven_dead=False)
        if claim is None:
            return RecoveryStats()
        await self._dependencies.metadata.abandon_recovery(dead.session_id, claim)
        log.warning(
            "session abandoned: nobody reaches its disk, and its partitions go on above what it had reserved",
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
        """Keep a log that is not wholly published, and say what is lost; whether acknowledged records may be."""
        damage, unpublished = reading.damage, await publication.unpublished()
        if damage.is_clean and not unpublished and not publication.has_gaps:
            return False
        # Somebody with a newer claim may have finished and removed objects while we read: then nothing is damaged.
        if (await self._claimed(dead.session_id)).claim != claim:
            raise SessionLost(dead.session_id, why="somebody else recovers it")
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
        raise SessionLost(dead, why="somebody else has recovered it")

    async def _remove_ended(self, dead: SessionId) -> None:
        """A session that ended had flushed everything, unless it was abandoned: then its log is for `returns`. One that
        the store never heard of is another story: its log belongs to other metadata, and may be all that is left of
        what was acknowledged."""
        if await self._dependencies.metadata.abandoned_ranges(dead):
            return
        try:
            await self._dependencies.metadata.end_session(dead)
        except SessionLost as error:
            log.warning("write-ahead log left alone", extra={"session": dead, "why": str(error)})
        else:
            await self._dependencies.wal_factory.remove(dead)

    async def _finish(
        self, dead: SessionId, claim: int, commits: Sequence[SegmentCommit], continue_at: Mapping[PartitionId, int]
    ) -> None:
        """Publish and end; without the partitions whose topic was deleted in the meantime. Raises where the dead
        session still holds one whose guard failed: then its log is the only copy, and stays for another try."""
        while True:
            try:
                return await self._dependencies.metadata.finish_recovery(dead, claim, commits, continue_at=continue_at)
            except LeaseLost as error:
                held = {state.partition for state in await self._dependencies.metadata.held_by(dead)}
                kept = _without(commits, set(error.partitions))
                if kept == commits or held.intersection(error.partitions):
                    raise
                commits = kept


def _without(commits: Sequence[SegmentCommit], lost: Container[object]) -> list[SegmentCommit]:
    kept = [commit.only([run for run in commit.runs if run.partition not in lost]) for commit in commits]
    return [commit for commit in kept if commit.runs]


def _log_report(report: LossReport, damage: DamageReport) -> None:
    fields = {"session": report.session, "places": ",".join(report.places), "do": "streamhouse wal damaged"}
    if not report.is_loss:
        log.warning("write-ahead log has a torn end, and is kept", extra={**fields, "cut_bytes": damage.cut_bytes})
        return
    log.error(
        "write-ahead log is damaged: what is intact was recovered, and the log is kept",
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
