"""Options: what a seed chooses before anything runs: limits, policies, topics, clients, and what will go wrong.

Owns        the profiles and the ranges; small limits, so that everything happens often
Leaves      acting on them to `world`, `nemesis` and `workload`
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streamhouse.config import (
    AgentSettings,
    BufferSettings,
    FetchSettings,
    FlushSettings,
    LeaseSettings,
    RetentionSettings,
    Settings,
    WalSettings,
)

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
}
_SHARES: Final = {"calm": 1, "kills": 3, "power": 3, "stores": 3, "disk": 2, "time": 1, "everything": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    name: str
    partitions: int
    overrides: Mapping[str, str]


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
    followers: int
    readers: int
    churns: bool
    restart_fuse: float
    """Chance that a new agent dies during its first steps, which are those of recovery."""

    def __str__(self) -> str:
        changed = (self.settings.wal, self.settings.buffer, self.settings.flush, self.settings.fetch)
        return f"profile={self.profile} faults_s={self.faults_s:.0f} topics={len(self.topics)} {changed}"


def choose(seed: int, profile: str | None = None) -> Options:
    chance = random.Random(f"options-{seed}")
    drawn = chance.choices(list(_SHARES), list(_SHARES.values()))[0]
    return Options(
        seed=seed,
        profile=profile or drawn,
        settings=_settings(chance),
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
        restart_fuse=chance.choice((0.0, 0.3, 0.6)),
    )


def _settings(chance: random.Random) -> Settings:
    memory = chance.choice((4_000, 16_000, 64_000))
    return Settings(
        agent=AgentSettings(stop_timeout_s=chance.choice((0.5, 5.0))),
        lease=LeaseSettings(ttl_s=6.0, renew_s=2.0, margin_s=1.0),
        wal=WalSettings(
            fsync=chance.choice(("always", "always", "interval", "never")),
            fsync_interval_ms=chance.choice((10, 100, 500)),
            file_bytes=chance.choice((600, 2_000, 20_000)),
            max_pending_bytes=chance.choice((800, 5_000, 100_000)),
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
        ),
        retention=RetentionSettings(
            check_s=chance.choice((0.3, 1.5)),
            grace_s=chance.choice((0.0, 1.0)),
            orphan_age_s=chance.choice((0.0, 3.0)),
            sweep_s=chance.choice((0.5, 3.0)),
        ),
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
