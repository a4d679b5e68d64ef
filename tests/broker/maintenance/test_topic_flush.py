"""TopicFlush: all records of a topic are in segments for a job, whichever agents lead it."""

import pytest

from streamhouse.config import FlushSettings, RecordSettings
from streamhouse.errors import Unavailable, UnknownTopic
from streamhouse.model.names import TopicPartition
from tests.broker.conftest import MakeWorld
from tests.broker.external_commits.support import BrokerCluster
from tests.broker.support import batch, produce

PARTITIONS = 16


async def test_what_every_agent_leads_is_flushed(make_world: MakeWorld) -> None:
    cluster = BrokerCluster(await make_world(flush=FlushSettings(age_s=3600.0)))
    first, _ = await cluster.join(), await cluster.join()
    await first.create_topic("orders", partitions=PARTITIONS, overrides={})
    names = [TopicPartition("orders", number) for number in range(PARTITIONS)]
    leaders = [await cluster.leader(name) for name in names]
    assert set(leaders) == set(cluster.agents)
    for leader, name in zip(leaders, names, strict=True):
        await cluster.done(produce(leader, batch(b"a"), name))
    await cluster.done(first.maintenance.flushing.flush("orders"))
    ends = [(await leader.open_log(name)).flushed_end for leader, name in zip(leaders, names, strict=True)]
    assert ends == [1] * PARTITIONS


async def test_a_flush_that_takes_too_long_and_a_topic_that_is_not_there_are_reported(make_world: MakeWorld) -> None:
    world = await make_world(flush=FlushSettings(age_s=3600.0), records=RecordSettings(patience_s=0.05))
    broker = await world.start_with()
    await produce(broker, batch(b"a"))
    with pytest.raises(Unavailable, match="not flushed yet"):
        await broker.maintenance.flushing.flush("orders")
    with pytest.raises(UnknownTopic):
        await broker.maintenance.flushing.flush("nothing")
