"""Health rules: whether the state of a cluster is fine, worth a warning, or a failure.

Data path   none: health_check -> **health_rules**
Owns        the limits between ok, warning and failure, and the text of each
Leaves      reading the state to `health_check`, exit codes to the command line

A warning will resolve itself or reduces performance; a failure needs an operator now.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from streamhouse.broker.admin.cluster_admin import AgentState, agent_state
from streamhouse.broker.security.access_control import super_user_warning
from streamhouse.config import (
    BufferSettings,
    FlushSettings,
    LeaseSettings,
    RetentionSettings,
    SecuritySettings,
    Settings,
    anonymous_listeners,
    exposure_warning,
)
from streamhouse.model.cluster import Membership, PartitionState, Session
from streamhouse.model.names import SessionId
from streamhouse.model.transaction import StoredTransaction

CLOCK_WARNING_MS: Final = 1000
SLOW_MS: Final = 1000
FLUSH_WARNING: Final = 3.0
"""Multiple of `flush.age_s` from which the age of the oldest unflushed record is a warning."""
FLUSH_FAILURE: Final = 20.0
RECOVERY_LIFETIMES: Final = 3.0
"""Multiple of the lease time after which an unrecovered dead session is a failure."""


OPEN_WARNING_S: Final = 60.0
"""Age from which an open transaction is a warning: read_committed consumers wait for it."""
LATE_WARNING_S: Final = 30.0
"""Time after its timeout from which a transaction is a failure: no agent can complete it."""
LATE_FAILURE_S: Final = 300.0


MAX_NAMED: Final = 10
"""Maximum items named in a text; the others are counted."""
RESTORE: Final = (
    "restore the objects from a copy or a version of the bucket; until then readers of these offsets are refused, and "
    "all others are served"
)


class CheckStatus(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check. `figures` are the numbers in the text, for scripts."""

    name: str
    verdict: CheckStatus
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedPartition:
    """A partition with an open transaction, and the number of offsets above it that read_committed consumers don't get.
    `transactional_id` is empty if the producer has no row."""

    partition: str
    offsets: int
    open_for_s: float
    transactional_id: str


def check_readiness(reason: str | None) -> Check:
    if reason is None:
        return Check(name="ready", verdict=CheckStatus.OK, text="the agent takes traffic")
    return Check(name="ready", verdict=CheckStatus.FAILURE, text=f"the agent should get no traffic: {reason}")


def check_exposure(settings: Settings) -> Check:
    """Listeners that are reachable from other machines without a login are a warning."""
    listeners = anonymous_listeners(settings)
    figures = {"listeners": len(listeners)}
    if not listeners:
        text = "every listener is on loopback, or asks clients to log in"
        return Check(name="exposure", verdict=CheckStatus.OK, text=text, figures=figures)
    return Check(name="exposure", verdict=CheckStatus.WARNING, text=exposure_warning(settings), figures=figures)


def check_super_users(settings: SecuritySettings) -> Check:
    """Super users whose name a token of the issuer can have are a warning."""
    if warning := super_user_warning(settings):
        return Check(name="super users", verdict=CheckStatus.WARNING, text=warning)
    return Check(name="super users", verdict=CheckStatus.OK, text="no issuer of tokens can name a super user")


def check_metadata(*, latency_ms: float, schema: int, failures_in_a_row: int, is_listening: bool) -> Check:
    figures = {"latency_ms": latency_ms, "schema": schema, "failures_in_a_row": failures_in_a_row}
    if failures_in_a_row:
        text = f"{failures_in_a_row} calls failed in a row just before"
    elif not is_listening:
        text = "answers, but the connection for change notifications is down"
    elif latency_ms > SLOW_MS:
        text = f"answers slowly, in {latency_ms:.0f} ms"
    else:
        text = f"answers in {latency_ms:.0f} ms, schema {schema}"
        return Check(name="metadata store", verdict=CheckStatus.OK, text=text, figures=figures)
    return Check(name="metadata store", verdict=CheckStatus.WARNING, text=text, figures=figures)


def check_objects(*, latency_ms: float, is_same: bool) -> Check:
    figures = {"latency_ms": latency_ms}
    if not is_same:
        text = "an object does not read back as it was written"
        return Check(name="object store", verdict=CheckStatus.FAILURE, text=text, figures=figures)
    slow = latency_ms > SLOW_MS
    text = f"created, read and deleted an object in {latency_ms:.0f} ms" + (", which is slow" if slow else "")
    return Check(
        name="object store", verdict=CheckStatus.WARNING if slow else CheckStatus.OK, text=text, figures=figures
    )


