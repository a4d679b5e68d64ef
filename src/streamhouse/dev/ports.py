"""Ports: free ones of loopback.

Owns        choosing ports that nobody else is given meanwhile
Leaves      listening on them to whoever asked
"""

import random
import socket
from typing import Final, Self

LOOPBACK: Final = "127.0.0.1"
# Below those that the system gives to outgoing connections, also with SeaweedFS's offset of 10,000.
_RANGE: Final = range(11_000, 21_000)


class Reservation:
    """Free ports of loopback, held until all are chosen, so that none is chosen twice."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []
        self._chance = random.SystemRandom()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._held:
            each.close()

    def take(self, *, offset: int = 0) -> int:
        """A port that is free, together with its neighbour at `offset`."""
        while True:
            port = self._chance.choice(_RANGE)
            if self.hold(port) and (offset == 0 or self.hold(port + offset)):
                return port

    def hold(self, port: int) -> bool:
        """Whether the port is free; if so, it is ours for now."""
        probe = socket.socket()
        self._held.append(probe)
        try:
            # As listeners do it: connections of an earlier process that are still fading away are no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            probe.listen(1)  # two that are only bound would not be in each other's way
        except (OSError, OverflowError):
            return False
        return True
