"""Commits: segments that others wrote are placed in many partitions at once, by whichever agent is asked.

Data path   wire -> **commits** -> holds of every leader -> one metadata transaction -> leaders go on behind it
Owns        the order of the steps, trying again, what leaders are told at the end
Leaves      holding to `holds`, the transaction to the metadata store, shapes and offsets to `wanted`

A commit has happened exactly if its row is there. Whoever coordinates may die between any two steps: leaders find the
row themselves, or give up the lease under which it could still come.
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
"""How long leaders are waited for when they are told how it ended; they find out by themselves, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolved:
    """A commit, and the partitions and topics that its names mean."""

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
        """Commits that whoever asked has to ask for again: they may or may not have happened."""

    def __repr__(self) -> str:
        return f"<ExternalCommits under_way={self._under_way} committed={self.committed} replayed={self.replayed}>"

    async def last(self, query: QueryId) -> StoredCommit:
        """The newest commit of a query; raises `UnknownCommit` when none is remembered."""
        found = await self._dependencies.metadata.last_commit(query)
        if found is None:
            raise UnknownCommit(f"no commit of this query is known; query={query[:100]}")
        return found

    async def commit(self, commit: ExternalCommitRequest) -> StoredCommit:
        """Place all segments, or none. A commit of the same query and epoch that happened is told again.

        Raises `CommitRefused`, `StaleCommit`, `CheckpointMismatch` and `PipelineMoved`, which stay so, `UnknownTopic`,
        and `Retriable`: then it may have happened, and is asked for again.
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
            # Who coordinated it may have died before it told leaders; who asks again wants to read what it wrote.
            await self._holds.look(commit.query, commit.epoch)
            return known
        scene = await self._scene(commit)
        deadline = self._dependencies.deadline(self._settings.timeout_s)
        while True:
            try:
                done = await self._try(scene, deadline)
            except Retriable as error:
                for topic in scene.topics:
                    self._cluster.forget_leases(topic.topic_id)
                await deadline.wait_to_retry(error)
            else:
                self.committed += not done.is_replayed
                self.replayed += done.is_replayed
                return done

    async def _known(self, commit: ExternalCommitRequest) -> StoredCommit | None:
        last = found = await self._dependencies.metadata.last_commit(commit.query)
        if last is None or last.epoch < commit.epoch:
            return None
        if last.epoch > commit.epoch:
            found = await self._dependencies.metadata.find_commit(commit.query, commit.epoch)
        target = last.placed[0].topic if last.placed else ""
        newest = last if found is None else found
        is_replay(target, batch=commit.epoch, covers=commit.covers, last=newest.epoch, last_covers=newest.covers)
        if found is None:
            raise StaleCommit(commit.query, epoch=commit.epoch, last=last.epoch)
        return replace(found, is_replayed=True)

    async def _scene(self, commit: ExternalCommitRequest) -> _Resolved:
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

    # --- one try

    async def _try(self, scene: _Resolved, deadline: RetryDeadline) -> StoredCommit:
        if (known := await self._check(scene)) is not None:
            return known
        asked = await self._questions(scene)
        try:
            held = await self._hold_all(asked, deadline)
        except BaseException:
            await self._tell(asked, Outcome.UNUSED)
            raise
        try:
            done = await self._place(scene, held)
        except Unavailable:
            await self._tell(asked, Outcome.UNSURE)
            raise
        except StreamhouseError:  # an answer: whatever failed the guard fails it for ever
            await self._tell(asked, Outcome.UNUSED)
            raise
        await self._tell(asked, Outcome.COMMITTED)
        return done

    async def _check(self, scene: _Resolved) -> StoredCommit | None:
        """Whether the segments can be placed, again in each try. In this order: an object that isn't given up, and is
        there after that, stays for the grace time at least, and a hold is over long before.

        Another agent may have made the commit meanwhile: then its objects are known, and so is it.
        """
        taken = await self._dependencies.metadata.known_among([each.segment.key for each in scene.commit.segments])
        if taken:
            if (known := await self._known(scene.commit)) is not None:
                return known
            raise CommitRefused(f"a segment was placed before, or was given up after long; key={min(taken)}")
        await check_objects(self._dependencies, scene.commit.segments, scene.partitions)
        return None

    async def _questions(self, scene: _Resolved) -> Mapping[Address | None, FreezeRequest]:
        """What each leader is asked, by the address of its HTTP port; None: this agent."""
        leaders = await self._leaders(scene.topics)
        offsets = requested_offsets(scene.commit)
        wanted: dict[Address | None, list[FreezeTarget]] = {}
        for name, partition in scene.partitions.items():
            session = leaders[partition].session
            if session is None:
                raise NotLeader(name, node_id=None, epoch=-1, address=None)
            is_here = session.session_id == self._current_session().session.session_id
            at = None if is_here else session.http
            wanted.setdefault(at, []).append(FreezeTarget(name=name, partition=partition, offsets=offsets[name]))
        commit, hold_id = scene.commit, self._dependencies.ids.token()
        return {
            at: FreezeRequest(hold_id=hold_id, query=commit.query, epoch=commit.epoch, partitions=tuple(each))
            for at, each in wanted.items()
        }

    async def _hold_all(
        self, asked: Mapping[Address | None, FreezeRequest], deadline: RetryDeadline
    ) -> list[FrozenPartition]:
        timeout_s = min(self._settings.hold_s, deadline.left_s)

        async def hold(at: Address | None, question: FreezeRequest) -> Sequence[FrozenPartition]:
            if at is None:
                return await self._holds.hold(question, timeout_s=timeout_s)
            return await self._dependencies.holders.hold(at, question, timeout_s=timeout_s)

        answers = await asyncio.gather(*(hold(*each) for each in asked.items()), return_exceptions=True)
        held: list[FrozenPartition] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            held.extend(answer)
        if {each.partition for each in held} != {
            w.partition for question in asked.values() for w in question.partitions
        }:
            raise Unavailable("another agent holds other partitions than it was asked for")
        return held

    async def _place(self, scene: _Resolved, held: Sequence[FrozenPartition]) -> StoredCommit:
        """The transaction, again while nobody answers: a repeated one finds the row of the first."""
        commit = scene.commit
        placement = ExternalCommit(
            query=commit.query,
            epoch=commit.epoch,
            progress=commit.progress,
            holders={each.partition: each.holder for each in held},
            topics={topic.topic_id: topic.name for topic in scene.topics},
            commits=assign_offsets(commit, scene.partitions, held),
            fence=commit.fence,
            covers=commit.covers,
        )
        deadline = self._dependencies.deadline(self._settings.hold_s / 2)
        while True:
            try:
                return await self._dependencies.metadata.commit_external_segments(placement)
            except Unavailable as error:
                log.warning("commit without an answer, asked for again", extra={"why": str(error)})
                await deadline.wait_to_retry(error)

    async def _tell(self, asked: Mapping[Address | None, FreezeRequest], outcome: Outcome) -> None:
        """Leaders that don't hear it find out by themselves, later."""

        async def tell(at: Address | None, hold_id: str) -> None:
            try:
                if at is None:
                    await self._holds.end(hold_id, outcome)
                else:
                    await self._dependencies.holders.end_hold(at, hold_id, outcome, timeout_s=NOTIFY_S)
            except Retriable as error:
                log.warning("a leader was not told how a commit ended", extra={"outcome": outcome, "why": str(error)})

        await asyncio.gather(*(tell(at, question.hold_id) for at, question in asked.items()))