def check_clock(*, ahead_ms: float) -> Check:
    """Leases use the store's clock and monotonic clocks; the wall clock is used for record timestamps and object
    ages."""
    figures = {"ahead_ms": ahead_ms}
    if abs(ahead_ms) > CLOCK_WARNING_MS:
        text = f"{abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} the database"
        return Check(
            name="clock", verdict=CheckStatus.WARNING, text=f"{text}; look at the time service", figures=figures
        )
    text = f"within {max(abs(ahead_ms), 1):.0f} ms of the database"
    return Check(name="clock", verdict=CheckStatus.OK, text=text, figures=figures)


def check_flush(settings: FlushSettings, *, oldest_s: float, waiting_bytes: int) -> Check:
    figures = {"oldest_s": oldest_s, "bytes": waiting_bytes, "age_s": settings.age_s}
    text = f"the oldest record waits for {oldest_s:.0f} s, {waiting_bytes} bytes in all; flush.age_s={settings.age_s:g}"
    if oldest_s > FLUSH_FAILURE * settings.age_s:
        return Check(name="flush", verdict=CheckStatus.FAILURE, text=text, figures=figures)
    late = oldest_s > FLUSH_WARNING * settings.age_s
    return Check(name="flush", verdict=CheckStatus.WARNING if late else CheckStatus.OK, text=text, figures=figures)


def check_memory(settings: BufferSettings, *, pressure: float) -> Check:
    figures = {"pressure": pressure}
    text = f"{pressure:.0%} of the budget for unflushed records is in use"
    if pressure >= 1:
        return Check(name="memory", verdict=CheckStatus.FAILURE, text=f"{text}; appends are refused", figures=figures)
    if pressure >= settings.throttle_at:
        return Check(
            name="memory", verdict=CheckStatus.WARNING, text=f"{text}; appends are slowed down", figures=figures
        )
    return Check(name="memory", verdict=CheckStatus.OK, text=text, figures=figures)


def check_sessions(roll: Membership, lease: LeaseSettings) -> Check:
    dead = {each.node_id: (roll.now_ms - each.expires_at_ms) / 1000 for each in roll.sessions if _is_dead(each, roll)}
    live = len(roll.sessions) - len(dead)
    figures = {"live": live, "dead": len(dead)}
    if not dead:
        text = "1 agent is alive" if live == 1 else f"{live} agents are alive"
        return Check(name="sessions", verdict=CheckStatus.OK, text=f"{text}, none waits for recovery", figures=figures)
    nodes = ", ".join(map(str, sorted(dead)))
    text = f"not recovered yet: {nodes}; the longest for {max(dead.values()):.0f} s"
    overdue = max(dead.values()) > RECOVERY_LIFETIMES * lease.ttl_s
    return Check(
        name="sessions", verdict=CheckStatus.FAILURE if overdue else CheckStatus.WARNING, text=text, figures=figures
    )


def check_disks(abandoned: Mapping[SessionId, int]) -> Check:
    """Abandoned sessions: acknowledged records on an unreachable disk; they return with the disk."""
    partitions = sum(abandoned.values())
    figures = {"disks": len(abandoned), "partitions": partitions}
    if not abandoned:
        return Check(
            name="disks", verdict=CheckStatus.OK, text="none was left behind with records on it", figures=figures
        )
    text = (
        f"records of {partitions} partitions may be on the disk of dead agents: {', '.join(sorted(abandoned)[:10])}; "
        "start an agent with that data folder, and it appends them again"
    )
    return Check(name="disks", verdict=CheckStatus.WARNING, text=text, figures=figures)


def check_leases(states: Iterable[PartitionState], roll: Membership) -> Check:
    """Leases without a session: recovery releases those of dead sessions, but these would never be released."""
    dead = {each.session_id for each in roll.sessions if _is_dead(each, roll)}
    known = {each.session_id for each in roll.sessions}
    held: list[SessionId] = [state.holder for state in states if state.holder is not None]
    of_dead = sum(holder in dead for holder in held)
    unheld = sum(holder not in known for holder in held)
    figures = {"held": len(held), "of_dead": of_dead, "unheld": unheld}
    if unheld:
        text = f"{unheld} of {len(held)} are held by sessions that are over: nobody can take these partitions"
        return Check(name="leases", verdict=CheckStatus.FAILURE, text=text, figures=figures)
    if of_dead:
        text = f"{of_dead} of {len(held)} are held by dead agents, until these are recovered"
        return Check(name="leases", verdict=CheckStatus.WARNING, text=text, figures=figures)
    return Check(name="leases", verdict=CheckStatus.OK, text=f"{len(held)} held, all by living agents", figures=figures)


