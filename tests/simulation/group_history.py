"""Group history: what groups were told and committed, and whether it keeps the promises.

Owns        every rule about committed offsets, generations and owners that is checked
Leaves      making requests to `group_calls`; records to `history`

Committed offsets. Each commit that reaches an agent bears a text of its own, so what is read back names the commit. A
commit is known from its acknowledgement on, or from the first answer that showed it. What OffsetFetch tells, and what
the database holds when a commit is acknowledged, is

  - a commit that was made, with its offset, and that was not refused
  - never older than a known one: no commit that ended (answered, refused for the moment, or with its agent) before
    another began, when that other was known before the question was asked
  - never one that an earlier answer had already seen replaced
  - nothing, only before the first of them is known, or when some deletion, or the end of a commit's time, may have come
    after the last known one. A deletion is a commit of nothing: refused for good, it never happens; acknowledged, it is
    known, and what ended before it began is never told again

Generations. Only those count that an assignment was handed out in: from then on the generation is durable. A generation
whose members have only joined may be numbered again after a crash, with other members. A group that is empty and has
never committed anything is forgotten, as Kafka forgets it, and counts from the beginning when somebody comes back.

  - no join and no sync is answered with a generation below one that was handed out before it was asked
  - in a generation no partition has two owners, and everybody gets what one offer of the leader gave, now and later
  - no commit of a generation is accepted that begins after a later one was handed out
  - no commit of a static member's older life is accepted that begins after its successor got an assignment
  - nothing is deleted under a member that got its assignment before and commits in the same generation afterwards
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from streamhouse.broker.groups import JoinRequest, JoinResult, MemberRef, SyncRequest, SyncResult
from streamhouse.errors import Retriable, StreamhouseError, UnknownTopic
from streamhouse.model.group import CommittedOffset
from streamhouse.model.group_requests import Outcomes
from streamhouse.model.names import TopicPartition
from tests.history.events import Assignment, Commit, CommittedSeen, Outcome

from .assignors import decode_assignment
from .loop import PROCESS, Process

Shown = tuple[int, str]
"""An offset, and the text that was committed with it."""


@dataclass(slots=True, kw_only=True, eq=False)
class Try:
    """A commit, or a deletion, as an agent got it."""

    label: str
    group_id: str
    caller: MemberRef
    offsets: dict[TopicPartition, int | None]
    """None: deleted."""
    begun: int
    begun_ms: int
    handed_out: int
    """The newest generation with assignments when it began."""
    is_fenced: bool
    process: Process | None
    ended: int | None = None
    known: int | None = None
    refusal: StreamhouseError | None = None
    is_accepted: bool = False

    @property
    def deletes(self) -> bool:
        return None in self.offsets.values()

    def __str__(self) -> str:
        return (
            f"{self.label} generation={self.caller.generation} begun={self.begun} ended={self.ended} known={self.known}"
        )


@dataclass(slots=True, kw_only=True)
class Register:
    """The commits of one group to one partition."""

    tries: dict[str, Try] = field(default_factory=dict)
    last: tuple[str, int] | None = None
    replaced: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was known of a group when a member asked."""

    begun: int
    handed_out: int


class Membership:
    """What one group told its members."""

    def __init__(self) -> None:
        self.drops = 0
        """How often the group was forgotten."""
        self.handed_out = -1
        self.offers: dict[int, list[dict[str, bytes]]] = {}
        self.got: dict[int, dict[str, bytes]] = {}
        self.owners: dict[int, dict[TopicPartition, str]] = {}
        self.instances: dict[str, str] = {}
        self.lives: dict[str, dict[str, int]] = {}
        """Member ids that each static member was told, and when it asked for them."""
        self.fenced: dict[str, int] = {}
        self.kept_until: dict[str, float] = {}
        """Until when a member is surely in the group, whatever happens to it, unless it leaves."""
        self.assigned: dict[tuple[str, int], int] = {}
        """When each member, of each generation, first learned its assignment."""
        self.deletions: list[Try] = []
        """Those that were acknowledged."""

    def begin_anew(self, drops: int) -> None:
        self.drops = drops
        self.handed_out = -1
        self.got.clear()
        self.owners.clear()

    def deleted_under(self, tried: Try) -> Try | None:
        """A deletion that happened while the member that commits now was in its generation."""
        since = self.assigned.get((tried.caller.member_id, tried.caller.generation))
        if since is None:
            return None
        return next(
            (each for each in self.deletions if since < each.begun and (each.ended or tried.begun) < tried.begun), None
        )

    def identity(self, member_id: str) -> str:
        return self.instances.get(member_id, member_id)

    def fence(self, instance_id: str, successor: str) -> Iterable[str]:
        """The older lives of a static member."""
        lives = self.lives.get(instance_id, {})
        return [each for each, request in lives.items() if request < lives.get(successor, -1)]


