"""Team mutations: agents that share stores, with one guard of theirs taken out, to see whether the simulator notices.

Owns        how each guard of leases, sessions, the object WAL and recovery is taken out
Leaves      the guards of one agent to `mutations`, running seeds until one fails to `test_mutations`
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.partition.offset_reservation import UNLIMITED, OffsetReservations
from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.broker.produce.append import AppendService
from streamhouse.broker.session import leases
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.broker.session.flush import Flusher
from streamhouse.broker.wal import object_recovery
from streamhouse.broker.wal.object_cleanup import RetainedObjects
from streamhouse.broker.wal.object_recovery import ObjectWalFactory, ObjectWalReader
from streamhouse.broker.wal.object_upload import Uploader
from streamhouse.broker.wal.object_wal import ObjectWal
from streamhouse.errors import LeaseLost, SessionLost
from streamhouse.model.cluster import PutReport
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.stores.metadata.engine import Transaction, write, write_urgent
from streamhouse.stores.metadata.procedures import segments, sessions
from streamhouse.stores.metadata.rows import partition_list, partition_params, state_of
from streamhouse.stores.metadata.store import SqlMetadataStore
from streamhouse.stores.objects.base import Buffers
from streamhouse.stores.objects.memory import MemoryObjectStore, _Object

from .mutation import Mutation, Patch
from .mutations import recovery_ignores_the_wal

# --- the object WAL


def dead_logs_not_sealed(patch: Patch) -> None:
    async def no_seal(self: ObjectWalReader, sequence: int) -> None:
        return None

    patch.setattr(ObjectWalReader, "_seal", no_seal)


def seals_removed_with_the_log(patch: Patch) -> None:
    patch.setattr(object_recovery, "SEAL_BYTES", 0)


def puts_overwrite(patch: Patch) -> None:
    async def put(self: MemoryObjectStore, key: str, body: Buffers) -> None:
        self._objects[key] = _Object(body=b"".join(body), modified_at_ms=self._clock.now_ms())

    patch.setattr(MemoryObjectStore, "put_new", put)


def any_object_taken_for_ours(patch: Patch) -> None:
    async def is_ours(self: Uploader, *_: object) -> bool:
        return True

    patch.setattr(Uploader, "_is_ours", is_ours)


def objects_deleted_before_the_mark_is_stored(patch: Patch) -> None:
    truncate = ObjectWal.truncate

    async def eager(self: ObjectWal, flushed: Mapping[PartitionId, int]) -> None:
        await truncate(self, flushed)
        await self.delete_below(self.first_retained)

    patch.setattr(ObjectWal, "truncate", eager)


def mark_past_what_is_not_flushed(patch: Patch) -> None:
    patch.setattr(RetainedObjects, "first_retained", property(lambda self: self.durable_below))


# --- recovery


def recovery_from_the_first_object(patch: Patch) -> None:
    read = ObjectWalFactory.read

    def from_zero(
        self: ObjectWalFactory, session: SessionId, *, start: int = 0, durable_below: int = 0
    ) -> AbstractAsyncContextManager[ObjectWalReader]:
        return read(self, session)

    patch.setattr(ObjectWalFactory, "read", from_zero)


def leases_freed_by_the_claim(patch: Patch) -> None:
    claim = sessions.claim_recovery

    async def hasty(tx: Transaction, dead: SessionId, *, by: SessionId, proven_dead: bool) -> int | None:
        number = await claim(tx, dead, by=by, proven_dead=proven_dead)
        if number is not None:
            await tx.rows(tx.sql.free_leases, {"holder": dead})
        return number

    patch.setattr(SqlMetadataStore, "claim_recovery", write(hasty))


def living_sessions_claimed(patch: Patch) -> None:
    """Whoever is behind with a heartbeat counts as dead."""
    claim = sessions.claim_recovery

    async def hasty(tx: Transaction, dead: SessionId, *, by: SessionId, proven_dead: bool) -> int | None:
        return await claim(tx, dead, by=by, proven_dead=True)

    patch.setattr(SqlMetadataStore, "claim_recovery", write(hasty))
    patch.setattr("streamhouse.broker.cluster.cluster.Cluster.dead", lambda self: self.others())


# --- leases


def acknowledged_without_a_valid_lease(patch: Patch) -> None:
    patch.setattr(AgentSession, "is_valid", property(lambda self: not self._deadline.is_lost))


def heartbeats_of_the_claimed_accepted(patch: Patch) -> None:
    renew = sessions.renew_session

    async def lenient(
        tx: Transaction,
        session_id: SessionId,
        ttl_ms: int,
        *,
        wal_start: int = 0,
        wal_durable: int = 0,
        puts: PutReport | None = None,
    ) -> None:
        try:
            await renew(tx, session_id, ttl_ms, wal_start=wal_start, wal_durable=wal_durable, puts=puts)
        except SessionLost:
            return

    patch.setattr(SqlMetadataStore, "renew_session", write_urgent(lenient))


def leases_stolen(patch: Patch) -> None:
    acquire = sessions.acquire

    async def steal(tx: Transaction, session_id: SessionId, partitions: Sequence[PartitionId]) -> Any:
        expected = {"partitions": partition_list(partitions)}
        for state in [state_of(row) for row in await tx.rows(tx.sql.find_partitions, expected)]:
            if state.holder not in (None, session_id):
                await tx.change(tx.sql.release_lease, {**partition_params(state.partition), "holder": state.holder})
        return await acquire(tx, session_id, partitions)

    patch.setattr(SqlMetadataStore, "acquire", write(steal))


def epochs_stay(patch: Patch) -> None:
    async def take(tx: Transaction, session_id: SessionId, free: Sequence[PartitionId]) -> None:
        for partition in free:
            await tx.change(tx.sql.take_lease, {**partition_params(partition), "holder": session_id, "epoch": 1})

    patch.setattr(sessions, "_take", take)


def released_before_the_flush(patch: Patch) -> None:
    async def hasty(self: AgentSession, logs: Sequence[PartitionLog], new_leaders: Mapping[Any, Any]) -> None:
        for item in logs:
            item.close(new_leaders[item.name])
        await self.logs.leases.release([item.partition for item in logs])
        await self.logs.drop(logs, LeaseLost([item.name for item in logs], why="another agent leads it now"))

    patch.setattr(AgentSession, "transfer", hasty)


def producers_not_known_to_the_next_leader(patch: Patch) -> None:
    async def blank(flushed_ends: Mapping[PartitionId, int], settings: Any, **_: object) -> Mapping[PartitionId, Any]:
        limits = {"limit": settings.max_per_partition, "expire_ms": round(settings.expire_s * 1000)}
        return {partition: ProducerTable([], **limits) for partition in flushed_ends}

    patch.setattr(leases, "load_producers", blank)


# --- commits


def repeated_commits_not_recognised(patch: Patch) -> None:
    async def nothing(tx: Transaction, commits: Any) -> Mapping[str, frozenset[Any]]:
        return {}

    patch.setattr(segments, "_published", nothing)
    refused_runs_dropped(patch)


def refused_runs_dropped(patch: Patch) -> None:
    """A run that is refused though its lease is ours ends the session and leaves the log: that covers for guards of
    commits, so they are taken out together."""

    async def nothing(self: Flusher, refused: Any) -> None:
        return None

    patch.setattr(Flusher, "_require_given_up", nothing)


def gaps_called_out_of_order_after_a_move(patch: Patch) -> None:
    patch.setattr(AppendService, "_is_settling", lambda self, opened, header, *, now: False)


SLEEPERS: Final = {
    "groups": (),
    "churns": False,
    "team": 2,
    "faults_s": 10.0,
    "calm_between_s": 3.0,
    "sleepy_puts": 0.05,
    "doom": 0.0,
}
"""Two agents that fall asleep with a PUT under way, again and again, and little else."""


def offsets_not_reserved(patch: Patch) -> None:
    patch.setattr(OffsetReservations, "of", lambda self, partition: UNLIMITED)


TEAM_MUTATIONS: Final = {
    "offsets are not reserved": Mutation(
        breaks=("acknowledged above what is reserved",), apply=offsets_not_reserved, profile="team-disks"
    ),
    "a disk that comes back is not recovered": Mutation(
        breaks=(
            "an offset has two records",
            "a record is lost",
            "the high watermark went back",
            "epochs do not grow with offsets",
        ),
        apply=recovery_ignores_the_wal,
        profile="team-disks",
    ),
    "a dead session's log is not sealed": Mutation(
        breaks=(
            "a batch changed its epoch",
            "an offset has two records",
        ),
        apply=dead_logs_not_sealed,
        profile="team-zombies",
        tweaks=SLEEPERS,
    ),
    "seals are removed with the log": Mutation(
        breaks=(
            "epochs do not grow with offsets",
            "a batch stands at two offsets",
            "a batch changed its epoch",
        ),
        apply=seals_removed_with_the_log,
        profile="team-zombies",
        tweaks=SLEEPERS,
    ),
    "a PUT may overwrite": Mutation(
        breaks=(
            "a batch stands at two offsets",
            "a batch changed its epoch",
            "an offset has two records",
        ),
        apply=puts_overwrite,
        profile="team-zombies",
        tweaks=SLEEPERS,
    ),
    "whatever has our name is taken for ours": Mutation(
        breaks=(
            "a batch stands at two offsets",
            "a batch changed its epoch",
        ),
        apply=any_object_taken_for_ours,
        profile="team-zombies",
        tweaks=SLEEPERS,
    ),
    "log objects are deleted before the mark is stored": Mutation(
        breaks=("stuck",), apply=objects_deleted_before_the_mark_is_stored, profile="team-kills"
    ),
    "the mark passes what is not flushed": Mutation(
        breaks=(
            "a batch changed its epoch",
            "a read passed over a record",
        ),
        apply=mark_past_what_is_not_flushed,
        profile="team-kills",
    ),
    "recovery begins at the first object": Mutation(
        breaks=("stuck",), apply=recovery_from_the_first_object, profile="team-kills"
    ),
    "a claim frees the leases": Mutation(
        breaks=(
            "an offset in range was refused",
            "the high watermark went back",
            "an offset has two records",
        ),
        apply=leases_freed_by_the_claim,
        profile="team-kills",
    ),
    "living sessions are recovered": Mutation(
        breaks=(
            "acknowledged by a session that is recovering",
            "no end after so many steps",
        ),
        apply=living_sessions_claimed,
        profile="team-calm",
    ),
    "appends are acknowledged without a valid lease": Mutation(
        breaks=("the high watermark went back",),
        apply=acknowledged_without_a_valid_lease,
        profile="team-zombies",
        tweaks=SLEEPERS,
    ),
    "heartbeats of a claimed session are accepted": Mutation(
        breaks=("stuck",), apply=heartbeats_of_the_claimed_accepted, profile="team-zombies"
    ),
    "leases of the living are taken": Mutation(
        breaks=(
            "an offset in range was refused",
            "an offset has two records",
        ),
        apply=leases_stolen,
        profile="team-moves",
    ),
    "a lease keeps its epoch": Mutation(breaks=("two leaders in one epoch",), apply=epochs_stay, profile="team-moves"),
    "a lease is released before the flush": Mutation(
        breaks=(
            "the high watermark went back",
            "an offset in range was refused",
            "an offset has two records",
        ),
        apply=released_before_the_flush,
        profile="team-moves",
    ),
    "the next leader doesn't know the producers": Mutation(
        breaks=("a batch stands at two offsets",), apply=producers_not_known_to_the_next_leader, profile="team-moves"
    ),
    "a gap is called out of order where a partition has moved": Mutation(
        breaks=("a batch stands at two offsets",),
        apply=gaps_called_out_of_order_after_a_move,
        profile="team-moves",
        tweaks={"eager_producers": 3},
        first=10,
    ),
    "a repeated commit is not recognised": Mutation(
        breaks=(
            "the high watermark went back",
            "an offset has two records",
        ),
        apply=repeated_commits_not_recognised,
        profile="team-stores",
    ),
}
