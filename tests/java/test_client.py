"""The Java client: codecs, groups whose members come and go, transactions, topic_admin."""

import re

import pytest

from tests.java.conftest import Java

ADMINISTRATION = """\
created: 2 5000
created again: TopicExistsException
listed: true
described: 3 by id true
shrunk: InvalidPartitionsException
config: 2000000 DYNAMIC_TOPIC_CONFIG 604800000 DEFAULT_CONFIG
unknown config: InvalidConfigurationException
at a time: 3
earliest: 0
latest: 10
max timestamp: 9
deleted records: 4
deleted too many: OffsetOutOfRangeException
committed: 7 why
groups: true
group: Empty
no group: GroupIdNotFoundException
forgotten offset: none
deleted group: none
nodes: 1
sizes: {0=true, 1=false, 2=false}
elected: ElectionNotNeededException
reassignments: 0
quotas: 0
producers: 1
features: 1
acls: SecurityDisabledException
transactions: none
deleted: UnknownTopicOrPartitionException
"""


TRANSACTIONS = """\
transaction.version: 2
committed: [a0, a2, a4]
committed: [b0, b2, b4]
uncommitted: [a0, a1, a2, a3, a4, a5]
offset: 3
replaced: ProducerFencedException
fenced: ProducerFencedException
late: InvalidTxnStateException
last: second
state: Empty
state: Ongoing 45000 [payments-1]
began: true
ongoing: 1
matching: 1
long: 0
producing: true
producing: false
nobody: TransactionalIdNotFoundException
hangs: false
last: described
"""


def test_every_codec_is_written_and_read_with_and_without_idempotence(kafka: Java) -> None:
    assert kafka.program("Codecs.java", "codecs") == [
        f"{codec} idempotent={idempotent} offsets=0-499 read=500"
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        for idempotent in ("true", "false")
    ]


def test_the_admin_client_is_answered(kafka: Java) -> None:
    assert kafka.program("Administration.java", "administered") == ADMINISTRATION.splitlines()


def test_transactions_are_committed_aborted_fenced_and_administered(kafka: Java) -> None:
    assert kafka.program("Transactions.java") == TRANSACTIONS.splitlines()


@pytest.mark.parametrize("assignor", ["CooperativeStickyAssignor", "RangeAssignor"])
def test_a_group_loses_nothing_while_members_come_and_go(kafka: Java, assignor: str) -> None:
    """Twice is processed at most what a member had processed and could not commit before it lost the partition."""
    name = f"org.apache.kafka.clients.consumer.{assignor}"
    (line,) = kafka.program("Groups.java", f"group-{assignor}", name, "9")
    result = re.fullmatch(r"seen=(\d+) twice=(\d+) uncommitted=(\d+) rebalances=(\d+) trouble=\[\]", line)
    assert result is not None, line
    seen, twice, uncommitted, rebalances = map(int, result.groups())
    assert seen == 6000
    assert twice <= uncommitted
    assert rebalances > 9
