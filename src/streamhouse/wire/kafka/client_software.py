"""Client software: which library a Kafka client says it is (KIP-511), and what is known of that library.

Data path   ApiVersions names it -> **client_software** -> Metadata
Owns        which libraries may be given another agent's address for the id of a departed one, and which of them keep
            the connection that they made there
Leaves      which agents departed to `cluster.departed_agents`

Kafka's Java client and librdkafka bind calls to a node id (listGroups, listTransactions, describeLogDirs: one call for
each broker) and wait for that id until the call's deadline, 60 s, although it is gone from the metadata. While the id
is listed with the address of a living agent, such a call is answered there.

librdkafka's Admin, which knows no topics, asks who is there every five minutes, and whenever it connects. While it
waits for a departed agent, the others close its connections, so that it connects and asks.

librdkafka before 2.10 takes two ids with one address for the same broker and mixes up their partitions; about other
libraries nothing is known. They get the address that the departed agent had.
"""

import re
from typing import Final, NamedTuple

JAVA: Final = "apache-kafka-java"
LIBRDKAFKA: Final = "librdkafka"
LIBRDKAFKA_SINCE: Final = (2, 10)
MAX_CHARS: Final = 100
"""Characters of a name and of a version that are kept."""

_IN_LIBRDKAFKA: Final = re.compile(r"(\d{1,4})\.(\d{1,4})")
_IN_WRAPPER: Final = re.compile(r"rdkafka-(\d{1,4})\.(\d{1,4})")


class ClientSoftware(NamedTuple):
    """Name and version as the client told them; empty for a client that told none."""

    name: str = ""
    version: str = ""

    @property
    def takes_redirects(self) -> bool:
        """Whether the id of a departed agent may be listed with the address of a living one."""
        return self.name == JAVA or self._librdkafka_version() >= LIBRDKAFKA_SINCE

    @property
    def keeps_connections(self) -> bool:
        """Whether a connection that was made for a node id stays in use when the id gets another address."""
        return self.name == JAVA

    @property
    def asks_when_it_connects(self) -> bool:
        """Whether a client that knows no topics asks who is there only every few minutes, and when it connects."""
        return self._librdkafka_version() >= LIBRDKAFKA_SINCE

    def _librdkafka_version(self) -> tuple[int, int]:
        """Wrappers of librdkafka have names of their own, and its version behind theirs."""
        result = _IN_LIBRDKAFKA.match(self.version) if self.name == LIBRDKAFKA else _IN_WRAPPER.search(self.version)
        return (int(result[1]), int(result[2])) if result else (0, 0)


UNNAMED: Final = ClientSoftware()
