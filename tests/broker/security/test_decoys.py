"""Users who aren't there are challenged as those who are: the same on every agent, with what others have."""

import dataclasses
import hashlib
import os
import time
from statistics import median

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.security.decoys import REFRESH_S, Decoys
from streamhouse.config import SecuritySettings
from streamhouse.config.secrets import Secrets
from streamhouse.errors import NotAuthenticated
from streamhouse.model.scram import ScramMechanism
from tests.broker.conftest import MakeWorld
from tests.broker.support import World

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(security=SecuritySettings(authorization="acls"))


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start()


async def test_a_decoy_is_the_same_at_each_login_and_on_each_agent_with_the_secret(world: World) -> None:
    def decoys(secret: str) -> Decoys:
        return Decoys(dataclasses.replace(world.dependencies(), secrets=Secrets(cluster_secret=secret)))

    here, there = decoys("a secret of the cluster"), decoys("a secret of the cluster")
    for mechanism in ScramMechanism:
        assert here.make("eve", mechanism) == there.make("eve", mechanism)
    salts = {each.make(name, SHA_256).salt for each in (here, decoys("another")) for name in ("eve", "mallory")}
    assert len(salts) == 4
    assert here.make("eve", SHA_256).salt != here.make("eve", SHA_512).salt[:24]


async def test_decoys_have_the_iterations_and_salts_that_users_have(world: World, broker: Broker) -> None:
    users = broker.security.users
    await users.create("ours", "a password")
    salted = hashlib.pbkdf2_hmac("sha512", b"a password", b"s" * 26, 9000)
    await users.alter_credentials("theirs", upserts=[(SHA_512, b"s" * 26, salted, 9000)])
    world.clock.skip(REFRESH_S)
    seen = set()
    for number in range(40):
        credential, is_stored = await users.challenge(f"nobody-{number}", SHA_512)
        assert not is_stored
        seen.add((credential.iterations, len(credential.salt)))
    assert seen == {(4096, 24), (9000, 26)}
    assert {(await users.challenge(f"nobody-{n}", SHA_256)).credential.iterations for n in range(20)} == {4096}


async def test_a_decoy_for_a_password_has_the_mechanism_that_some_user_has_first(world: World, broker: Broker) -> None:
    users = broker.security.users
    salted = hashlib.pbkdf2_hmac("sha512", b"a password", b"s" * 24, 4096)
    await users.alter_credentials("theirs", upserts=[(SHA_512, b"s" * 24, salted, 4096)])
    assert (await users.challenge("nobody", SHA_256, SHA_512)).credential.mechanism is SHA_512
    await users.create("ours", "a password")
    world.clock.skip(REFRESH_S)
    decoys = [(await users.challenge(f"nobody-{n}", SHA_256, SHA_512)).credential for n in range(20)]
    assert {each.mechanism for each in decoys} == {SHA_256, SHA_512}


async def test_a_user_without_the_mechanism_looks_like_one_who_is_not_there(broker: Broker) -> None:
    users = broker.security.users
    salted = hashlib.pbkdf2_hmac("sha512", b"a password", os.urandom(24), 4096)
    await users.alter_credentials("theirs", upserts=[(SHA_512, os.urandom(24), salted, 4096)])
    assert not (await users.challenge("theirs", SHA_256)).is_stored
    assert (await users.challenge("theirs", SHA_256, SHA_512)).is_stored


async def test_a_wrong_password_takes_as_long_for_a_user_who_is_not_there(broker: Broker) -> None:
    await broker.security.users.create("alice", "a password")

    async def seconds(name: str) -> float:
        began = time.perf_counter()
        with pytest.raises(NotAuthenticated):
            await broker.security.users.check_password(name, "wrong")
        return time.perf_counter() - began

    for name in ("alice", "nobody"):
        await seconds(name)
    taken = [(await seconds("alice"), await seconds("nobody")) for _ in range(60)]
    known, unknown = (median(each) for each in zip(*taken, strict=True))
    assert 0.7 < unknown / known < 1.4