def check_blocked(blocked: Sequence[BlockedPartition]) -> Check:
    """Open transactions are normal; those that stay open block read_committed consumers."""
    name, longest = "open transactions", max(blocked, key=lambda each: each.open_for_s, default=None)
    figures: dict[str, float] = {"partitions": len(blocked), "offsets": sum(each.offsets for each in blocked)}
    if longest is None:
        return Check(
            name=name, verdict=CheckStatus.OK, text="none holds readers of committed records back", figures=figures
        )
    figures["longest_s"] = longest.open_for_s
    text = (
        f"{len(blocked)} partitions are held back, the longest for {longest.open_for_s:.0f} s: {longest.partition}, "
        f"{longest.offsets} offsets, by {longest.transactional_id or 'a producer that is gone'}"
    )
    if longest.open_for_s <= OPEN_WARNING_S:
        return Check(name=name, verdict=CheckStatus.OK, text=text, figures=figures)
    cure = "; streamhouse transactions abort ends it" if longest.transactional_id else ""
    return Check(name=name, verdict=CheckStatus.WARNING, text=text + cure, figures=figures)


def check_late_transactions(transactions: Iterable[StoredTransaction], *, now_ms: int) -> Check:
    """Agents check every second; a transaction that is overdue for long has a partition without a leader for its
    marker."""
    late = {each.transactional_id: _late_s(each, now_ms=now_ms) for each in transactions}
    late = {name: late_s for name, late_s in late.items() if late_s > LATE_WARNING_S}
    if not late:
        return Check(name="transactions", verdict=CheckStatus.OK, text="none is late to end", figures={"late": 0})
    name = max(late, key=late.__getitem__)
    text = f"{len(late)} should be over, the longest for {late[name]:.0f} s: {name!r}; who leads its partitions?"
    verdict = CheckStatus.FAILURE if late[name] > LATE_FAILURE_S else CheckStatus.WARNING
    figures = {"late": len(late), "longest_s": late[name]}
    return Check(name="transactions", verdict=verdict, text=text, figures=figures)


def _late_s(each: StoredTransaction, *, now_ms: int) -> float:
    due_at_ms = each.changed_at_ms if each.state.is_prepared else each.started_at_ms + each.timeout_ms
    return (now_ms - due_at_ms) / 1000


def check_pending_deletion(settings: RetentionSettings, *, overdue: int, more: bool) -> Check:
    figures = {"overdue": overdue}
    if not overdue:
        return Check(name="deletions", verdict=CheckStatus.OK, text="none is overdue", figures=figures)
    number = f"{overdue}{' or more' if more else ''}"
    text = f"{number} objects should be deleted by now; retention.grace_s={settings.grace_s:g}"
    return Check(name="deletions", verdict=CheckStatus.WARNING, text=text, figures=figures)


def check_orphans(
    *, looked_at: int, more: bool, orphans: Sequence[str], overdue: int, unknown: Sequence[str] = ()
) -> Check:
    """`unknown` are objects of sessions without a row: they may contain records that the database lost."""
    figures = {"looked_at": looked_at, "orphans": len(orphans), "overdue": overdue, "unknown": len(unknown)}
    among = f"among {looked_at} objects" + (" (there are more)" if more else "")
    if unknown:
        text = (
            f"{len(unknown)} {among} are of sessions that the database doesn't know, such as {unknown[0]}; "
            "they are kept, and `streamhouse recover` shows what is in them"
        )
        return Check(name="orphans", verdict=CheckStatus.WARNING, text=text, figures=figures)
    if overdue:
        text = f"{overdue} {among} that no row names should be swept by now, such as {orphans[0]}"
        return Check(name="orphans", verdict=CheckStatus.WARNING, text=text, figures=figures)
    text = f"{len(orphans)} {among} that no row names, none overdue" if orphans else f"none {among}"
    return Check(name="orphans", verdict=CheckStatus.OK, text=text, figures=figures)


