"""A real gRPC client of a real agent, with its methods looked up by name in streamhouse.proto."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import grpc
import httpx
import pytest
from google.protobuf.message import Message
from prometheus_client.parser import text_string_to_metric_families

from streamhouse.agent import Agent
from streamhouse.model.record import Receipt
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb

A = TypeVar("A", bound=Message)

RECORDS = pb.DESCRIPTOR.services_by_name["RecordsService"]
ADMIN = pb.DESCRIPTOR.services_by_name["AdminService"]
TIMEOUT_S = 20.0


class Refused(Exception):
    """A call that failed: its code, its text and what came behind it."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"{error.code().name}: {error.details()}")
        self.code: Any = error.code()
        self.text: str = error.details()
        self.metadata: dict[str, str] = dict(error.trailing_metadata() or ())


class Stream(Generic[A]):
    """Both directions of a stream; nothing waits for ever."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def send(self, *messages: Message) -> None:
        for message in messages:
            async with asyncio.timeout(TIMEOUT_S):
                await self.call.write(message)

    async def next(self) -> A:
        async with asyncio.timeout(TIMEOUT_S):
            try:
                message = await self.call.read()
            except grpc.aio.AioRpcError as error:
                raise Refused(error) from None
        assert message is not grpc.aio.EOF, "the stream has ended"
        response: A = message
        return response

    async def end(self) -> None:
        """End the client's side of the stream."""
        await self.call.done_writing()

    async def rest(self) -> list[A]:
        """What comes until the stream ends."""
        results: list[A] = []
        async with asyncio.timeout(TIMEOUT_S):
            try:
                while (message := await self.call.read()) is not grpc.aio.EOF:
                    results.append(message)
            except grpc.aio.AioRpcError as error:
                raise Refused(error) from None
        return results

    async def code(self) -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.call.code()


class Client:
    def __init__(self, channel: Any) -> None:
        self.channel = channel

    async def __call__(self, request: Message, answer: type[A], *, timeout: float | None = TIMEOUT_S) -> A:
        """Call the method that takes this request."""
        name = request.DESCRIPTOR.name.removesuffix("Request")
        path = f"/{(RECORDS if name in RECORDS.methods_by_name else ADMIN).full_name}/{name}"
        method = self.channel.unary_unary(
            path, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
        )
        try:
            response: A = await method(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise Refused(error) from None
        return response

    def stream(self, name: str, response: type[A], *, timeout: float | None = None) -> Stream[A]:
        question = getattr(pb, f"{name}Request")
        method = self.channel.stream_stream(
            f"/{RECORDS.full_name}/{name}",
            request_serializer=question.SerializeToString,
            response_deserializer=response.FromString,
        )
        return Stream(method(timeout=timeout))

    # --- what many tests do

    async def create(self, topic: str, partitions: int = 1, **config: str) -> pb.Topic:
        named = {name.replace("_", "."): value for name, value in config.items()}
        request = pb.CreateTopicRequest(name=topic, partitions=partitions, config=named)
        return (await self(request, pb.CreateTopicResponse)).topic

    async def produce(self, topic: str, *values: bytes, partition: int | None = None) -> pb.ProduceResponse:
        records = [pb.Record(value=value, partition=partition) for value in values]
        return await self(pb.ProduceRequest(topic=topic, records=records), pb.ProduceResponse)

    async def values(self, topic: str) -> list[bytes]:
        """All values of a topic with one partition, or partition by partition."""
        results: list[bytes] = []
        positions = [pb.Position(topic=topic, edge=pb.EDGE_EARLIEST)]
        while True:
            response = await self(pb.FetchRequest(positions=positions), pb.FetchResponse)
            results += [record.value for part in response.partitions for record in part.records]
            if all(part.next_offset >= part.high_watermark for part in response.partitions):
                return results
            positions = [
                pb.Position(topic=topic, partition=part.partition, offset=part.next_offset)
                for part in response.partitions
            ]


def values_of(responses: Sequence[pb.ConsumeResponse]) -> list[bytes]:
    return [record.value for response in responses for part in response.partitions for record in part.records]


@contextmanager
def stalled(agent: Agent) -> Iterator[asyncio.Event]:
    """An agent that takes records and never acknowledges them; sets the event when it has taken the first ones."""
    begun = asyncio.Event()

    async def publish(*_: object, **__: object) -> list[Receipt]:
        begun.set()
        await asyncio.Event().wait()
        return []

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(agent.broker.records, "publish", publish)
        yield begun


async def metric(agent: Agent, name: str, **labels: str) -> float:
    async with httpx.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"http://{agent.ready.http}/metrics")).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())
