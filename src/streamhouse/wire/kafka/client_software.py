"""Client software: the library of a Kafka client (KIP-511), and the behaviour of that library.

Data path   ApiVersions names it -> **client_software** -> Metadata
Owns        which libraries accept another agent's address for the id of a departed one, and which of them keep the
            connection opened for it
Leaves      which agents departed to `cluster.departed_agents`

Kafka's Java client and librdkafka bind calls to a node id (listGroups, listTransactions, describeLogDirs: one call for
each broker) and wait for that id until the call's deadline, 60 s, although it is gone from the metadata. While the id
is listed with the address of a live agent, that agent handles the call.

librdkafka's Admin, which knows no topics, requests metadata every five minutes, and whenever it connects. While it
waits for a departed agent, the others close its connections, so that it reconnects and refreshes its metadata.

librdkafka before 2.10 treats two ids with one address as the same broker and mixes up their partitions; other libraries
were not tested. They get the address that the departed agent had.
"""

import re
from typing import Final, NamedTuple

JAVA: Final = "apache-kafka-java"
LIBRDKAFKA: Final = "librdkafka"
LIBRDKAFKA_SINCE: Final = (2, 10)
MAX_CHARS: Final = 100
"""Maximum stored length of a name and of a version."""

_IN_LIBRDKAFKA: Final = re.compile(r"(\d{1,4})\.(\d{1,4})")
_IN_WRAPPER: Final = re.compile(r"rdkafka-(\d{1,4})\.(\d{1,4})")


class ClientSoftware(NamedTuple):
    """Name and version as sent by the client; empty if it sent none."""

    name: str = ""
    version: str = ""

    @property
    def takes_redirects(self) -> bool:
        """Whether the id of a departed agent may be listed with the address of a live one."""
        return self.name == JAVA or self._librdkafka_version() >= LIBRDKAFKA_SINCE

    @property
    def keeps_connections(self) -> bool:
        """Whether the client keeps using a connection to a node id after the id got another address."""
        return self.name == JAVA

    @property
    def asks_when_it_connects(self) -> bool:
        """Whether a client without topics refreshes its metadata only every few minutes, and when it connects."""
        return self._librdkafka_version() >= LIBRDKAFKA_SINCE

    def _librdkafka_version(self) -> tuple[int, int]:
        """librdkafka's version; its wrappers have names of their own and append its version to theirs."""
        result = _IN_LIBRDKAFKA.match(self.version) if self.name == LIBRDKAFKA else _IN_WRAPPER.search(self.version)
        return (int(result[1]), int(result[2])) if result else (0, 0)


UNNAMED: Final = ClientSoftware()
