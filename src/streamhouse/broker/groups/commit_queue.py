"""CommitQueue: many changes to groups share one metadata transaction.

Data path   coordinator and offsets -> **commit_queue** -> metadata store
Owns        the queue of waiting changes, the one transaction in flight, the order of a shard's commits
Leaves      fencing to the metadata store; the meaning of a change to its caller

While a transaction is in flight, changes queue up for the next one, so the number of transactions depends on time and
not on the number of consumers. A caller gets its response only after its transaction. If the outcome is unknown, it
gets an error, and the shard's next transaction fences the unknown one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamhouse.broker.groups.shards import Shard
from streamhouse.config import GroupSettings
from streamhouse.errors import CoordinatorUnavailable, LeaseLost, NotCoordinator, StreamhouseError, Unavailable
from streamhouse.model.group import DropGroup, GroupChange, ShardCommit
from streamhouse.stores.metadata.base import MetadataStore

log = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    shard: Shard
    group_id: str
    changes: Sequence[GroupChange]
    done: "asyncio.Future[None]"

    def settle(self, error: StreamhouseError | None) -> None:
        self.shard.written(self.group_id)
        if self.done.done():
            return  # the caller has gone
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class CommitQueue:
    def __init__(self, settings: GroupSettings, *, metadata: MetadataStore, lost: Callable[[Shard, str], None]) -> None:
        self._settings = settings
        self._metadata = metadata
        self._lost = lost
        self._queue: deque[_Waiting] = deque()
        self._changes = 0
        self._work = asyncio.Event()
        self.transactions = 0

    def __repr__(self) -> str:
        return f"<CommitQueue waiting={len(self._queue)} changes={self._changes} transactions={self.transactions}>"

    def put(self, shard: Shard, group_id: str, changes: Sequence[GroupChange]) -> "asyncio.Future[None]":
        """Queue changes; the future is done when they are durable, and fails if they are not, or may not be."""
        waiting = _Waiting(shard, group_id, changes, asyncio.get_running_loop().create_future())
        shard.unwritten[group_id] += 1
        if shard.lost is not None:
            waiting.settle(NotCoordinator(group_id, why=shard.lost))
        elif self._changes + len(changes) > self._settings.max_waiting_changes:
            waiting.settle(CoordinatorUnavailable(group_id, why="too many changes wait"))
        else:
            self._queue.append(waiting)
            self._changes += len(changes)
            self._work.set()
        return waiting.done

    async def run(self) -> None:
        """Commit one transaction after the other, until cancelled."""
        while True:
            await self._work.wait()
            batch = self._take()
            try:
                await self._commit(batch)
            except BaseException:
                _settle(batch, "the agent is stopping")
                raise

    def stop(self, why: str) -> None:
        """Fail all waiting changes."""
        waiting, self._queue = list(self._queue), deque()
        self._changes = 0
        _settle(waiting, why)

    def _take(self) -> list[_Waiting]:
        """Take as many changes as fit into a transaction, all of one session."""
        batch: list[_Waiting] = []
        capacity = self._settings.commit_changes
        while self._queue:
            first = self._queue[0]
            if batch and (len(first.changes) > capacity or first.shard.session_id != batch[0].shard.session_id):
                break
            batch.append(self._queue.popleft())
            capacity -= len(first.changes)
            self._changes -= len(first.changes)
        if not self._queue:
            self._work.clear()
        return batch

    async def _commit(self, batch: list[_Waiting]) -> None:
        """Commit the batch; changes of lost shards fail, and the rest is committed without them."""
        while batch := _without_lost(batch):
            self.transactions += 1
            try:
                await self._metadata.commit_groups(batch[0].shard.session_id, _shard_commits(batch))
            except LeaseLost as error:
                self._drop(batch, error)
            except Unavailable as error:
                return self._fail(batch, str(error))
            except StreamhouseError as error:
                log.error("groups can't be committed", extra={"changes": len(batch), "why": str(error)})
                return self._fail(batch, str(error))
            else:
                for waiting in batch:
                    waiting.settle(None)
                return None

    def _fail(self, batch: list[_Waiting], why: str) -> None:
        """Fail a batch with an unknown outcome. A deleted group is already gone from memory, so its shard is dropped:
        it is read again from the store before the next write."""
        for waiting in batch:
            waiting.settle(CoordinatorUnavailable(waiting.group_id, why=why))
        for waiting in batch:
            if any(isinstance(change, DropGroup) for change in waiting.changes):
                self._lost(waiting.shard, "a deletion may not have happened")

    def _drop(self, batch: list[_Waiting], error: LeaseLost) -> None:
        named = [waiting.shard for waiting in batch if waiting.shard.partition in error.partitions]
        for shard in named or [waiting.shard for waiting in batch]:
            self._lost(shard, str(error))


def _without_lost(batch: list[_Waiting]) -> list[_Waiting]:
    for waiting in batch:
        if waiting.shard.lost is not None:
            waiting.settle(NotCoordinator(waiting.group_id, why=waiting.shard.lost))
    return [waiting for waiting in batch if waiting.shard.lost is None]


def _shard_commits(batch: list[_Waiting]) -> list[ShardCommit]:
    changes: dict[Shard, list[GroupChange]] = {}
    for waiting in batch:
        changes.setdefault(waiting.shard, []).extend(waiting.changes)
    return [
        ShardCommit(shard=shard.partition, epoch=shard.epoch, sequence=shard.next_sequence(), changes=tuple(each))
        for shard, each in changes.items()
    ]


def _settle(batch: list[_Waiting], why: str) -> None:
    for waiting in batch:
        if not waiting.done.done():
            waiting.settle(NotCoordinator(waiting.group_id, why=why))
