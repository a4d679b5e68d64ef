"""Quotas: how long clients above their limits have to wait (KIP-13, KIP-124, KIP-599, KIP-612).

A limit holds for the whole cluster. Each agent grants a share of it, by what it has granted lately and what others
have; shares are computed again every `quotas.exchange_s` while limits are in use. Until agents have heard of each
other's use, each of them grants all: a client that begins on N agents at once may use N times its limit for that time,
besides `quotas.burst_s` of it. In the long run the sum is the limit.

The most specific entity that has a limit decides, in Kafka's order; a default stands for each user, client id or
address by itself.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.security.audit import describe_acts
from streamhouse.errors import QuotaExceeded, StreamhouseError
from streamhouse.model.quota import (
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    MAX_NAME_CHARS,
    Quota,
    QuotaEntity,
    check_quota,
    entity_text,
)
from streamhouse.model.tenant import qualified, tenant_of

log = logging.getLogger(__name__)

EVEN_SHARE: Final = 0.2
"""Part of a limit that is shared evenly among the agents that use it; the rest follows their use."""

Key = tuple[QuotaEntity, str]
"""Whose use is tracked, and of which limit."""


@dataclass(slots=True)
class _Usage:
    per_s: float
    tokens: float
    at: float
    share: float = 1.0
    granted: float = 0.0
    """Since the last exchange."""


class Quotas:
    def __init__(self, dependencies: Dependencies) -> None:
        self._settings = dependencies.settings.quotas
        self._refresh_s = dependencies.settings.security.refresh_s
        self._max_partitions = dependencies.settings.topics.max_partitions
        self._metadata = dependencies.metadata
        self._clock = dependencies.clock
        self._agent = str(dependencies.kafka)
        self._limits: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._used: OrderedDict[Key, _Usage] = OrderedDict()
        self._is_stale = asyncio.Event()
        self._loading = asyncio.Lock()
        self._is_used = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Quotas entities={len(self._limits)} used={len(self._used)}>"

    @property
    def is_active(self) -> bool:
        """Whether there are any; if not, nobody needs to be charged."""
        return bool(self._limits)

    # --- charging

    def charge(self, limit: str, amount: float, *, user: str, client_id: str) -> float:
        """Count what a client has used; returns how long it has to wait before its next request. Client ids count up to
        the length of the longest entity: clients choose them, and what is tracked is sent to other agents."""
        client_id = client_id[:MAX_NAME_CHARS]
        for entity, named in _candidates(user, client_id):
            per_s = self._limits.get(entity, {}).get(limit)
            if per_s is not None:
                return self._charge((named, limit), per_s, amount)
        return 0.0

    def charge_mutations(self, partitions: int, *, user: str, client_id: str) -> None:
        """Count partitions that a client creates or deletes; raise `QuotaExceeded` while it is above its limit. No
        request counts as more than a topic can have: it will be refused."""
        if not self.is_active:
            return
        if wait_s := self.charge(CONTROLLER_MUTATION_RATE, 0, user=user, client_id=client_id):
            raise QuotaExceeded(CONTROLLER_MUTATION_RATE, retry_after_s=wait_s)
        amount = min(partitions, self._max_partitions)
        self.charge(CONTROLLER_MUTATION_RATE, amount, user=user, client_id=client_id)

    def charge_connection(self, address: str) -> float:
        """Count a connection of an address; returns how long its first request has to wait."""
        for entity in (QuotaEntity(address=address), QuotaEntity(address=DEFAULT)):
            per_s = self._limits.get(entity, {}).get(CONNECTION_CREATION_RATE)
            if per_s is not None:
                return self._charge((QuotaEntity(address=address), CONNECTION_CREATION_RATE), per_s, 1)
        return 0.0

    def _charge(self, key: Key, per_s: float, amount: float) -> float:
        now = self._clock.monotonic()
        usage = self._used.get(key)
        if usage is None:
            usage = self._used[key] = _Usage(per_s=per_s, tokens=per_s * self._settings.burst_s, at=now)
            if len(self._used) > self._settings.max_tracked:
                self._used.popitem(last=False)
        else:
            self._used.move_to_end(key)
        rate = per_s * usage.share
        usage.tokens = min(rate * self._settings.burst_s, usage.tokens + (now - usage.at) * rate) - amount
        usage.per_s, usage.at = per_s, now
        usage.granted += amount
        self._is_used.set()
        return min(self._settings.max_throttle_s, max(0.0, -usage.tokens / rate))

    # --- setting them

    async def list(self) -> Sequence[Quota]:
        """All of them, as the metadata store has them."""
        return await self._metadata.quotas()

    async def alter(self, entity: QuotaEntity, changes: Mapping[str, float | None], *, dry_run: bool = False) -> Quota:
        """Set some limits of an entity, and remove those that are None; returns what holds then."""
        before = next((each.limits for each in await self._metadata.quotas() if each.entity == entity), {})
        merged = {**before, **changes}
        quota = Quota(entity=entity, limits={name: value for name, value in merged.items() if value is not None})
        check_quota(quota)
        check_quota(Quota(entity=entity, limits=dict.fromkeys(changes, 1.0)))  # also names that are removed
        if not dry_run:
            named = " ".join(f"{kind} {name or '<default>'}" for kind, name in entity.parts().items())
            describe_acts(
                *(f"{named}: {name}={'none' if value is None else f'{value:.15g}'}" for name, value in changes.items())
            )
            await self._metadata.put_quota(quota, max_quotas=self._settings.max_quotas)
            await self.load()
        return quota

    async def load(self) -> None:
        """Read the quotas; from now on they hold."""
        if not self._settings.enforced:
            return
        async with self._loading:  # or quotas that were read earlier could replace those that were read later
            self._limits = {each.entity: each.limits for each in await self._metadata.quotas()}
        if not self._limits:
            self._used.clear()

    def on_change(self) -> None:
        """Quotas may have changed: `run` reads them again."""
        self._is_stale.set()

    # --- in the background

    async def run(self) -> None:
        """Read quotas when they change, and exchange shares while they are in use, until cancelled."""
        if not self._settings.enforced:
            return
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._follow(), name="quota-changes")
            loops.create_task(self._share(), name="quota-shares")

    async def _follow(self) -> None:
        while True:
            if self._metadata.is_listening:  # the end of the subscription arrives as a change
                await self._is_stale.wait()
            else:
                await self._clock.sleep(self._refresh_s)
            self._is_stale.clear()
            try:
                await self.load()
            except StreamhouseError as error:
                log.warning("quotas can't be read; those that are known hold", extra={"why": str(error)})
                self._is_stale.set()
                await self._clock.sleep(self._refresh_s)

    async def _share(self) -> None:
        while True:
            await self._is_used.wait()
            await self._clock.sleep(self._settings.exchange_s)
            self._is_used.clear()
            try:
                await self.exchange()
            except StreamhouseError as error:
                log.debug("quotas can't be shared now; shares stay as they are", extra={"why": str(error)})

    async def exchange(self) -> None:
        """Send the amounts granted here to other agents, and compute this agent's shares by what they have granted."""
        granted = {_text(key): usage.granted for key, usage in self._used.items() if usage.granted}
        for usage in self._used.values():
            usage.granted = 0.0
        ttl_ms = round(self._settings.exchange_s * 3000)
        others = await self._metadata.exchange_quota_usage(self._agent, granted, ttl_ms=ttl_ms)
        for key, usage in self._used.items():
            text = _text(key)
            theirs = [used[text] for used in others if text in used]
            usage.share = _share_of(granted.get(text, 0.0), theirs)


