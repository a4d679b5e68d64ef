"""Options: what a seed chooses before anything runs: limits, policies, topics, clients, and what will go wrong.

Owns        the profiles and the ranges; small limits, so that everything happens often
Leaves      acting on them to `world`, `nemesis` and `workload`
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from streamhouse.config import (
    AgentSettings,
    BufferSettings,
    ClusterSettings,
    CompactionSettings,
    ExternalCommitSettings,
    FetchSettings,
    FlushSettings,
    GroupSettings,
    KafkaSettings,
    LeaseSettings,
    PlanSettings,
    ProducerSettings,
    QuotaSettings,
    RetentionSettings,
    Settings,
    TransactionSettings,
    WalSettings,
)

INLINE_BYTES: Final = 0
"""`wal.inline_bytes` of all seeds: with threads, a group has more moments at which it can be torn. A test raises it."""

KILLS: Final = {"kill": 3, "fuse": 4, "stop": 2}
POWER: Final = {"power": 3, "power-fuse": 3, "fuse": 1}
STORES: Final = {"object-storm": 4, "objects-away": 2, "metadata-storm": 4, "metadata-away": 2, "slow": 1, "rot": 1}
DISK: Final = {"disk-full": 2, "sync-error": 3}
TIME: Final = {"pause": 3, "clock-jump": 2}

PROFILES: Final[Mapping[str, Mapping[str, int]]] = {
    "calm": {},
    "kills": KILLS,
    "power": POWER,
    "stores": {**STORES, "fuse": 2, "stop": 2},
    "disk": {**DISK, **POWER, "stop": 1, "object-storm": 2},
    "time": {**TIME, "fuse": 1, "metadata-storm": 1},
    "everything": {**KILLS, **POWER, **STORES, **DISK, **TIME},
    "jobs": {**KILLS, **STORES, "unanswered": 4},
    "transactions": {**KILLS, **STORES, "pause": 2, "unanswered": 2},
    "wire": {**KILLS, **STORES, "pause": 1},
}
TEAM_STORES: Final = {**STORES, "cut-off": 3, "deaf": 2}
TEAM_MOVES: Final = {"stop": 4, "drain": 3, "pin": 3, "deaf": 2}
ZOMBIES: Final = {"zombie": 3, "pause": 2}
TEAM_PROFILES: Final[Mapping[str, Mapping[str, int]]] = {
    "team-calm": {},
    "team-kills": {**KILLS, "object-storm": 3},
    "team-zombies": {**ZOMBIES, "object-storm": 3, "kill": 1},
    "team-stores": {**TEAM_STORES, "fuse": 2, "stop": 2},
    "team-moves": {**TEAM_MOVES, "metadata-storm": 1, "fuse": 1},
    "team-everything": {**KILLS, **TEAM_STORES, **TEAM_MOVES, **ZOMBIES, "clock-jump": 1},
    "team-jobs": {**KILLS, **TEAM_STORES, "unanswered": 8, "stop": 4, "drain": 3, "pause": 1},
    "team-disks": {**KILLS, **ZOMBIES, "object-storm": 2, "metadata-storm": 2, "sync-error": 1, "disk-full": 1},
    "team-transactions": {**KILLS, **TEAM_STORES, **TEAM_MOVES, **ZOMBIES, "unanswered": 2},
    "team-wire": {**KILLS, **TEAM_MOVES, **ZOMBIES, "object-storm": 2, "metadata-storm": 2, "cut-off": 1},
}
JOB_PROFILES: Final = frozenset({"jobs", "team-jobs"})
"""In which runs are rewritten from outside whatever the seed says."""
TRANSACTION_PROFILES: Final = frozenset({"transactions", "team-transactions"})
"""In which there are transactions whatever the seed says."""
WIRE_PROFILES: Final = frozenset({"wire", "team-wire"})
"""In which clients speak Kafka's protocol, in bytes, with the product's server."""
DISKS_SHARE: Final = 0.1
"""Share of the teams, where no profile is asked for, in which each agent has a disk for its log."""
DISK_PROFILES: Final = frozenset({*PROFILES, "team-disks"})
"""In which each agent has a disk for its log."""
ALL_PROFILES: Final = {**PROFILES, **TEAM_PROFILES}
TEAM_SHARE: Final = 0.5
"""Share of the seeds, where no profile is asked for, in which several agents share the stores."""
GROUPS_SHARE: Final = 0.4
"""Share of the seeds of every profile that have consumer groups."""
PLACING_SHARE: Final = 0.35
"""Share of the seeds of every profile in which segments are placed."""
JOBS_SHARE: Final = 0.3
"""Share of the seeds, where no profile is asked for, in which jobs rewrite runs."""
TRANSACTIONS_SHARE: Final = 0.4
"""Share of the seeds of every profile in which producers have transactions."""
TABLE_SHARE: Final = 0.2
"""Share of the seeds of every profile with a topic that is compacted by key; where the power takes records, of none."""
DAMAGE_SHARE: Final = 0.2
"""Share of the seeds of every profile in which an object is damaged at rest."""
EXPIRY_SHARE: Final = 0.3
"""Share of the seeds in which committed offsets expire before the end."""
LONG_S: Final = 3600.0
SEALS_KEPT_S: Final = 25.0
"""Longer than the longest sleep of an agent and the latest arrival of a PUT together, as whoever sets it must."""
_TEAM_SHARES: Final = {
    "team-calm": 1,
    "team-kills": 3,
    "team-zombies": 4,
    "team-stores": 4,
    "team-moves": 4,
    "team-everything": 6,
}
_SHARES: Final = {"calm": 1, "kills": 3, "power": 3, "stores": 3, "disk": 2, "time": 1, "everything": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    name: str
    partitions: int
    overrides: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """A consumer group over all topics; without members, one that is only committed to."""

    group_id: str
    members: int
    statics: int
    is_cooperative: bool
    session_s: float
    rebalance_s: float
    heartbeat_s: float
    commit_s: float
    trouble: float
    """Chance that a member misbehaves after a read."""
    lifetime_s: float
    echoes: float
    """Share of requests that come again."""
    learns_id: bool
    may_skip_assignment: bool
    deletes_s: float = 0.0
    """Mean time between two tries to delete the group or what it committed; 0: nobody tries."""

    @property
    def is_deleted(self) -> bool:
        return self.deletes_s > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    seed: int
    profile: str
    settings: Settings
    topics: tuple[TopicPlan, ...]
    faults_s: float
    calm_between_s: float
    fifo: float
    starve: float
    unlucky: tuple[str, ...] = ()
    """Kinds of handles that starve whatever the dice say."""
    latency_s: float
    retries: bool
    database_has_own_clock: bool
    plain_producers: int
    idempotent_producers: int
    eager_producers: int = 0
    """Idempotent ones, too, with requests under way in several partitions at once."""
    followers: int
    readers: int
    churns: bool
    groups: tuple[GroupPlan, ...]
    restart_fuse: float
    """Chance that a new agent dies during its first steps, which are those of recovery."""
    placers: int = 0
    """Queries that place segments which they wrote themselves."""
    placing_loss: float = 0.0
    """Share of the messages between agents about it that are lost."""
    jobs: int = 0
    """Jobs that rewrite runs outside the agents, one after the other each."""
    job_trouble: float = 0.0
    """Chance that one of them dies, and that it falls asleep."""
    transactors: int = 0
    """Producers with transactions."""
    transactional_ids: int = 1
    """Among which they are divided: those with the same one fence each other."""
    transaction_timeout_s: float = 2.0
    transaction_trouble: float = 0.0
    """Chance that one of them dies in the middle of a transaction, and that it sleeps."""
    marker_loss: float = 0.0
    """Share of the messages about markers that are lost, and that come again later."""
    committed_followers: int = 0
    is_wired: bool = False
    """Whether clients speak Kafka's protocol, in bytes."""
    wire_cuts: float = 0.0
    """Share of the requests on whose way the connection breaks."""
    wire_naps: float = 0.0
    """Share of the requests after which the client reads nothing for a while."""
    has_table: bool = False
    """Whether there is a topic that is compacted by key."""
    is_damaged: bool = False
    """Whether an object is damaged at rest after the faults."""
    team: int = 0
    """How many agents share the stores; 0: one alone, with a disk."""
    down_s: float = 0.1
    """Mean time until an agent that is over is succeeded."""
    sleepy_puts: float = 0.0
    """Chance that an agent of a team falls asleep while an object of its log is on its way."""
    doom: float = 0.0
    """Chance that an agent of a team dies or falls asleep soon after it has taken, given or recovered something."""

    @property
    def has_disks(self) -> bool:
        return self.profile in DISK_PROFILES

    @property
    def offsets_expire(self) -> bool:
        return self.settings.groups.offsets_retention_s < LONG_S

    def __str__(self) -> str:
        changed = (self.settings.wal, self.settings.buffer, self.settings.flush, self.settings.fetch)
        what = f"profile={self.profile} team={self.team} faults_s={self.faults_s:.0f} topics={len(self.topics)}"
        return f"{what} groups={self.groups} {changed}"


