"""ExternalCommits: appends segments that Spark wrote to many partitions, in one transaction; any agent coordinates it.

Data path   wire -> **coordinator** -> every leader freezes its partitions -> one metadata transaction -> unfreeze
Owns        the order of the steps, retries, notifying leaders of the outcome
Leaves      freezing to `partition_freezes`; the transaction to the metadata store; checks and offsets to
            `commit_request`

A commit has happened exactly if its row exists. The coordinator may die between any two steps: leaders read the row
themselves, or release the lease under which it could still be written.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from streamhouse.broker.context import BrokerContext
from streamhouse.broker.external_commits.commit_request import (
    ExternalCommitRequest,
    assign_offsets,
    check_commit,
    check_objects,
    requested_offsets,
)
from streamhouse.broker.external_commits.partition_freezes import PartitionFreezes
from streamhouse.config.fields import Address
from streamhouse.errors import (
    CommitRefused,
    InvalidTopicName,
    NotLeader,
    Retriable,
    StaleCommit,
    StreamhouseError,
    Unavailable,
    UnknownCommit,
    UnknownTopic,
)
from streamhouse.model.external_commit import (
    ExternalCommit,
    FreezeRequest,
    FreezeTarget,
    FrozenPartition,
    Outcome,
    QueryId,
    StoredCommit,
)
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.replay import is_replay
from streamhouse.model.topic import Topic
from streamhouse.retry import RetryDeadline

log = logging.getLogger(__name__)

NOTIFY_S: Final = 2.0
"""Timeout for notifying leaders of the outcome; they also check the metadata store themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolved:
    """A commit with its names resolved to partitions and topics."""

    commit: ExternalCommitRequest
    partitions: Mapping[TopicPartition, PartitionId]
    topics: Sequence[Topic]


