"""Connection quotas: how long the calls of a new gRPC connection wait.

grpc accepts connections and does their handshakes by itself, so a connection counts with its first call, before its
login. It is known by the client's address and port.
"""

from collections import OrderedDict

from streamhouse.broker.security.quotas import Quotas
from streamhouse.clock import Clock


class ConnectionQuotas:
    """Connections that have made a call; beyond `remembered` the longest silent are forgotten, and count again."""

    def __init__(self, quotas: Quotas, clock: Clock, *, remembered: int) -> None:
        self._quotas = quotas
        self._clock = clock
        self._remembered = remembered
        self._turns: OrderedDict[str, float] = OrderedDict()

    def __repr__(self) -> str:
        return f"<ConnectionQuotas connections={len(self._turns)}>"

    async def wait_turn(self, peer: str, host: str) -> None:
        """Count the connection if it is new; returns when its calls may continue."""
        if not self._quotas.is_active:
            return
        now = self._clock.monotonic()
        turn = self._turns.pop(peer, None)
        if turn is None:
            turn = now + self._quotas.charge_connection(host)
        self._turns[peer] = turn
        if len(self._turns) > self._remembered:
            self._turns.popitem(last=False)
        if turn > now:
            await self._clock.sleep(turn - now)