def choose(seed: int, profile: str | None = None) -> Options:
    chance = random.Random(f"options-{seed}")
    groups = random.Random(f"groups-{seed}")
    drawn = chance.choices(list(_SHARES), list(_SHARES.values()))[0]
    options = Options(
        seed=seed,
        profile=profile or drawn,
        settings=_settings(chance, _group_settings(groups)),
        topics=tuple(_topic(chance, number) for number in range(chance.randint(1, 3))),
        faults_s=chance.uniform(2, 7),
        calm_between_s=chance.uniform(0.1, 0.8),
        fifo=chance.choice((0.0, 0.3, 0.9, 1.0)),
        starve=chance.choice((0.0, 0.0, 0.1, 0.25)),
        latency_s=chance.choice((0.0001, 0.0005, 0.003)),
        retries=chance.random() < 0.6,
        database_has_own_clock=chance.random() < 0.5,
        plain_producers=chance.randint(0, 2),
        idempotent_producers=chance.randint(1, 3),
        followers=chance.randint(1, 2),
        readers=chance.randint(0, 2),
        churns=chance.random() < 0.4,
        groups=_groups(groups) if groups.random() < GROUPS_SHARE else (),
        restart_fuse=chance.choice((0.0, 0.3, 0.6)),
    )
    options = _quieter(options) if options.groups and groups.random() < 0.75 else options
    options = _forgetful(options, random.Random(f"forgetful-{seed}"))
    placers = random.Random(f"placing-{seed}")
    options = placing(options, placers) if placers.random() < PLACING_SHARE else options
    team = random.Random(f"team-{seed}")
    in_team = team.random() < TEAM_SHARE if profile is None else profile in TEAM_PROFILES
    if in_team:
        options = _eager(_in_team(options, team, profile), random.Random(f"eager-{seed}"))
        options = _returning(options, random.Random(f"returning-{seed}"))
        disks = random.Random(f"disks-{seed}")
        if profile == "team-disks" or (profile is None and disks.random() < DISKS_SHARE):
            options = _with_disks(options, disks)
    transactions = random.Random(f"transactions-{seed}")
    if transactions.random() < TRANSACTIONS_SHARE or profile in TRANSACTION_PROFILES:
        options = transacting(options, transactions)
    if profile in WIRE_PROFILES:
        options = wired(options, random.Random(f"wire-{seed}"))
    if random.Random(f"table-{seed}").random() < TABLE_SHARE:
        options = replace(options, has_table=options.team > 0 or options.settings.wal.fsync == "always")
    options = replace(options, is_damaged=random.Random(f"damage-{seed}").random() < DAMAGE_SHARE)
    jobs = random.Random(f"jobs-{seed}")
    is_rewritten = jobs.random() < JOBS_SHARE if profile is None else profile in JOB_PROFILES
    return rewriting(options, jobs) if is_rewritten else options


