"""Throttling: bodies of clients above their quotas are read, and sent, more slowly.

Bytes of request bodies count as `producer_byte_rate`, bytes of response bodies as `consumer_byte_rate`. A client above
its limit waits where it is: in the middle of an upload, of a stream, or before its response.
"""

from starlette.types import Message, Receive, Send

from streamhouse.broker.security.quotas import Quotas
from streamhouse.clock import Clock
from streamhouse.model.access import Caller
from streamhouse.model.quota import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE


class Throttle:
    """One request of a caller."""

    def __init__(self, quotas: Quotas, caller: Caller, receive: Receive, send: Send, *, clock: Clock) -> None:
        self._quotas = quotas
        self._user = caller.principal.name
        self._receive = receive
        self._send = send
        self._clock = clock

    async def receive(self) -> Message:
        message = await self._receive()
        await self._charge(PRODUCER_BYTE_RATE, message)
        return message

    async def send(self, message: Message) -> None:
        await self._charge(CONSUMER_BYTE_RATE, message)
        await self._send(message)

    async def _charge(self, limit: str, message: Message) -> None:
        if size := len(message.get("body", b"")):
            wait_s = self._quotas.charge(limit, size, user=self._user, client_id="")
            if wait_s:
                await self._clock.sleep(wait_s)