class ExternalCommits:
    def __init__(self, context: BrokerContext, *, holds: PartitionFreezes) -> None:
        self._dependencies = context.dependencies
        self._settings = context.dependencies.settings.placing
        self._catalog = context.catalog
        self._cluster = context.cluster
        self._holds = holds
        self._leaders = context.open_partitions.leaders
        self._current_session = context.session_manager.current
        self._under_way = 0
        self.committed = 0
        self.replayed = 0
        self.refused = 0
        self.unanswered = 0
        """Commits with an unknown outcome, which the client must retry."""

    def __repr__(self) -> str:
        return f"<ExternalCommits under_way={self._under_way} committed={self.committed} replayed={self.replayed}>"

    async def last(self, query: QueryId) -> StoredCommit:
        """The newest commit of a query; raises `UnknownCommit`."""
        last = await self._dependencies.metadata.last_commit(query)
        if last is None:
            raise UnknownCommit(f"no commit of this query is known; query={query[:100]}")
        return last

    async def commit(self, commit: ExternalCommitRequest) -> StoredCommit:
        """Append all segments, or none. A repeated commit of the same query and epoch returns the first result.

        Raises `CommitRefused`, `StaleCommit`, `CheckpointMismatch` and `PipelineMoved`, which are final,
        `UnknownTopic`, and `Retriable`: then it may have happened, and the client must retry.
        """
        if self._under_way >= self._settings.max_commits:
            limit = self._settings.max_commits
            raise Unavailable(f"too many commits at once; limit={limit} setting=placing.max_commits")
        self._under_way += 1
        try:
            return await self._commit(commit)
        except Retriable:
            self.unanswered += 1
            raise
        except StreamhouseError:
            self.refused += 1
            raise
        finally:
            self._under_way -= 1

    async def _commit(self, commit: ExternalCommitRequest) -> StoredCommit:
        check_commit(commit, self._settings)
        if (known := await self._known(commit)) is not None:
            self.replayed += 1
            # The first coordinator may have died before it notified leaders; the client expects to read what it wrote.
            await self._holds.check(commit.query, commit.epoch)
            return known
        resolved = await self._resolve(commit)
        deadline = self._dependencies.deadline(self._settings.timeout_s)
        while True:
            try:
                done = await self._try(resolved, deadline)
            except Retriable as error:
                for topic in resolved.topics:
                    self._cluster.invalidate_leases(topic.topic_id)
                await deadline.wait_to_retry(error)
            else:
                self.committed += not done.is_replayed
                self.replayed += done.is_replayed
                return done

    async def _known(self, commit: ExternalCommitRequest) -> StoredCommit | None:
        last = stored = await self._dependencies.metadata.last_commit(commit.query)
        if last is None or last.epoch < commit.epoch:
            return None
        if last.epoch > commit.epoch:
            stored = await self._dependencies.metadata.find_commit(commit.query, commit.epoch)
        target = last.placed[0].topic if last.placed else ""
        newest = last if stored is None else stored
        is_replay(target, batch=commit.epoch, covers=commit.covers, last=newest.epoch, last_covers=newest.covers)
        if stored is None:
            raise StaleCommit(commit.query, epoch=commit.epoch, last=last.epoch)
        return replace(stored, is_replayed=True)

    async def _resolve(self, commit: ExternalCommitRequest) -> _Resolved:
        partitions: dict[TopicPartition, PartitionId] = {}
        topics: dict[str, Topic] = {}
        for name in commit.names:
            if name.topic == OFFSETS_TOPIC:
                raise InvalidTopicName(f"an internal topic can't be written to by clients; name={name.topic}")
            topic = topics[name.topic] = await self._catalog.find(name.topic)
            if not 0 <= name.partition < topic.partitions:
                raise UnknownTopic(name)
            partitions[name] = PartitionId(topic.topic_id, name.partition)
        return _Resolved(commit=commit, partitions=partitions, topics=list(topics.values()))

    # --- one attempt

    async def _try(self, resolved: _Resolved, deadline: RetryDeadline) -> StoredCommit:
        if (known := await self._check(resolved)) is not None:
            return known
        requests = await self._freeze_requests(resolved)
        try:
            held = await self._freeze_all(requests, deadline)
        except BaseException:
            await self._notify(requests, Outcome.UNUSED)
            raise
        try:
            done = await self._write(resolved, held)
        except Unavailable:
            await self._notify(requests, Outcome.UNSURE)
            raise
        except StreamhouseError:  # the store has rejected it: this attempt can never be committed
            await self._notify(requests, Outcome.UNUSED)
            raise
        await self._notify(requests, Outcome.COMMITTED)
        return done

    async def _check(self, resolved: _Resolved) -> StoredCommit | None:
        """Check the segments, again in each attempt. In this order: an object that is not registered as deleted, and
        exists after that, stays for the grace time at least, and a freeze ends long before.

        Another agent may have committed meanwhile: then its objects are registered, and its result is returned.
        """
        taken = await self._dependencies.metadata.known_among([each.segment.key for each in resolved.commit.segments])
        if taken:
            if (known := await self._known(resolved.commit)) is not None:
                return known
            raise CommitRefused(f"a segment was committed before, or has expired; key={min(taken)}")
        await check_objects(self._dependencies, resolved.commit.segments, resolved.partitions)
        return None

    async def _freeze_requests(self, resolved: _Resolved) -> Mapping[Address | None, FreezeRequest]:
        """The request to each leader, by the address of its HTTP port; None is this agent."""
        leaders = await self._leaders(resolved.topics)
        offsets = requested_offsets(resolved.commit)
        targets: dict[Address | None, list[FreezeTarget]] = {}
        for name, partition in resolved.partitions.items():
            session = leaders[partition].session
            if session is None:
                raise NotLeader(name, node_id=None, epoch=-1, address=None)
            is_here = session.session_id == self._current_session().session.session_id
            at = None if is_here else session.http
            targets.setdefault(at, []).append(FreezeTarget(name=name, partition=partition, offsets=offsets[name]))
        commit, hold_id = resolved.commit, self._dependencies.ids.token()
        return {
            at: FreezeRequest(hold_id=hold_id, query=commit.query, epoch=commit.epoch, partitions=tuple(each))
            for at, each in targets.items()
        }

    async def _freeze_all(
        self, requests: Mapping[Address | None, FreezeRequest], deadline: RetryDeadline
    ) -> list[FrozenPartition]:
        timeout_s = min(self._settings.hold_s, deadline.left_s)

        async def hold(at: Address | None, request: FreezeRequest) -> Sequence[FrozenPartition]:
            if at is None:
                return await self._holds.hold(request, timeout_s=timeout_s)
            return await self._dependencies.freezes.hold(at, request, timeout_s=timeout_s)

        responses = await asyncio.gather(*(hold(*each) for each in requests.items()), return_exceptions=True)
        held: list[FrozenPartition] = []
        for response in responses:
            if isinstance(response, BaseException):
                raise response
            held.extend(response)
        if {each.partition for each in held} != {
            w.partition for request in requests.values() for w in request.partitions
        }:
            raise Unavailable("another agent froze other partitions than requested")
        return held

    async def _write(self, resolved: _Resolved, held: Sequence[FrozenPartition]) -> StoredCommit:
        """Run the transaction; retried while the outcome is unknown, because a repeated one returns the first one's
        row."""
        commit = resolved.commit
        placement = ExternalCommit(
            query=commit.query,
            epoch=commit.epoch,
            progress=commit.progress,
            holders={each.partition: each.holder for each in held},
            topics={topic.topic_id: topic.name for topic in resolved.topics},
            commits=assign_offsets(commit, resolved.partitions, held),
            fence=commit.fence,
            covers=commit.covers,
        )
        deadline = self._dependencies.deadline(self._settings.hold_s / 2)
        while True:
            try:
                return await self._dependencies.metadata.commit_external_segments(placement)
            except Unavailable as error:
                log.warning("outcome of an external commit is unknown, will retry", extra={"why": str(error)})
                await deadline.wait_to_retry(error)

    async def _notify(self, requests: Mapping[Address | None, FreezeRequest], outcome: Outcome) -> None:
        """Notify all leaders of the outcome; one that misses it reads it from the metadata store later."""

        async def notify(at: Address | None, hold_id: str) -> None:
            try:
                if at is None:
                    await self._holds.end(hold_id, outcome)
                else:
                    await self._dependencies.freezes.end_hold(at, hold_id, outcome, timeout_s=NOTIFY_S)
            except Retriable as error:
                log.warning(
                    "leader was not notified of a commit's outcome", extra={"outcome": outcome, "why": str(error)}
                )

        await asyncio.gather(*(notify(at, request.hold_id) for at, request in requests.items()))