def rewriting(options: Options, chance: random.Random) -> Options:
    """Objects stay for longer than a replacement is tried and an agent lives without its session, and a commit whose
    answer was lost is repeated in that time: as whoever sets it must."""
    settings = options.settings
    placing = settings.placing if options.placers else ExternalCommitSettings(timeout_s=chance.choice((0.5, 2.0)))
    grace_s = placing.timeout_s + settings.lease.life_ms / 1000
    settings = structs.replace(
        settings,
        placing=placing,
        plans=PlanSettings(max_runs=chance.choice((3, 1000)), max_partitions=chance.choice((1, 1000))),
        retention=structs.replace(settings.retention, grace_s=max(grace_s, settings.retention.grace_s)),
    )
    return replace(options, settings=settings, jobs=chance.choice((1, 2)), job_trouble=chance.choice((0.0, 0.1, 0.25)))


def wired(options: Options, chance: random.Random) -> Options:
    """Limits of connections at which clients that send ahead and read late are paused often."""
    kafka = KafkaSettings(
        max_inflight_requests=chance.choice((1, 3, 100)),
        write_buffer_bytes=chance.choice((200, 2_000, 64_000)),
        max_failure_delay_s=chance.choice((0.0, 0.05)),
    )
    return replace(
        options,
        settings=structs.replace(options.settings, kafka=kafka),
        is_wired=True,
        wire_cuts=chance.choice((0.0, 0.005, 0.02)),
        wire_naps=chance.choice((0.0, 0.02)),
    )


