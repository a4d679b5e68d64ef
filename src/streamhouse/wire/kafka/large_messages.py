"""Large messages: requests and responses of many elements are decoded and encoded in a thread, a few at a time.

Data path   connection -> **large messages** -> framing; small messages go to framing directly
Owns        the number of elements from which a message is large, the maximum elements of a request, the number of large
            requests decoded or started concurrently
Leaves      bytes to `codec`, the order of a client's requests to `connection`

A small element is three bytes on the wire, a hundred in memory, and a few microseconds of work. Handlers of many
elements yield to other clients (`connection_limits`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from typing import Final, NamedTuple, TypeVar

from streamhouse.wire.kafka.codec import MessageTooLong
from streamhouse.wire.kafka.framing import DecodedRequest, decode_request, encode_response, is_rejection
from streamhouse.wire.kafka.schema import Buffer, Message, Response, fields_of

T = TypeVar("T")
M = TypeVar("M", bound=Message)

INLINE_ELEMENTS: Final = 2000
"""Elements up to which a message is decoded or encoded on the event loop: a few milliseconds."""

AT_ONCE: Final = 2
"""Large requests decoded and started concurrently; a decoded one has up to `max_elements` objects."""


class Encoded(NamedTuple):
    """An encoded response, and whether it has only errors."""

    buffers: list[Buffer]
    is_rejection: bool


class LargeMessages:
    def __init__(self, *, max_elements: int) -> None:
        self._max_elements = max_elements
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="large-messages")
        self.opened = 0
        """Requests decoded in the thread."""
        self.encoded = 0
        """Responses encoded in the thread."""

    def __repr__(self) -> str:
        return f"<LargeMessages opened={self.opened} encoded={self.encoded} max_elements={self._max_elements}>"

    def decode_small(self, frame: bytearray) -> DecodedRequest | None:
        """Decode a frame; None if it has too many elements for the event loop."""
        try:
            return decode_request(frame, max_elements=min(INLINE_ELEMENTS, self._max_elements))
        except MessageTooLong as error:
            if self._max_elements <= INLINE_ELEMENTS:
                raise _close_error(error) from None
            return None

    @asynccontextmanager
    async def decode(self, frame: bytearray) -> AsyncIterator[DecodedRequest]:
        """Decode a large frame, and hold a slot while the request is started. Raises like `decode_request`."""
        async with self._slots:
            self.opened += 1
            try:
                decoded = await self._in_thread(lambda: decode_request(frame, max_elements=self._max_elements))
            except MessageTooLong as error:
                raise _close_error(error) from None
            yield decoded

    async def encode(self, decoded: DecodedRequest, response: Response) -> Encoded:
        self.encoded += 1
        return await self._in_thread(lambda: Encoded(encode_response(decoded, response), is_rejection(response)))

    async def translate(self, work: Callable[[str, M], None], tenant: str, message: M) -> None:
        """Give what a message names other names, for a client of a tenant."""
        if is_large(message):
            await self._in_thread(lambda: work(tenant, message))
        else:
            work(tenant, message)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _close_error(error: MessageTooLong) -> MessageTooLong:
    return MessageTooLong(f"{error} setting=kafka.max_request_elements")


def is_large(message: Message) -> bool:
    """Whether a message has too many elements for the event loop, counted to the second level."""
    count = 0
    kind: type = type(message)
    for name, inner in _lists(kind):
        elements = getattr(message, name) or ()
        count += len(elements)
        if count > INLINE_ELEMENTS:
            return True
        for inner_name in inner:
            count += sum(len(getattr(each, inner_name) or ()) for each in elements)
    return count > INLINE_ELEMENTS


@cache
def _lists(struct: type) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The list fields of a struct, each with the list fields of its elements."""
    lists = [(field.name, field.type[0]) for field in fields_of(struct) if isinstance(field.type, list)]
    return tuple((name, tuple(name for name, _ in _lists(of)) if isinstance(of, type) else ()) for name, of in lists)
