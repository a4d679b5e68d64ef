"""HealthCheck: checks this agent and the shared stores, for the doctor.

Data path   none: wire -> **health_check** -> stores, session, budget
Owns        what is checked, and the timeout of each check
Leaves      the rules to `health_rules`; comparing agents with each other to the caller
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from streamhouse.broker.admin.cluster_admin import AgentState, agent_state
from streamhouse.broker.admin.damaged_wals import DamagedWals
from streamhouse.broker.admin.health_rules import (
    LATE_WARNING_S,
    BlockedPartition,
    Check,
    CheckStatus,
    check_blocked,
    check_clock,
    check_damaged_wals,
    check_disks,
    check_encryption_keys,
    check_exposure,
    check_flush,
    check_late_transactions,
    check_leases,
    check_memory,
    check_metadata,
    check_objects,
    check_orphans,
    check_pending_deletion,
    check_readable,
    check_readiness,
    check_segments,
    check_sessions,
    check_super_users,
    check_wal_objects,
)
from streamhouse.broker.cluster.store_identity import LEASES_TOGETHER_S
from streamhouse.broker.context import BrokerContext
from streamhouse.broker.maintenance.object_check import (
    DamagedObject,
    ObjectCheck,
    describe_ranges,
    find_damaged_objects,
)
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.errors import StreamhouseError
from streamhouse.format.object_keys import SEGMENTS_PREFIX, WAL_PREFIX, parse_segment_key, parse_wal_key
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import ObjectMeta
from streamhouse.stores.objects.wrapping_keys import try_keys

DEADLINE_S: Final = 8.0
"""Timeout of one check; all run concurrently, and clients wait a little longer."""
MAX_LISTED: Final = 10_000
MAX_BLOCKED: Final = 20
PROOF_PREFIX: Final = "proof/"


class HealthCheck:
    def __init__(
        self,
        context: BrokerContext,
        *,
        not_ready: Callable[[], str | None],
        object_check: ObjectCheck,
        damaged_logs: DamagedWals,
    ) -> None:
        self._dependencies = context.dependencies
        self._catalog = context.catalog
        self._budget = context.budget
        self._agent_session = context.session_manager.agent_session
        self._identity = context.session_manager.identity
        self._not_ready = not_ready
        self._damage = context.reader.damage
        self._object_check = object_check
        self._damaged_logs = damaged_logs

    def __repr__(self) -> str:
        return f"<HealthCheck of {self._dependencies.kafka}>"

    async def own(self) -> Sequence[Check]:
        """Checks of this agent."""
        return await asyncio.gather(
            _checked("ready", self._readiness()),
            _checked("exposure", self._exposure()),
            _checked("super users", self._super_users()),
            _checked("metadata store", self._metadata()),
            _checked("object store", self._objects()),
            _checked("clock", self._clock()),
            _checked("flush", self._flush()),
            _checked("memory", self._memory()),
            _checked("open transactions", self._held_back()),
            _checked("readable", self._readable()),
            _checked("encryption keys", self._encryption_keys()),
            _checked("damaged log files", self._damaged("damaged log files", "disk")),
        )

    async def shared(self) -> Sequence[Check]:
        """Checks of the shared stores, the same at any agent."""
        return await asyncio.gather(
            _checked("identity", self._look_at_identity()),
            _checked("sessions", self._sessions()),
            _checked("leases", self._leases()),
            _checked("deletions", self._pending_deletions()),
            _checked("segments", self._segments()),
            _checked("orphans", self._orphans()),
            _checked("write-ahead log", self._wal_objects()),
            _checked("damaged log objects", self._damaged("damaged log objects", "object")),
            _checked("disks", self._disks()),
            _checked("transactions", self._late()),
        )

    # --- this agent

    async def _readiness(self) -> Check:
        return check_readiness(self._not_ready())

    async def _exposure(self) -> Check:
        return check_exposure(self._dependencies.settings)

    async def _super_users(self) -> Check:
        return check_super_users(self._dependencies.settings.security)

    async def _metadata(self) -> Check:
        metadata, clock = self._dependencies.metadata, self._dependencies.clock
        failures = metadata.failures_in_a_row
        began = clock.monotonic()
        schema = await metadata.schema_version()
        return check_metadata(
            latency_ms=(clock.monotonic() - began) * 1000,
            schema=schema,
            failures_in_a_row=failures,
            is_listening=self._dependencies.single_agent or metadata.is_listening,
        )

    async def _objects(self) -> Check:
        objects, clock = self._dependencies.objects, self._dependencies.clock
        token = self._dependencies.ids.token()
        key, body = PROOF_PREFIX + token, token.encode()
        began = clock.monotonic()
        await objects.put_new(key, [body])
        content = await objects.get_range(key, 0, len(body))
        await objects.delete(key)
        return check_objects(latency_ms=(clock.monotonic() - began) * 1000, is_same=content == body)

    async def _encryption_keys(self) -> Check:
        keys = self._dependencies.data_keys
        tried = await try_keys(self._dependencies.objects, keys)
        return check_encryption_keys(
            {recorded.envelope.key_id: "" if error is None else error.why for recorded, error in tried},
            in_use=keys.key_id if keys is not None else "",
            why_stale=keys.why_stale if keys is not None else "",
        )

    async def _clock(self) -> Check:
        """The difference of the clocks; the store's time is assumed to be read in the middle of the call."""
        clock = self._dependencies.clock
        before_ms = clock.now_ms()
        theirs_ms = await self._dependencies.metadata.now_ms()
        return check_clock(ahead_ms=(before_ms + clock.now_ms()) / 2 - theirs_ms)

    async def _flush(self) -> Check:
        agent_session, now = self._agent_session(), self._dependencies.clock.monotonic()
        logs = list(agent_session.logs) if agent_session is not None else []
        oldest = min((log.oldest_at for log in logs if log.oldest_at is not None), default=now)
        waiting_bytes = sum(log.tail_bytes for log in logs)
        return check_flush(self._dependencies.settings.flush, oldest_s=now - oldest, waiting_bytes=waiting_bytes)

    async def _memory(self) -> Check:
        return check_memory(self._dependencies.settings.buffer, pressure=self._budget.pressure)

    async def _held_back(self) -> Check:
        """The partitions whose last stable offset lags most, with the blocking transaction; one call each."""
        agent_session = self._agent_session()
        logs = [item for item in agent_session.logs if _lag(item)] if agent_session is not None else []
        logs.sort(key=_lag, reverse=True)
        now_ms = await self._dependencies.metadata.now_ms() if logs else 0
        return check_blocked([await self._behind(item, now_ms=now_ms) for item in logs[:MAX_BLOCKED]])

    async def _behind(self, item: PartitionLog, *, now_ms: int) -> BlockedPartition:
        """The blocking transaction: its start by its row, or without a row the time of the producer's last batch."""
        entries = [each for each in item.producers(now_ms=now_ms) if each.transaction_first is not None]
        oldest = min(entries, key=lambda each: each.transaction_first or 0, default=None)
        row = await self._dependencies.metadata.transaction_of(oldest.producer_id) if oldest is not None else None
        began_ms = row.started_at_ms if row is not None else oldest.last_timestamp_ms if oldest is not None else now_ms
        return BlockedPartition(
            partition=str(item.name),
            offsets=_lag(item),
            open_for_s=max(now_ms - began_ms, 0) / 1000,
            transactional_id=row.transactional_id if row is not None else "",
        )

    async def _readable(self) -> Check:
        """Ranges that readers or the object check could not read; each range once."""
        unreadable = {
            finding.location: f"{finding.name} [{finding.location.base},{finding.location.end})"
            for finding in self._damage.findings()
        }
        texts = [f"{text} {where.key}" for where, text in unreadable.items()]
        keys = {where.key for where in unreadable}
        texts += [self._held(each) for each in self._object_check.unsound() if each.stored.key not in keys]
        return check_readable(texts)

    def _held(self, each: DamagedObject) -> str:
        return f"{describe_ranges(each.ranges, self._catalog.name_of)} {each.stored.key}"

    async def _damaged(self, name: str, kind: str) -> Check:
        logs = await self._damaged_logs.list(kind)
        return check_damaged_wals(name, {each.kept.session_id: each.is_loss for each in logs})

    # --- shared by all agents

    async def _look_at_identity(self) -> Check:
        """Check that the stores belong together, as at the start of an agent; the error is the text of a failure."""
        await self._identity.check()
        settings = self._dependencies.settings
        generation_s = settings.cluster.generation_s + settings.lease.renew_s  # looked at with every heartbeat
        text = (
            f"database and object store belong together: cluster {self._identity.cluster_id}; of a copy of the "
            f"database that is restored after a kill, records may be missing unnoticed of Spark commits of the last "
            f"{generation_s:g} s, and of partitions first led in the last {LEASES_TOGETHER_S:g} s"
        )
        figures = {
            "generation": self._identity.known,
            "unnoticed_commits_s": generation_s,
            "unnoticed_leases_s": LEASES_TOGETHER_S,
        }
        return Check(name="identity", verdict=CheckStatus.OK, text=text, figures=figures)

    async def _segments(self) -> Check:
        """A sample of the objects: half of it the newest ones, the rest random."""
        settings, metadata = self._dependencies.settings.integrity, self._dependencies.metadata
        limit = settings.doctor_objects
        stored = {each.key: each for each in await metadata.newest_objects(limit=limit)}
        more = len(stored) == limit
        if more:
            newest = list(stored.values())[: limit // 2]
            start = int(self._dependencies.ids.token(), 16) % max(1, newest[-1].number)
            others = await metadata.stored_objects(after=start, limit=limit - len(newest))
            stored = {each.key: each for each in (*newest, *others)}
        damaged = await find_damaged_objects(
            stored.values(),
            objects=self._dependencies.objects,
            metadata=metadata,
            at_once=settings.doctor_requests_at_once,
        )
        await self._catalog.all()  # so that partitions have names
        return check_segments(
            looked_at=len(stored),
            more=more,
            missing=[self._held(each) for each in damaged if each.is_missing],
            short=[self._held(each) for each in damaged if not each.is_missing],
        )

    async def _late(self) -> Check:
        late_ms = round(LATE_WARNING_S * 1000)
        due = await self._dependencies.metadata.due_transactions(prepared_before_ms=late_ms, limit=MAX_LISTED)
        return check_late_transactions(due, now_ms=await self._dependencies.metadata.now_ms())

    async def _sessions(self) -> Check:
        return check_sessions(await self._dependencies.metadata.membership(), self._dependencies.settings.lease)

    async def _leases(self) -> Check:
        """Membership is read last: a session that has ended by then had released its leases before."""
        metadata = self._dependencies.metadata
        before = {session.session_id for session in (await metadata.membership()).sessions}
        topics = await self._catalog.all()
        states = await metadata.partitions([topic.topic_id for topic in topics])
        roll = await metadata.membership()
        ended = before - {session.session_id for session in roll.sessions}
        return check_leases([state for state in states if state.holder not in ended], roll)

    async def _pending_deletions(self) -> Check:
        settings = self._dependencies.settings.retention
        late_ms = round((settings.grace_s + 2 * settings.check_s) * 1000)
        overdue = await self._dependencies.metadata.objects_pending_deletion(grace_ms=late_ms, limit=MAX_LISTED)
        return check_pending_deletion(settings, overdue=len(overdue), more=len(overdue) == MAX_LISTED)

    async def _orphans(self) -> Check:
        """Rows are read after the listing, so that objects registered meanwhile are among them."""
        settings = self._dependencies.settings.retention
        listed, more = await _first(self._dependencies.objects.list(SEGMENTS_PREFIX))
        roll = await self._dependencies.metadata.membership()
        alive = {session.session_id for session in roll.sessions}
        known = await self._dependencies.metadata.known_among([meta.key for meta in listed])
        late_ms = self._dependencies.clock.now_ms() - round((settings.orphan_age_s + 2 * settings.sweep_s) * 1000)
        orphans = [
            meta
            for meta in listed
            if meta.key not in known and (name := parse_segment_key(meta.key)) and name.session_id not in alive
        ]
        names = {name.session_id for meta in orphans if (name := parse_segment_key(meta.key)) is not None}
        ended = await self._dependencies.metadata.sessions_among(sorted(names))
        unknown = [meta.key for meta in orphans if _session_of(meta.key) not in ended]
        swept = [meta for meta in orphans if _session_of(meta.key) in ended]
        late = [meta.key for meta in swept if meta.modified_at_ms < late_ms]
        return check_orphans(
            looked_at=len(listed),
            more=more,
            orphans=late or [meta.key for meta in swept],
            overdue=len(late),
            unknown=unknown,
        )

    async def _disks(self) -> Check:
        return check_disks(await self._dependencies.metadata.abandoned_sessions())

    async def _wal_objects(self) -> Check:
        """WAL objects of sessions that have not ended; seals of ended sessions are kept for a while and don't count."""
        listed, more = await _first(self._dependencies.objects.list(WAL_PREFIX))
        roll = await self._dependencies.metadata.membership()
        conditions = {each.session_id: agent_state(each, now_ms=roll.now_ms) for each in roll.sessions}
        waiting = [
            (conditions[name.session_id], meta.size_bytes)
            for meta in listed
            if (name := parse_wal_key(meta.key)) is not None and name.session_id in conditions
        ]
        return check_wal_objects(
            objects=len(waiting),
            size_bytes=sum(size for _, size in waiting),
            more=more,
            of_dead=sum(each in (AgentState.EXPIRED, AgentState.RECOVERING) for each, _ in waiting),
        )


def _session_of(key: str) -> SessionId | None:
    name = parse_segment_key(key)
    return name.session_id if name is not None else None


def _lag(item: PartitionLog) -> int:
    """Number of durable offsets above the last stable offset."""
    return item.high_watermark - item.last_stable_offset if item.closed is None else 0


async def _first(listing: AsyncIterator[ObjectMeta]) -> tuple[list[ObjectMeta], bool]:
    """The first items of a listing, and whether there are more."""
    listed: list[ObjectMeta] = []
    async for meta in listing:
        if len(listed) == MAX_LISTED:
            return listed, True
        listed.append(meta)
    return listed, False


async def _checked(name: str, look: Awaitable[Check]) -> Check:
    """Run a check; a check that raises or times out is a failure."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await look
    except TimeoutError:
        text = f"no answer within {DEADLINE_S:g} s"
    except StreamhouseError as error:
        text = str(error)
    return Check(name=name, verdict=CheckStatus.FAILURE, text=text)
