"""Requests of any content: the agent answers with a reason, and never with "I failed"."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from tests.wire.grpc.talk import Client

METHODS = [method for service in pb.DESCRIPTOR.services_by_name.values() for method in service.methods]
OURS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED}
REQUESTS = 60
SEED = 17
AT_ONCE = 50
TIMEOUT_S = 0.5
TEXTS = ["", "orders", "a/b", "..", "x" * 300, "é\x00\n", "__consumer_offsets", "retention.ms", "k1"]
NUMBERS = [0, 1, 2, -1, 7, 10**6, 2**31 - 1, -(2**31)]
BYTES = [b"", b"x", b"\x00" * 61, b"\xff" * 100, bytes(range(256))]


def value_of(field: Any, chance: random.Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return chance.choice(BYTES if field.type == FieldDescriptor.TYPE_BYTES else TEXTS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return chance.choice([0, 1, 2, 3, 99])
    wide = [2**63 - 1, -(2**63)] if kind == FieldDescriptor.CPPTYPE_INT64 else []
    return chance.choice([*NUMBERS, *wide])


def fill(message: Message, chance: random.Random, depth: int = 0) -> Message:
    """A message of its kind with anything in it."""
    fields: Sequence[Any] = message.DESCRIPTOR.fields
    for field in fields:
        if chance.random() < 0.3:
            continue
        is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        if is_message and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)[chance.choice(TEXTS)] = chance.choice(TEXTS)
        elif is_message and field.is_repeated:
            for _ in range(chance.randrange(3)):
                fill(getattr(message, field.name).add(), chance, depth + 1)
        elif is_message:
            fill(getattr(message, field.name), chance, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(value_of(field, chance) for _ in range(chance.randrange(3)))
        else:
            setattr(message, field.name, value_of(field, chance))
    return message


@pytest.mark.parametrize("method", METHODS, ids=lambda each: each.name)
async def test_whatever_comes_is_answered_with_a_reason(client: Client, method: MethodDescriptor) -> None:
    chance = random.Random(f"{SEED}-{method.full_name}")
    await client.create("orders", 2)
    await client.produce("orders", b"a", b"b")
    path = f"/{method.containing_service.full_name}/{method.name}"
    question = GetMessageClass(method.input_type)
    requests = [fill(question(), chance).SerializeToString() for _ in range(REQUESTS)]
    requests += [bytes(chance.choices(range(256), k=chance.randrange(40))) for _ in range(REQUESTS)]

    turns = asyncio.Semaphore(AT_ONCE)

    async def call(raw: bytes) -> tuple[Any, str]:
        async with turns:
            if method.client_streaming:
                call = client.channel.stream_stream(path)(timeout=TIMEOUT_S)
                with suppress(grpc.aio.AioRpcError):  # over before it was written: `code` says why
                    await call.write(raw)
                    await call.done_writing()
            else:
                call = client.channel.unary_unary(path)(raw, timeout=TIMEOUT_S)
            return await call.code(), await call.details()

    responses = await asyncio.gather(*(call(raw) for raw in requests))
    assert [response for response in responses if response[0] in OURS] == []
