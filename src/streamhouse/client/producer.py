"""Producer: records go to a topic, each with a promise of where it was stored.

Data path   command line -> **producer** -> an agent's Kafka listener
Owns        which guarantees a producer asks for; idempotence wherever acks allow it
Leaves      batching, partitioning by key and retries to aiokafka
"""

import asyncio
from types import TracebackType
from typing import Any, Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import OutOfOrderSequenceNumber

from streamhouse.client.failures import from_exception, no_agent, translated
from streamhouse.client.nouns import Acks, Compression, NewRecord
from streamhouse.errors import Rejected, StreamhouseError

BATCH_BYTES: Final = 512 * 1024
LINGER_MS: Final = 5
CLOSE_S: Final = 2.0
# The agent decides what is too large; this only keeps a typing error from filling the memory.
MAX_RECORD_BYTES: Final = 256 * 1024 * 1024

Promise = asyncio.Future[Any]


class Producer:
    """Await the promises before leaving: closing waits only `CLOSE_S` for what is still under way."""

    def __init__(
        self, bootstrap: str, *, acks: Acks = "all", compression: Compression = "none", timeout_s: float = 30.0
    ) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._options: dict[str, Any] = {
            "acks": "all" if acks == "all" else int(acks),
            "enable_idempotence": acks == "all",
            "compression_type": None if compression == "none" else compression,
        }
        self._kafka: Any = None

    def __repr__(self) -> str:
        return f"<Producer {self._bootstrap} {'open' if self._kafka else 'closed'}>"

    async def __aenter__(self) -> Self:
        self._kafka = await self._started()
        return self

    async def _started(self) -> Any:
        kafka = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            client_id="streamhouse-producer",
            max_batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            max_request_size=MAX_RECORD_BYTES,
            request_timeout_ms=int(self._timeout_s * 1000),
            **self._options,
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                with translated(bootstrap=self._bootstrap, subject="producer"):
                    await kafka.start()
        except TimeoutError:
            await kafka.stop()
            raise no_agent(self._bootstrap) from None
        except BaseException:
            await kafka.stop()
            raise
        return kafka

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        kafka, self._kafka = self._kafka, None
        try:
            async with asyncio.timeout(CLOSE_S):
                await kafka.stop()
        except TimeoutError:
            # An idempotent producer flushes until it succeeds: with the agent gone, for ever.
            await kafka._sender.close()
            await kafka.client.close()

    async def renew(self) -> None:
        """Become another producer to the agent. Only after all promises: what was cut off is then sent again."""
        await self._kafka.stop()
        self._kafka = await self._started()

    def was_cut_off(self, error: BaseException) -> bool:
        """Whether a record was refused, and not stored, only because one before it in its partition was refused.

        Sequence numbers count what was sent, not what was stored, and this library never starts them anew.
        """
        return self._options["enable_idempotence"] and isinstance(error, OutOfOrderSequenceNumber)

    async def send(self, topic: str, record: NewRecord) -> Promise:
        """Hand a record over; what comes back is done when it is stored, or failed. Waits while a batch is full."""
        if record.key is None and record.value is None:
            raise Rejected("a record needs a key or a value")
        with translated(bootstrap=self._bootstrap, subject=topic):
            promise: Promise = await self._kafka.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
            )
        return promise

    def failure(self, error: BaseException, topic: str) -> StreamhouseError:
        """What a failed promise means."""
        return from_exception(error, bootstrap=self._bootstrap, subject=topic)