def _share_of(mine: float, theirs: Sequence[float]) -> float:
    """This agent's share of a limit, by what it has granted lately and what each other agent has."""
    total = mine + sum(theirs)
    if not theirs or not total:
        return 1.0
    return (1 - EVEN_SHARE) * mine / total + EVEN_SHARE / (len(theirs) + 1)


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, QuotaEntity]]:
    """Entities whose limits may apply, the most specific first, each with the one whose use is tracked. In a tenant,
    its own defaults come before the cluster's. A client id that is a tenant's is none for others, who could use up the
    tenant's limit."""
    if tenant := tenant_of(user):
        client_id = qualified(tenant, client_id)
        yield from _of(user, client_id, default=qualified(tenant, DEFAULT))
    elif tenant_of(client_id):
        client_id = ""
    yield from _of(user, client_id, default=DEFAULT)


def _of(user: str, client_id: str, *, default: str) -> Iterator[tuple[QuotaEntity, QuotaEntity]]:
    both = QuotaEntity(user, client_id)
    yield both, both
    yield QuotaEntity(user, default), both
    yield QuotaEntity(user), QuotaEntity(user)
    yield QuotaEntity(default, client_id), both
    yield QuotaEntity(default, default), both
    yield QuotaEntity(default), QuotaEntity(user)
    yield QuotaEntity(None, client_id), QuotaEntity(None, client_id)
    yield QuotaEntity(None, default), QuotaEntity(None, client_id)


def _text(key: Key) -> str:
    entity, limit = key
    return f"{limit} {entity_text(entity)}"
