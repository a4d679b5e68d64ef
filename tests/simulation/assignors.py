"""Assignors: how a leader divides partitions, and what members tell it; pure.

Owns        an eager assignor and a cooperative one, the bytes in which members and leader speak to each other
Leaves      when they are asked to `groups`
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from streamhouse.broker.groups import JoinedMember
from streamhouse.model.names import TopicPartition

EAGER: Final = "roundrobin"
COOPERATIVE: Final = "cooperative"


def encode_assignment(names: Sequence[TopicPartition]) -> bytes:
    return " ".join(f"{name.topic}:{name.partition}" for name in names).encode()


def decode_assignment(data: bytes) -> list[TopicPartition]:
    parts = [item.rpartition(":") for item in data.decode().split()]
    return [TopicPartition(topic, int(number)) for topic, _, number in parts]


def encode_metadata(topics: Sequence[str], owned: Sequence[TopicPartition], generation: int) -> bytes:
    """A consumer's subscription, and behind it what it owns, and since when."""
    named = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    claim = encode_assignment(owned)
    return struct.pack(">hi", 1, len(topics)) + named + claim + struct.pack(">ii", len(claim), generation)


def decode_claim(metadata: bytes) -> tuple[list[TopicPartition], int]:
    size, generation = struct.unpack(">ii", metadata[-8:])
    return decode_assignment(metadata[len(metadata) - 8 - size : -8]), generation


def assign(
    protocol: str | None, members: Sequence[JoinedMember], names: Sequence[TopicPartition]
) -> Mapping[str, bytes]:
    """Who gets what: in turn, or, cooperatively, what others own only after they have let go of it."""
    order = sorted(members, key=lambda member: member.instance_id or member.member_id)
    shares: dict[str, list[TopicPartition]] = {member.member_id: [] for member in order}
    if protocol == COOPERATIVE:
        _share_cooperatively(shares, owners_of(order), names)
    else:
        for place, name in enumerate(names):
            shares[order[place % len(order)].member_id].append(name)
    return {member_id: encode_assignment(share) for member_id, share in shares.items()}


def owners_of(members: Sequence[JoinedMember]) -> dict[TopicPartition, str]:
    """Who owns what: of two who say so, the one that had it in the later generation."""
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for member in members:
        claimed, generation = decode_claim(member.metadata)
        for name in claimed:
            if name not in owners or owners[name][0] < generation:
                owners[name] = (generation, member.member_id)
    return {name: member_id for name, (_, member_id) in owners.items()}


def _share_cooperatively(
    shares: dict[str, list[TopicPartition]], owners: Mapping[TopicPartition, str], names: Sequence[TopicPartition]
) -> None:
    """Everybody keeps up to a fair share; what is free goes to the poorest; what is taken away is free next time."""
    fair = -(-len(names) // len(shares))
    least = len(names) // len(shares)
    for name in names:
        owner = owners.get(name)
        if owner in shares and len(shares[owner]) < fair:
            shares[owner].append(name)
    for name in names:
        if owners.get(name) not in shares:
            min(shares.values(), key=len).append(name)
    _take_away(shares, owners, least)


def _take_away(shares: dict[str, list[TopicPartition]], owners: Mapping[TopicPartition, str], least: int) -> None:
    """Of the rich, for somebody who has less than the least; whoever gets it joins again for it."""
    poor = sum(max(least - len(share), 0) for share in shares.values())
    for member_id, share in shares.items():
        while poor > 0 and len(share) > least and owners.get(share[-1]) == member_id:
            share.pop()
            poor -= 1