def transacting(options: Options, chance: random.Random) -> Options:
    """Beside little else, so that it is transactions that are looked at."""
    settings = TransactionSettings(
        shards=chance.choice((1, 5)),
        check_s=chance.choice((0.1, 0.5)),
        grace_s=chance.choice((0.2, 1.0)),
        end_wait_s=chance.choice((0.3, 2.0)),
        max_waiting=chance.choice((2, 1000)),
        aborted_kept=chance.choice((2, 10_000)),
    )
    transactors = chance.choice((1, 2, 2, 3))
    return replace(
        options,
        settings=structs.replace(options.settings, transactions=settings),
        plain_producers=min(options.plain_producers, 1),
        idempotent_producers=min(options.idempotent_producers, 1),
        transactors=transactors,
        transactional_ids=chance.randint(1, transactors),
        transaction_timeout_s=chance.choice((1.0, 3.0)),
        transaction_trouble=chance.choice((0.0, 0.03, 0.1)),
        marker_loss=chance.choice((0.0, 0.1, 0.3)),
        committed_followers=1,
    )


def _eager(options: Options, chance: random.Random) -> Options:
    producers = ProducerSettings(settle_s=chance.choice((1.0, 3.0)))
    settings = structs.replace(options.settings, producers=producers)
    return replace(options, settings=settings, eager_producers=chance.choice((0, 1, 1)))


def _returning(options: Options, chance: random.Random) -> Options:
    """Those who come back lead at once as often as not; while they wait, agents differ about who should lead."""
    cluster = structs.replace(options.settings.cluster, return_wait_s=chance.choice((0.0, 0.0, 2.0, 12.0)))
    return replace(options, settings=structs.replace(options.settings, cluster=cluster))


def _in_team(options: Options, chance: random.Random, profile: str | None) -> Options:
    """The same seed for several agents: more time for faults, no disk, a clock of the database that nobody moves."""
    drawn = chance.choices(list(_TEAM_SHARES), list(_TEAM_SHARES.values()))[0]
    profile = profile or drawn
    settings = options.settings
    settings = structs.replace(
        settings,
        agent=AgentSettings(stop_timeout_s=chance.choice((0.5, 5.0, 5.0))),
        quotas=QuotaSettings(enforced=False),
        lease=LeaseSettings(ttl_s=3.0, takeover_s=0.5, renew_s=0.6, margin_s=0.4),
        wal=structs.replace(
            settings.wal,
            window_ms=chance.choice((0, 20, 50)),
            window_bytes=chance.choice((400, 2_000, 100_000)),
            uploads=chance.choice((1, 3, 6)),
            retry_s=0.05,
            retry_max_s=0.4,
            close_s=chance.choice((0.3, 2.0)),
            read_ahead=chance.choice((0, 2, 16)),
            deletes=chance.choice((1, 4)),
            seal_retention_s=SEALS_KEPT_S,
        ),
        cluster=ClusterSettings(
            refresh_s=chance.choice((0.3, 1.0)),
            moves_at_once=chance.choice((1, 2, 100)),
            handover_wait_s=chance.choice((0.0, 0.5)),
            rescue_delay_s=chance.choice((0.2, 1.0, 2.0)),
        ),
    )
    return replace(
        options,
        profile=profile,
        settings=settings,
        team=chance.choice((2, 2, 3, 4)),
        faults_s=chance.uniform(5, 15),
        calm_between_s=chance.uniform(0.3, 3.0),
        down_s=chance.choice((0.1, 0.5, 3.0)),
        doom=chance.choice((0.0, 0.1, 0.3)) if TEAM_PROFILES[profile] else 0.0,
        sleepy_puts=chance.choice((0.003, 0.02)) if "zombie" in TEAM_PROFILES[profile] else 0.0,
        restart_fuse=chance.choice((0.0, 0.3)) if TEAM_PROFILES[profile] else 0.0,
        database_has_own_clock=True,
    )


