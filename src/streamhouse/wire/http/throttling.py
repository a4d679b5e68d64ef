"""Throttling: the body of a request is received, and that of its response sent, as quotas allow."""

from starlette.types import Message, Receive, Send

from streamhouse.wire.client_throttle import ClientThrottle


class Throttle:
    """One request of a caller."""

    def __init__(self, throttle: ClientThrottle, receive: Receive, send: Send) -> None:
        self._throttle = throttle
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        message = await self._receive()
        if size := len(message.get("body", b"")):
            await self._throttle.received(size)
        return message

    async def send(self, message: Message) -> None:
        if size := len(message.get("body", b"")):
            await self._throttle.sent(size)
        await self._send(message)
