"""Settings of quotas; the quotas themselves are set while agents run (Kafka's client quota APIs, HTTP, the CLI)."""

from typing import Annotated

from streamhouse.config.fields import Section, about


class QuotaSettings(Section, frozen=True, kw_only=True):
    enforced: Annotated[bool, about("read the quotas that were set, and make clients above them wait")] = True
    burst_s: Annotated[
        float, about("how much of a quota may be used at once after a pause: what it allows in so many seconds", gt=0)
    ] = 1.0
    max_throttle_s: Annotated[
        float, about("longest time that a client above its quota has to wait before its next request", gt=0)
    ] = 30.0
    exchange_s: Annotated[
        float, about("time between exchanges of what agents have granted, by which they share a quota", gt=0)
    ] = 1.0
    max_tracked: Annotated[
        int, about("users, client ids and addresses whose use of quotas is tracked; the longest silent go first", gt=0)
    ] = 10_000
    max_quotas: Annotated[int, about("entities with quotas that the cluster may have", gt=0)] = 10_000
