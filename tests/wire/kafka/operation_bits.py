"""What Kafka answers where everybody may do everything (KIP-430): one bit for each operation that there is."""

from typing import Final

NOT_REQUESTED: Final = -(2**31)
TOPIC_OPERATIONS: Final = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
GROUP_OPERATIONS: Final = sum(1 << code for code in (3, 6, 8, 10, 11))