def _with_disks(options: Options, chance: random.Random) -> Options:
    """Who died or slept comes back with its disk in time, so that nobody gives a log up."""
    cluster = structs.replace(
        options.settings.cluster, disk_wait_s=LONG_S, reserve_offsets=chance.choice((4, 40, 1_000_000))
    )
    return replace(
        options, profile="team-disks", settings=structs.replace(options.settings, cluster=cluster), sleepy_puts=0.0
    )


def changed(options: Options, tweaks: Mapping[str, Any]) -> Options:
    """The options with some of them changed, and settings that fit."""
    with_placers = not options.placers and tweaks.get("placers")
    fitting = placing(options, random.Random(f"placers-{options.seed}")) if with_placers else options
    return replace(fitting, **tweaks)


def placing(options: Options, chance: random.Random) -> Options:
    """Objects that were given up are kept for longer than any commit takes, as whoever sets it must."""
    hold_s = chance.choice((0.4, 1.5))
    placing = ExternalCommitSettings(
        hold_s=hold_s, timeout_s=chance.choice((1.0, 5.0)), contend_s=0.3, look_s=chance.choice((0.1, 0.5))
    )
    retention = options.settings.retention
    retention = structs.replace(retention, grace_s=max(retention.grace_s, 2 * hold_s + 2.0))
    settings = structs.replace(options.settings, placing=placing, retention=retention)
    return replace(
        options, settings=settings, placers=chance.choice((1, 1, 2)), placing_loss=chance.choice((0.0, 0.05, 0.2))
    )


def _forgetful(options: Options, chance: random.Random) -> Options:
    """In some seeds committed offsets expire within seconds; some groups are deleted, and offsets of theirs."""
    settings = options.settings
    if chance.random() < EXPIRY_SHARE:
        retention_s = chance.choice((1.0, 3.0))
        groups = structs.replace(settings.groups, offsets_retention_s=retention_s, offsets_check_s=0.3)
        settings = structs.replace(settings, groups=groups)
    plans = tuple(replace(plan, deletes_s=chance.choice((0.0, 0.0, 0.1, 0.5))) for plan in options.groups)
    return replace(options, settings=settings, groups=plans)


def _quieter(options: Options) -> Options:
    """Where groups are what is looked at, there is little else."""
    return replace(options, plain_producers=1, idempotent_producers=1, followers=1, readers=0, churns=False)