class GroupHistory:
    def __init__(
        self,
        violated: Callable[[str], None],
        *,
        drops: Callable[[str], int],
        span_ms: Callable[[], int],
        retention_ms: int,
        in_team: bool,
        ordinary: Set[str] = frozenset(),
    ) -> None:
        """`ordinary`: groups that commit each offset once and in order, and lose none by time or deletion: what they
        were told is an event for the checker of all runs as well."""
        self._ordinary = ordinary
        self.told: list[CommittedSeen] = []
        self.handed_out: list[Assignment] = []
        self._violated = violated
        self._in_team = in_team
        self._drops = drops
        self._span_ms = span_ms
        self._retention_ms = retention_ms
        self._now = 0
        self._registers: dict[tuple[str, TopicPartition], Register] = {}
        self._members: dict[str, Membership] = {}
        self._open: list[Try] = []
        self._processed: dict[str, set[bytes]] = {}
        self.commits = 0
        self.refused = 0
        self.deletions = 0
        self.responses = 0
        self.syncs = 0

    def tick(self) -> int:
        self._now += 1
        return self._now

    def of(self, group_id: str) -> Membership:
        return self._members.setdefault(group_id, Membership())

    def generations(self) -> int:
        return sum(len(each.got) for each in self._members.values())

    def _register(self, group_id: str, name: TopicPartition) -> Register:
        return self._registers.setdefault((group_id, name), Register())

    # --- commits

    def committing(self, group_id: str, caller: MemberRef, offsets: Mapping[TopicPartition, int]) -> Try:
        return self._begin("commit", group_id, caller, offsets)

    def deleting(self, group_id: str, names: Iterable[TopicPartition]) -> Try:
        return self._begin("deletion", group_id, MemberRef(), dict.fromkeys(names))

    def _begin(self, what: str, group_id: str, caller: MemberRef, offsets: Mapping[TopicPartition, int | None]) -> Try:
        now = self.tick()
        members = self.of(group_id)
        tried = Try(
            label=f"{what}-{now}",
            group_id=group_id,
            caller=caller,
            offsets=dict(offsets),
            begun=now,
            begun_ms=self._span_ms(),
            handed_out=members.handed_out,
            is_fenced=caller.member_id in members.fenced,
            process=PROCESS.get(),
        )
        for name in offsets:
            self._register(group_id, name).tries[tried.label] = tried
        self._open.append(tried)
        return tried

    def committed(self, tried: Try, outcomes: Outcomes) -> None:
        self._end(tried)
        tried.known = min(tried.known or self._now, self._now)
        self.commits += 1
        tried.is_accepted = True
        unknown = [name for name, error in outcomes.items() if isinstance(error, UnknownTopic)] if self._in_team else []
        for name in unknown:  # as if nobody had asked: the topic is news to this agent
            del self._register(tried.group_id, name).tries[tried.label]
            del tried.offsets[name]
        if refused := [(n, error) for n, error in outcomes.items() if error is not None and n not in unknown]:
            self._violated(f"a good offset was refused; {tried.group_id} {tried} {refused}")
        if -1 < tried.caller.generation < tried.handed_out:
            self._violated(f"an old generation committed; {tried.group_id} {tried} newest={tried.handed_out}")
        if tried.is_fenced:
            self._violated(f"a fenced member committed; {tried.group_id} {tried} {tried.caller}")
        if (deletion := self.of(tried.group_id).deleted_under(tried)) is not None:
            self._violated(f"deleted under a member; {tried.group_id} {deletion} {tried}")

    def kept(self, group_id: str, member_id: str, *, until: float) -> None:
        """A heartbeat was answered: neither session nor rebalance can end the membership before."""
        self.of(group_id).kept_until[member_id] = until

    def leaves(self, group_id: str, member_id: str) -> None:
        self.of(group_id).kept_until.pop(member_id, None)

    def emptied(self, group_id: str, *, now: float) -> None:
        """The group was deleted just now, which must not happen while it has members."""
        kept_until = self.of(group_id).kept_until
        if here := [member_id for member_id, until in kept_until.items() if until > now]:
            self._violated(f"a group was deleted with members in it; {group_id} {here}")

    def deleted(self, tried: Try, outcomes: Outcomes) -> None:
        """Partitions that were refused are as if nobody had asked."""
        self._end(tried)
        for name in [name for name, error in outcomes.items() if error is not None]:
            del self._register(tried.group_id, name).tries[tried.label]
            del tried.offsets[name]
        if tried.offsets:
            tried.known = self._now
            self.deletions += 1
            self.of(tried.group_id).deletions.append(tried)

    def refused_try(self, tried: Try, error: StreamhouseError) -> None:
        """Refused for good: it never happens. For the moment: it may have, or may yet."""
        self._end(tried)
        self.refused += not tried.deletes
        if isinstance(error, Retriable):
            return
        tried.refusal = error
        if tried.known is not None:
            self._violated(f"a commit was shown and then refused; {tried.group_id} {tried} {error}")

    def died(self, process: Process) -> None:
        """What the agent had under way is over, whatever became of it."""
        for tried in [tried for tried in self._open if tried.process is process]:
            self._end(tried)

    def _end(self, tried: Try) -> None:
        tried.ended = self.tick()
        self._open.remove(tried)

    # --- what is read back

    def fetched(
        self, group_id: str, names: Sequence[TopicPartition], begun: int, got: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        self.responses += 1
        now = self.tick()
        for name in names:
            result = got.get(name)
            if group_id in self._ordinary:
                self.told.append(
                    CommittedSeen(group_id, str(name), -1 if result is None else result.offset, begun, now)
                )
            self.saw(group_id, name, begun, now, None if result is None else (result.offset, result.metadata))

    def saw(self, group_id: str, name: TopicPartition, begun: int, now: int, shown: Shown | None) -> None:
        """A question asked at `begun` was answered `now`."""
        register = self._register(group_id, name)
        if shown is None:
            if not self._may_be_gone(register, begun):
                self._violated(f"committed offsets are gone; {group_id} {name} known={_known(register, begun)[-1]}")
            if register.last is not None and register.last[1] < begun:
                register.replaced[register.last[0]] = now
                register.last = None
            return
        known = _known(register, begun)
        tried = register.tries.get(shown[1])
        if tried is None or tried.offsets[name] != shown[0] or tried.refusal is not None:
            self._violated(f"an offset was told that nobody committed; {group_id} {name} {shown} {tried}")
            return
        ended = tried.ended
        newer = [each for each in known if ended is not None and each.begun > ended]
        if newer or register.replaced.get(tried.label, begun) < begun:
            why = newer[-1] if newer else register.last
            self._violated(f"a committed offset went back; {group_id} {name} told={tried} known={why}")
        tried.known = min(tried.known or now, now)
        if register.last is not None and register.last[0] != tried.label and register.last[1] < begun:
            register.replaced[register.last[0]] = now
        register.last = (tried.label, now)

    def _may_be_gone(self, register: Register, begun: int) -> bool:
        """Whether nothing may be told: something may have ended what was committed, after the last that is known."""
        known = [each for each in _known(register, begun) if not each.deletes]
        ends = [
            each.ended
            for each in register.tries.values()
            if each.refusal is None and (each.deletes or self._may_have_expired(each))
        ]
        return not known or any(end is None or all(each.begun <= end for each in known) for end in ends)

    def _may_have_expired(self, tried: Try) -> bool:
        """The time runs from the commit, or from when the group became empty after it."""
        return self._span_ms() - tried.begun_ms >= self._retention_ms

    # --- members

    def asks(self, group_id: str) -> Asked:
        return Asked(begun=self.tick(), handed_out=self.of(group_id).handed_out)

    def joined(self, group_id: str, asked: Asked, ask: JoinRequest, joined: JoinResult) -> None:
        self._look_for(group_id)
        members = self.of(group_id)
        if ask.instance_id is not None:
            members.instances[joined.member_id] = ask.instance_id
            lives = members.lives.setdefault(ask.instance_id, {})
            lives.setdefault(joined.member_id, asked.begun)
            for earlier in lives.keys() - {joined.member_id}:  # whoever comes with the same instance id takes its place
                members.kept_until.pop(earlier, None)
        members.instances.update({each.member_id: each.instance_id for each in joined.members if each.instance_id})
        newest = min(asked.handed_out, members.handed_out)
        if joined.generation < newest and self._is_kept(group_id):  # else it may be about to be forgotten
            self._violated(f"a generation went back; {group_id} {joined} newest={newest}")

    def _is_kept(self, group_id: str) -> bool:
        """Whether the group has something committed that must still be there."""
        registers = [register for (owner, _), register in self._registers.items() if owner == group_id]
        return not all(self._may_be_gone(register, self._now + 1) for register in registers)

    def _look_for(self, group_id: str) -> None:
        """A group that nobody is in, and that has nothing committed any more, may be forgotten: then it starts over."""
        members = self.of(group_id)
        if (drops := self._drops(group_id)) != members.drops:
            members.begin_anew(drops)
            if self._is_kept(group_id):
                self._violated(f"a group was forgotten with what it had committed; {group_id}")

    def offers(self, group_id: str, ask: SyncRequest) -> None:
        """A leader brings its assignments; they count from the moment at which the agent has them."""
        members = self.of(group_id)
        offer = {members.identity(member_id): data for member_id, data in ask.assignments.items()}
        members.offers.setdefault(ask.generation, []).append(offer)

    def synced(self, group_id: str, asked: Asked, ask: SyncRequest, synced: SyncResult) -> None:
        self.syncs += 1
        self._look_for(group_id)
        members = self.of(group_id)
        generation = ask.generation
        if generation < min(asked.handed_out, members.handed_out):
            self._violated(f"an old generation was handed out; {group_id} {ask} newest={asked.handed_out}")
        members.handed_out = max(members.handed_out, generation)
        members.assigned.setdefault((ask.member_id, generation), self.tick())
        identity = members.identity(ask.member_id)
        got = members.got.setdefault(generation, {})
        if got.setdefault(identity, synced.assignment) != synced.assignment:
            self._violated(f"an assignment changed; {group_id} {generation} {identity} {got[identity]!r} {synced}")
        offers = members.offers.get(generation, [])
        if not any(all(offer.get(each, b"") == data for each, data in got.items()) for offer in offers):
            self._violated(f"members got what no leader gave; {group_id} {generation} got={got} offers={offers}")
        self._own(group_id, generation, identity, synced.assignment)
        for older in members.fence(identity, ask.member_id):
            members.fenced.setdefault(older, self.tick())

    def _own(self, group_id: str, generation: int, identity: str, assignment: bytes) -> None:
        owners = self.of(group_id).owners.setdefault(generation, {})
        names = decode_assignment(assignment)
        group = f"{group_id}, life {self.of(group_id).drops}"
        self.handed_out.append(Assignment(group, generation, identity, tuple(map(str, names)), self._now))
        for name in names:
            if (other := owners.setdefault(name, identity)) != identity:
                self._violated(f"two owners in one generation; {group_id} {generation} {name} {other} {identity}")

    def commit_events(self) -> Iterator[Commit]:
        for (group_id, name), register in self._registers.items():
            for tried in register.tries.values() if group_id in self._ordinary else ():
                outcome = Outcome.COMMITTED if tried.is_accepted else Outcome.UNKNOWN
                yield Commit(
                    group=group_id,
                    member=tried.caller.member_id,
                    partition=str(name),
                    offset=tried.offsets[name] or 0,
                    begun=tried.begun,
                    ended=tried.ended,
                    outcome=Outcome.REFUSED if tried.refusal is not None else outcome,
                    generation=tried.caller.generation,
                )

    def given(self, group_id: str, generation: int) -> Set[TopicPartition]:
        """What the members of a generation were given, all together."""
        return self.of(group_id).owners.get(generation, {}).keys()

    # --- records

    def process(self, group_id: str, identities: Iterable[bytes]) -> None:
        self._processed.setdefault(group_id, set()).update(identities)

    def has_processed(self, group_id: str, identity: bytes) -> bool:
        return identity in self._processed.get(group_id, ())


def _known(register: Register, begun: int) -> list[Try]:
    """What was known before a question was asked."""
    return [each for each in register.tries.values() if each.known is not None and each.known < begun]
