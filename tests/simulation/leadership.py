"""Leadership: what must hold of whoever acknowledges, where several agents share the stores.

Owns        the rules about leases and acknowledgements
Leaves      records to `history`, groups to `group_history`

At the moment of an acknowledgement of what no segment holds yet, by the rows of the database:

  - the session that acknowledges is live: nobody has claimed it, so nobody has sealed its log
  - it holds the partition's lease, under the epoch that the batch bears
  - an object of a log, or a disk, holds the batch; where it is a disk, the offsets are reserved

At any time an epoch of a partition belongs to one session, and a partition's epochs never go back.
"""

from collections.abc import Callable, Iterable

from streamhouse.model.names import PartitionId

from .history import Fact, PartitionHistory
from .metadata import SimDatabase


class Leadership:
    def __init__(
        self,
        violated: Callable[[str], None],
        database: SimDatabase,
        log_bodies: Callable[[], Iterable[bytes | bytearray]],
        *,
        reserves: bool,
    ) -> None:
        """`reserves`: whether leaders reserve offsets, because nobody else can read their logs."""
        self._reserves = reserves
        self._violated = violated
        self._database = database
        self._log_bodies = log_bodies
        self._leaders: dict[tuple[PartitionId, int], str] = {}
        self._newest: dict[PartitionId, int] = {}

    def acknowledged(self, log: PartitionHistory, fact: Fact, session_id: str, epoch: int) -> None:
        """A new batch was acknowledged by a session under an epoch."""
        leader = self._leaders.setdefault((log.partition, epoch), session_id)
        if leader != session_id:
            self._violated(f"two leaders in one epoch; {log.name} {epoch=} {leader} {session_id} {fact}")
        lease = self._database.lease(log.partition)
        if lease is None:
            return
        if lease[1] < self._newest.get(log.partition, -1):
            self._violated(f"the epoch of a partition went back; {log.name} {lease} {self._newest}")
        self._newest[log.partition] = lease[1]
        bounds = self._database.bounds(log.partition)
        if bounds is not None and fact.end > bounds[1]:
            self._check_unflushed(log, fact, session_id, epoch, lease)

    def _check_unflushed(
        self, log: PartitionHistory, fact: Fact, session_id: str, epoch: int, lease: tuple[str | None, int]
    ) -> None:
        if (state := self._database.session_state(session_id)) != "live":
            self._violated(f"acknowledged by a session that is {state}; {log.name} {fact} {session_id}")
        if lease != (session_id, epoch):
            self._violated(f"acknowledged without a lease; {log.name} {fact} {session_id} {epoch=} {lease}")
        if self._reserves and (until := self._database.reserved_until(log.partition)) < fact.end:
            self._violated(f"acknowledged above what is reserved; {log.name} {fact} {until=}")
        if not any(fact.sent.identity in body for body in self._log_bodies()):
            self._violated(f"acknowledged though no log holds it; {log.name} {fact} {session_id}")
