"""Left out: the APIs that are knowingly not served, each with the reason.

Data path   none; docs/protocol-support.md tells it
Owns        the reasons; a test fails when an API is neither served nor listed here, or both
Leaves      what is served to `support`
"""

from collections.abc import Mapping
from typing import Final

LEFT_OUT: Final[Mapping[str, str]] = {
    name: reason
    for reason, names in {
        "nobody has to log in, so there is nothing to shake hands about": ("SaslHandshake", "SaslAuthenticate"),
        "there is no quorum of controllers: facts are in the metadata store": (
            "DescribeQuorum",
            "AddRaftVoter",
            "RemoveRaftVoter",
            "UnregisterController",
        ),
        "agents come and go by their sessions, which end by themselves": ("UnregisterBroker",),
        "the features that are offered can't be turned on or off": ("UpdateFeatures",),
        "groups are of the classic kind: with `group.protocol=consumer` Java fails and librdkafka reads nothing": (
            "ConsumerGroupHeartbeat",
        ),
        "as Kafka does where no plugin takes the clients' metrics": ("GetTelemetrySubscriptions", "PushTelemetry"),
        "no share groups": (
            "ShareGroupHeartbeat",
            "ShareGroupDescribe",
            "ShareFetch",
            "ShareAcknowledge",
            "DescribeShareGroupOffsets",
            "AlterShareGroupOffsets",
            "DeleteShareGroupOffsets",
        ),
        "groups are of the classic kind: Kafka Streams with `group.protocol=streams` fails, `classic` works": (
            "StreamsGroupHeartbeat",
            "StreamsGroupDescribe",
            "StreamsGroupTopologyDescriptionUpdate",
        ),
    }.items()
    for name in names
}
