"""Checkup: looks at this agent and at what all agents share, when somebody asks whether all is well.

Data path   none: wire -> **checkup** -> stores, tenure, budget
Owns        which things are looked at, and for how long at most
Leaves      what is fine and what isn't to `verdicts`, comparing agents with each other to whoever asks them all
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from streamhouse.broker.admin.cluster_admin import Condition, condition_of
from streamhouse.broker.admin.damaged_wals import DamagedLogs
from streamhouse.broker.admin.health_rules import (
    LATE_WARNING_S,
    Check,
    HeldBack,
    Verdict,
    judge_clock,
    judge_damaged_logs,
    judge_disks,
    judge_doomed,
    judge_exposure,
    judge_flush,
    judge_held_back,
    judge_late,
    judge_leases,
    judge_memory,
    judge_metadata,
    judge_objects,
    judge_orphans,
    judge_readable,
    judge_readiness,
    judge_segments,
    judge_sessions,
    judge_wal_objects,
)
from streamhouse.broker.context import Ground
from streamhouse.broker.maintenance.object_check import ObjectCheck, UnsoundObject, described, find_unsound
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.errors import StreamhouseError
from streamhouse.format.object_keys import SEGMENTS_PREFIX, WAL_PREFIX, parse_segment_key, parse_wal_key
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import ObjectMeta

DEADLINE_S: Final = 8.0
"""Of one check; a client waits a little longer for all of them, which run at once."""
MAX_LISTED: Final = 10_000
MAX_HELD_BACK: Final = 20
PROOF_PREFIX: Final = "proof/"


class Checkup:
    def __init__(
        self,
        ground: Ground,
        *,
        not_ready: Callable[[], str | None],
        object_check: ObjectCheck,
        damaged_logs: DamagedLogs,
    ) -> None:
        self._doors = ground.doors
        self._catalogue = ground.catalogue
        self._budget = ground.budget
        self._tenure = ground.succession.tenure
        self._identity = ground.succession.identity
        self._not_ready = not_ready
        self._damage = ground.reader.damage
        self._object_check = object_check
        self._damaged_logs = damaged_logs

    def __repr__(self) -> str:
        return f"<Checkup of {self._doors.kafka}>"

    async def own(self) -> Sequence[Check]:
        """What only this agent can tell."""
        return await asyncio.gather(
            _tried("ready", self._readiness()),
            _tried("exposure", self._exposure()),
            _tried("metadata store", self._metadata()),
            _tried("object store", self._objects()),
            _tried("clock", self._clock()),
            _tried("flush", self._flush()),
            _tried("memory", self._memory()),
            _tried("open transactions", self._held_back()),
            _tried("readable", self._readable()),
            _tried("damaged log files", self._damaged("damaged log files", "disk")),
        )

    async def shared(self) -> Sequence[Check]:
        """What any agent can tell about the stores that all share."""
        return await asyncio.gather(
            _tried("identity", self._look_at_identity()),
            _tried("sessions", self._sessions()),
            _tried("leases", self._leases()),
            _tried("deletions", self._doomed()),
            _tried("segments", self._segments()),
            _tried("orphans", self._orphans()),
            _tried("write-ahead log", self._wal_objects()),
            _tried("damaged log objects", self._damaged("damaged log objects", "object")),
            _tried("disks", self._disks()),
            _tried("transactions", self._late()),
        )

    # --- this agent

    async def _readiness(self) -> Check:
        return judge_readiness(self._not_ready())

    async def _exposure(self) -> Check:
        return judge_exposure(self._doors.settings)

    async def _metadata(self) -> Check:
        metadata, clock = self._doors.metadata, self._doors.clock
        failures = metadata.failures_in_a_row
        began = clock.monotonic()
        schema = await metadata.schema_version()
        return judge_metadata(
            latency_ms=(clock.monotonic() - began) * 1000,
            schema=schema,
            failures_in_a_row=failures,
            is_listening=self._doors.alone or metadata.is_listening,
        )

    async def _objects(self) -> Check:
        objects, clock = self._doors.objects, self._doors.clock
        token = self._doors.ids.token()
        key, body = PROOF_PREFIX + token, token.encode()
        began = clock.monotonic()
        await objects.put_new(key, [body])
        found = await objects.get_range(key, 0, len(body))
        await objects.delete(key)
        return judge_objects(latency_ms=(clock.monotonic() - began) * 1000, is_same=found == body)

    async def _clock(self) -> Check:
        """The store answered somewhere between asking and hearing; half of that is the best guess."""
        clock = self._doors.clock
        before_ms = clock.now_ms()
        theirs_ms = await self._doors.metadata.now_ms()
        return judge_clock(ahead_ms=(before_ms + clock.now_ms()) / 2 - theirs_ms)

    async def _flush(self) -> Check:
        tenure, now = self._tenure(), self._doors.clock.monotonic()
        logs = list(tenure.logs()) if tenure is not None else []
        oldest = min((log.oldest_at for log in logs if log.oldest_at is not None), default=now)
        waiting_bytes = sum(log.tail_bytes for log in logs)
        return judge_flush(self._doors.settings.flush, oldest_s=now - oldest, waiting_bytes=waiting_bytes)

    async def _memory(self) -> Check:
        return judge_memory(self._doors.settings.buffer, pressure=self._budget.pressure)

    async def _held_back(self) -> Check:
        """Of the partitions that lag most, who is in the way; each is one question."""
        tenure = self._tenure()
        logs = [item for item in tenure.logs() if _lag(item)] if tenure is not None else []
        logs.sort(key=_lag, reverse=True)
        now_ms = await self._doors.metadata.now_ms() if logs else 0
        return judge_held_back([await self._behind(item, now_ms=now_ms) for item in logs[:MAX_HELD_BACK]])

    async def _behind(self, item: PartitionLog, *, now_ms: int) -> HeldBack:
        """The store's clock says when a transaction began; where no row does, the producer's last batch has to."""
        entries = [each for each in item.producers(now_ms=now_ms) if each.transaction_first is not None]
        oldest = min(entries, key=lambda each: each.transaction_first or 0, default=None)
        row = await self._doors.metadata.transaction_of(oldest.producer_id) if oldest is not None else None
        began_ms = row.started_at_ms if row is not None else oldest.last_timestamp_ms if oldest is not None else now_ms
        return HeldBack(
            partition=str(item.name),
            offsets=_lag(item),
            open_for_s=max(now_ms - began_ms, 0) / 1000,
            transactional_id=row.transactional_id if row is not None else "",
        )

    async def _readable(self) -> Check:
        """What readers were refused, and what the regular check of objects found; each range once."""
        found = {
            finding.place: f"{finding.name} [{finding.place.base},{finding.place.end})"
            for finding in self._damage.findings()
        }
        texts = [f"{text} {place.key}" for place, text in found.items()]
        keys = {place.key for place in found}
        texts += [self._held(each) for each in self._object_check.unsound() if each.stored.key not in keys]
        return judge_readable(texts)

    def _held(self, each: UnsoundObject) -> str:
        return f"{described(each.ranges, self._catalogue.name_of)} {each.stored.key}"

    async def _damaged(self, name: str, kind: str) -> Check:
        logs = await self._damaged_logs.list(kind)
        return judge_damaged_logs(name, {each.kept.session_id: each.is_loss for each in logs})

    # --- what all share

    async def _look_at_identity(self) -> Check:
        """A refusal is the text of a failure, as at the start of an agent."""
        await self._identity.check()
        text = f"database and object store belong together: cluster {self._identity.cluster_id}"
        figures = {"generation": self._identity.known}
        return Check(name="identity", verdict=Verdict.OK, text=text, figures=figures)

    async def _segments(self) -> Check:
        """Of many objects the newest half of what may be asked for, and others by chance."""
        settings, metadata = self._doors.settings.integrity, self._doors.metadata
        limit = settings.doctor_objects
        stored = {each.key: each for each in await metadata.newest_objects(limit=limit)}
        more = len(stored) == limit
        if more:
            newest = list(stored.values())[: limit // 2]
            start = int(self._doors.ids.token(), 16) % max(1, newest[-1].number)
            others = await metadata.stored_objects(after=start, limit=limit - len(newest))
            stored = {each.key: each for each in (*newest, *others)}
        found = await find_unsound(
            stored.values(),
            objects=self._doors.objects,
            metadata=metadata,
            at_once=settings.doctor_requests_at_once,
        )
        await self._catalogue.all()  # so that partitions have names
        return judge_segments(
            looked_at=len(stored),
            more=more,
            missing=[self._held(each) for each in found if each.is_missing],
            short=[self._held(each) for each in found if not each.is_missing],
        )

    async def _late(self) -> Check:
        late_ms = round(LATE_WARNING_S * 1000)
        found = await self._doors.metadata.due_transactions(prepared_before_ms=late_ms, limit=MAX_LISTED)
        return judge_late(found, now_ms=await self._doors.metadata.now_ms())

    async def _sessions(self) -> Check:
        return judge_sessions(await self._doors.metadata.membership(), self._doors.settings.lease)

    async def _leases(self) -> Check:
        """The roll is read last: a session that is over by then had freed what it held before."""
        metadata = self._doors.metadata
        before = {session.session_id for session in (await metadata.membership()).sessions}
        topics = await self._catalogue.all()
        states = await metadata.partitions([topic.topic_id for topic in topics])
        roll = await metadata.membership()
        ended = before - {session.session_id for session in roll.sessions}
        return judge_leases([state for state in states if state.holder not in ended], roll)

    async def _doomed(self) -> Check:
        settings = self._doors.settings.retention
        late_ms = round((settings.grace_s + 2 * settings.check_s) * 1000)
        found = await self._doors.metadata.objects_pending_deletion(grace_ms=late_ms, limit=MAX_LISTED)
        return judge_doomed(settings, overdue=len(found), more=len(found) == MAX_LISTED)

    async def _orphans(self) -> Check:
        """The names are read after the listing, so that what was registered meanwhile is among them."""
        settings = self._doors.settings.retention
        listed, more = await _first(self._doors.objects.list(SEGMENTS_PREFIX))
        roll = await self._doors.metadata.membership()
        alive = {session.session_id for session in roll.sessions}
        known = await self._doors.metadata.known_among([meta.key for meta in listed])
        late_ms = self._doors.clock.now_ms() - round((settings.orphan_age_s + 2 * settings.sweep_s) * 1000)
        orphans = [
            meta
            for meta in listed
            if meta.key not in known and (name := parse_segment_key(meta.key)) and name.session_id not in alive
        ]
        names = {name.session_id for meta in orphans if (name := parse_segment_key(meta.key)) is not None}
        ended = await self._doors.metadata.sessions_among(sorted(names))
        unknown = [meta.key for meta in orphans if _session_of(meta.key) not in ended]
        swept = [meta for meta in orphans if _session_of(meta.key) in ended]
        late = [meta.key for meta in swept if meta.modified_at_ms < late_ms]
        return judge_orphans(
            looked_at=len(listed),
            more=more,
            orphans=late or [meta.key for meta in swept],
            overdue=len(late),
            unknown=unknown,
        )

    async def _disks(self) -> Check:
        return judge_disks(await self._doors.metadata.abandoned_sessions())

    async def _wal_objects(self) -> Check:
        """Seals of sessions that are long over stay for a while; only objects of sessions on the roll wait."""
        listed, more = await _first(self._doors.objects.list(WAL_PREFIX))
        roll = await self._doors.metadata.membership()
        conditions = {each.session_id: condition_of(each, now_ms=roll.now_ms) for each in roll.sessions}
        waiting = [
            (conditions[name.session_id], meta.size_bytes)
            for meta in listed
            if (name := parse_wal_key(meta.key)) is not None and name.session_id in conditions
        ]
        return judge_wal_objects(
            objects=len(waiting),
            size_bytes=sum(size for _, size in waiting),
            more=more,
            of_dead=sum(each in (Condition.EXPIRED, Condition.RECOVERING) for each, _ in waiting),
        )


def _session_of(key: str) -> SessionId | None:
    name = parse_segment_key(key)
    return name.session_id if name is not None else None


def _lag(item: PartitionLog) -> int:
    """Offsets that are durable and not decided."""
    return item.high_watermark - item.last_stable_offset if item.closed is None else 0


async def _first(listing: AsyncIterator[ObjectMeta]) -> tuple[list[ObjectMeta], bool]:
    """The beginning of a listing, and whether there is more."""
    found: list[ObjectMeta] = []
    async for meta in listing:
        if len(found) == MAX_LISTED:
            return found, True
        found.append(meta)
    return found, False


async def _tried(name: str, look: Awaitable[Check]) -> Check:
    """A look that fails, or takes too long, is a finding as well."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await look
    except TimeoutError:
        text = f"no answer within {DEADLINE_S:g} s"
    except StreamhouseError as error:
        text = str(error)
    return Check(name=name, verdict=Verdict.FAILURE, text=text)