def _settings(chance: random.Random, groups: GroupSettings) -> Settings:
    memory = chance.choice((4_000, 16_000, 64_000))
    return Settings(
        agent=AgentSettings(stop_timeout_s=chance.choice((0.5, 5.0))),
        quotas=QuotaSettings(enforced=False),
        lease=LeaseSettings(ttl_s=8.0, takeover_s=2.0, renew_s=2.0, margin_s=1.0),
        wal=WalSettings(
            fsync=chance.choice(("always", "always", "interval", "never")),
            fsync_interval_ms=chance.choice((10, 100, 500)),
            file_bytes=chance.choice((600, 2_000, 20_000)),
            max_pending_bytes=chance.choice((800, 5_000, 100_000)),
            inline_bytes=INLINE_BYTES,
        ),
        buffer=BufferSettings(
            memory_bytes=memory,
            throttle_at=chance.choice((0.5, 0.9)),
            max_throttle_s=chance.choice((0.1, 0.5)),
        ),
        flush=FlushSettings(
            segment_bytes=chance.choice((300, 1_000, 4_000)),
            age_s=chance.choice((0.1, 0.5, 2.0)),
            check_s=chance.choice((0.02, 0.1)),
            retry_s=0.05,
            retry_max_s=0.4,
            parallel=chance.choice((1, 2, 4)),
            block_bytes=chance.choice((100, 500, 2_000)),
        ),
        fetch=FetchSettings(
            max_bytes=chance.choice((500, 5_000, 1_000_000)),
            cache_bytes=chance.choice((300, 5_000, 100_000)),
            index_cache_entries=chance.choice((1, 3, 100)),
            readahead_blocks=chance.choice((0, 2)),
            concurrent_reads=chance.choice((1, 4)),
            keep_flushed_s=random.Random(memory + 1).choice((0.0, 0.0, 3.0)),
        ),
        retention=RetentionSettings(
            check_s=chance.choice((0.3, 1.5)),
            grace_s=chance.choice((0.0, 1.0)),
            orphan_age_s=chance.choice((0.0, 3.0)),
            sweep_s=chance.choice((0.5, 3.0)),
        ),
        compaction=_compaction_settings(random.Random(memory)),
        groups=groups,
    )


def _compaction_settings(chance: random.Random) -> CompactionSettings:
    return CompactionSettings(
        interval_s=chance.choice((0.2, 1.0)),
        merge_runs=chance.choice((2, 4)),
        segment_bytes=chance.choice((500, 5_000)),
        read_bytes=chance.choice((100, 5_000)),
    )


def _group_settings(chance: random.Random) -> GroupSettings:
    return GroupSettings(
        shards=chance.choice((1, 2, 5)),
        initial_rebalance_delay_s=chance.choice((0.0, 0.1, 0.6)),
        min_session_timeout_s=0.3,
        new_member_timeout_s=chance.choice((2.0, 6.0)),
        commit_changes=chance.choice((1, 4, 10_000)),
        max_waiting_changes=chance.choice((20, 100_000)),
        watch_s=chance.choice((0.1, 1.0)),
        lag_interval_s=0,
    )


def _groups(chance: random.Random) -> tuple[GroupPlan, ...]:
    count = chance.choice((1, 1, 2))
    return tuple(_group(chance, f"group-{number}", members=chance.randint(1, 4)) for number in range(count)) + tuple(
        _group(chance, "outside", members=0) for _ in range(chance.randint(0, 1))
    )


def _group(chance: random.Random, group_id: str, *, members: int) -> GroupPlan:
    session_s = chance.choice((0.5, 1.5))
    return GroupPlan(
        group_id=group_id,
        members=members,
        statics=chance.choice((0, 0, 1, members)),
        is_cooperative=chance.random() < 0.4,
        session_s=session_s,
        rebalance_s=chance.choice((0.4, 1.0, 2.5)),
        heartbeat_s=session_s / chance.choice((3, 6)),
        commit_s=chance.choice((0.05, 0.3)),
        trouble=chance.choice((0.0, 0.02, 0.06)),
        lifetime_s=chance.choice((2.0, 10.0)),
        echoes=chance.choice((0.0, 0.05, 0.2)),
        learns_id=chance.random() < 0.8,
        may_skip_assignment=chance.random() < 0.5,
    )


def _topic(chance: random.Random, number: int) -> TopicPlan:
    overrides = {"message.timestamp.after.max.ms": str(10**12), "retention.ms": "-1"}
    match chance.choice(("keep", "keep", "by time", "by size")):
        case "by time":
            overrides["retention.ms"] = str(chance.choice((500, 4_000)))
        case "by size":
            overrides["retention.bytes"] = str(chance.choice((200, 3_000)))
    if chance.random() < 0.2:
        overrides["message.timestamp.type"] = "LogAppendTime"
    return TopicPlan(name=f"topic-{number}", partitions=chance.randint(1, 3), overrides=overrides)
