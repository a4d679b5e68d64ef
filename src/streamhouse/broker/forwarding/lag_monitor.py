"""GroupLagMonitor: measures the lag of the groups that this agent coordinates, for metrics and for the history.

Data path   off; a loop
Owns        the loop, its bounds, the last lag of each group
Leaves      measuring to `group_lag`, what is kept to `model.group_lag`
"""

import logging
from collections.abc import Iterable
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.forwarding.group_lag import GroupLagReader
from streamhouse.broker.forwarding.leader_lookup import LocalBroker
from streamhouse.errors import GroupNotFound, NotCoordinator, StreamhouseError
from streamhouse.model.group_lag import KEPT_MS, GroupLag, LagHistory, is_flat

log = logging.getLogger(__name__)

FORGET_MS: Final = 2 * KEPT_MS
"""Age at which the history of a group that no agent measures is deleted."""


class GroupLagMonitor:
    def __init__(self, dependencies: Dependencies, here: LocalBroker, *, reader: GroupLagReader) -> None:
        self._dependencies = dependencies
        self._here = here
        self._reader = reader
        self._lags: dict[str, GroupLag] = {}
        self._next = ""

    def __repr__(self) -> str:
        return f"<GroupLagMonitor groups={len(self._lags)}>"

    @property
    def lags(self) -> Iterable[GroupLag]:
        """The last lag of each group that this agent coordinates."""
        return tuple(self._lags.values())

    async def run(self) -> None:
        """Measure until cancelled; returns at once if the interval is 0."""
        while interval_s := self._dependencies.settings.groups.lag_interval_s:
            await self._dependencies.clock.sleep(interval_s)
            try:
                await self.measure()
            except NotCoordinator:  # another agent measures
                continue
            except StreamhouseError as error:
                log.warning("group lag not measured, will retry", extra={"why": str(error)})

    async def measure(self) -> None:
        """Measure groups until `max_lag_partitions` are measured, or one can't be; those after them are the first ones
        next time. Raises the error of that one, after the others are stored."""
        group_ids = [each.group_id for each in await self._here.groups.list(often=True)]
        self._lags = {group_id: lag for group_id, lag in self._lags.items() if group_id in group_ids}
        left, histories = self._dependencies.settings.groups.max_lag_partitions, list[LagHistory]()
        failed: StreamhouseError | None = None
        for group_id in self._in_turn(group_ids):
            if left <= 0:
                self._next = group_id
                break
            try:
                lag = await self._reader.lag(group_id)
            except GroupNotFound:
                continue
            except StreamhouseError as error:
                failed = error
                self._next = _after(group_id)
                break
            left -= len(lag.partitions)
            self._lags[group_id] = lag
            if not is_flat(lag.samples, lag.sample):
                histories.append(lag.history)
        now_ms = self._dependencies.clock.now_ms()
        if histories:
            await self._dependencies.metadata.put_group_lags(histories, now_ms=now_ms, forget_ms=FORGET_MS)
        if failed is not None:
            raise failed

    def _in_turn(self, group_ids: list[str]) -> list[str]:
        return [each for each in group_ids if each >= self._next] + [each for each in group_ids if each < self._next]


def _after(group_id: str) -> str:
    """The least name behind this one."""
    return group_id + "\0"
