"""Leadership: what must hold of whoever acknowledges, where several agents share the stores.

Owns        the rules about leases and acknowledgements
Leaves      records to `history`, groups to `group_history`

At the moment of an acknowledgement of what no segment holds yet, by the rows of the database:

  - the session that acknowledges is live: nobody has claimed it, so nobody has sealed its log
  - it holds the partition's lease, under the epoch that the batch bears
  - an object of a log holds the batch

At any time an epoch of a partition belongs to one session, and a partition's epochs never go back.
"""

from collections.abc import Callable, Iterator

from streamhouse.format.object_keys import WAL_PREFIX
from streamhouse.model.names import PartitionId
from streamhouse.stores.objects.memory import MemoryObjectStore

from .history import Fact, PartitionHistory
from .metadata import SimDatabase


class Leadership:
    def __init__(self, violated: Callable[[str], None], database: SimDatabase, bucket: MemoryObjectStore) -> None:
        self._violated = violated
        self._database = database
        self._bucket = bucket
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
        if not any(fact.sent.identity in body for body in self._wal_bodies()):
            self._violated(f"acknowledged though no log holds it; {log.name} {fact} {session_id}")

    def _wal_bodies(self) -> Iterator[bytes]:
        """The newest first: that is where it is."""
        return (stored.body for key, stored in reversed(self._bucket._objects.items()) if key.startswith(WAL_PREFIX))