def check_segments(*, looked_at: int, more: bool, missing: Sequence[str], short: Sequence[str]) -> Check:
    """Referenced objects, checked by HEAD. `missing` and `short` describe the content of each."""
    name, among = "segments", f"{looked_at} objects that rows name" + (" (there are more)" if more else "")
    figures = {"looked_at": looked_at, "missing": len(missing), "short": len(short)}
    if not missing and not short:
        return Check(name=name, verdict=CheckStatus.OK, text=f"{among} are in the store and whole", figures=figures)
    if len(missing) == looked_at:
        text = f"the store has none of {among}: is it the right bucket and prefix, or was it emptied?"
    else:
        text = f"of {among}, {len(missing)} are missing and {len(short)} too short"
    listed = [f"missing: {each}" for each in missing] + [f"too short: {each}" for each in short]
    text = f"{text}; {_some(listed)}; {RESTORE}"
    return Check(name=name, verdict=CheckStatus.FAILURE, text=text, figures=figures)


def check_readable(ranges: Sequence[str]) -> Check:
    """Ranges that this agent's reads or checks found missing or damaged."""
    figures = {"ranges": len(ranges)}
    if not ranges:
        text = "no range was found missing or damaged"
        return Check(name="readable", verdict=CheckStatus.OK, text=text, figures=figures)
    text = f"{len(ranges)} ranges can't be read; {_some(ranges)}; {RESTORE}"
    return Check(name="readable", verdict=CheckStatus.FAILURE, text=text, figures=figures)


def _some(listed: Sequence[str]) -> str:
    rest = f"; and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
    return "; ".join(listed[:MAX_NAMED]) + rest


def check_wal_objects(*, objects: int, size_bytes: int, more: bool, of_dead: int) -> Check:
    """The objects that recoveries would have to read; those of dead sessions wait for one."""
    figures = {"objects": objects, "bytes": size_bytes, "of_dead": of_dead}
    text = f"{objects}{' or more' if more else ''} objects wait for their records to be flushed, {size_bytes} bytes"
    if of_dead:
        text = f"{text}; {of_dead} are of agents that died"
        return Check(name="write-ahead log", verdict=CheckStatus.WARNING, text=text, figures=figures)
    return Check(name="write-ahead log", verdict=CheckStatus.OK, text=text, figures=figures)


def check_encryption_keys(tried: Mapping[str, str], *, in_use: str, why_stale: str) -> Check:
    """`tried` are the keys that objects may need, each with why this agent can't use it; empty: it can."""
    name, missing = "encryption keys", {key_id: why for key_id, why in tried.items() if why}
    figures = {"keys": len(tried), "missing": len(missing)}
    now = f"new objects are encrypted with {in_use}" if in_use else "new objects are not encrypted"
    if missing:
        listed = _some([f"{key_id}: {why}" for key_id, why in missing.items()])
        text = f"keys that objects need can't be used; {listed}; give encryption.key these keys back; {now}"
        return Check(name=name, verdict=CheckStatus.FAILURE, text=text, figures=figures)
    if why_stale:
        text = f"{now}; the data key can't be replaced, and writing will stop: {why_stale}"
        return Check(name=name, verdict=CheckStatus.WARNING, text=text, figures=figures)
    older = [key_id for key_id in tried if key_id != in_use]
    text = f"{now}; older objects may need {_some(older)}" if older else now
    return Check(name=name, verdict=CheckStatus.OK, text=text, figures=figures)


def check_damaged_wals(name: str, logs: Mapping[SessionId, bool]) -> Check:
    """`logs` are the retained damaged logs, each with whether acknowledged records may be lost."""
    lost = sorted(session for session, is_loss in logs.items() if is_loss)
    figures = {"logs": len(logs), "lost": len(lost)}
    if not logs:
        return Check(name=name, verdict=CheckStatus.OK, text="none is kept", figures=figures)
    do = "streamhouse wal damaged shows what, streamhouse wal discard deletes one"
    if lost:
        text = f"acknowledged records may be lost: the logs of {', '.join(lost[:10])} are damaged, and kept; {do}"
        return Check(name=name, verdict=CheckStatus.FAILURE, text=text, figures=figures)
    text = f"{len(logs)} with a torn end, as a loss of power leaves it, are kept; {do}"
    return Check(name=name, verdict=CheckStatus.WARNING, text=text, figures=figures)


def _is_dead(session: Session, roll: Membership) -> bool:
    return agent_state(session, now_ms=roll.now_ms) in (AgentState.EXPIRED, AgentState.RECOVERING)
